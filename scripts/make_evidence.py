"""The evidence that `fedskew advise` brings along, from the studies in results/studies. No number is written by hand.

python scripts/make_evidence.py            writes fedskew/advice/evidence.json; reads the data of the runs to split them
python scripts/make_evidence.py --check    exits with 1 where the file is not what the results make
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedskew.advice.evidence import MEASURES, WORST, Federation, Gain, descriptors
from fedskew.config import recorded
from fedskew.config.recorded import Run
from fedskew.errors import FedskewError, RecordError
from fedskew.plots.groups import federation_of, title_of
from fedskew.records.summary import FITTED
from fedskew.studies.differences import differences
from fedskew.studies.fitted import fitted_name
from fedskew.studies.scores import Scores
from fedskew.studies.store import read_archives

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "src/fedskew/advice/evidence.json"
STUDIES = ("federations", "five-systems", "natural")  # at one pace, with fits, three seeds or more
NUMBERS = {**MEASURES, **{f"{FITTED}{name}": fitted_name(key) for name, key in MEASURES.items()}}
NUMBERS[WORST] = "final_worst_class_recall"
BASELINES = ("fedavg", "fedavg (uniform)")
TRAINING = ("momentum", "weight_decay", "clip")  # of the local step, beside the pace
LISTED = re.compile(r"\[[^]]{20,}\]")  # the sizes of many clients

Describe = Callable[[Run], dict[str, float]]


def made(describe: Describe | None = None) -> str:
    """The file's content: the federations with FedAvg trained as long as the other methods. Says what is left out."""
    known: dict[str, dict[str, float]] = {}

    def once(run: Run) -> dict[str, float]:
        split = {name: v for name, v in run.settings.items() if not name.startswith(("method.", "model."))}
        key = json.dumps([split, run.seeds])
        return known.setdefault(key, (describe or _describe)(run)) if key not in known else known[key]

    listed: list[dict[str, Any]] = []
    for study in STUDIES:
        file = ROOT / f"results/studies/{study}.jsonl"
        entries = [e for e in read_archives(file) if e.state == "finished"]
        runs = [(study, run) for run in entries]
        found, left = measured(runs, once)
        listed += [federation._asdict() for federation in sorted(found)]
        for told in left:
            print(f"left out, {told}", file=sys.stderr)
    return "[\n" + ",\n".join(json.dumps(one, separators=(",", ":")) for one in listed) + "\n]\n"


def measured(runs: Iterable[tuple[str, Run]], describe: Describe | None = None) -> tuple[list[Federation], list[str]]:
    """(federations, what was left out and why). Runs that differ only in method and seed share a federation.

    Args:
        runs: (where it was read, run) of each.
        describe: Gives the descriptors of a run's split; None: `descriptors` of its label histograms.
    """
    groups: dict[str, list[tuple[str, Run]]] = {}
    found, left = [], []
    for source, run in runs:
        groups.setdefault(_shared(run), []).append((source, run))
    for members in groups.values():
        try:
            found.append(_federation(members, describe or _describe))
        except FedskewError as error:
            left.append(f"{members[0][0]}: {' '.join(str(error).split())}")
    return found, left


def _shared(run: Run) -> str:
    """What runs that are compared have in common: all but the method and the seed, and how long they train."""
    method = run.config["method"]
    settings = {path: v for path, v in run.settings.items() if not path.startswith(("method.", "model.projection"))}
    local = {name: method["local"].get(name) for name in TRAINING}
    return json.dumps([settings, method["pace"], local, method.get("preset", "")], sort_keys=True)


def _federation(members: Sequence[tuple[str, Run]], describe: Describe) -> Federation:
    scores: dict[str, dict[Any, Run]] = {}
    for _, run in members:
        if run.serves == "own":  # the numbers are of a global model that nobody uses
            continue
        scores.setdefault(_label(run.config["method"]), {})[run.seeds] = run
    baselines = [name for name in BASELINES if name in scores]
    first = members[0][1]
    if not baselines:
        raise RecordError(
            f"no run of FedAvg to compare {next(iter(scores), first.label)!r} with on {title_of([first])!r}"
        )
    splits = {run.config.get("seed_partition", run.config.get("seed")): run for _, run in members}
    seen = [describe(run) for run in splits.values()]
    baseline, level, _ = _gains(scores, baselines, MEASURES["accuracy"])
    gains: dict[str, dict[str, Gain]] = {}
    for name, key in NUMBERS.items():
        for method, gain in _gains(scores, [baseline] if name == WORST else baselines, key)[2].items():
            gains.setdefault(method, {})[name] = gain
    where = sorted({source for source, _ in members})
    rest = [f"{first.config['rounds']} rounds"]
    rest += [f"{name} {first.config[name]:g}" for name in ("auxiliary", "validation") if first.config.get(name)]
    return Federation(
        LISTED.sub("[...]", ", ".join([title_of([run for _, run in members]), *rest])),
        where[0] if len(where) == 1 else f"{where[0]} and {len(where) - 1} more",
        first.config["data"]["name"],
        first.config["model"]["name"],
        first.config.get("fingerprint", ""),
        {name: round(float(np.mean([d[name] for d in seen])), 4) for name in seen[0]},
        baseline,
        level,
        _gains(scores, baselines, NUMBERS[f"{FITTED}accuracy"])[1] or None,
        dict(sorted(gains.items())),
    )


def _gains(scores: dict[str, dict[Any, Run]], baselines: Sequence[str], key: str) -> tuple[str, float, dict[str, Gain]]:
    """(the better baseline, its mean, gains over it) by a number of the summaries; no gain where it has none."""
    seeds = {seeds: i for i, seeds in enumerate(sorted({s for by in scores.values() for s in by}))}
    runs = [(m, "all", seeds[s], run.summary.get(key)) for m, by in scores.items() for s, run in by.items()]
    found = Scores.of(runs, key)
    means = {b: float(np.mean(values)) for b in baselines if len(values := found.of_method(b)[0])}
    if not means:
        return "", 0.0, {}
    baseline = max(means, key=lambda b: means[b])
    whole = len(found.of_method(baseline)[0])  # a method that failed under a seed is not judged by the others
    told = {d.method: d for d in differences(found, baseline) if d.method not in BASELINES and d.pairs == whole}
    return baseline, round(means[baseline], 4), {m: _gain(d.mean, d.low, d.high, d.pairs) for m, d in told.items()}


def _gain(mean: float | None, low: float | None, high: float | None, seeds: int) -> Gain:
    ends = [None if end is None else round(end, 4) for end in (low, high)]
    return Gain(round(mean or 0.0, 4), ends[0], ends[1], seeds)


def _label(method: dict[str, Any]) -> str:
    """The method's name with what differs from the one of the table, beside its training."""
    changed = {p: v for p, v in recorded.changed(method).items() if not p.startswith(("pace.", "local."))}
    told = [recorded.words_of(path, value) for path, value in changed.items()]
    return f"{method['name']} ({', '.join(told)})" if told else str(method["name"])


def _describe(run: Run) -> dict[str, float]:
    return descriptors(federation_of(run).counts, run.config.get("cohort"))


if __name__ == "__main__":
    content = made()
    if "--check" in sys.argv[1:]:
        sys.exit(TARGET.read_text(encoding="utf-8") != content)
    TARGET.write_text(content, encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)}: {len(content):,} characters, {content.count('source')} federations")
