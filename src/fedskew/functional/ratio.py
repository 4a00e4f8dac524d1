"""The ratio loss (FedRL) and its monitor. P = C classes; delta_w [P, C, F] holds the change of the classifier's
weight after training on auxiliary data of class p alone."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedskew.functional._numeric import choose, nonzero, per_label
from fedskew.functional.losses import cross_entropy

__all__ = ["ratio_loss", "ratio_masks", "ratio_monitor", "ratio_of_changes", "ratio_of_rows", "ratio_weights"]


def _largest_other(values: Tensor) -> Tensor:
    """max_{q != p} values_q for every p, along the first axis [P, ...]."""
    first, second = values.topk(2, dim=0).values
    return torch.where(values == first, second, first)  # a tie makes first and second equal


def _mean_other(delta_w: Tensor) -> Tensor:
    """mean_{q != p} delta_w_q for every p, [P, C, F]."""
    return (delta_w.sum(0, keepdim=True) - delta_w) / (len(delta_w) - 1)


def ratio_masks(delta_w: Tensor, threshold: float = 0.8, by: Literal["signed", "magnitude"] = "signed") -> Tensor:
    """M_p, bool [P, C, F]: weights where p changes most and no other class exceeds ``threshold`` of its magnitude.

    "Most" is by signed value, as in the authors' code, or by magnitude; the threshold test is by magnitude in both. A
    tie belongs to nobody. Raises ConfigError for another ``by``. Source: ratio loss.
    """
    choose("by", by, ("signed", "magnitude"))
    size = delta_w.abs()
    ranked = delta_w if by == "signed" else size
    return (ranked > _largest_other(ranked)) & (_largest_other(size) <= threshold * size)


def ratio_of_changes(
    delta_w: Tensor,
    threshold: float = 0.8,
    nan_value: float = 10.0,
    cap: float = 5000.0,
    by: Literal["signed", "magnitude"] = "signed",
) -> Tensor:
    """Ra_p = |sum_{M_p} delta_w_p| / |sum_{M_p} mean_{q != p} delta_w_q|, [P].

    ``nan_value`` where the denominator is 0, and never above ``cap``. Source: ratio loss.
    """
    masks = ratio_masks(delta_w, threshold, by)
    own = (delta_w * masks).sum((-2, -1)).abs()
    rest = (_mean_other(delta_w) * masks).sum((-2, -1)).abs()
    return torch.where(rest > 0, own / nonzero(rest), nan_value).clamp(max=cap)


def ratio_of_rows(delta_w: Tensor, nan_value: float = 10.0, cap: float = 5000.0) -> Tensor:
    """Ra_p = |mean_j delta_w_p[p, j] / mean_{q != p} delta_w_q[p, j]| on row p, [P]: the CLIMB authors' copy.

    Weights whose divisor is 0 are left out; ``nan_value`` where none is left, and never above ``cap``.
    """
    own, rest = (torch.diagonal(d, dim1=0, dim2=1).mT for d in (delta_w, _mean_other(delta_w)))  # [P, F]
    valid = rest != 0
    mean = torch.where(valid, own / nonzero(rest), 0.0).sum(-1) / nonzero(valid.sum(-1))
    return torch.where(valid.any(-1), mean.abs(), nan_value).clamp(max=cap)


def ratio_weights(ratios: Tensor, alpha: float = 1.0, beta: float = 0.1) -> Tensor:
    """Class weights alpha + beta Ra_c, [C]. Source: ratio loss."""
    return alpha + beta * ratios


def ratio_loss(
    logits: Tensor, labels: Tensor, weights: Tensor, broken_broadcast: bool = False, mask: Tensor | None = None
) -> Tensor:
    """weights_y * cross-entropy of every row, [B]; logits [B, C], weights [C]. Weights of one give cross-entropy.

    ``broken_broadcast`` reproduces the official code, whose product spreads to B x B: every row is weighted by the
    mean weight of the batch (of the rows with ``mask`` 1), so that the mean is mean(weights) * mean(cross-entropy).
    Source: ratio loss.
    """
    factor = per_label(weights, labels)
    if broken_broadcast:
        real = torch.ones_like(factor) if mask is None else mask
        factor = (factor * real).sum(-1, keepdim=True) / nonzero(real.sum(-1, keepdim=True))
    return factor * cross_entropy(logits, labels)


def ratio_monitor(
    delta_w: Tensor,
    update: Tensor,
    total: Tensor | float,
    scale: Tensor | float = 1.0,
    threshold: float = 0.8,
    by: Literal["signed", "magnitude"] = "signed",
) -> Tensor:
    """Number of training samples of each class, recovered from one global update, [P].

    For every weight of M_p: N_p = (scale (x+ - x) - n rest) / (delta_w_p - rest), rest = mean_{q != p} delta_w_q;
    valid if 0 < N_p < 1.5 n / C; the mean over valid weights, or n / C when there is none.
    update = x+ - x [C, F]; total n = samples of the cohort; scale = (auxiliary samples per class) * (participants).
    Source: ratio loss, monitoring scheme.
    """
    rest = _mean_other(delta_w)
    slope = delta_w - rest
    estimate = (scale * update - total * rest) / nonzero(slope)  # [P, C, F]
    even = total / len(delta_w)
    valid = ratio_masks(delta_w, threshold, by) & (slope != 0) & (estimate > 0) & (estimate < 1.5 * even)
    found = valid.sum((-2, -1))
    return torch.where(found > 0, torch.where(valid, estimate, 0.0).sum((-2, -1)) / nonzero(found), even)
