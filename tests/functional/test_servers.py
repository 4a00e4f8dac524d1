"""Server optimisers: torch's own Adam and SGD, and the first step of a correction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fedskew.functional as fn
from support.tensors import close, draws, random_tree, same


def test_bias_corrected_adam_is_torch_adam() -> None:
    x, still = random_tree(0), {k: torch.zeros_like(v) for k, v in random_tree(0).items()}
    reference = {k: v.clone().requires_grad_() for k, v in x.items()}
    optimizer = torch.optim.Adam(reference.values(), lr=0.05, betas=(0.9, 0.99), eps=1e-3, maximize=True)
    first = second = still
    for step in range(1, 6):
        delta = random_tree(10 + step)
        for k, p in reference.items():
            p.grad = delta[k].clone()
        optimizer.step()
        x, first, second = fn.adam_update(x, delta, first, second, 0.05, 0.9, 0.99, 1e-3, step, bias_correction="torch")
        for k in x:
            same(x[k], reference[k].detach())


def test_corrected_adagrad_and_yogi() -> None:
    x, delta = random_tree(0), random_tree(1)
    zero = {k: torch.zeros_like(v) for k, v in x.items()}
    moved, _, _ = fn.adagrad_update(x, delta, zero, zero, 0.1, 0.9, 0.99, 1e-3, 1, "torch")
    yogi, _, _ = fn.yogi_update(x, delta, zero, zero, 0.1, 0.9, 0.99, 1e-3, 1, "torch")
    for k in x:  # after the first step both corrected moments equal delta and delta^2
        want = x[k] + 0.1 * delta[k] / (delta[k].abs() + 1e-3)
        same(moved[k], want)
        same(yogi[k], want)


@pytest.mark.parametrize("update", [fn.adagrad_update, fn.adam_update, fn.yogi_update])
def test_corrections_begin_with_the_first_step(update: Callable[..., Any]) -> None:
    x, delta, zero = ({"w": draws(4, seed=s)} for s in range(3))
    args = (x, delta, zero, {"w": zero["w"].abs()}, 0.1, 0.9, 0.99, 1e-3)
    close(update(*args, bias_correction="torch")[0]["w"], update(*args, step=1, bias_correction="torch")[0]["w"])


def test_nesterov_momentum_is_torchs() -> None:
    """x + lr (beta m + delta), step by step beside torch.optim.SGD on the negated deltas."""
    deltas = [torch.tensor([0.2, -0.1]), torch.tensor([0.1, 0.3]), torch.tensor([-0.4, 0.2])]
    x, m = {"w": torch.ones(2)}, {"w": torch.zeros(2)}
    leaf = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([leaf], lr=0.5, momentum=0.9, nesterov=True)
    for delta in deltas:
        x, m = fn.momentum_update(x, {"w": delta}, m, 0.5, 0.9, nesterov=True)
        leaf.grad = -delta
        optimizer.step()
        assert torch.allclose(x["w"], leaf.detach(), atol=1e-6)
