"""Pages and tables of results say what the committed runs say."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from types import ModuleType

import pytest

from fedskew.studies.verdicts import intervals
from fedskew_papers.rows import STATES
from support.paths import ROOT
from support.scripts import script


@pytest.fixture(scope="module")
def results() -> ModuleType:
    return script("scripts/results.py")


@pytest.mark.thorough
def test_the_ledger_and_its_page_are_those_of_the_committed_runs(results: ModuleType, data_dir: Path) -> None:
    made = results.papers()
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} differs: run scripts/results.py"
    listed = list(csv.DictReader(io.StringIO(made[ROOT / "results/ledger.csv"])))
    assert len(listed) == 1039 + 60 and {row["state"] for row in listed} <= set(STATES)


@pytest.mark.thorough
def test_the_tables_of_pages_are_those_of_their_studies(results: ModuleType, data_dir: Path) -> None:
    for page in results.PAGES:
        shown = (ROOT / page).read_text(encoding="utf-8")
        assert results.TABLE.findall(shown), f"{page} has no table of a study"
        assert results.tables(shown) == shown, "run scripts/results.py"


def test_a_table_that_is_altered_is_found(results: ModuleType, data_dir: Path) -> None:
    page = (ROOT / "notes/methods.md").read_text(encoding="utf-8")
    (shown,) = [found[0] for found in results.TABLE.finditer(page) if found[3] == "hospitals" and found[2] == "less"]
    assert results.tables(shown.replace("| +", "| -", 1)) == shown != shown.replace("| +", "| -", 1)


def test_intervals_of_a_table_are_those_of_the_verdicts(results: ModuleType) -> None:
    """Of five seeds or more, at Holm's levels over the methods; what the fit leaves is open, not averaged."""
    gaps = {"fedla": [3.0, 5.0, 4.0, 5.0, 3.0], "fedga": [1.0, -2.0, 0.0, 1.0, 1.0]}
    told = results._spans(gaps)
    found = intervals(gaps)
    assert told["fedla"] == f"+4.0 [{found['fedla'].low:+z.1f}, {found['fedla'].high:+z.1f}]"
    rows = [
        {"label": label, "setting": at, "seed": seed, "state": "finished", "mean10_accuracy": 0.5 + (value + at) / 100,
         "mean10_fitted_accuracy": 0.8 + fit / 100}
        for label, values, fit in (("fedavg", [0.0] * 5, 0), ("fedla", gaps["fedla"], 2), ("fedga", gaps["fedla"], 0))
        for at in (0, 1) for seed, value in enumerate(values)
    ]  # fmt: skip
    table = results.fits_of([{**row, "setting": f"s{row['setting']}"} for row in rows], "fedavg").splitlines()
    assert table[0].endswith("| a bias | open: not averaged | of these, a gain fitted, too | no gain shown | a loss |")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]
    assert [[row[0], *row[3:]] for row in cells] == [
        ["fedla", "0", "2", "2", "0", "0"],
        ["fedga", "2", "0", "0", "0", "0"],
    ]
