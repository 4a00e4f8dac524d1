"""Measured federations: how skewed each one is, and what methods gained there over FedAvg."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedskew.config import variants
from fedskew.config.recorded import Run, find_runs, read_run
from fedskew.data import skew
from fedskew.errors import FedskewError, RecordError
from fedskew.plots.groups import federation_of, title_of
from fedskew.records.summary import FITTED
from fedskew.studies.differences import differences
from fedskew.studies.fitted import fitted_name
from fedskew.studies.packing import folders_of
from fedskew.studies.scores import Scores
from fedskew.studies.store import read_archives

MEASURES = {"accuracy": "mean10_accuracy", "macro_f1": "mean10_macro_f1"}  # means over the last ten rounds
WORST = "worst_recall"  # the recall of the worst class after the last round
NUMBERS = {**MEASURES, **{f"{FITTED}{name}": fitted_name(key) for name, key in MEASURES.items()}}
NUMBERS[WORST] = "final_worst_class_recall"
BASELINES = ("fedavg", "fedavg (uniform)")
KEPT = ("js_mean", "missing_rate", "quantity_gini", "classes", "clients", "size_median")  # of `skew.summary`
TRAINING = ("momentum", "weight_decay", "clip")  # of the local step, beside the pace
LISTED = re.compile(r"\[[^]]{20,}\]")  # the sizes of many clients
DAMAGED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)  # what a hostile record leads to

Describe = Callable[[Run], dict[str, float]]


class Gain(NamedTuple):
    """What a method has more than FedAvg, paired by seed."""

    mean: float
    low: float | None  # 95 % interval of Student's t over the seeds; None below two
    high: float | None
    seeds: int


class Federation(NamedTuple):
    """A measured federation."""

    name: str
    source: str
    data: str
    model: str
    fingerprint: str  # of the dataset; "": not on record
    descriptors: dict[str, float]
    baseline: str  # the weighting of FedAvg with the higher accuracy
    level: float  # its mean accuracy
    gains: dict[str, dict[str, Gain]]  # method -> number -> gain over the weighting that is better by that number


def descriptors(counts: Any, cohort: int | None = None) -> dict[str, float]:
    """What federations are compared by: numbers of `skew.summary`, and the share of clients that train in a round.

    Args:
        counts: Label histograms, [N, C].
        cohort: Clients of a round; None: not known, and the share is left out.
    """
    found = skew.summary(counts, most=2)  # none of these numbers is over pairs of clients
    told = {name: round(float(found[name]), 4) for name in KEPT}  # type: ignore[arg-type]
    return told | ({} if cohort is None else {"participation": round(cohort / told["clients"], 4)})


def packaged() -> list[Federation]:
    """The federations that come with fedskew, from scripts/make_evidence.py."""
    text = resources.files("fedskew.advice").joinpath("evidence.json").read_text(encoding="utf-8")
    plain = [Federation(**content) for content in json.loads(text)]
    return [
        f._replace(gains={m: {n: Gain(*values) for n, values in by.items()} for m, by in f.gains.items()})
        for f in plain
    ]


def read(place: str | Path) -> tuple[list[Federation], list[str]]:
    """(federations, what was left out and why) of run folders, or of archives of `fedskew study archive`.

    Args:
        place: A folder of run folders and archives (*.jsonl), one archive, or the folder of a study.

    Raises:
        RecordError: The path does not exist, or leads to no run that can be used.
    """
    path = Path(place)
    if not path.exists():
        raise RecordError(f"evidence must be a folder of runs, or an archive of them, that exists; got {str(place)!r}")
    left: list[str] = []
    found, more = measured(_runs(path, left))
    if not found:
        why = f": {(left + more)[0]}" if left + more else "; a run folder holds config.json and rounds.jsonl"
        raise RecordError(f"evidence must contain finished runs; none is usable in {str(place)!r}{why}")
    return found, left + more


def _runs(path: Path, left: list[str]) -> Iterator[tuple[str, Run]]:
    """(its file or folder, run) of each run at or below a path."""
    archives = (
        [path]
        if path.is_file()
        else [p for p in sorted(path.rglob("*.jsonl")) if not (p.parent / "config.json").exists()]
    )
    for archive in archives:
        try:
            yield from ((archive.name, run) for run in read_archives(archive) if run.state == "finished")
        except RecordError as error:
            left.append(str(error))
    try:
        folders = find_runs(folders_of([path])) if path.is_dir() else []
    except RecordError:  # archives alone
        return
    for folder in folders:
        try:
            run = read_run(folder)
            if run.summary.get("rounds", 0) < (run.config.get("rounds") or math.inf):
                left.append(f"{folder}: the run did not end")
            else:
                yield str(folder), run
        except RecordError as error:
            left.append(str(error))


def measured(runs: Iterable[tuple[str, Run]], describe: Describe | None = None) -> tuple[list[Federation], list[str]]:
    """(federations, what was left out and why). Runs that differ only in method and seed share a federation.

    Args:
        runs: (where it was read, run) of each.
        describe: Gives the descriptors of a run's split; None: `descriptors` of its label histograms.
    """
    groups: dict[str, list[tuple[str, Run]]] = {}
    found, left = [], []
    for source, run in runs:
        try:
            groups.setdefault(_shared(run), []).append((source, run))
        except DAMAGED as error:
            left.append(f"{source}: {' '.join(str(error).split())}")
    for members in groups.values():
        try:
            found.append(_federation(members, describe or _describe))
        except (FedskewError, *DAMAGED) as error:
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
    changed = {p: v for p, v in variants.changed(method).items() if not p.startswith(("pace.", "local."))}
    told = [variants.words_of(path, value) for path, value in changed.items()]
    return f"{method['name']} ({', '.join(told)})" if told else str(method["name"])


def _describe(run: Run) -> dict[str, float]:
    return descriptors(federation_of(run).counts, run.config.get("cohort"))
