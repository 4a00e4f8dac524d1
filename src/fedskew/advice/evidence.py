"""Recorded runs as evidence: which federation, how skewed, which methods, which seeds. What `fedskew.advise` reads.

A line of evidence comes from a run folder, or from a table of runs (JSON lines that hold the command). Runs that
differ in nothing but the method and the seed share a `Setting`; its descriptors are means over the seeds' splits.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedskew.config import variants
from fedskew.config.experiment import Experiment
from fedskew.config.flags import experiment_from
from fedskew.config.recorded import read_run
from fedskew.config.tables import make, method_from
from fedskew.data import skew
from fedskew.data.describe import named
from fedskew.errors import DataError, FedskewError, RecordError, plural, text_of
from fedskew.errors import from_json as parsed
from fedskew.fields import deciding, is_later
from fedskew.method import Method, method_spec
from fedskew.methods import METHODS
from fedskew.records.summary import FITTED
from fedskew.settings import SEEDS, Division
from fedskew.studies.fitted import fitted_name

__all__ = [
    "MEASURES", "Line", "Run", "Setting", "descriptors", "facts_of", "from_json", "gather", "lines", "packaged", "read",
    "to_json",
]  # fmt: skip

MEASURES = {"accuracy": "mean10_accuracy", "macro_f1": "mean10_macro_f1"}  # of the last ten rounds
KEPT = (  # of `skew.summary`: what a distance between federations is made of
    "clients", "classes", "size_median", "js_mean", "missing_rate", "quantity_gini", "imbalance_global",
)  # fmt: skip
SPLIT = deciding(Division, "split")  # what decides a split beside its seed, the data and the partition
SHARED = (*SPLIT, "cohort", "rounds")  # what runs that are compared share
HELD_TO = ("pace", "local")  # slots whose options belong to the setting: all methods of it train alike


MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)  # of a line


class Run(NamedTuple):
    """One recorded run."""

    method: str  # "fedbal", or what differs from it: "fedavg, weighting uniform"
    seed: int | str  # a string where single draws had seeds of their own
    accuracy: float  # mean over the last ten rounds, on the test set
    macro_f1: float
    worst_recall: float | None = None  # of the worst class after the last round; None: not on record
    fitted_accuracy: float | None = None  # of the fitted models; None: of before the fits
    fitted_macro_f1: float | None = None


class Setting(NamedTuple):
    """One federation under one training budget, and the runs on it."""

    name: str
    source: str
    facts: dict[str, Any]  # data, partition, model, clients, cohort, rounds, ...: what all its runs share
    descriptors: dict[str, float]
    runs: tuple[Run, ...]
    variants: dict[str, Any]  # the specification of each method that is not one of the table with its defaults
    fingerprint: str = ""  # of the dataset; "": not on record


class Line(NamedTuple):
    """A run before it is gathered: its configuration, what it reached, and where that was read."""

    config: Mapping[str, Any]
    reached: Mapping[str, Any]
    source: str


Descriptors = dict[str, float]
Describe = Callable[[Mapping[str, Any]], Descriptors]


def descriptors(counts: Any) -> Descriptors:
    """Those numbers of `skew.summary` of label histograms [N, C] that federations are compared by."""
    found = skew.summary(counts, most=2)  # none of them is over pairs of clients
    return {name: float(found[name]) for name in KEPT}  # type: ignore[arg-type]


def packaged() -> tuple[Setting, ...]:
    """The evidence that comes with fedskew: the runs of its own results, made by scripts/make_evidence.py."""
    text = resources.files("fedskew.advice").joinpath("evidence.json").read_text(encoding="utf-8")
    return from_json(json.loads(text))


def to_json(settings: Iterable[Setting]) -> list[dict[str, Any]]:
    """Settings as plain values; the inverse of `from_json`."""
    plain = [
        {**s._asdict(), "runs": [list(r if r.fitted_accuracy is not None else r[:5]) for r in s.runs]} for s in settings
    ]
    return [{k: v for k, v in s.items() if k != "fingerprint" or v} for s in plain]


def from_json(content: Iterable[Mapping[str, Any]]) -> tuple[Setting, ...]:
    """Settings of plain values."""
    return tuple(Setting(**{**s, "runs": tuple(Run(*r) for r in s["runs"])}) for s in content)


def read(path: str | Path, describe: Describe | None = None) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """(settings, what was left out and why) of the run folders and tables (*.jsonl) at or below a path.

    ``describe`` as in `gather`. Raises RecordError where the path does not exist or leads to no finished run.
    """
    place = Path(path)
    if not place.exists():
        raise RecordError(f"evidence must be a folder of runs, or a table of them, that exists; got {str(path)!r}")
    found, left = lines(place)
    settings, more = gather(found, describe)
    left += more
    if not settings:
        why = f": {left[0]}" if left else "; a run folder holds config.json and rounds.jsonl"
        raise RecordError(f"evidence must lead to finished runs; none is usable in {str(path)!r}{why}")
    return settings, tuple(left)


def lines(place: Path) -> tuple[list[Line], list[str]]:
    """Every run at or below a place."""
    tables = [place] if place.is_file() else sorted(place.rglob("*.jsonl"))
    found, left = [], []
    for table in tables:
        if table.name == "rounds.jsonl":
            some, why = _of_folder(table.parent)
        else:
            some, why = _of_table(table)
        found += some
        left += why
    return found, left


def _of_folder(folder: Path) -> tuple[list[Line], list[str]]:
    try:
        run = read_run(folder)
        if not run.rows or run.rows[-1]["round"] < run.config["rounds"] or MEASURES["accuracy"] not in run.summary:
            return [], [f"{folder}: the run did not end"]
        worst = next((row["worst_class_recall"] for row in reversed(run.rows) if "worst_class_recall" in row), None)
        return [Line(run.config, {**run.summary, "worst_class_recall": worst}, str(folder))], []
    except (FedskewError, KeyError, TypeError) as error:
        return [], [f"{folder}: {error}"]


def _of_table(table: Path) -> tuple[list[Line], list[str]]:
    """The lines of a table that hold a command and its result; a file of other lines holds none."""
    found, left = [], []
    for number, text in enumerate(text_of(table, "replace").splitlines(), 1):
        try:
            row = parsed(text)
        except ValueError:
            left.append(f"{table} line {number}: not JSON")
            continue
        if isinstance(row, dict) and "address" in row:
            found += _of_archive(row, table.name)
            continue
        if not isinstance(row, dict) or not isinstance(row.get("command"), str) or MEASURES["accuracy"] not in row:
            continue
        try:
            found.append(Line(row["config"] if "config" in row else _config_of(row["command"]), row, table.name))
        except (FedskewError, *MALFORMED) as error:
            left.append(f"{table} line {number}: {error}")
    return found, left


def _of_archive(row: Mapping[str, Any], source: str) -> list[Line]:
    """A run of an archive of `fedskew study archive`; none where it is no finished one."""
    config, reached = row.get("config"), row.get("summary")
    if not (isinstance(config, dict) and isinstance(reached, dict) and MEASURES["accuracy"] in reached):
        return []
    return [Line(config, {**reached, "worst_class_recall": reached.get("final_worst_class_recall")}, source)]


def _config_of(command: str) -> dict[str, Any]:
    """The configuration that a command makes today: its defaults are those of this version."""
    asked = experiment_from(shlex.split(command)[2:])
    return replace(asked, auxiliary=asked.rows_at_server).to_json()


def gather(lines: Iterable[Line], describe: Describe | None = None) -> tuple[tuple[Setting, ...], list[str]]:
    """(settings, what was left out and why). ``describe`` gives the descriptors of a configuration's split.

    They come from the label histograms on record (``counts``) where the configuration has them, else the split is made
    again from it.
    """
    describe = _describer() if describe is None else describe
    found: dict[str, dict[str, list[tuple[Line, str, Any]]]] = {}  # by facts, then by fingerprint of the data
    left: list[str] = []
    for line in lines:
        try:
            label, training, variant = _told(line.config["method"])
            facts = json.dumps(_facts(line.config, training), sort_keys=True)
            held = found.setdefault(facts, {})
            held.setdefault(line.config.get("fingerprint", ""), []).append((line, label, variant))
        except (FedskewError, *MALFORMED) as error:
            left.append(f"{line.source}: {error}")
    _join(found)
    settings = []
    for facts, fingerprint, members in _groups(found):
        try:
            settings.append(_setting(json.loads(facts), fingerprint, members, describe))
        except (FedskewError, *MALFORMED) as error:
            left.append(f"{members[0][0].source}: {' '.join(str(error).split())}")
    return tuple(settings), left


def _join(found: dict[str, dict[str, list[tuple[Line, str, Any]]]]) -> None:
    """Put runs of methods with a pace of their own beside those of the same data whose pace alone is another.

    Beside FedAvg at its own pace they are already: nothing in their facts parts them. A run that is there stays.
    """
    at_home: list[tuple[str, str, tuple[Line, str, Any]]] = []
    for facts, held in found.items():
        if "training" not in json.loads(facts):
            own = [
                (fp, one) for fp, members in held.items() for one in members if _has_own_pace(one[0].config["method"])
            ]
            at_home += [(facts, fp, one) for fp, one in own]
    joined = set()
    for home, held in found.items():
        told = json.loads(home)
        if not told.get("training") or any(not path.startswith("pace.") for path in told.pop("training")):
            continue
        for facts, fingerprint, one in at_home:
            if json.loads(facts) == told and fingerprint in held:
                known = {(label, str(_repetition(line.config))) for line, label, _ in held[fingerprint]}
                joined.add((facts, fingerprint))
                if (one[1], str(_repetition(one[0].config))) not in known:
                    held[fingerprint].append(one)
    for facts, fingerprint in joined:  # alone they would be a federation with nothing to compare with
        if all(_has_own_pace(line.config["method"]) for line, _, _ in found[facts][fingerprint]):
            del found[facts][fingerprint]


def _has_own_pace(spec: Mapping[str, Any]) -> bool:
    return bool(spec["pace"]["name"] != method_spec(METHODS["fedavg"]())["pace"]["name"])


def _groups(
    found: Mapping[str, dict[str, list[tuple[Line, str, Any]]]],
) -> Iterator[tuple[str, str, list[tuple[Line, str, Any]]]]:
    """(facts, fingerprint, runs). Runs whose data have no fingerprint on record go with those of the only one known."""
    for facts, held in found.items():
        known = [fingerprint for fingerprint in held if fingerprint]
        bare = held.get("", [])
        if len(known) == 1:
            yield facts, known[0], [*bare, *held[known[0]]]
        else:
            yield from ((facts, fingerprint, members) for fingerprint, members in held.items())


def _setting(
    facts: dict[str, Any], fingerprint: str, members: list[tuple[Line, str, Any]], describe: Describe
) -> Setting:
    sources = sorted({line.source for line, _, _ in members})
    splits = {_seed_of_split(line.config): line.config for line, _, _ in reversed(members)}
    seen = [describe(splits[seed]) for seed in sorted(splits)]
    runs = {(label, str(_repetition(line.config))): _run(label, line) for line, label, _ in members}
    return Setting(
        _name(facts),
        sources[0] if len(sources) == 1 else f"{sources[0]} and {len(sources) - 1} more",
        facts,
        {name: round(float(np.mean([d[name] for d in seen])), 6) for name in KEPT},
        tuple(runs[k] for k in sorted(runs)),
        {label: variant for _, label, variant in members if variant},
        fingerprint,
    )


def _seed_of_split(config: Mapping[str, Any]) -> int:
    """The seed that divided the data."""
    own = config.get("seed_partition")
    return int(config["seed"] if own is None else own)


def _repetition(config: Mapping[str, Any]) -> int | str:
    """What pairs two methods' runs: the seed, with the seeds of single draws where they were set."""
    own = [f"{name} {config[name]}" for name in SEEDS[1:] if config.get(name) is not None]
    return ", ".join([str(config["seed"]), *own]) if own else int(config["seed"])


