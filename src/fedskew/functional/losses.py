"""Cross-entropy, focal loss and class counts. B rows, C classes.

Each loss returns one value for each row, [B], so that you average with your own mask. All losses of this package work
under ``torch.vmap`` and ``torch.func.grad`` and stay finite for zero counts, single-class clients and large logits. A
loss that ignores missing classes never ignores a row's own label, so padded rows (label 0) stay finite too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedskew.functional._numeric import is_label, per_label, pick

__all__ = ["class_counts", "cross_entropy", "focal_loss"]


def class_counts(labels: Tensor, classes: int, mask: Tensor | None = None) -> Tensor:
    """Count the labels of each class.

    Args:
        labels: Class numbers in [0, C), int64 [B].
        classes: Number of classes C.
        mask: Weight of each row, [B]; 0 leaves out a padded row. None counts every row once.

    Returns:
        Rows of each class, [C], in the mask's dtype; float32 without a mask.

    Example:
        >>> import torch
        >>> from fedskew.functional import class_counts
        >>> class_counts(torch.tensor([0, 0, 2, 0]), 3, mask=torch.tensor([1.0, 1.0, 1.0, 0.0]))
        tensor([2., 0., 1.])
    """
    hits = is_label(labels, classes)  # [B, C]
    if mask is None:
        return hits.to(torch.float32).sum(-2)
    return (hits * mask.unsqueeze(-1)).sum(-2)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of each row.

        L_b = -log softmax(z_b)_y = logsumexp(z_b) - z_by

    Args:
        logits: Logits z, [B, C].
        labels: Class numbers in [0, C), int64 [B].

    Returns:
        Loss of each row in nats, [B].

    Example:
        >>> import torch
        >>> from fedskew.functional import cross_entropy
        >>> cross_entropy(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
        tensor([0.4076])
    """
    return -pick(logits.log_softmax(-1), labels)


def focal_loss(logits: Tensor, labels: Tensor, gamma: float = 2.0, alpha: Tensor | float | None = None) -> Tensor:
    """Focal loss of each row: cross-entropy that counts well-classified rows less.

        L_b = -alpha_y (1 - p_y)^gamma log p_y,   p = softmax(z)

    The factor (1 - p_y)^gamma is not detached, so gradients flow through it.

    Args:
        logits: Logits z, [B, C].
        labels: Class numbers in [0, C), int64 [B].
        gamma: Focusing exponent, at least 0. 0 gives weighted cross-entropy.
        alpha: Weight of each class, [C], or one weight for all. None means 1.

    Returns:
        Loss of each row in nats, [B].

    Example:
        >>> import torch
        >>> from fedskew.functional import focal_loss
        >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0])
        >>> focal_loss(logits, labels)
        tensor([0.0457])
        >>> focal_loss(logits, labels, gamma=0.0)
        tensor([0.4076])

    References:
        Sarkar, Narang and Rai 2020, Fed-Focal Loss for Imbalanced Data Classification in Federated Learning.
        https://arxiv.org/abs/2011.06283
        Lin et al. 2017, Focal Loss for Dense Object Detection (ICCV). https://arxiv.org/abs/1708.02002
    """
    log_p = pick(logits.log_softmax(-1), labels)
    rest = -torch.expm1(log_p)  # 1 - p without cancellation
    # At p = 1 a power below one has an infinite slope; the limit of value and gradient is that of -log p: zero.
    loss = torch.where(rest > 0, torch.where(rest > 0, rest, 1.0) ** gamma, 1.0) * -log_p
    if alpha is None:
        return loss
    return loss * (per_label(alpha, labels) if isinstance(alpha, Tensor) and alpha.dim() else alpha)
