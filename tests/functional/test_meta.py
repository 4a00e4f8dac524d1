"""Steps of Per-FedAvg and pFedMe: their limits."""

from __future__ import annotations

import torch

import fedskew.functional as fn
from support.tensors import random_tree, same


def test_per_fedavg_and_pfedme_limits() -> None:
    w, target = random_tree(0), random_tree(1)
    gradient = lambda p: {k: torch.sinh(p[k] - target[k]) for k in p}
    outer = gradient(fn.lookahead(w, gradient(w), 0.1))
    plus, minus = (gradient(fn.lookahead(w, outer, step)) for step in (-1e-4, 1e-4))
    hf = fn.hessian_free_gradient(outer, plus, minus, 0.1, 1e-4)
    for k in w:  # d/dw f(w - alpha f'(w)) = f'(w~)(1 - alpha f''), with the curvature taken at w
        same(hf[k], outer[k] * (1 - 0.1 * torch.cosh(w[k] - target[k])), atol=1e-6)
    theta, grads = random_tree(2), random_tree(3)
    stepped = fn.moreau_step(theta, grads, w, 0.05, 15.0, decay=0.001)
    for k in w:
        same(stepped[k], theta[k] - 0.05 * (grads[k] + 15.0 * (theta[k] - w[k]) + 0.001 * theta[k]))
        same(fn.moreau_mix(w, theta, 0.5, 2.0)[k], theta[k])  # eta lambda = 1
        same(fn.moreau_mix(w, theta, 0.5, 0.0)[k], w[k])
    once = fn.moreau_mix(w, fn.moreau_step(w, grads, w, 0.1, 2.0), 0.3, 2.0)
    for k in w:  # one inner step from w: FedAvg with lr eta lambda eta_p
        same(once[k], w[k] - 0.3 * 2.0 * 0.1 * grads[k])
