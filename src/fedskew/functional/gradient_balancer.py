"""Gradient balancer of Fed-GraB."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedskew.functional._numeric import is_label

__all__ = ["fedgrab_map", "fedgrab_pid", "weighted_bce"]


def fedgrab_map(u: Tensor) -> Tensor:
    """f(u) = (10/9) / (1/9 + e^{-u/2}), in (0, 10) with f(0) = 1. Source: Fed-GraB, gradient balancer.

    u is clamped at -160, where f is 1e-34, so that the exponential cannot overflow.
    """
    return 10 / (1 + 9 * torch.exp(-0.5 * u.clamp(min=-160)))


def fedgrab_pid(
    error: Tensor, earlier: Tensor, previous: Tensor, kp: float = 10.0, ki: float = 0.01, kd: float = 0.1
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of the incremental PID controller: (output increment, new earlier, new previous), each shaped as error.

    increment = kp (e_t - e_{t-1}) + ki e_t + kd (e_t - 2 e_{t-1} + e_{t-2}), e_t = -(positive - negative).
    The state is the last two errors, ``earlier`` e_{t-2} and ``previous`` e_{t-1}, both zero before the first step,
    so that a first error of -1 gives -(kp + ki + kd) = -10.11. The controller's output, the u of `fedgrab_map`, is
    the running sum of the increments: kp e_t + ki sum_s e_s + kd (e_t - e_{t-1}). Source: Fed-GraB, authors' code.
    """
    increment = kp * (error - previous) + ki * error + kd * (error - 2 * previous + earlier)
    return increment, previous, error


def weighted_bce(logits: Tensor, labels: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """Sum over classes of the sigmoid cross-entropy, weighted by class, [B]; positive and negative [C].

    The entry of a row's label is weighted by ``positive``, every other by ``negative``. The weights are detached, so
    weighting the terms multiplies their gradients by the same numbers: d/dz_c = w_c (sigmoid(z_c) - 1[c = y]).
    Weights of one give plain binary cross-entropy. Source: Fed-GraB.
    """
    truth = is_label(labels, logits.shape[-1])
    terms = -F.logsigmoid(torch.where(truth, logits, -logits))
    return (torch.where(truth, positive.detach(), negative.detach()) * terms).sum(-1)