def _run(label: str, line: Line) -> Run:
    found = {measure: line.reached[name] for measure, name in MEASURES.items()}
    found["worst_recall"] = line.reached.get("worst_class_recall")
    found |= {f"{FITTED}{measure}": line.reached.get(fitted_name(name)) for measure, name in MEASURES.items()}
    rounded: dict[str, Any] = {name: None if value is None else round(float(value), 6) for name, value in found.items()}
    return Run(label, _repetition(line.config), **rounded)


def facts_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """What all runs of a configuration's setting share: all but the method and the seed."""
    return _facts(config, _told(config["method"])[1])


def _facts(config: Mapping[str, Any], training: dict[str, Any]) -> dict[str, Any]:
    named = {**{slot: config[slot] for slot in ("data", "partition")}, "model": _network(config)}
    plain = {name: config.get(name) for name in SHARED if config.get(name) not in (None, 0)}
    if begun := config.get("init_digest"):
        training = {**training, "init": begun[:8]}
    return {**named, **plain, **({"training": training} if training else {})}


def _network(config: Mapping[str, Any]) -> dict[str, Any]:
    """The network without the head that the method itself puts into it: methods on one network are compared."""
    wanted = [part.get("projection") for part in config["method"]["parts"]]
    return {k: v for k, v in config["model"].items() if k != "projection" or v not in (None, 0, *wanted)}


