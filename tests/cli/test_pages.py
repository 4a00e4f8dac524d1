"""The pages of names: a line for each, its options, its reference."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from fedskew.catalogue import listing as catalogue
from fedskew.config.tables import TABLES, make
from fedskew.methods import METHODS
from support.command import json_of, mistake, output_of


def test_a_reference_in_words_of_one_s_own_breaks_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = lambda: replace(METHODS["fedavg"](), name="mine", reference="Smith 2024, in words of my own")
    monkeypatch.setitem(METHODS, "mine", mine)
    rows = {row["name"]: row for row in json_of("methods")}
    assert rows["mine"]["reference"] == "Smith 2024, in words of my own"
    assert "unknown reference" in mistake("cite", "mine")


@pytest.mark.parametrize(("command", "slot"), [("datasets", "data"), ("partitions", "partition"), ("models", "model")])
def test_every_name_has_a_line_and_its_options(command: str, slot: str) -> None:
    rows = catalogue.named(slot)
    assert all(text and "object at 0x" not in " ".join(options) for _, text, options in rows)
    for name in TABLES[slot]:
        page = output_of(command, name)
        for option in [f.name for f in fields(make(slot, name))]:
            (line,) = [s for s in page.splitlines() if s.startswith(f"--{slot}.{option} = ")]
            assert len(line.partition(": ")[2]) > 5, line
    assert "did you mean" in mistake(command, f"{name}x")


def test_the_help_of_run_names_the_pages() -> None:
    said = " ".join(output_of("run", "--help").split())
    assert all(f"fedskew {page}" in said for page in ("datasets", "partitions", "models"))
