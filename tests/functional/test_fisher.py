"""The Fisher information's diagonal: row by row by hand, padding, chunks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import fedskew.functional as fn
from fedskew.tree import Params


def loss(params: Params, x: Tensor, y: Tensor) -> Tensor:
    return fn.cross_entropy(x @ params["w"].T, y)


@pytest.mark.parametrize("rows", [1, 5, 150])
def test_by_hand(rows: int) -> None:
    g = torch.Generator().manual_seed(rows)
    x, w = torch.randn(rows + 2, 4, generator=g).double(), torch.randn(3, 4, generator=g).double()
    y, mask = torch.arange(rows + 2) % 3, (torch.arange(rows + 2) < rows).double()
    error = (x @ w.T).softmax(1) - torch.eye(3, dtype=torch.float64)[y]
    each = (error.unsqueeze(2) * x.unsqueeze(1))[:rows]
    found = fn.fisher_diagonal(loss, {"w": w}, x, y, mask)["w"]
    torch.testing.assert_close(found, each.square().mean(0))
    found = fn.fisher_diagonal(loss, {"w": w}, x, y, mask, "batch")["w"]
    torch.testing.assert_close(found, each.mean(0).square())
