"""Pictures of federations: what they show, what they refuse, and that nothing is clipped."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from fedskew.errors import ConfigError, DataError
from fedskew.plots import skew as skewplots
from fedskew.plots.canvas import save
from fedskew.plots.skew import draw
from support.pictures import size_of

MATRIX = np.array([[5, 0, 1], [0, 3, 3], [2, 2, 2], [0, 0, 0]])


def test_pictures_are_written_and_equal_counts_give_equal_files(tmp_path: Path) -> None:
    for place in ("a", "b"):
        save(draw(MATRIX, class_names=["x", "y", "z"]), tmp_path / place / "heat.png")
        save(draw(torch.from_numpy(MATRIX), "histograms"), tmp_path / place / "sizes.svg")
        save(draw(MATRIX, "pairs"), tmp_path / place / "pairs")
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["heat.png", "pairs.png", "sizes.svg"]
    assert all(p.read_bytes() == (tmp_path / "b" / p.name).read_bytes() for p in (tmp_path / "a").iterdir())
    assert size_of(tmp_path / "a/heat.png")[0] == 1600
    svg = (tmp_path / "a/sizes.svg").read_text()
    assert "<svg" in svg


def test_a_hundred_thousand_clients_are_drawn_in_blocks(tmp_path: Path) -> None:
    many = np.tile(MATRIX, (25_000, 1))
    for kind, name in (("heatmap", "h.svg"), ("histograms", "s.png"), ("pairs", "p.png")):
        assert save(draw(many, kind), tmp_path / name).stat().st_size < 400_000
    assert "25,000 without rows" in re.sub(r"<!--|-->", "", (tmp_path / "h.svg").read_text())


def test_what_a_picture_refuses(tmp_path: Path) -> None:
    for attempt, error, message in (
        (lambda: save(draw(MATRIX), tmp_path / "a.gif"), ConfigError, "out must end in .png, .svg or .pdf"),
        (lambda: draw(MATRIX * 0), DataError, "not all 0"),
        (lambda: draw(MATRIX, "heat"), ConfigError, "unknown kind 'heat'; did you mean 'heatmap'?"),
    ):
        with pytest.raises(error, match=message):
            attempt()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("clients", [1, 20, 70])
def test_the_heat_map_shows_the_counts_and_clips_nothing(clients: int, tmp_path: Path, outside) -> None:
    counts = np.arange(clients * 4).reshape(clients, 4) % 7
    counts[0] = (0, 0, 0, 3)
    counts[-1] = 0 if clients > 1 else counts[0]
    names = ("a", "b", "a longer name", "d")
    figure = skewplots._federation(counts.astype(float), "a title", names)
    figure.canvas.draw()
    assert not outside(figure)
    main, above, beside, *_ = figure.axes
    assert [t.get_text() for t in main.get_yticklabels()] == list(names)
    assert [bar.get_height() for bar in above.patches] == counts.sum(1).tolist()
    assert [bar.get_width() for bar in beside.patches] == counts.sum(0).tolist()
    assert np.array_equal(main.images[0].get_array().filled(0), counts.T)
    assert size_of(save(draw(torch.from_numpy(counts), class_names=names), tmp_path / "h.png"))[0] == 1600


@pytest.mark.parametrize("clients", [3, 80])
def test_overlap_is_written_for_few_and_many_clients(clients: int, tmp_path: Path) -> None:
    counts = np.eye(4, dtype=int)[np.arange(clients) % 4] * 5
    counts[0] = 0  # a client without rows is left out
    assert save(draw(counts, "pairs"), tmp_path / "o.png").stat().st_size > 1000


def test_counts_and_names_are_checked() -> None:
    for wrong in (np.zeros((2, 3)), np.array([1, 2]), np.array([[-1, 2]])):
        with pytest.raises(DataError, match="counts must be a matrix"):
            draw(wrong)
    with pytest.raises(ConfigError, match="class_names must name each of the 3 classes; got 2"):
        draw(np.ones((2, 3)), class_names=("a", "b"))
