"""Gradient alignment of FedGA."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedskew.functional._numeric import choose, counts_for, is_label, nonzero, per_label
from fedskew.functional.losses import class_counts

__all__ = ["fedga_binary_loss", "fedga_binary_targets", "fedga_loss", "fedga_targets"]


def fedga_targets(logits: Tensor, labels: Tensor, counts: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    """Calibrated targets q [B, C], detached: 1 at the label j, ((N_j - N_i) / N_j) p_i at the others.

    ``counts`` [C] default to those of the batch, of the rows with ``mask`` 1. Entries may be negative and a row need
    not sum to one: that sign is what enlarges the gradient of rare classes, so nothing is clamped or renormalised.
    Source: FedGA, calibrated label; per-sample p as in the authors' code.
    """
    shifted, partition, _ = _log_partition(logits.detach())
    return _calibrated((shifted - partition).exp(), labels, counts, mask)


def _calibrated(probabilities: Tensor, labels: Tensor, counts: Tensor | None, mask: Tensor | None) -> Tensor:
    """See `fedga_targets`."""
    classes = probabilities.shape[-1]
    if counts is None:
        counts = class_counts(labels, classes, mask)
    counts = counts_for(probabilities, counts)
    own = per_label(counts, labels).unsqueeze(-1)  # N_j, [B, 1]
    share = (own - counts) / nonzero(own)
    return torch.where(is_label(labels, classes), torch.ones_like(probabilities), share * probabilities)


def _log_partition(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Shifted logits [B, C], their logsumexp [B, 1] and the shift [B, 1]: z - max, log sum e^{z - max}, max.

    p = exp(shifted - logsumexp) is then, bit for bit, the gradient of the logsumexp, so that the exact form's p - q of
    an absent class (q = p) is zero and not rounding; the shift keeps it accurate for large logits.
    """
    shift = logits.detach().amax(-1, keepdim=True)
    shifted = logits - shift
    return shifted, shifted.logsumexp(-1, keepdim=True), shift


def fedga_loss(
    logits: Tensor,
    labels: Tensor,
    counts: Tensor | None = None,
    mask: Tensor | None = None,
    form: Literal["softce", "exact"] = "softce",
) -> Tensor:
    """FedGA's loss of every row, [B]. A batch with equally many rows of every class gives cross-entropy.

    "softce", as the authors run it: -sum_i q_i log p_i, gradient (sum q) p - q.
    "exact", as the derivation needs it: logsumexp(z) - sum_i q_i z_i, gradient p - q.
    Raises ConfigError for another ``form``. Source: FedGA.
    """
    choose("form", form, ("softce", "exact"))
    if form == "exact":
        targets = fedga_targets(logits, labels, counts, mask)
        _, partition, shift = _log_partition(logits)
        return (partition + shift).squeeze(-1) - (targets * logits).sum(-1)
    scores = logits.log_softmax(-1)
    return -(_calibrated(scores.detach().exp(), labels, counts, mask) * scores).sum(-1)


def fedga_binary_targets(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """Calibrated targets [B], detached, for one sigmoid output; logits [B], labels [B] in {0, 1}, counts [2].

    A negative gets max(0, (N0 - N1) / N0) p, a positive 1 - max(0, (N1 - N0) / N1) (1 - p): the residual p - q of the
    larger class shrinks to the smaller one's share, which brings the error asymmetry to 1. Source: FedGA, binary form.
    """
    counts = counts_for(logits, counts)
    probability = logits.detach().sigmoid()
    excess = ((counts - counts.flip(-1)) / nonzero(counts)).clamp(min=0)  # [2]
    return torch.where(labels == 1, 1 - excess[..., 1] * (1 - probability), excess[..., 0] * probability)


def fedga_binary_loss(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """Binary cross-entropy of two logits under `fedga_binary_targets`, [B]; logits [B, 2], labels [B], counts [2].

    The one sigmoid output is z_1 - z_0, so that the residual p - q reaches both logits with opposite signs; equal
    counts give cross-entropy. Source: FedGA, binary form.
    """
    score = logits[..., 1] - logits[..., 0]
    targets = fedga_binary_targets(score, labels, counts)
    return -(targets * F.logsigmoid(score) + (1 - targets) * F.logsigmoid(-score))
