"""Pictures of federations: what they show, what they refuse, and that nothing is clipped."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from fedskew.errors import ConfigError, DataError
from fedskew.plots.canvas import save
from fedskew.plots.skew import draw
from support.pictures import size_of

MATRIX = np.array([[5, 0, 1], [0, 3, 3], [2, 2, 2], [0, 0, 0]])


def test_equal_counts_give_equal_files(tmp_path: Path) -> None:
    one, two = (save(draw(torch.from_numpy(MATRIX)), tmp_path / place / "heat.svg") for place in "ab")
    assert one.read_bytes() == two.read_bytes() and "<svg" in one.read_text()


def test_a_hundred_thousand_clients_are_drawn_in_blocks(tmp_path: Path) -> None:
    assert save(draw(np.tile(MATRIX, (25_000, 1))), tmp_path / "h.svg").stat().st_size < 400_000
    assert "25,000 without rows" in re.sub(r"<!--|-->", "", (tmp_path / "h.svg").read_text())


@pytest.mark.parametrize("clients", [1, 20, 70])
def test_the_heat_map_shows_the_counts_and_clips_nothing(clients: int, tmp_path: Path, outside) -> None:
    counts = np.arange(clients * 4).reshape(clients, 4) % 7
    counts[0] = (0, 0, 0, 3)
    counts[-1] = 0 if clients > 1 else counts[0]
    names = ("a", "b", "a longer name", "d")
    figure = draw(counts, "a title", names)
    figure.canvas.draw()
    assert not outside(figure)
    main, above, beside, *_ = figure.axes
    assert [t.get_text() for t in main.get_yticklabels()] == list(names)
    assert [bar.get_height() for bar in above.patches] == counts.sum(1).tolist()
    assert [bar.get_width() for bar in beside.patches] == counts.sum(0).tolist()
    assert np.array_equal(main.images[0].get_array().filled(0), counts.T)
    assert size_of(save(draw(torch.from_numpy(counts), class_names=names), tmp_path / "h.png"))[0] == 1600


def test_counts_and_names_are_checked() -> None:
    for wrong in (np.zeros((2, 3)), np.array([1, 2]), np.array([[-1, 2]]), MATRIX * 0):
        with pytest.raises(DataError, match="counts must be a matrix"):
            draw(wrong)
    with pytest.raises(ConfigError, match="class_names must name each of the 3 classes; got 2"):
        draw(np.ones((2, 3)), class_names=("a", "b"))
