"""What a run of each protocol costs at the scale of the paper, as measured steps tell: a file beside the ledger."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from fedskew.data.sources.parquet import offline
from fedskew.errors import FedskewError, RecordError
from fedskew.papers.tables import names, protocol
from fedskew.records.sheets import csv_text
from fedskew.studies.address import dataset_of
from fedskew.studies.cost import run_seconds

__all__ = ["HERE", "Costs", "costs_of", "measured_costs", "read_costs"]

HERE = Path("results/costs.csv")  # in the current folder
COLUMNS = ("study", "setting", "method", "core_hours")
Costs = Mapping[tuple[str, str, str], float]  # (study, setting, method) -> hours of one seed on one thread


def costs_of(name: str) -> dict[tuple[str, str, str], float]:
    """Hours of one seed of every cell of a protocol at the scale of the paper; none where its data are not at hand.

    A step and an evaluation of the network are measured on this machine, on one thread, and multiplied. Work of a
    method beside plain training is not in it.
    """
    found = {}
    spec = protocol(name).spec
    for cell in spec.cells():
        if cell.seed != spec.seeds[0] or cell.experiment is None:
            continue
        try:
            with offline():
                dataset_of(cell.experiment.data, cell.experiment.path)
        except FedskewError:
            return {}
        if (seconds := run_seconds(cell.experiment)) is not None:
            found[name, cell.setting, cell.label] = seconds / 3600
    return found


def measured_costs() -> str:
    """The file, measured now."""
    lines = ((*key, f"{hours:.3g}") for name in names() for key, hours in costs_of(name).items())
    return csv_text([COLUMNS, *lines])


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