def _name(facts: Mapping[str, Any]) -> str:
    """As in ``fashion_mnist, dirichlet (alpha 0.1), 100 clients, mlp, 100 rounds``."""
    told = [str(facts["data"]["name"]), named(facts["partition"]), _count(facts.get("clients", 100), "client")]
    told += [str(facts["model"]["name"]), *(_count(facts[n], "round") for n in ("rounds",) if n in facts)]
    told += [f"{name} {facts[name]:g}" for name in SPLIT[1:] if name in facts]
    told += [f"{name} {value}" for name, value in facts.get("training", {}).items()]
    return ", ".join(told)


def _count(number: int, what: str) -> str:
    """Without the comma of thousands: these names are looked up."""
    return plural(number, what).replace(",", "")


def _told(spec: Mapping[str, Any]) -> tuple[str, dict[str, Any], Any]:
    """(label, options of pace and local step that part a run from others, the specification of a variant).

    The method's own pace parts it from none. Neither does FedAvg's where the method has another: it is in the label. A
    preset parts a run from those without it, also where their paces are equal.
    """
    base = variants.plain_name(spec)
    if not base:
        return str(spec["name"]), {}, dict(spec)
    plain, common = (method_spec(METHODS[name]()) for name in (base, "fedavg"))
    changed = {path.removesuffix(".name"): value for path, value in variants.changed(spec).items()}
    before, now = ([part["name"] for part in method["parts"]] for method in (plain, spec))
    if before != now:
        changed = {"parts": ",".join(n for n in now if n != "cross_entropy") or "none", **changed}
    own = [slot for slot in HELD_TO if plain[slot]["name"] == spec[slot]["name"]]
    parting = tuple(f"{slot}." for slot in own if json.dumps(common[slot]) != json.dumps(spec[slot]))
    training = {path: changed.pop(path) for path in list(changed) if path.startswith(parting)}
    training |= {"preset": spec["preset"]} if spec.get("preset") else {}
    label = ", ".join([base, *(f"{k} {v}" for k, v in changed.items())])
    return label, training, dict(spec) if changed else None


