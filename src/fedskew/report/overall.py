"""All settings of a comparison together: one table for a paper, and differences from the baseline."""

from fedskew.report.compared import Compared
from fedskew.report.figures import words
from fedskew.report.listings import gap_cells, gap_record
from fedskew.report.parts import TEXTS, Section
from fedskew.report.tables import Cell, Table, fixed, row


def overall(found: Compared) -> Section:
    """The section of all settings together; left out with one method or one setting."""
    several = len(found.methods) > 1 and len(found.settings) > 1
    return Section("overall", "All settings together", (TEXTS["over"],), (_together(found),) if several else ())


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
