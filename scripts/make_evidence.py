"""The evidence that `fedskew advise` brings along, from the studies in results/studies. No number is written by hand.

It writes fedskew/advice/evidence.json, and reads the data of the runs to split them: FARS needs the extra keel.
tests/advice/test_adviser.py holds the file against the runs.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedskew.advice.evidence import LONGER, MEASURES, MODELS, WORST, Gain, Measured, descriptors
from fedskew.config import recorded
from fedskew.config.recorded import Run
from fedskew.errors import FedskewError, RecordError
from fedskew.plots.groups import federation_of, title_of
from fedskew.records.summary import FITTED, fitted_name
from fedskew.report.controls import at_work, curve_of
from fedskew.studies.differences import differences
from fedskew.studies.scores import Scores
from fedskew.studies.store import read_archives
from fedskew.studies.verdicts import RAW, intervals
from fedskew.studies.work import Work, work_of

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "src/fedskew/advice/evidence.json"
STUDIES = ("federations", "five-systems", "natural")  # at one pace, with fits, three seeds or more
BOTH = f"{MODELS['both']}accuracy"  # of FedAvg's curve, by which work is matched
BASELINES = ("fedavg", "fedavg (uniform)")
TRAINING = ("momentum", "weight_decay", "clip")  # of the local step, beside the pace
LISTED = re.compile(r"\[[^]]{20,}\]")  # the sizes of many clients

Runs = dict[str, dict[Any, Run]]  # by method and seeds
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
        runs = read_archives(ROOT / f"results/studies/{study}.jsonl")
        found, left = measured([(study, run) for run in runs if run.state == "finished"], once)
        listed += [federation._asdict() for federation in sorted(found)]
        for told in left:
            print(f"left out, {told}", file=sys.stderr)
    return "[\n" + ",\n".join(json.dumps(one, separators=(",", ":")) for one in listed) + "\n]\n"


def measured(runs: Iterable[tuple[str, Run]], describe: Describe | None = None) -> tuple[list[Measured], list[str]]:
    """(federations, what was left out and why). Runs that differ only in method and seed share a federation.

    FedAvg trained for more rounds, with its averaged and fitted model in every evaluation, is no federation of its
    own, but the control of more work of the one that it differs from in its rounds alone.

    Args:
        runs: (where it was read, run) of each.
        describe: Gives the descriptors of a run's split; None: `descriptors` of its label histograms.
    """
    groups: dict[str, list[tuple[str, Run]]] = {}
    longer: dict[str, Runs] = {}
    found, left = [], []
    for source, run in runs:
        groups.setdefault(_shared(run), []).append((source, run))
        if (name := _label(run.config["method"])) in BASELINES and curve_of(run, BOTH):
            longer.setdefault(_shared(run, ("rounds",)), {}).setdefault(name, {})[run.seeds] = run
    for members in groups.values():
        run = members[0][1]
        more = {
            name: {s: one for s, one in by.items() if one.config["rounds"] > run.config["rounds"]}
            for name, by in longer.get(_shared(run, ("rounds",)), {}).items()
        }
        alone = {_label(one.config["method"]) for _, one in members} <= {*BASELINES}
        if alone and not any(more.values()) and curve_of(run, BOTH):
            continue
        try:
            found.append(_federation(members, describe or _describe, more))
        except FedskewError as error:
            left.append(f"{members[0][0]}: {' '.join(str(error).split())}")
    return found, left


def _shared(run: Run, without: Sequence[str] = ()) -> str:
    """What runs that are compared have in common: all but the method and the seed, and how long they train."""
    method = run.config["method"]
    settings = {path: v for path, v in run.settings.items() if not path.startswith(("method.", "model.projection"))}
    settings = {path: v for path, v in settings.items() if path not in without}
    local = {name: method["local"].get(name) for name in TRAINING}
    return json.dumps([settings, method["pace"], local, method.get("preset", "")], sort_keys=True)


def _federation(members: Sequence[tuple[str, Run]], describe: Describe, more: Runs) -> Measured:
    scores: Runs = {}
    for run in [run for _, run in members if run.serves != "own"]:  # that has a global model which nobody uses
        scores.setdefault(_label(run.config["method"]), {})[run.seeds] = run
    baselines = [name for name in BASELINES if name in scores]
    first = members[0][1]
    if not baselines:
        named = next(iter(scores), first.label)
        raise RecordError(f"no run of FedAvg to compare {named!r} with on {title_of([first])!r}")
    splits = {run.config.get("seed_partition", run.config.get("seed")): run for _, run in members}
    seen = [describe(run) for run in splits.values()]
    baseline, level, _ = _gains(scores, baselines, MEASURES["accuracy"])
    # of the other weighting where the better one was not trained for more rounds: averaged and fitted they are alike
    longer = next(filter(None, [more.get(baseline), *more.values()]), {})
    works = _works(scores, baseline, longer)
    gains: dict[str, dict[str, Gain]] = {}
    for name, key in _numbers(scores, baselines).items():
        for method, gain in _gains(scores, [baseline] if name == WORST else baselines, key)[2].items():
            gains.setdefault(method, {})[name] = gain
    for method, gain in _matched(scores, works, longer).items():
        gains.setdefault(method, {})[f"{MODELS['work']}accuracy"] = gain
    where = sorted({source for source, _ in members})
    rest = [f"{first.config['rounds']} rounds"]
    rest += [f"{name} {first.config[name]:g}" for name in ("auxiliary", "validation") if first.config.get(name)]
    fits = [run.summary["final_fit"]["prior"]["exchanges"] for run in scores[baseline].values() if _has_fit(run)]
    return Measured(
        LISTED.sub("[...]", ", ".join([title_of([run for _, run in members]), *rest])),
        where[0] if len(where) == 1 else f"{where[0]} and {len(where) - 1} more",
        first.config["data"]["name"],
        first.config["model"]["name"],
        first.config.get("fingerprint", ""),
        {name: round(float(np.mean([d[name] for d in seen])), 4) for name in seen[0]},
        baseline,
        level,
        _of_fedavg(scores, baselines, longer),
        dict(sorted(gains.items())),
        {m: [None if math.isnan(x) else round(x, 2) for x in work] for m, work in sorted(works.items())},
        round(float(np.mean(fits)), 1) if fits else None,
    )


def _has_fit(run: Run) -> bool:
    return "prior" in run.summary.get("final_fit", {})


def _numbers(scores: Runs, baselines: Sequence[str]) -> dict[str, str]:
    """By number of the evidence, the one of the summaries: of a fit, that of the same rounds where it is on record."""
    base = [run for name in baselines for run in scores[name].values()]
    found = {WORST: "final_worst_class_recall"}
    for measure, key in MEASURES.items():
        whole = all(math.isfinite(run.value(fitted_name(key))) for run in base)
        keys = {RAW: key, "fitted": fitted_name(key) if whole else f"final_{FITTED}{measure}"}
        keys |= {name: f"final_{MODELS[name]}{measure}" for name in ("averaged", "both")}
        found |= {f"{MODELS[name]}{measure}": key for name, key in keys.items()}
    return found


def _of_fedavg(scores: Runs, baselines: Sequence[str], longer: dict[Any, Run]) -> dict[str, Gain]:
    """What FedAvg's other models have more than its raw one, each of the better weighting, and the longer trained."""
    found: dict[str, Gain] = {}
    keys = _numbers(scores, baselines)
    for measure in MEASURES:
        raw = scores[_gains(scores, baselines, keys[measure])[0]]
        others = {f"{MODELS[name]}{measure}": name for name in MODELS if name not in (RAW, "work")}
        values = {}
        for number in others:
            best = _gains(scores, baselines, keys[number])[0]
            values[number] = _gaps(scores.get(best, {}), keys[number], raw, keys[measure])
        values[f"{MODELS['work']}{measure}"] = _gaps(longer, keys[f"{MODELS['both']}{measure}"], raw, keys[measure])
        found |= _held(values)
    return found


