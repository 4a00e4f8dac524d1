"""Does Dirichlet predict reality? The study of natural and made clients, and the page of its results.

python scripts/natural.py --write   matches the made partitions to the natural ones and writes the study; needs the data
python scripts/natural.py           writes notes/natural.md's tables from results/studies/natural.jsonl
python scripts/natural.py --check   writes nothing, and exits with 1 where the page differs from the runs
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from orders import Agreement, agreement, selected  # beside this file

import fedskew as fs
from fedskew.config.recorded import Run
from fedskew.studies.differences import differences
from fedskew.studies.lines import files_of
from fedskew.studies.scores import Scores
from fedskew.studies.store import read_archives

ROOT = Path(__file__).parents[1]
STUDY = ROOT / "src/fedskew/studies/shipped/natural.toml"
ARCHIVE = ROOT / "results/studies/natural.jsonl"
PAGE = ROOT / "notes/natural.md"
MARKS = re.compile(r"(<!-- (skew|orders|gains) -->\n).*?(<!-- end -->)", re.S)
SEEDS = range(3)  # of the partitions that are matched, and of the study
METRICS = ("mean10_accuracy", "mean10_macro_f1")
MEASURES = ("js_mean", "missing_rate", "quantity_gini")
SIZED = "each client Dirichlet, as skewed and as large"
USUAL = 0.1  # the concentration that papers take most
KINDS = ("natural", "Dirichlet, as skewed", SIZED, f"Dirichlet {USUAL}")
FAR = ("fedbal", "fedgr")  # far below the others nearly everywhere, which makes orders agree


class Natural(NamedTuple):
    """A dataset with clients of its own."""

    label: str
    name: str
    options: dict[str, Any]
    column: str
    run: dict[str, Any]  # options of its runs


DATASETS = (
    Natural("Heart Disease", "heart_disease", {}, "hospital", {"model": "mlp", "cohort": 4, "rounds": 60}),
    Natural("Adult", "adult", {"exclude": "occupation"}, "occupation", {"model": "mlp", "cohort": 5, "rounds": 60}),
    Natural("FARS", "fars", {}, "client", {"model": "mlp", "cohort": 10, "rounds": 60}),
    Natural(
        "Shakespeare", "shakespeare", {"stride": 40, "least": 10}, "client",
        {"model": {"name": "char_lstm", "hidden": 32}, "cohort": 10, "rounds": 40, "eval-every": 2, "epochs": 1,
         "batch-size": 16, "lr": 1.0},
    ),
)  # fmt: skip
METHODS = (
    "fedavg", "scaffold", "feddyn", "fedadagrad", "fedntd", "fedlc", "fedga", "fedgr", "fedla", "ccvr", "fedbal",
)  # fmt: skip


HEAD = '''# Written by scripts/natural.py --write, which matches the concentrations.
title = "Does Dirichlet predict reality?"
notes = """\\
  Natural clients (hospitals, occupations, states, speakers) beside made ones: class-wise Dirichlet with the same \\
  mean Jensen-Shannon divergence to all rows; each client Dirichlet with this divergence and the natural sizes; and \\
  class-wise Dirichlet {usual}, which papers take most. Twelve methods at their defaults, 2 epochs of batch 64 at \\
  rate 0.05, but for Shakespeare: 1 epoch of batch 16 at rate 1."""
methods = [{methods}]
seeds = "{first}-{last}"
metric = "mean10_accuracy"
baseline = "fedavg"

[options]
epochs = 2
batch-size = 64
lr = 0.05
fit-logits = "tail"

[method.fedgr]
"parts.unbalanced_softmax.gamma" = "max1"

[method.fedbal]
"parts.local_balancer.strength" = 60

[method.control]
method = "fedavg"
weighting = "uniform"
'''


def _sized(alpha: float, sizes: tuple[int, ...]) -> Any:
    """Each client Dirichlet around the shares of all rows, as uniform ones would run out of the rare classes.

    Served row by row: clients served in turn leave the last ones what is left.
    """
    return fs.partitioners.DirPrior(alpha=alpha, sizes=sizes, prior="data", serve="together")


def matched(data: Any, clients: int, target: float, make: Callable[[float], Any]) -> float:
    """The concentration whose mean Jensen-Shannon divergence to all rows, over the seeds' partitions, is the target."""

    def far(alpha: float) -> float:
        found = [fs.federate(data, make(alpha), clients=clients, seed=seed) for seed in SEEDS]
        return statistics.fmean(fs.skew.summary(fed.counts)["js_mean"] for fed in found)

    low, high = math.log(1e-3), math.log(1e4)
    for _ in range(18):
        middle = (low + high) / 2
        low, high = (middle, high) if far(math.exp(middle)) > target else (low, middle)
    found = float(f"{math.exp((low + high) / 2):.3g}")
    assert abs(far(found) - target) <= 0.05 * target, f"{data.name}: {far(found)} is not {target}"
    return found


