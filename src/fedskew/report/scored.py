"""What the last model alone is scored by: ranking, calibration, and accuracy over the clients' own label mixes."""

from collections.abc import Sequence
from typing import Any

from fedskew.records.metrics import METRICS, PRECISION, named
from fedskew.report.compared import Compared
from fedskew.report.tables import TEXTS, ReportTable, Section, TableCell, fixed, level, row, titled

MIX = "mix_accuracy_"
RANKED = named("probabilities")
MIXED = sorted(named("mixes"), key=lambda name: name.startswith(f"{MIX}p"))  # few columns stand before many
AT = "recall_at_precision_macro"
TITLE = "Ranking, calibration and client mixes"
CALLED = {m.name: m.head or m.title for m in METRICS}


def scored(compared: Compared, settings: Sequence[str], methods: Sequence[str], left_out: tuple[str, ...]) -> Section:
    """The section of these scores.

    Args:
        compared: What was compared.
        settings: Those that are shown.
        methods: Those that are shown.
        left_out: What to say of settings and methods that are not shown.

    Returns:
        The section; empty where no run has a score on record.
    """
    mixed = {n: CALLED[n] for n in MIXED}
    tables = []
    for setting in settings:
        ranked = {n: CALLED[n] for n in RANKED} | {AT: f"{CALLED[AT]} {_precisions(compared, setting)}"}
        what = "scores of the last global model"
        tables.append(_table(compared, setting, methods, "scores", what, ranked))
        what = "accuracy of the global model over the clients' own label mixes, %"
        tables.append(_table(compared, setting, methods, "mixes", what, mixed))
    return Section("scores", TITLE, left_out, tuple(table for table in tables if table))


def _precisions(compared: Compared, setting: str) -> str:
    """At which recall was measured: "0.9"; "0.8 or 0.9" where runs differ."""
    runs = [entry.run for entry in compared.entries if entry.setting == setting]
    asked = {v for run in runs if isinstance(v := run.config.get("recall_at", PRECISION), int | float)}
    return " or ".join(f"{v:g}" for v in sorted(asked))


def _table(
    compared: Compared, setting: str, methods: Sequence[str], key: str, what: str, called: dict[str, str]
) -> ReportTable | None:
    """Means with their intervals; None where no run has one of these numbers."""
    keys = {n: f"final_{n}" for n in called if compared.has(setting, f"final_{n}")}
    if not keys:
        return None
    rows, records = [], []
    for method in (m for m in compared.present(setting) if m in methods):
        summaries = {name: compared.summary(method, setting, of) for name, of in keys.items()}
        cells: list[TableCell | str] = [method, str(max(s.runs for s in summaries.values()))]
        record: dict[str, Any] = {"setting": setting, "method": method}
        for name, s in summaries.items():
            plain = s.low is None or name.startswith(f"{MIX}p")  # a table of so many intervals is not read
            low, mean, high = (level(v, name) if key == "mixes" else fixed(v, 3) for v in (s.low, s.mean, s.high))
            cells.append(mean if plain else f"{mean} ({low} to {high})")
            record |= {f"{name}_seeds": s.runs, name: s.mean, f"{name}_sd": s.sd}
            record |= {f"{name}_low": s.low, f"{name}_high": s.high}
        rows.append(row(*cells))
        records.append(record)
    head = ("method", "seeds", *(called[n] for n in keys))
    return ReportTable(key, titled(setting, what), head, tuple(rows), 1, tuple(records), (TEXTS[key],))
