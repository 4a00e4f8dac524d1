"""Each method's gain over the baseline beside the same gain under cheap controls, and one verdict from the numbers.

`fedskew.studies.verdicts` has the rule. Here it gets its numbers: of four models of each run, and of the baseline's
curve over more rounds, where a study has run it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedskew.config.recorded import Run
from fedskew.errors import plural
from fedskew.records.summary import AVERAGED, FITTED, METRICS
from fedskew.records.typed import Row
from fedskew.report.compared import Compared
from fedskew.report.tables import Table, fixed, row, titled
from fedskew.studies.scores import FEWEST, NO_VERDICT, gain_words, in_points
from fedskew.studies.verdicts import RAW, UNDONE, Interval, intervals, verdict
from fedskew.studies.work import Work, work_of

SAME = 1.01  # times the baseline's work that counts as the same
BEYOND = 1.05  # times the work of the baseline's curve for which its end still counts: steps of a round vary
BOTH = f"{AVERAGED}{FITTED}"


class Point(NamedTuple):
    """The averaged and fitted baseline after a round, and what it has taken until then."""

    round: int
    value: float
    steps: float
    contacts: float


class Worth(NamedTuple):
    """The rounds in which the baseline, averaged and fitted, has what a method has.

    Attributes:
        rounds: Its first such round; None where its curve does not reach it.
        most: Rounds of its curve.
        of: Rounds of the method.
    """

    rounds: int | None
    most: int
    of: int

    @property
    def words(self) -> str:
        """As in "83 rounds of 60" or "> 120 rounds of 60"."""
        return f"{f'> {self.most}' if self.rounds is None else self.rounds} rounds for its {self.of}"


@dataclass(frozen=True)
class Controlled:
    """A method under the controls.

    Attributes:
        method: Its label.
        of: Intervals of its gain by model, and over the baseline with as much work, "work".
        work: Of a whole run, as a multiple of the baseline's; None where it is not on record.
        worth: What its model costs the baseline; None without the baseline's curve.
        verdict: What the intervals say together.
    """

    method: str
    of: Mapping[str, Interval]
    work: Work | None
    worth: Worth | None
    verdict: str


def models_of(found: Compared) -> dict[str, str]:
    """By model, the number of the summaries that is compared; only the raw one of a metric that has no other form."""
    keys = {RAW: found.key}
    if found.metric in METRICS:
        span = found.key.partition("_")[0]
        fits = [f"{span}_{FITTED}{found.metric}", f"final_{FITTED}{found.metric}"]
        runs = [entry.run for entry in found.entries if entry.method == found.baseline]
        held = next((key for key in fits if all(math.isfinite(run.value(key)) for run in runs)), fits[-1])
        keys |= {"averaged": f"final_{AVERAGED}{found.metric}", "fitted": held, "both": f"final_{BOTH}{found.metric}"}
    return keys


@lru_cache(64)
def controlled(found: Compared, setting: str) -> tuple[Controlled, ...]:
    """The methods of a setting under the controls, without the baseline; none without averaged models on record."""
    keys, base = models_of(found), found.cells.get((found.baseline, setting), {})
    others = [method for method in found.present(setting) if method != found.baseline]
    if "both" not in keys or not found.has(setting, keys["both"]):
        return ()
    curves = {seed: curve for seed in base if (curve := _curve(found, setting, seed))}
    works = {method: _work(found, setting, method) for method in others}
    gaps: dict[str, dict[str, list[float]]] = {}
    sign = 1 if found.higher else -1
    for method in others:
        for seed, run in found.cells.get((method, setting), {}).items():
            pairs = {model: (run.value(key), base[seed].value(key)) for model, key in keys.items() if seed in base}
            work = works[method]
            if work and work.most > SAME and seed in curves and seed in base:
                pairs["work"] = run.value(keys["both"]), _at(curves[seed], run)
            for model, (own, other) in pairs.items():
                if math.isfinite(own - other):
                    gaps.setdefault(model, {}).setdefault(method, []).append(sign * (own - other))
    families = {model: intervals(each) for model, each in gaps.items()}
    made = []
    for method in others:
        of = {model: family[method] for model, family in families.items() if method in family}
        worth = _worth(found, setting, method, keys["both"], curves)
        work = works[method]
        made.append(Controlled(method, of, work, worth, verdict(of, work is None or work.most > SAME)))
    return tuple(made)


def _work(found: Compared, setting: str, method: str) -> Work | None:
    """The work of a method's runs as a multiple of the baseline's, over the seeds that both have."""
    base, own = (found.cells.get((label, setting), {}) for label in (found.baseline, method))
    pairs = [(work_of(own[seed].summary), work_of(base[seed].summary)) for seed in own if seed in base]
    known = [(a, b) for a, b in pairs if a and b]
    return Work.ratio(known) if known else None


def _curve(found: Compared, setting: str, seed: int | str) -> list[Point]:
    """Of the longest run of the baseline that has it, of this seed."""
    base = found.cells[found.baseline, setting][seed]
    longest = list[Point]()
    for (_, at), runs in found.cells.items():
        run = runs.get(seed)
        if at == setting and run and run.config.get("method") == base.config.get("method"):
            longest = max(
                longest, _points(run, f"{BOTH}{found.metric}"), key=lambda curve: curve[-1].round if curve else 0
            )
    return longest


def _points(run: Run, name: str) -> list[Point]:
    steps = contacts = 0.0
    points = []
    for each in run.rows:
        steps, contacts = steps + each.get("steps", 0), contacts + each.get("contacts", 0)
        if isinstance(each.get(name), int | float):
            points.append(Point(int(each["round"]), float(each[name]), steps, contacts))
    return points


def _at(curve: list[Point], run: Run) -> float:
    """The curve's value once the baseline has taken as many steps and contacts as a run; NaN where it ends before."""
    steps, contacts = (float(run.summary[f"total_{name}"]) for name in ("steps", "contacts"))
    last = curve[-1]
    if last.steps < steps <= BEYOND * last.steps or last.contacts < contacts <= BEYOND * last.contacts:
        return last.value
    return next((point.value for point in curve if point.steps >= steps and point.contacts >= contacts), math.nan)


