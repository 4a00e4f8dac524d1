"""Each method's gain over the baseline beside the same gain under cheap controls, and one verdict from the numbers.

`fedskew.studies.verdicts` has the rule. Here it gets its numbers: of four models of each run, and of the baseline's
curve over more rounds, where a study has run it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from statistics import fmean
from typing import NamedTuple

import numpy as np

from fedskew.config.recorded import Run
from fedskew.records.summary import AVERAGED, FITTED, span_words
from fedskew.records.typed import Row
from fedskew.report.compared import Compared, gaps
from fedskew.report.tables import TEXTS, ReportTable, fixed, row
from fedskew.studies.verdicts import RAW, UNDONE, Interval, intervals, verdict
from fedskew.studies.work import SAME, Work, work_of

BEYOND = 1.05  # times a work that still counts as the same: steps of a round vary
BOTH = f"{AVERAGED}{FITTED}"


class Point(NamedTuple):
    """The averaged and fitted baseline after a round, and what it has taken until then."""

    round: int
    value: float
    steps: float
    contacts: float


class Worth(NamedTuple):
    """The rounds after which the baseline, averaged and fitted, has what a method has, averaged and fitted.

    Attributes:
        rounds: Its first such round; infinite where its curve does not reach it.
        most: Rounds of its curve.
    """

    rounds: float
    most: int

    @property
    def words(self) -> str:
        """As in "83" or "> 120"."""
        return f"{self.rounds}" if math.isfinite(self.rounds) else f"> {self.most}"


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


@lru_cache(64)
def models_of(compared: Compared) -> dict[str, str]:
    """By model, the number of the summaries that is judged, where runs have it: that of the raw model first.

    They are the same whichever of these numbers is compared.
    """
    span, metric = compared.key.partition("_")[0], _round_metric(compared)
    candidates = [f"{span}_{FITTED}{metric}", f"final_{FITTED}{metric}"]
    runs = [entry.run for entry in compared.entries if entry.method == compared.baseline]
    fitted = next((key for key in candidates if all(math.isfinite(run.value(key)) for run in runs)), candidates[-1])
    keys = {"averaged": f"final_{AVERAGED}{metric}", "fitted": fitted, "both": f"final_{BOTH}{metric}"}
    known = {model: key for model, key in keys.items() if any(compared.has(at, key) for at in compared.settings)}
    return {RAW: f"{span}_{metric}"} | known


def _round_metric(compared: Compared) -> str:
    """The metric of a round, of the model as it is trained."""
    return compared.key.partition("_")[2].removeprefix(AVERAGED).removeprefix(FITTED)


def model_of(compared: Compared) -> str:
    """The model whose numbers are compared."""
    return next((model for model, key in models_of(compared).items() if key == compared.key), RAW)


@lru_cache(64)
def controlled(compared: Compared, setting: str | None) -> tuple[Controlled, ...]:
    """The methods of a setting under the controls that are on record, without the baseline, the best first.

    Without a setting it is over all of them: a seed counts with its mean over the settings.
    """
    settings, of_all = (
        (compared.settings, compared.order) if setting is None else ((setting,), compared.present(setting))
    )
    settings_of = {m: [s for s in settings if (m, s) in compared.cells] for m in of_all if m != compared.baseline}
    works = {method: [_work(compared, at, method) for at in each] for method, each in settings_of.items()}
    dear = {method for method, each in works.items() if any(work is None or work.dear for work in each)}
    matched, short = dict[str, list[float]](), set[str]()
    for method in dear:
        each = [_matched(compared, at, method) for at in settings_of[method]]
        seeds = set.intersection(*(set(gains) for gains, _ in each))
        matched[method] = [fmean(gains[seed] for gains, _ in each) for seed in seeds]
        short |= set() if all(whole for _, whole in each) else {method}
    over, controls = intervals(matched), []
    # a baseline that has taken less work undoes a gain all the more; it cannot show that one stays
    over = {method: gain for method, gain in over.items() if method not in short or gain.undone}
    for method in settings_of:
        of = _gains(compared, setting, method) | ({"work": over[method]} if method in over else {})
        work, worth = (works[method][0], _worth(compared, setting, method)) if setting is not None else (None, None)
        controls.append(Controlled(method, of, work, worth, verdict(of, method in dear)))
    return tuple(controls)


def _gains(compared: Compared, setting: str | None, method: str) -> dict[str, Interval]:
    """The intervals of a method's gain by model; over all settings without one."""
    gains = {model: gaps(compared, key)[method, setting].gain for model, key in models_of(compared).items()}
    return {model: gain for model, gain in gains.items() if gain.pairs}


