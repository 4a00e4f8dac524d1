"""Per-sample losses."""

from __future__ import annotations

import torch
from torch import Tensor

from fedskew.functional._numeric import is_label, per_label, pick

__all__ = ["class_counts", "cross_entropy", "focal_loss"]


def class_counts(labels: Tensor, classes: int, mask: Tensor | None = None) -> Tensor:
    """Histogram of labels [B] over C classes, rows weighted by ``mask`` [B]: [C] in the mask's dtype, else float32."""
    hits = is_label(labels, classes)  # [B, C]
    if mask is None:
        return hits.to(torch.float32).sum(-2)
    return (hits * mask.unsqueeze(-1)).sum(-2)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """-log softmax(z)_y of every row, [B]; logits [B, C], labels [B]. In nats."""
    return -pick(logits.log_softmax(-1), labels)


def focal_loss(logits: Tensor, labels: Tensor, gamma: float = 2.0, alpha: Tensor | float | None = None) -> Tensor:
    """-alpha_y (1 - p_y)^gamma log p_y, [B]; alpha [C], () or None for 1. gamma = 0 gives cross-entropy.

    The factor (1 - p_y)^gamma is not detached. Source: Fed-Focal.
    """
    log_p = pick(logits.log_softmax(-1), labels)
    rest = -torch.expm1(log_p)  # 1 - p without cancellation
    # At p = 1 a power below one has an infinite slope; the limit of value and gradient is that of -log p: zero.
    loss = torch.where(rest > 0, torch.where(rest > 0, rest, 1.0) ** gamma, 1.0) * -log_p
    if alpha is None:
        return loss
    return loss * (per_label(alpha, labels) if isinstance(alpha, Tensor) and alpha.dim() else alpha)
