"""What it costs to reach a target: rounds, bytes, samples and seconds, and how many runs get there."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from fedskew.errors import ConfigError, RecordError, plural, require
from fedskew.report.compared import Compared
from fedskew.report.figures import words
from fedskew.report.tables import TEXTS, ReportTable, Section, amount, row, under
from fedskew.studies.scores import COSTS, Reached, in_points, reach_all

TITLE = "Cost of a target"
SHARES = (0.5, 0.75, 0.9)  # of the best mean of a setting: the targets where none are named
MOST = 20  # targets
UNITS = {"rounds": 1.0, "bytes": 1e6, "samples": 1.0, "seconds": 1.0}
MEASURED = ("bytes", "seconds")
HEAD = ("method", "target", "reached", "rounds", "MB", "samples", "seconds")


def checked(targets: Iterable[float]) -> tuple[float, ...]:
    """Targets in increasing order, each once.

    Raises:
        ConfigError: One is no finite number, or there are more than 20.
    """
    listed = list(targets)
    for target in listed:
        real = isinstance(target, int | float) and not isinstance(target, bool) and math.isfinite(target)
        require(real, "targets", "be finite numbers", target)
    require(len(listed) <= MOST, "targets", f"be at most {MOST}", len(listed))
    return tuple(sorted({float(target) for target in listed}))


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
        return checked(float(target) for target in text.split(","))
    except ValueError:
        raise ConfigError(f"targets must be numbers between commas, such as 0.5,0.8; got {text!r}") from None


def reached(
    compared: Compared,
    settings: Sequence[str],
    methods: Sequence[str],
    targets: Sequence[float],
    left_out: tuple[str, ...],
) -> Section:
    """The section of costs until a target.

    Args:
        compared: What was compared.
        settings: Those that are shown.
        methods: Those that are shown.
        targets: Values to reach; none: shares of the best mean of each setting.
        left_out: What to say of settings and methods that are not shown.

    Returns:
        The section; empty where the metric does not grow, or is not on record round by round.
    """
    known = any(row.get(compared.metric) is not None for entry in compared.entries for row in entry.run.rows)
    listed = settings if compared.higher and known else ()
    tables = [table for s in listed if (table := _table(compared, s, methods, targets))]
    return Section("targets", TITLE, left_out, tuple(tables))


def _chosen(compared: Compared, setting: str) -> tuple[float, ...]:
    """Shares of the best mean of a setting, to two digits."""
    best = max((compared.mean(method, setting) for method in compared.present(setting)), default=0.0)
    return tuple(dict.fromkeys(float(f"{share * best:.2g}") for share in SHARES)) if best > 0 else ()


def _table(compared: Compared, setting: str, methods: Sequence[str], targets: Sequence[float]) -> ReportTable | None:
    wanted, unread = tuple(targets) or _chosen(compared, setting), Counter[str]()
    runs: dict[str, list[tuple[Reached, ...]]] = {m: [] for m in compared.present(setting) if m in methods}
    for method, ends in runs.items():
        for run in (run for run in compared.runs(method, setting) if run.last):
            try:
                ends.append(reach_all(run.rows, wanted, compared.metric))
            except RecordError as error:
                unread[str(error)] += 1
    rows, records = [], []
    for at, target in enumerate(wanted):
        for method, reads in ((m, [ends[at] for ends in each]) for m, each in runs.items() if each):
            medians = {name: _median(reads, name) for name in COSTS}
            reached = sum(end.reached for end in reads)
            cells = [amount(medians[n] / UNITS[n], n in MEASURED) if medians[n] < math.inf else "never" for n in COSTS]
            rows.append(
                row(
                    method,
                    f"{100 * target:g} %" if in_points(compared.key) else f"{target:g}",
                    f"{reached} of {len(reads)}",
                    *cells,
                )
            )
            record = {"setting": setting, "method": method, "metric": compared.metric, "target": target}
            records.append({**record, "runs": len(reads), "reached": reached, **medians})
    notes = [TEXTS["read"], *[TEXTS["chosen"]] * (not targets)]
    notes += [
        f"Left out: {plural(n, 'run')} whose costs cannot be added up ({reason})." for reason, n in unread.items()
    ]
    caption = f"Cost until {words(compared.metric)} reaches a target{under(setting)}"
    return ReportTable("targets", caption, HEAD, tuple(rows), 2, tuple(records), tuple(notes)) if rows else None


def _median(ends: Sequence[Reached], cost: str) -> float:
    """The median of a cost over runs; infinite where half of them or more do not reach the target."""
    return float(np.median([getattr(end, cost) if end.reached else math.inf for end in ends]))
