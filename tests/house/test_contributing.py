"""CONTRIBUTING and the walks name what is there: files, tables, tests and targets; CONTRIBUTING fits on a page."""

from __future__ import annotations

import re

import pytest

from support.paths import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
WALKS = (ROOT / "notes/developing.md").read_text(encoding="utf-8")
TEXT = PAGE + WALKS
PLACES = sorted(
    {p for p in re.findall(r"`((?:src|tests|docs|results|scripts)/[\w/.-]+)`", TEXT) if "NAME" not in p}
    | set(re.findall(r"\]\(([\w/.-]+)\)", PAGE))
)
# "`TABLE` in `file`", as the walks write it
TABLES = sorted(set(re.findall(r"`(\w+)`\s+in\s+`(src/[\w/.]+\.py)`", WALKS)))


def test_contributing_fits_on_a_page() -> None:
    assert len(PAGE.split()) < 600


@pytest.mark.parametrize("place", PLACES)
def test_a_place_is_there(place: str) -> None:
    assert (ROOT / place).exists()


@pytest.mark.parametrize(("name", "file"), TABLES)
def test_a_table_stands_in_its_file(name: str, file: str) -> None:
    source = (ROOT / file).read_text(encoding="utf-8")
    assert re.search(rf"^(?:def |class )?{name}\b", source, re.M), f"{file} has no {name} at the top level"


def test_the_tests_that_are_named_are_there() -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", TEXT):
        assert f"def {name}(" in tests, name


def test_the_targets_and_variables_of_make_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"\bmake ([a-z][a-z-]*)", "\n".join(re.findall(r"```\n(.*?)```", TEXT, re.S))):
        assert re.search(rf"^{target}:", makefile, re.M), target
    for variable in ("VENV", "PYTHON", "CONSTRAINTS"):
        assert f"{variable} ?=" in makefile


@pytest.mark.parametrize("walk", ["A method", "A dataset", "A plot", "A metric", "A command", "An engine"])
def test_a_walk_names_file_table_test_and_page(walk: str) -> None:
    steps = WALKS.split(f"## {walk}\n")[1].split("## ")[0]
    for number, what in enumerate(("File", "Table", "Test", "Page"), 1):
        assert re.search(rf"^{number}\. \*\*{what}s?\*\*: ", steps, re.M), f"{walk} has no {what.lower()}"