def _matched(compared: Compared, setting: str, method: str) -> tuple[dict[int | str, float], bool]:
    """By seed, a method's gain, averaged and fitted, over the baseline so treated with as much work; did it reach that?

    Of a method that takes no more it is the gain over the baseline itself.
    """
    key, base = models_of(compared).get("both", ""), compared.cells.get((compared.baseline, setting), {})
    work, gains, whole = _work(compared, setting, method), dict[int | str, float](), True
    for seed, run in compared.cells[method, setting].items():
        if work is not None and seed in base:
            other = base[seed].value(key)
            if work.dear:
                other, reached = at_work(_curve(compared, setting, seed), run)
                whole = whole and reached
            gains[seed] = (run.value(key) - other) * (1 if compared.higher else -1)
    return {seed: gain for seed, gain in gains.items() if math.isfinite(gain)}, whole


def _work(compared: Compared, setting: str, method: str) -> Work | None:
    """The work of a method's runs as a multiple of the baseline's, over the seeds that both have."""
    base, runs = (compared.cells.get((label, setting), {}) for label in (compared.baseline, method))
    pairs = [(work_of(runs[seed].summary), work_of(base[seed].summary)) for seed in runs if seed in base]
    known = [(a, b) for a, b in pairs if a and b]
    return Work.ratio(known) if known else None


@lru_cache(1024)
def _curve(compared: Compared, setting: str, seed: int | str) -> list[Point]:
    """Of the longest run of the baseline that has it, of this seed."""
    base = compared.cells[compared.baseline, setting][seed]
    longest = list[Point]()
    for (_, at), runs in compared.cells.items():
        run = runs.get(seed)
        if at == setting and run and run.config.get("method") == base.config.get("method"):
            curve = curve_of(run, f"{BOTH}{_round_metric(compared)}")
            longest = max(longest, curve, key=lambda points: points[-1].round if points else 0)
    return longest


def curve_of(run: Run, name: str) -> list[Point]:
    """A number of a run's rounds, with what the run has taken until then."""
    steps = contacts = 0.0
    points = []
    for each in run.rows:
        steps, contacts = steps + each.get("steps", 0), contacts + each.get("contacts", 0)
        if isinstance(each.get(name), int | float):
            points.append(Point(int(each["round"]), float(each[name]), steps, contacts))
    return points


def at_work(curve: Sequence[Point], run: Run) -> tuple[float, bool]:
    """(the curve's value once the baseline has taken as many steps and contacts as a run, True).

    A curve that ends before gives (its last value with no more of either, False); NaN where there is none.
    """
    steps, contacts = (run.value(f"total_{name}") for name in ("steps", "contacts"))
    reached = next((point for point in curve if point.steps >= steps and point.contacts >= contacts), None)
    if reached:
        return reached.value, True
    below = [p for p in curve if p.steps <= BEYOND * steps and p.contacts <= BEYOND * contacts]
    last = below[-1] if below else None
    whole = last is not None and BEYOND * last.steps >= steps and BEYOND * last.contacts >= contacts
    return (last.value if last else math.nan), whole


