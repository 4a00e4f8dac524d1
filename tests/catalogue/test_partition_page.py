"""The page of partitions has every partitioner, with a small picture of each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedskew.data.partitioners import PARTITIONERS
from support.scripts import script


@pytest.mark.thorough
def test_every_convention_stands_on_the_page_with_a_small_picture(tmp_path: Path) -> None:
    made = {file.relative_to(tmp_path).as_posix(): file for file in script("scripts/reference.py").write(tmp_path)}
    page = made["reference/partitions.md"].read_text(encoding="utf-8")
    names = {kind.name for kind in PARTITIONERS.values()}
    assert set(re.findall(r"^## (\w+)$", page, re.M)) == names
    shown = re.findall(r"\(\.\./(pictures/partition-\w+\.png)\)", page)
    assert {f"pictures/partition-{n}.png" for n in names - {"file"}} == set(shown) == set(made) & {*shown}
    assert all(made[picture].stat().st_size < 25_000 for picture in shown)
