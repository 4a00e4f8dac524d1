"""What a run of each protocol costs at the scale of the paper, as measured steps tell: a file beside the ledger."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from fedskew.errors import RecordError

HERE = Path("results/costs.csv")  # in the current folder
COLUMNS = ("study", "setting", "method", "core_hours")
Costs = Mapping[tuple[str, str, str], float]  # (study, setting, method) -> hours of one seed on one thread


def read_costs(path: str | Path = HERE) -> dict[tuple[str, str, str], float]:
    """The costs that a file holds; none where there is no such file.

    Raises:
        RecordError: A line of it is none.
    """
    file = Path(path)
    if not file.is_file():
        return {}
    try:
        with file.open(encoding="utf-8", newline="") as opened:
            return {(r["study"], r["setting"], r["method"]): float(r["core_hours"]) for r in csv.DictReader(opened)}
    except (OSError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{str(file)!r} must hold the columns {', '.join(COLUMNS)}: {error}") from None
