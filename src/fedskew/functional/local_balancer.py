"""Local balancer of FedBal."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedskew.functional._numeric import as_float, choose, counts_for, drop_missing, nonzero
from fedskew.functional.losses import cross_entropy

__all__ = ["balance_schedule", "balanced_logits", "imbalance_gap", "local_balancer_loss"]


def imbalance_gap(counts: Tensor) -> Tensor:
    """How far each class is behind the largest, in log counts: lambda [C] in [0, 1], all 0 when the counts are equal.

    lambda_j = (log n_max - log n_j) / (log n_max - log n_min) with every count clamped to 1 from below.
    Source: FedBal, local balancer; the definition of Feature-Balanced Loss.
    """
    log_n = as_float(counts).clamp(min=1).log()
    top, bottom = log_n.amax(-1, keepdim=True), log_n.amin(-1, keepdim=True)
    return (top - log_n) / nonzero(top - bottom)


def balance_schedule(index: Tensor | float, total: Tensor | float) -> Tensor | float:
    """alpha(k) = (k / K)^2 for a one-based index k of K (epochs, steps or rounds). Source: FedBal, local balancer."""
    return (index / total) ** 2


def balanced_logits(
    logits: Tensor, features: Tensor, gap: Tensor, strength: Tensor | float, eps: float = 1e-12
) -> Tensor:
    """z_j - strength * lambda_j / (||f||_2 + eps): [B, C], with the gradient flowing through the norm.

    logits [B, C], features [B, F], gap [C], strength () = alpha(k) * A. A row whose features are all zero is shifted by
    strength * lambda_j / eps. Source: FedBal, local balancer; its eps is 1e-12.
    """
    norm: Tensor = torch.linalg.vector_norm(features, dim=-1, keepdim=True)  # [B, 1]
    return logits - strength * gap / (norm + eps)


def local_balancer_loss(
    logits: Tensor,
    features: Tensor,
    labels: Tensor,
    counts: Tensor,
    strength: Tensor | float,
    missing: Literal["clamp1", "mask"] = "clamp1",
    eps: float = 1e-12,
) -> Tensor:
    """Cross-entropy of the balanced logits, [B]; counts [C] are the client's own.

    A class the client lacks counts as one sample ("clamp1"), or also leaves the denominator ("mask"); lambda is the
    same in both. Raises ConfigError for another ``missing``. Source: FedBal, local balancer.
    """
    choose("missing", missing, ("clamp1", "mask"))
    balanced = balanced_logits(logits, features, imbalance_gap(counts_for(logits, counts)), strength, eps)
    if missing == "mask":
        balanced = drop_missing(balanced, labels, counts <= 0)
    return cross_entropy(balanced, labels)
