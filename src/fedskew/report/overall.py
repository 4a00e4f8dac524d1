"""All settings of a comparison together: aggregates, differences, probability of improvement, performance profiles."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedskew.report.compared import Compared, once
from fedskew.report.figures import listed, words
from fedskew.report.listings import gap_cells, gap_record
from fedskew.report.parts import TEXTS, Figure, Section
from fedskew.report.pictures import Chart, Line
from fedskew.report.tables import Cell, Table, fixed, row, spread
from fedskew.studies.bootstrap import FEW, NARROW
from fedskew.studies.intervals import Estimate, aggregate
from fedskew.studies.profiles import Improvement, Profile, improvement, profiles
from fedskew.studies.scores import present

TAUS = 51  # thresholds of a performance profile
MEDIAN = 3  # settings from which on their median differs from their mean
NAMES = {"mean": "mean", "iqm": "interquartile mean", "median": "median"}
FEWEST = 2  # runs of a method, over all settings, below which nothing is to be aggregated


def overall(found: Compared, methods: list[str], left_out: tuple[str, ...] = ()) -> Section:
    """The section of all settings together.

    Args:
        found: What was compared.
        methods: Those that have a line in the picture.
        left_out: What to say of those that have none.

    Returns:
        The section; without tables where each method has a single run.
    """
    title = "All settings together" if len(found.settings) > 1 else "All runs together"
    most = int(found.scores.counts.sum(axis=1).max(initial=0))
    if most < FEWEST:
        return Section("overall", title, missing=TEXTS["single"])
    parts: list[Table | Figure] = [_aggregates(found)]
    text = [TEXTS["together"].format(median=", the median too" if len(found.settings) >= MEDIAN else "")]
    if len(found.methods) > 1:
        text.append(TEXTS["over"].format(baseline=found.baseline))
        parts.append(_improvements(found))
    chart = _profiles(found, methods)
    if chart is not None:
        text.append(TEXTS["profile"].format(side=_side(found)))
        parts.append(Figure((chart,), tuple((line.label, line.place) for line in chart.lines)))
    return Section("overall", title, (*text, *left_out), tuple(parts))


def compact(found: Compared) -> Table:
    """Methods by settings in one table for a paper: mean ± half of the 95 % interval over the seeds, the best bold."""
    rows = []
    for method in found.order:
        cells: list[Cell | str] = [method]
        for setting in found.settings:
            one, best = found.summary(method, setting), found.present(setting)[:1] == [method]
            half = "" if one.low is None or one.high is None or one.mean is None else _half(one.mean, one.low, one.high)
            cells.append(Cell(f"{fixed(one.mean)}{half}", best=best))
        rows.append(row(*cells))
    caption = f"{words(found.metric).capitalize()} of each method, mean and half of the 95 % interval over the seeds"
    return Table("compact", caption, ("method", *(setting or "mean" for setting in found.settings)), tuple(rows))


def _half(mean: float, low: float, high: float) -> str:
    return f" ± {fixed(max(high - mean, mean - low))}"  # an end may be cut at 0 or 1


def _aggregates(found: Compared) -> Table:
    by = _estimates(found)
    names = {n: told for n, told in NAMES.items() if n != "median" or len(found.settings) >= MEDIAN}
    head = ["method", "runs"]
    for name in names.values():
        head += [name, "95 % interval"]
    rows, records = [], []
    for method in found.order:
        at = found.methods.index(method)
        told = {name: by[name][at] for name in names}
        cells = [method, str(told["mean"].runs)]
        record: dict[str, Any] = {
            "metric": found.key,
            "method": method,
            "settings": len(found.settings),
            "runs": told["mean"].runs,
        }
        for name, one in told.items():
            cells += [fixed(one.value), spread(one.low, one.high)]
            record |= {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}
        rows.append(row(*cells))
        records.append(record)
    over = "settings" if len(found.settings) > 1 else "runs"
    caption = f"{words(found.metric).capitalize()} over all {over}"
    return Table("overall", caption, tuple(head), tuple(rows), 1, tuple(records), _notes(by["iqm"]))


@once
def _estimates(found: Compared) -> dict[str, tuple[Estimate, ...]]:
    return {name: aggregate(found.scores, name) for name in NAMES}


@once
def _improved(found: Compared) -> dict[str, Improvement]:
    return {one.method: one for one in improvement(found.scores, found.baseline)}


@once
def _profiled(found: Compared) -> dict[str, Profile]:
    """Of each method; none where all runs have one value."""
    seen = present(found.scores.values.ravel())
    if not len(seen) or seen[0] == seen[-1]:
        return {}
    return {one.method: one for one in profiles(found.scores, np.linspace(seen[0], seen[-1], TAUS))}


def _notes(told: tuple[Estimate, ...]) -> tuple[str, ...]:
    """What the intervals are worth, each thing once."""
    notes = []
    lacking = [one.method for one in told if one.lacking]
    if lacking:
        notes.append(listed("", lacking, end=f": {TEXTS['lacking']}"))
    if any(one.fewest == 1 for one in told):
        notes.append("There is no interval if a setting has only one run.")
    if any(1 < one.fewest <= FEW for one in told):
        notes.append(NARROW)
    return tuple(notes)


def _improvements(found: Compared) -> Table:
    by = _improved(found)
    several = len(found.settings) > 1
    gaps = (f"from {found.baseline}", "its 95 % interval", "p (Holm)", "significant") if several else ()
    head = ("method", *gaps, f"P (better than {found.baseline})", "its 95 % interval", "settings")
    rows, records = [], []
    for method in found.order:
        if method == found.baseline:
            continue
        one, cells = by[method], list[Cell | str]([method])
        record: dict[str, Any] = {"metric": found.key, "method": method, "baseline": found.baseline}
        if several:
            gap = found.difference(method, None)
            cells += gap_cells(gap)
            record |= gap_record(gap)
        cells += [fixed(one.value, 3), spread(one.low, one.high), f"{one.settings} of {len(found.settings)}"]
        record |= {"improvement": one.value, "improvement_low": one.low, "improvement_high": one.high}
        rows.append(row(*cells))
        records.append(record | {"settings": one.settings, "of": len(found.settings)})
    notes = [NARROW] if any(1 < one.fewest <= FEW for one in by.values()) else []
    if any(one.low is not None and one.low == one.high for one in by.values()):
        notes.append("An interval without width means that all resamples are equal. It is not certainty.")
    caption = f"Each method against {found.baseline}{', over all settings' if several else ''}"
    return Table("improvement", caption, head, tuple(rows), 1, tuple(records), tuple(notes))


def _profiles(found: Compared, methods: list[str]) -> Chart | None:
    """Performance profiles; None where all runs have one value."""
    lines, told = [], []
    for one in (profile for method in methods if (profile := _profiled(found).get(method))):
        if not np.isfinite(one.share).all():
            continue
        method = one.method
        lines.append(Line(method, found.place(method), one.thresholds, one.share, one.low, one.high))
        half = one.thresholds[one.share >= 0.5]
        if len(half):
            told.append(f"{method}: half of its runs or more are {_side(found)} {half[-1 if found.higher else 0]:.3g}")
    if not lines:
        return None
    across, share = words(found.metric), f"share of runs {_side(found)}"
    described = listed("Shares of runs. ", told)
    return Chart("profile", "Performance profile", across, share, tuple(lines), described, from_zero=False)


def _side(found: Compared) -> str:
    return "above" if found.higher else "below"
