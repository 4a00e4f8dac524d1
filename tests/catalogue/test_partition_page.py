"""The page of partitions is the code, with a picture of each."""

from __future__ import annotations

import os
import re
from pathlib import Path

from fedskew.catalogue.partition_page import examples, partitions_markdown, write_page
from fedskew.data.partitioners import PARTITIONERS
from support.paths import ROOT
from support.pictures import size_of


def test_the_page_of_partitions_is_the_code() -> None:
    """Made by `python scripts/reference.py`."""
    assert (ROOT / "docs/reference/partitions.md").read_text(encoding="utf-8") == partitions_markdown()


def test_every_convention_stands_on_the_page_with_a_small_picture() -> None:
    page = (ROOT / "docs/reference/partitions.md").read_text(encoding="utf-8")
    names = {kind.name for kind in PARTITIONERS.values()}
    assert set(re.findall(r"^## (\w+)$", page, re.M)) == names
    shown = re.findall(r"\(\.\./pictures/(partition-\w+\.png)\)", page)
    assert (
        {f"partition-{n}.png" for n in names - {"file"}}
        == set(shown)
        == set(os.listdir(ROOT / "docs/pictures"))
        & {p for p in os.listdir(ROOT / "docs/pictures") if p.startswith("partition-") and "scale" not in p}
    )
    assert all((ROOT / "docs/pictures" / p).stat().st_size < 25_000 for p in shown)


def test_the_pictures_show_the_examples(tmp_path: Path) -> None:
    made = write_page(tmp_path)
    assert made[0].read_text(encoding="utf-8") == partitions_markdown() and len(made) == len(examples()) + 1
    for picture in made[1:]:
        assert size_of(picture) == size_of(ROOT / "docs/pictures" / picture.name)
