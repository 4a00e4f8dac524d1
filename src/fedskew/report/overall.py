"""All settings of a comparison together: aggregates and differences."""

from __future__ import annotations

from typing import Any

from fedskew.report.compared import Compared, once
from fedskew.report.figures import listed, words
from fedskew.report.listings import gap_cells, gap_record
from fedskew.report.parts import TEXTS, Section
from fedskew.report.tables import Cell, Table, fixed, row, spread
from fedskew.studies.bootstrap import FEW, NARROW
from fedskew.studies.intervals import Estimate, aggregate

MEDIAN = 3  # settings from which on their median differs from their mean
NAMES = {"mean": "mean", "iqm": "interquartile mean", "median": "median"}
FEWEST = 2  # runs of a method, over all settings, below which nothing is to be aggregated


def overall(found: Compared) -> Section:
    """The section of all settings together; without tables where each method has a single run."""
    title = "All settings together" if len(found.settings) > 1 else "All runs together"
    most = int(found.scores.counts.sum(axis=1).max(initial=0))
    if most < FEWEST:
        return Section("overall", title, missing=TEXTS["single"])
    parts = [_aggregates(found)]
    text = [TEXTS["together"].format(median=", the median too" if len(found.settings) >= MEDIAN else "")]
    if len(found.methods) > 1 and len(found.settings) > 1:
        text.append(TEXTS["over"])
        parts.append(_together(found))
    return Section("overall", title, tuple(text), tuple(parts))


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


def _together(found: Compared) -> Table:
    """Paired differences from the baseline over all settings."""
    gaps = {m: found.difference(m, None) for m in found.order if m != found.baseline}
    head = ("method", f"from {found.baseline}", "its 95 % interval", "p (Holm)", "significant", "settings")
    settings = {m: gap.settings if gap else 0 for m, gap in gaps.items()}
    rows = tuple(row(m, *gap_cells(gap), f"{settings[m]} of {len(found.settings)}") for m, gap in gaps.items())
    records = tuple(
        {"metric": found.key, "method": m, "baseline": found.baseline, **gap_record(gap), "settings": settings[m]}
        for m, gap in gaps.items()
    )
    return Table("together", f"Each method against {found.baseline}, over all settings", head, rows, 1, records)