def study() -> str:
    """The study file, with the concentrations matched."""
    blocks = []
    for one in DATASETS:
        data = fs.data.load(one.name, **one.options)
        fed = fs.federate(data, fs.partitioners.Natural(column=one.column))
        sizes, js = fed.sizes.tolist(), fs.skew.summary(fed.counts)["js_mean"]
        by_class = matched(data, fed.clients, js, lambda a: fs.partitioners.Dirichlet(alpha=a, rounding="cut"))
        sized = matched(data, fed.clients, js, lambda a, s=tuple(sizes): _sized(a, s))
        listed = ",".join(map(str, sizes))
        for kind, partition in (
            ("natural", {"name": "natural", "column": one.column}),
            ("Dirichlet, as skewed", {"name": "dirichlet", "alpha": by_class, "rounding": "cut"}),
            (SIZED, {"name": "dir_prior", "alpha": sized, "sizes": listed, "prior": "data", "serve": "together"}),
            (f"Dirichlet {USUAL}", {"name": "dirichlet", "alpha": USUAL, "rounding": "cut"}),
        ):  # fmt: skip
            entries = {
                "name": f"{one.label}, {kind}",
                "data": {"name": one.name, **one.options},
                "partition": partition,
            }
            entries |= {} if kind == "natural" else {"clients": fed.clients}
            lines = [f"{key} = {_toml(value)}" for key, value in (entries | one.run).items()]
            blocks.append("[[settings]]\n" + "\n".join(lines))
    listed = ", ".join(f'"{name}"' for name in METHODS)
    head = HEAD.format(usual=USUAL, methods=listed, first=SEEDS[0], last=SEEDS[-1])
    return head + "\n" + "\n\n".join(blocks) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + "}"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def skews() -> str:
    """A table of the skew of natural clients and of the made ones of the study file: means over the seeds."""
    import tomllib

    lines = ["| clients | number | " + " | ".join(MEASURES) + " |", f"|---|---:|{'---:|' * len(MEASURES)}"]
    for setting in tomllib.loads(STUDY.read_text(encoding="utf-8"))["settings"]:
        (name, options), (kind, of) = (_split(setting[part]) for part in ("data", "partition"))
        if isinstance(of.get("sizes"), str):
            of["sizes"] = tuple(map(int, of["sizes"].split(",")))
        made = fs.data.partitioners.PARTITIONERS[kind](**of)
        data = _loaded(name, tuple(sorted(options.items())))
        found = []
        for seed in SEEDS:
            fed = fs.federate(data, made, clients=setting.get("clients"), seed=seed)
            found.append(fs.skew.summary(fed.counts))
        cells = [f"{statistics.fmean(f[m] for f in found):.3f}" for m in MEASURES]
        alpha = f" (alpha {of['alpha']:g})" if "skewed" in setting["name"] else ""
        lines.append(f"| {setting['name']}{alpha} | {found[0]['clients']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


_DATA: dict[Any, Any] = {}


def _loaded(name: str, options: tuple[tuple[str, Any], ...]) -> Any:
    if (name, options) not in _DATA:
        _DATA[name, options] = fs.data.load(name, **dict(options))
    return _DATA[name, options]


def _split(entry: Any) -> tuple[str, dict[str, Any]]:
    return (entry, {}) if isinstance(entry, str) else (entry["name"], {k: v for k, v in entry.items() if k != "name"})


def runs(archive: Path) -> list[tuple[str, str, int, dict[str, Any]]]:
    """(method, setting, seed, summary) of every run of the study in an archive, recognised by its configuration."""
    labels = {one.name: one.label for one in DATASETS}
    found = []
    for entry in read_archives(archive):
        if entry.state == "finished" and entry.config["data"]["name"] in labels:
            found.append((*_place(entry, labels), int(entry.config["seed"]), entry.summary))
    return found


def _place(entry: Run, labels: dict[str, str]) -> tuple[str, str]:
    config = entry.config
    method, partition = config["method"], config["partition"]
    name = re.sub(r"\(.*", "", method["name"])
    name = "control" if name == "fedavg" and method["weighting"]["name"] == "uniform" else name
    kind = {
        "natural": "natural",
        "dir_prior": SIZED,
        "dirichlet": f"Dirichlet {USUAL}" if partition.get("alpha") == USUAL else "Dirichlet, as skewed",
    }[partition["name"]]
    return name, f"{labels[config['data']['name']]}, {kind}"


def scores(archive: Path, metric: str) -> Scores:
    """The scores of an archive."""
    return Scores.of(((m, s, k, summary.get(metric)) for m, s, k, summary in runs(archive)), metric)


def agreements(held: Scores) -> list[Agreement]:
    """The agreement of every made partition with the natural clients of its dataset."""
    pairs = [(f"{one.label}, natural", f"{one.label}, {kind}") for one in DATASETS for kind in KINDS[1:]]
    return [agreement(held, one, other) for one, other in pairs if {one, other} <= {*held.settings}]


def orders(archive: Path) -> str:
    """The table of Kendall's tau-b with the natural clients, means over the datasets."""
    head = f"| made clients | metric | tau-b | without {' and '.join(FAR)} | natural with itself | datasets |"
    lines = [head, "|---|---|---:|---:|---:|---:|"]
    for metric in METRICS:
        held = scores(archive, metric)
        near = selected(held, methods=[name for name in held.methods if name not in FAR])
        kinds: dict[str, list[tuple[Agreement, Agreement]]] = {}
        for found, other in zip(agreements(held), agreements(near), strict=True):
            kinds.setdefault(found.other.partition(", ")[2], []).append((found, other))
        for kind, pairs in kinds.items():
            tau, near_tau = (statistics.fmean(a.tau for a in part) for part in zip(*pairs, strict=True))
            itself = statistics.fmean(a.itself for a, _ in pairs if a.itself is not None)
            lines.append(f"| {kind} | {metric} | {tau:.2f} | {near_tau:.2f} | {itself:.2f} | {len(pairs)} |")
    return "\n".join(lines) + "\n"


def gains(archive: Path) -> str:
    """Methods by datasets with their natural clients: points over FedAvg, raw and fitted."""
    shown = dict.fromkeys(("control", *METHODS[1:]), "")
    both = [scores(archive, metric) for metric in (METRICS[0], "mean10_fitted_accuracy")]
    for one in DATASETS:
        for held in both:
            for gain in differences(selected(held, settings=[f"{one.label}, natural"]), "fedavg"):
                if gain.method in shown and gain.mean is not None:
                    shown[gain.method] += f" {100 * gain.mean:+.1f} |"
    head = "| |" + "".join(f" {one.label}: raw | fitted |" for one in DATASETS)
    lines = [head, "|---|" + "---:|" * 2 * len(DATASETS), *(f"| {name} |{cells}" for name, cells in shown.items())]
    return "\n".join(lines) + "\n"


def page(text: str, archive: Path, data: bool) -> str:
    """The page with its tables made again: that of the skew where the data are at hand, the others where runs are."""

    def made(found: re.Match[str]) -> str:
        if found[2] == "skew":
            return found[1] + skews() + found[3] if data else found[0]
        if not files_of(archive)[0].is_file():
            return found[0]
        return found[1] + {"orders": orders, "gains": gains}[found[2]](archive) + found[3]

    return MARKS.sub(made, text)


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--write", action="store_true", help="match the concentrations; write the study file and the skew"
    )
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if given.write:
        STUDY.write_text(study(), encoding="utf-8")
    before = PAGE.read_text(encoding="utf-8")
    after = page(before, ARCHIVE, data=given.write)
    if given.check:
        return int(after != before)
    PAGE.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
