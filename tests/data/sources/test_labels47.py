"""Labels47: which rows of which datasets, in which order, and what becomes of a pixel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedskew.data import load
from fedskew.data.arrays import build
from fedskew.data.sources.images import Published


def test_four_datasets_become_47_labels_of_their_first_rows_in_grey(monkeypatch: pytest.MonkeyPatch) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (4, 10_000, 3)).astype(np.uint8)

    def made(self: Any, path: str | None = None) -> Any:
        at, names = self.target()
        count = 2500 if self.name == "mnist" else 3  # a label
        y = np.tile(np.arange(len(names)), count)
        shape = (1, 28, 28) if "mnist" in self.name else (3, 32, 32)
        x = np.zeros((len(y), *shape), np.uint8)
        x[:] = colours[at, np.arange(len(y)) % 10_000, : shape[0], None, None]
        x[..., 0, :] = 255  # an edge, which a crop of 32x32 loses
        return build(self.name, x, y, x, y, label_names=names)

    monkeypatch.setattr(Published, "load", made)
    data = load("labels47")
    assert (data.shape, data.classes, data.mean) == ((1, 28, 28), 47, (0.1307,))
    assert data.counts.tolist() == [2400] * 10 + [3] * 37
    assert torch.bincount(data.y_test).tolist() == [400] * 10 + [3] * 37
    told = {0: "mnist 0", 10: "fashion_mnist T-shirt/top", 20: "cifar10 airplane", 30: "cifar100 aquatic_mammals"}
    assert {i: data.label_names[i] for i in told} == told and data.label_names[46] == "cifar100 small_mammals"
    digit, plane = data.x[data.y == 0], data.x[data.y == 20]
    assert (digit[:, 0, 0] == 255).all() and digit[:3, 0, 5, 5].tolist() == colours[0, :30:10, 0].tolist()
    want = np.rint(colours[0, :30:10].astype(float) @ [0.299, 0.587, 0.114])
    assert (plane == torch.from_numpy(want)[:, None, None, None]).all()
