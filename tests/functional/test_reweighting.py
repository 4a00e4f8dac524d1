"""Class weights, cosines and BalanceFL at their edges."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedskew.functional as fn
from support.tensors import close, draws, f64, near


def test_importance_of_a_client_like_the_whole_and_of_one_without_rows() -> None:
    near(fn.importance_weights(f64([0.2, 0.3, 0.5]), f64([4, 6, 10])), [1, 1, 1])
    near(fn.importance_weights(f64([0.5, 0.3, 0.2]), torch.tensor([0, 0, 0])), [0, 0, 0])


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9999])
def test_class_balanced_weights(beta: float) -> None:
    n = np.array([3.0, 0.0, 1.0, 200.0])
    raw = np.array([(1 - beta) / (1 - beta**c) if c else 0.0 for c in n])
    close(fn.class_balanced_weights(f64(n), beta), 3 * raw / raw.sum())
    close(fn.class_balanced_weights(torch.zeros(4), beta), [0, 0, 0, 0])


# BalanceFL


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_balancefl_stays_finite_at_the_edges(dtype: torch.dtype) -> None:
    z = (draws(4, 3) * 1e4).to(dtype).requires_grad_()
    y = torch.tensor([0, 1, 2, 0])
    for positive in ([True, True, True], [True, False, False]):
        mask = torch.tensor(positive)
        terms = fn.balancefl_terms(z, z, z.detach() * 0.5, y, mask)
        assert all(torch.isfinite(term).all() for term in terms)
        (grad,) = torch.autograd.grad(sum(term.sum() for term in terms), z)
        assert torch.isfinite(grad).all()
    c, _, h = fn.balancefl_terms(z, z, z, torch.zeros(4, dtype=torch.int64), torch.tensor([True, False, False]))
    assert (c == 0).all() and (h == 0).all(), "one positive class: nothing to classify"
    assert (fn.balancefl_terms(z, z, z, y, torch.tensor([True] * 3))[1] == 0).all(), "no negative class"


def test_the_root_of_one_row_or_none_is_finite() -> None:
    f, y = draws(60, 4), torch.arange(60) % 3
    for rows in (0, 1):
        root = fn.covariance_root(f[:rows], y[:rows], 5)
        assert bool((root.diagonal() > 0).all()) and float(root.abs().max()) < 1e-6  # lifted from singular