def _worth(
    found: Compared, setting: str, method: str, key: str, curves: Mapping[int | str, list[Point]]
) -> Worth | None:
    """From means over the seeds that have a curve and both runs."""
    runs = {seed: run for seed, run in found.cells.get((method, setting), {}).items() if seed in curves}
    seeds = [seed for seed, run in runs.items() if math.isfinite(run.value(key))]
    if not seeds:
        return None
    tables = [{point.round: point.value for point in curves[seed]} for seed in seeds]
    numbers = set.intersection(*({*table} for table in tables))
    level, sign = float(np.mean([runs[seed].value(key) for seed in seeds])), 1 if found.higher else -1
    reached = (n for n in sorted(numbers) if sign * (float(np.mean([table[n] for table in tables])) - level) >= 0)
    base = found.cells[found.baseline, setting][seeds[0]]
    return Worth(next(reached, None), max(numbers, default=0), _rounds(base))


def _rounds(run: Run) -> int:
    return int(run.summary.get("rounds", 0))


def table(found: Compared, setting: str) -> Table | None:
    """Level of the baseline and gains of the others, of each model, with intervals; None without averaged models."""
    listed = controlled(found, setting)
    if not listed:
        return None
    keys, points = models_of(found), in_points(found.key)
    levels = [found.summary(found.baseline, setting, key).mean for key in keys.values()]
    scale, unit = (100, " %") if points else (1, "")
    told = [f"{fixed(scale * level, 1 if points else 3)}{unit}" if level is not None else "–" for level in levels]
    rows, records = [row(found.baseline, *told, "baseline")], list[Row]()
    for one in listed:
        cells = [interval_words(one.of.get(model), found.key) for model in keys]
        rows.append(row(one.method, *cells, one.verdict))
        records.append(_record(found, setting, one))
    what = f"gains over {found.baseline} in {found.metric.replace('_', ' ')}{', points' * points}"
    spans = "raw: {raw}; averaged: the mean of the last ten global models; fitted: {fit}; both: the mean model, fitted"
    fit = "the same, with fitted biases" if keys["fitted"].startswith(found.key.partition("_")[0]) else "the last model"
    notes = (spans.format(raw=found.span, fit=fit), "95 % intervals at Holm's levels over the methods of the table")
    head = ("method", *keys, "verdict")
    return Table("controls", titled(setting, what), head, tuple(rows), 1, tuple(records), notes)


def interval_words(one: Interval | None, metric: str) -> str:
    """As in "+4.2" over "[3.4, 5.0]"."""
    if one is None:
        return "–"
    low, high = (gain_words(end, metric).removeprefix("+") for end in (one.low, one.high))
    return f"{gain_words(one.mean, metric)}\n[{low}, {high}]"


def sentences(found: Compared, setting: str) -> list[str]:
    """What each method is and costs, as in "fedga: a bias; steps ×1.00, contacts ×1.00, bytes ×1.00 of fedavg"."""
    told = []
    for one in controlled(found, setting):
        work = f"{one.work.words} of {found.baseline}" if one.work else "its work is not on record"
        worth = f"; {found.baseline}, averaged and fitted, has its level after {one.worth.words}" if one.worth else ""
        seeds = min((each.pairs for each in one.of.values()), default=0)
        few = f"{plural(seeds, 'seed')}: {NO_VERDICT}: the methods need {FEWEST} common seeds"
        what = few if seeds < FEWEST else one.verdict
        told.append(f"{f'{setting}: ' if setting else ''}{one.method}: {what}; {work}{worth}.")
    return told


def _record(found: Compared, setting: str, one: Controlled) -> Row:
    """All numbers of a method, in full precision."""
    record: Row = {"setting": setting, "method": one.method, "metric": found.key, "baseline": found.baseline}
    for model in (RAW, *UNDONE):
        of = one.of.get(model)
        names = (f"{model}_gain", f"{model}_low", f"{model}_high", f"{model}_pairs")
        record |= dict(zip(names, of or (None, None, None, 0), strict=True))
    if one.work:
        record |= {f"work_{name}": value for name, value in one.work._asdict().items()}
    return {**record, "worth_rounds": one.worth and one.worth.rounds, "verdict": one.verdict}
