"""The examples of the gallery: each is short, has a picture in words, and stands in the index. make docs runs them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.gallery import PAGES, cells_of
from support.paths import ROOT


def test_the_index_lists_every_example() -> None:
    text = (ROOT / "examples/gallery/index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^(\w+)$", text, re.M)
    assert sorted(listed) == [page.stem for page in PAGES] and len(PAGES) == 17


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_an_example_is_short_and_says_what_its_picture_shows(page: Path) -> None:
    cells = cells_of(page)
    assert cells and sum(len(cell["code"].splitlines()) for cell in cells) <= 40
    assert all(re.search(r'alt: "[^"]{20,}"', cell["about"] or "") for cell in cells)
