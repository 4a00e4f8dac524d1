"""Pages and tables of results say what the committed runs say."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from types import ModuleType

import pytest

from fedskew_papers.rows import STATES
from support.paths import ROOT
from support.scripts import script


@pytest.fixture(scope="module")
def results() -> ModuleType:
    return script("scripts/results.py")


@pytest.mark.thorough
def test_the_ledger_and_its_page_are_those_of_the_committed_runs(results: ModuleType) -> None:
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


@pytest.mark.parametrize(("page", "cell"), [("fashion", "| 3 | 0.8"), ("cross", "| 95.3")])
def test_a_table_that_is_altered_is_found(results: ModuleType, data_dir: Path, page: str, cell: str) -> None:
    shown = (ROOT / f"notes/{page}.md").read_text(encoding="utf-8")
    assert cell in shown
    assert results.tables(shown.replace(cell, cell[:-1] + "1", 1)) == shown


def test_an_order_shows_each_method_beside_the_one_before(results: ModuleType) -> None:
    accuracies = {"a": (0.50, 0.52, 0.54), "b": (0.53, 0.54, 0.58), "c": (0.51, 0.51, 0.56)}
    common = {"setting": "one", "state": "finished", "tuned": "lr 0.1"}
    rows: list[dict[str, object]] = [
        {**common, "label": label, "seed": seed, "mean10_accuracy": value}
        for label, values in accuracies.items() for seed, value in enumerate(values)
    ]  # fmt: skip
    told = results.order_of([*rows, {**rows[0], "seed": 3, "state": "missing"}]).splitlines()[2:]
    # t of 2 degrees of freedom at 0.975 is 4.303; gaps of b: 3, 2, 4 with mean 3 and deviation 1; of c to a: 1, -1, 2
    assert told == [
        "| a | lr 0.1 | 3 | 52.0 ± 2.0 |  |  |",
        "| b | lr 0.1 | 3 | 55.0 ± 2.6 | +3.0 [+0.5, +5.5] | +3.0 [+0.5, +5.5] |",
        "| c | lr 0.1 | 3 | 52.7 ± 2.9 | -2.3 [-3.8, -0.9] | +0.7 [-3.1, +4.5] |",
    ]