def _worth(compared: Compared, setting: str, method: str) -> Worth | None:
    """From means over the seeds that have a curve and both runs."""
    key, base = models_of(compared).get("both", ""), compared.cells.get((compared.baseline, setting), {})
    runs = compared.cells.get((method, setting), {})
    curves = {seed: curve for seed in base if (curve := _curve(compared, setting, seed))}
    seeds = [seed for seed, run in runs.items() if seed in curves and math.isfinite(run.value(key))]
    if not seeds:
        return None
    tables = [{point.round: point.value for point in curves[seed]} for seed in seeds]
    numbers = set.intersection(*({*table} for table in tables))
    level, sign = float(np.mean([runs[seed].value(key) for seed in seeds])), 1 if compared.higher else -1
    reached = (n for n in sorted(numbers) if sign * (float(np.mean([table[n] for table in tables])) - level) >= 0)
    return Worth(next(reached, math.inf), max(numbers, default=0))


def model_words(compared: Compared, model: str) -> str:
    """Which model it is."""
    span = compared.key.partition("_")[0]
    same = models_of(compared).get("fitted", "").startswith(span)
    return {
        RAW: span_words(models_of(compared)[RAW], chain.from_iterable(compared.tails.values())),
        "averaged": "the mean of the last ten global models",
        "fitted": "the same, with fitted biases" if same else "the last model, with fitted biases",
        "both": "the mean model, fitted",
        "work": f"both, over {compared.baseline} with as much work",
    }[model]


def work(compared: Compared, computed: Mapping[str, str] | None = None) -> ReportTable | None:
    """What whole runs take of the clients, as a multiple of the baseline's, and what the methods are worth in rounds.

    Args:
        compared: What was compared.
        computed: What a step of a method computes beside its gradient, in words.

    Returns:
        A line for each method, over all settings; None where all work is the same and no method's worth is known.
    """
    by: dict[str, list[Controlled]] = {}
    for control in chain.from_iterable(controlled(compared, setting) for setting in compared.settings):
        by.setdefault(control.method, []).append(control)
    works = {method: [control.work for control in each if control.work] for method, each in by.items()}
    worths = {method: [control.worth for control in each if control.worth] for method, each in by.items()}
    notes = [f"{method}: {computation}." for method, computation in (computed or {}).items() if computation]
    differ = any(abs(ratio - 1) >= SAME - 1 for each in works.values() for ratios in each for ratio in ratios)
    if not (differ or notes or any(worths.values())):
        return None
    rows = []
    for method, each in works.items():
        cells = [_span([times(ratios[i]) for ratios in sorted(each, key=itemgetter(i))]) for i in range(3)]
        rows.append([method, *cells, _span([worth.words for worth in sorted(worths[method])])])
    known = any(worths.values())
    notes += [TEXTS["worth"].format(baseline=compared.baseline)] * known
    head = ["method", *Work._fields, "worth"]
    shown = [row(*cells) if known else row(*cells[:-1]) for cells in rows]
    caption = f"Work of whole runs, as a multiple of {compared.baseline}'s"
    return ReportTable("work", caption, tuple(head if known else head[:-1]), tuple(shown), 1, notes=tuple(notes))


def times(ratio: float) -> str:
    """As in "×1.07"; a dash where it is not known."""
    return f"×{fixed(ratio, 2)}" if math.isfinite(ratio) else "–"


def _span(texts: Sequence[str]) -> str:
    """As in "×1.00", or "×1.00 to ×2.03" where settings differ."""
    return f"{texts[0]} to {texts[-1]}" if texts and texts[0] != texts[-1] else (*texts, "–")[0]


def record_of(control: Controlled) -> Row:
    """All numbers of a method, in full precision."""
    record: Row = {}
    for model in (RAW, *UNDONE):
        of = control.of.get(model)
        names = (f"{model}_gain", f"{model}_low", f"{model}_high", f"{model}_pairs")
        record |= dict(zip(names, of or (None, None, None, 0), strict=True))
    if control.work:
        record |= {f"work_{name}": value for name, value in control.work._asdict().items()}
    return {**record, "worth_rounds": control.worth.rounds if control.worth else None, "verdict": control.verdict}