def method_of(setting: Setting, label: str) -> Method | None:
    """The method of a label; None where it is a composition that only its author's program knows."""
    if label in METHODS:
        return METHODS[label]()
    try:
        return method_from(setting.variants[label])
    except (FedskewError, KeyError, TypeError):
        return None


def _describer() -> Describe:
    """Descriptors of a configuration's split, each split made once."""
    known: dict[str, Descriptors] = {}

    def describe(config: Mapping[str, Any]) -> Descriptors:
        names = ("data", "path", "partition", "counts", *SPLIT)
        key = json.dumps([_seed_of_split(config), *map(config.get, names)])
        if key not in known:
            known[key] = descriptors(_counts(config))
        return known[key]

    return describe


def _counts(config: Mapping[str, Any]) -> Any:
    """Label histograms [N, C]: on record, or of the split made again. Raises DataError where neither can be had."""
    if "counts" in config:
        return np.asarray(config["counts"])
    if config.get("started_by") == "python":
        raise DataError("it was started from Python and has no counts on record: its split cannot be made again")
    if config.get("own_data"):
        raise DataError("its nodes kept their rows, and it has no counts on record: its split cannot be made again")
    plain = {"path": config["path"], "seed": _seed_of_split(config)}
    unset = {f.name: f.default for f in fields(Division) if is_later(f)}  # what a record may leave out
    plain |= {name: config.get(name, unset[name]) if name in unset else config[name] for name in SPLIT}
    data, partition = make("data", config["data"]), make("partition", config["partition"])
    fed = Experiment(METHODS["fedavg"](), data=data, partition=partition, **plain).federation()
    if config.get("fingerprint", "") not in ("", fed.dataset.fingerprint):
        raise DataError(f"the data {fed.dataset.name!r} are not those of the run: its split cannot be made again")
    return fed.counts
