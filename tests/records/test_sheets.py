"""Csv files: text that a spreadsheet would run is text to it, numbers stay, and one place writes all of them."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

import fedskew as fs
from fedskew.records.sheets import csv_text
from fedskew.studies.arguments import Entry
from fedskew.studies.spec import spec_from
from fedskew.studies.study import Study

SRC = Path(fs.__file__).parent


@pytest.mark.parametrize(
    "text",
    ["=cmd|' /C calc'!A0", "+1+1", "-1-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "\uff1d1", "-", "--lr", "+x1"],
)
def test_a_text_that_begins_as_a_formula_is_text(text: str) -> None:
    head, cell = csv.reader(io.StringIO(csv_text([[text], [text]])))
    assert head == cell and cell[0].startswith("'")


@pytest.mark.parametrize("value", ["-0.5", "+1", "1e-5", "-inf", "nan", "", "a=b", "x", -0.5, 3, None, True])
def test_numbers_and_plain_texts_stay(value: object) -> None:
    assert csv_text([[value, "x"]]) == f"{'' if value is None else value},x\n"


def test_an_escape_code_and_half_a_character_are_written_out() -> None:
    assert csv_text([["\x1b[2J", "\udcff"]]).encode() == b"\\x1b[2J,\\udcff\n"


def test_runs_csv_runs_no_label_as_a_formula(tmp_path: Path) -> None:
    spec = spec_from(["fedavg"], [("rounds", "1"), ("clients", "2")])
    named = type(spec)((Entry("fedavg", (), "=cmd|' /C calc'!A0"), Entry("fedavg", (), "half \udcff")), spec.options)
    Study(named, tmp_path / "store").save(tmp_path / "study")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "study/runs.csv").read_text())))
    assert [row["label"] for row in rows] == ["'=cmd|' /C calc'!A0", "half \\udcff"]


def test_one_place_writes_csv() -> None:
    """A second writer would forget formulas."""
    writers = [f for f in sorted(SRC.rglob("*.py")) if "csv.writer" in f.read_text() or "DictWriter" in f.read_text()]
    assert [f.name for f in writers] == ["sheets.py"]
