"""Sparse frames, and lengths of rows, against sums that are written out."""

from __future__ import annotations

import math

import pytest
import torch

from fedskew import functional as F
from support.tensors import close, draws


def test_rows_in_one_direction_have_no_slope() -> None:
    value, gradient = F.frame_energy(torch.tensor([[1.0, 0.0], [3.0, 0.0]], dtype=torch.float64), 1.0)
    assert float(value) == pytest.approx(4 - math.acos(0.99999))
    close(gradient, torch.tensor([[0.0, 0.0], [4.0, 0.0]], dtype=torch.float64))


@pytest.mark.parametrize(("classes", "features"), [(4, 12), (10, 64)])
def test_the_angles_are_as_wide_again_and_zeros_stay(classes: int, features: int) -> None:
    full = F.simplex_head(F.orthonormal(draws(features, classes - 1, seed=1)))
    kept = (draws(classes, features, seed=2) > 0).double()
    start = F.equal_lengths(full * kept, 0.1)
    found = F.sparse_frame(start, kept, 0.1, 1e-4, 300)
    assert not found[kept == 0].any() and found[kept == 1].all()

    def widest(w: torch.Tensor) -> float:
        """The largest cosine of two rows; that of a simplex is -1 / (C - 1)."""
        unit = F.equal_lengths(w, 1.0)
        return float((unit @ unit.T).fill_diagonal_(-1).max())

    best = -1 / (classes - 1)
    assert widest(start) > 0.5 * best > 0.9 * best > widest(found) > best - 1e-9
    assert F.sparse_frame(start, kept, 0.1, 1e-4, 0).equal(start)


def test_lengths() -> None:
    w, v = draws(3, 5, seed=3), draws(3, 5, seed=4)
    for c in range(3):
        close(F.equal_lengths(w, 1.7)[c], 1.7 * w[c] / w[c].square().sum().sqrt())
        close(F.lent_lengths(w, v)[c], w[c] * v[c].square().sum().sqrt())
    assert not F.equal_lengths(torch.zeros(2, 3), 1.7).any() and not F.lent_lengths(w, 0 * v).any()
