"""The examples of the gallery: each is short, has a picture in words, stands in the index, and runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.gallery import PAGES, cells_of, script_of
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


@pytest.mark.thorough
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_an_example_runs(page: Path, tmp_path: Path) -> None:
    if "transformers" in script_of(page):
        pytest.importorskip("peft", reason="peft is not installed: pip install -e '.[hf]'; make docs runs this example")
    environment = {n: v for n, v in os.environ.items() if n != "FEDSKEW_DATA"}
    environment |= {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", script_of(page)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
