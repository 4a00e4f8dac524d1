"""Steps of Per-FedAvg and pFedMe: their limits, and which mini-batch each gradient reads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import fedskew.functional as fn
from fedskew.errors import ConfigError
from support.tensors import close, f64, random_tree, same


def test_per_fedavg_and_pfedme_limits() -> None:
    w, target = random_tree(0), random_tree(1)
    gradient = lambda p, batch: {k: torch.sinh(p[k] - batch * target[k]) for k in p}
    plain = fn.lookahead(w, gradient(w, 3.0), 0.2)
    stepped = fn.per_fedavg_step(w, gradient, (2.0, 3.0), 0.0, 0.2)
    assert all(torch.equal(stepped[k], plain[k]) for k in w)
    hf = fn.per_fedavg_step(w, gradient, (1.0, 1.0, 1.0), 0.1, 0.2, delta=1e-4)
    for k in w:  # d/dw f(w - alpha f'(w)) = f'(w~)(1 - alpha f''), with the curvature taken at w
        outer = torch.sinh(w[k] - 0.1 * torch.sinh(w[k] - target[k]) - target[k])
        same(hf[k], w[k] - 0.2 * outer * (1 - 0.1 * torch.cosh(w[k] - target[k])), atol=1e-6)
    with pytest.raises(ConfigError, match="batches must hold 3 mini-batches a step; got 2"):
        fn.per_fedavg_step(w, gradient, (1.0, 1.0), 0.1, 0.2, delta=1e-3)
    theta, grads = random_tree(2), random_tree(3)
    stepped = fn.moreau_step(theta, grads, w, 0.05, 15.0, decay=0.001)
    for k in w:
        same(stepped[k], theta[k] - 0.05 * (grads[k] + 15.0 * (theta[k] - w[k]) + 0.001 * theta[k]))
        same(fn.moreau_mix(w, theta, 0.5, 2.0)[k], theta[k])  # eta lambda = 1
        same(fn.moreau_mix(w, theta, 0.5, 0.0)[k], w[k])
    once = fn.moreau_mix(w, fn.moreau_step(w, grads, w, 0.1, 2.0), 0.3, 2.0)
    for k in w:  # one inner step from w: FedAvg with lr eta lambda eta_p
        same(once[k], w[k] - 0.3 * 2.0 * 0.1 * grads[k])


def test_per_fedavg_takes_each_gradient_on_its_own_batch() -> None:
    asked: list[str] = []

    def gradient(params: dict[str, Tensor], batch: Any) -> dict[str, Tensor]:
        asked.append(batch)
        return {"w": {"a": 1.0, "b": 10.0, "c": 100.0}[batch] * params["w"]}

    w = {"w": f64(1.0)}
    close(fn.per_fedavg_step(w, gradient, ("a", "b"), 0.1, 0.01)["w"], 1 - 0.01 * 10 * 0.9)
    assert asked == ["a", "b"]
    free = fn.per_fedavg_step(w, gradient, ("a", "b", "c"), 0.1, 0.01, delta=0.5)["w"]
    close(free, 1 - 0.01 * (9 - 0.1 * 100 * 9))  # the difference is the curvature of c, 100, times g = 9
    assert asked[2:] == ["a", "b", "c", "c"]
    for batches, delta in ((("a",), None), (("a", "b"), 0.5)):
        with pytest.raises(ConfigError, match=r"^batches must hold \d mini-batches a step; got \d$"):
            fn.per_fedavg_step(w, gradient, batches, 0.1, 0.01, delta)
