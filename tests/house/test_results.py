"""Pages and tables of results say what the committed runs say."""

from __future__ import annotations

import csv
import importlib.util
import io
from pathlib import Path
from types import ModuleType

import pytest

from fedskew.studies.papers.ledger import STATES
from support.paths import ROOT


@pytest.fixture(scope="module")
def results() -> ModuleType:
    found = importlib.util.spec_from_file_location("results", ROOT / "scripts/results.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_ledger_and_its_page_are_those_of_the_committed_runs(results: ModuleType) -> None:
    made = results.papers()
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} differs: run scripts/results.py"
    listed = list(csv.DictReader(io.StringIO(made[ROOT / "results/ledger.csv"])))
    assert len(listed) == 1039 + 60 and {row["state"] for row in listed} <= set(STATES)


def test_the_tables_of_fashion_mnist_are_those_of_its_studies(results: ModuleType, data_dir: Path) -> None:
    (page,) = results.fashion_page()
    shown = page.read_text(encoding="utf-8")
    assert results.TABLE.findall(shown), "the page has no table of a study"
    assert results.fashion(shown) == shown, "run scripts/results.py"


def test_a_table_that_is_altered_is_found(results: ModuleType, data_dir: Path) -> None:
    (page,) = results.fashion_page()
    shown = page.read_text(encoding="utf-8")
    assert results.fashion(shown.replace("| 3 | 0.8", "| 3 | 0.9", 1)) == shown