def _gaps(own: dict[Any, Run], key: str, base: dict[Any, Run], plain: str) -> list[float]:
    gaps = [run.value(key) - base[seeds].value(plain) for seeds, run in own.items() if seeds in base]
    return [gap for gap in gaps if math.isfinite(gap)]


def _held(values: dict[str, list[float]]) -> dict[str, Gain]:
    """Gains at Holm's levels over these; of one pair, its value alone."""
    spans = intervals(values)
    ends = {name: (spans[name].low, spans[name].high) if name in spans else (None, None) for name in values}
    return {name: _gain(float(np.mean(each)), *ends[name], len(each)) for name, each in values.items() if each}


def _works(scores: Runs, baseline: str, longer: dict[Any, Run]) -> dict[str, Work]:
    """The work of each method as a multiple of the baseline's, as far as it is on record."""
    base = {seeds: work_of(run.summary) for seeds, run in scores[baseline].items()}
    found = {}
    for name, runs in {**{m: by for m, by in scores.items() if m not in BASELINES}, LONGER: longer}.items():
        pairs = [(own, other) for s, run in runs.items() if (own := work_of(run.summary)) and (other := base.get(s))]
        found |= {name: Work.ratio(pairs)} if pairs else {}
    return found


def _matched(scores: Runs, works: dict[str, Work], longer: dict[Any, Run]) -> dict[str, Gain]:
    """What dear methods, averaged and fitted, have more than FedAvg, averaged and fitted, with as much work."""
    curves = {seeds: curve_of(run, BOTH) for seeds, run in longer.items()}
    values = {
        method: [
            gap for seeds, run in by.items() if seeds in curves for value, whole in [at_work(curves[seeds], run)]
            if whole and math.isfinite(gap := run.value(f"final_{BOTH}") - value)
        ]
        for method, by in scores.items() if method not in BASELINES and (method not in works or works[method].dear)
    }  # fmt: skip
    return _held(values)


def _gains(scores: Runs, baselines: Sequence[str], key: str) -> tuple[str, float, dict[str, Gain]]:
    """(the better baseline, its mean, gains over it) by a number of the summaries; no gain where it has none."""
    seeds = {seeds: i for i, seeds in enumerate(sorted({s for by in scores.values() for s in by}))}
    runs = [(m, "all", seeds[s], run.summary.get(key)) for m, by in scores.items() for s, run in by.items()]
    found = Scores.of(runs, key)
    means = {b: float(np.mean(values)) for b in baselines if len(values := found.of_method(b)[0])}
    if not means:
        return "", 0.0, {}
    baseline = max(means, key=lambda b: means[b])
    whole = len(found.of_method(baseline)[0])  # a method that failed under a seed is not judged by the others
    held = {d.method: d for d in differences(found, baseline) if d.method not in BASELINES and d.pairs == whole}
    gains = _held({method: list(d.values) for method, d in held.items()})
    return baseline, round(means[baseline], 4), gains


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
    TARGET.write_text(content, encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)}: {len(content):,} characters, {content.count('source')} federations")
