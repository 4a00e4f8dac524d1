"""What it costs to reach a target: rounds, bytes, samples and seconds, and how many runs get there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from fedskew.errors import ConfigError, RecordError, plural
from fedskew.report.compared import Compared, once
from fedskew.report.figures import words
from fedskew.report.parts import TEXTS, Section
from fedskew.report.tables import Cell, Table, amount, row, under
from fedskew.studies.targets import COSTS, Reached, Spent, TargetSummary, final_value, over_seeds, reach_all

TITLE = "Cost of a target"
SHARES = (0.5, 0.75, 0.9)  # of the best mean of a setting: the targets where none are named
OWN = 0.9  # of a run's own final value
MOST = 20  # targets
UNITS = {"rounds": 1.0, "bytes": 1e6, "samples": 1.0, "seconds": 1.0}
HEAD = ("method", "target", "reached", "stayed", "rounds", "MB", "samples", "seconds")


def checked(targets: Iterable[float]) -> tuple[float, ...]:
    """Targets in increasing order, each once.

    Raises:
        ConfigError: One is no finite number, or there are more than 20.
    """
    listed = list(targets)
    for one in listed:
        if isinstance(one, bool) or not isinstance(one, int | float) or not math.isfinite(one):
            raise ConfigError(f"targets must be finite numbers; got {one!r}")
    if len(listed) > MOST:
        raise ConfigError(f"targets must be at most {MOST}; got {len(listed)}")
    return tuple(sorted({float(one) for one in listed}))


def targets_of(text: str) -> tuple[float, ...]:
    """``0.5,0.8`` as numbers.

    Raises:
        ConfigError: One is no number, or as `checked`.

    Example:
        >>> from fedskew.report.reached import targets_of
        >>> targets_of("0.8, 0.5")
        (0.5, 0.8)
    """
    try:
        return checked(float(one) for one in text.split(","))
    except ValueError:
        raise ConfigError(f"targets must be numbers between commas, such as 0.5,0.8; got {text!r}") from None


def reached(
    found: Compared,
    settings: Sequence[str],
    methods: Sequence[str],
    targets: Sequence[float],
    left_out: tuple[str, ...],
) -> Section:
    """The section of costs until a target.

    Args:
        found: What was compared.
        settings: Those that are shown.
        methods: Those that are shown.
        targets: Values to reach; none: shares of the best mean of each setting.
        left_out: What to say of settings and methods that are not shown.

    Returns:
        The section; a sentence where the metric has no target.
    """
    metric = words(found.metric)
    if not found.higher:
        return Section("targets", TITLE, missing=f"Targets need a metric that grows, and of {metric} less is better.")
    if not any(row.get(found.metric) is not None for entry in found.entries for row in entry.run.rows):
        why = f"The rounds on record have no {metric}, so the round that reached a value is not known."
        return Section("targets", TITLE, missing=why)
    tables = [table for s in settings if (table := _table(found, s, methods, targets)) is not None]
    if not tables:
        why = "No record has the costs of all rounds, so the cost of a target cannot be computed."
        return Section("targets", TITLE, missing=why)
    text = (TEXTS["read"], " ".join([*([] if targets else [TEXTS["chosen"]]), TEXTS["end"]]), *left_out)
    return Section("targets", TITLE, text, tuple(tables))


def _chosen(found: Compared, setting: str) -> tuple[float, ...]:
    """Shares of the best mean of a setting, to two digits."""
    best = max((found.mean(method, setting) for method in found.present(setting)), default=0.0)
    return tuple(dict.fromkeys(float(f"{share * best:.2g}") for share in SHARES)) if best > 0 else ()


def _table(found: Compared, setting: str, methods: Sequence[str], targets: Sequence[float]) -> Table | None:
    wanted = tuple(targets) or _chosen(found, setting)
    shown = [method for method in found.present(setting) if method in methods]
    told, unread = dict[str, list[tuple[Reached, ...]]](), Counter[str]()
    for method in shown:
        runs = [i for i, e in enumerate(found.entries) if (e.method, e.setting) == (method, setting) and e.run.last]
        each = [_run(found, i, wanted) for i in runs]
        told[method] = [one for one in each if isinstance(one, tuple)]
        unread.update(one for one in each if isinstance(one, str))
    rows, records = [], []
    for at, target in enumerate((*wanted, None)):
        for method in (m for m in shown if told[m]):
            ends = [run[at] for run in told[method] if len(run) > at]
            if not ends:
                continue
            one = over_seeds(ends)
            rows.append(_row(method, target, one))
            records.append({"setting": setting, "method": method, "metric": found.metric, **_record(target, one)})
    if not rows:
        return None
    notes = [f"Left out: {plural(n, 'run')} whose costs cannot be added up ({reason})." for reason, n in unread.items()]
    late = max((one.unseen for runs in told.values() for run in runs for one in run), default=0)
    if late:
        notes.append(f"Not every round was evaluated: a target may have been reached {plural(late, 'round')} earlier.")
    caption = f"Cost until {words(found.metric)} reaches a target{under(setting)}"
    return Table("targets", caption, HEAD, tuple(rows), 2, tuple(records), tuple(notes))


@once
def _run(found: Compared, place: int, targets: tuple[float, ...]) -> tuple[Reached, ...] | str:
    """What a run spent until each target and, where its last rounds have a value, until its own end; or why not."""
    rows = found.entries[place].run.rows
    try:
        final = final_value(rows, found.metric)
        return reach_all(rows, [*targets, *([OWN * final] if final is not None and final > 0 else [])], found.metric)
    except RecordError as error:
        return str(error)


def _row(method: str, target: float | None, one: TargetSummary) -> tuple[Cell, ...]:
    goal = f"{100 * OWN:.0f} % of its final value" if target is None else f"{target:g}"
    cells = [_spent(getattr(one, name), one, UNITS[name], name in ("bytes", "seconds")) for name in COSTS]
    return row(method, goal, f"{one.reached} of {one.runs}", str(one.kept), *cells)


def _spent(spent: Spent, one: TargetSummary, unit: float, measured: bool) -> str:
    """As in "12 (9 to 20)", "≥ 12" and "> 50"."""
    if spent.least is None or spent.most is None:
        return f"> {amount(spent.at_least / unit, measured)}"
    mark, median = ("≥ ", spent.at_least) if spent.median is None else ("", spent.median)
    span = f" ({amount(spent.least / unit, measured)} to {amount(spent.most / unit, measured)})"
    return f"{mark}{amount(median / unit, measured)}{span if one.reached > 1 else ''}"


def _record(target: float | None, one: TargetSummary) -> dict[str, Any]:
    out: dict[str, Any] = {"target": target, "own_share": OWN if target is None else None}
    out |= {"runs": one.runs, "reached": one.reached, "stayed": one.kept}
    return out | {f"{name}_{what}": v for name in COSTS for what, v in asdict(getattr(one, name)).items()}
