"""The local balancer of FedBal: logits lowered by an offset that shrinks with the feature norm.

FedBal applies Feature-Balanced Loss at each client, with the client's own class counts. B rows, C classes, F features.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedskew.functional._numeric import as_float, choose, counts_for, drop_missing, nonzero
from fedskew.functional.losses import cross_entropy

__all__ = ["balance_schedule", "balanced_logits", "imbalance_gap", "local_balancer_loss"]


def imbalance_gap(counts: Tensor) -> Tensor:
    """Distance of each class from the largest one, in log counts, scaled to [0, 1].

        lambda_j = (log n_max - log n_j) / (log n_max - log n_min),   every count raised to at least 1

    Args:
        counts: Rows of each class at the client, [..., C].

    Returns:
        lambda, [..., C]: 0 for the largest class, 1 for the smallest; all 0 when the counts are equal.

    Example:
        >>> import torch
        >>> from fedskew.functional import imbalance_gap
        >>> imbalance_gap(torch.tensor([100, 10, 1]))
        tensor([0.0000, 0.5000, 1.0000])

    References:
        Anonymous 2023, Knowledge Is Not Wisdom: Weight Balancing Mechanism for Local and Global Training in Federated
        Learning (submission, no public copy), local balancer.
        Li, Cheung and Jiang 2022, Feature-Balanced Loss for Long-Tailed Visual Recognition (ICME).
        https://arxiv.org/abs/2305.10772
    """
    log_n = as_float(counts).clamp(min=1).log()
    top, bottom = log_n.amax(-1, keepdim=True), log_n.amin(-1, keepdim=True)
    return (top - log_n) / nonzero(top - bottom)


def balance_schedule(index: Tensor | float, total: Tensor | float) -> Tensor | float:
    """Strength of the local balancer over training, growing from near 0 to 1.

        alpha(k) = (k / K)^2

    Args:
        index: One-based index k of the epoch, step or round, 1 to K; a number or a tensor ().
        total: Number K of epochs, steps or rounds.

    Returns:
        alpha(k) in (0, 1], of the type of the arguments.

    Example:
        >>> from fedskew.functional import balance_schedule
        >>> [balance_schedule(k, 4) for k in (1, 2, 3, 4)]
        [0.0625, 0.25, 0.5625, 1.0]

    References:
        Anonymous 2023, Knowledge Is Not Wisdom: Weight Balancing Mechanism for Local and Global Training in Federated
        Learning (submission, no public copy), local balancer, where k counts local epochs.
        Li, Cheung and Jiang 2022, Feature-Balanced Loss for Long-Tailed Visual Recognition (ICME).
        https://arxiv.org/abs/2305.10772
    """
    return (index / total) ** 2


def balanced_logits(
    logits: Tensor, features: Tensor, gap: Tensor, strength: Tensor | float, eps: float = 1e-12
) -> Tensor:
    """Logits lowered in proportion to the rarity of the class and the inverse feature norm.

        z^b_j = z_j - strength * lambda_j / (||f||_2 + eps)

    Gradients flow through the norm: rare classes learn larger features.

    Args:
        logits: Logits z, [B, C].
        features: Input f of the classifier, [B, F].
        gap: lambda, [C], from `imbalance_gap`.
        strength: alpha(k) * A, at least 0: `balance_schedule` times a scale A. The code of Feature-Balanced Loss has
            A = 60 for CIFAR and 150 for ImageNet.
        eps: Added to the norm. A row with zero features is lowered by strength * lambda_j / eps, so 1e-12, which the
            paper has, makes its loss very large.

    Returns:
        Balanced logits, [B, C].

    Example:
        >>> import torch
        >>> from fedskew.functional import balanced_logits
        >>> features = torch.tensor([[3.0, 4.0]])  # norm 5
        >>> balanced_logits(torch.ones(1, 3), features, torch.tensor([0.0, 0.5, 1.0]), 10.0)
        tensor([[ 1.,  0., -1.]])

    References:
        Anonymous 2023, Knowledge Is Not Wisdom: Weight Balancing Mechanism for Local and Global Training in Federated
        Learning (submission, no public copy), local balancer.
        Li, Cheung and Jiang 2022, Feature-Balanced Loss for Long-Tailed Visual Recognition (ICME).
        https://arxiv.org/abs/2305.10772
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
    """Loss of FedBal's local balancer: cross-entropy of the balanced logits.

        L_b = -log softmax(z^b)_y,   z^b_j = z_j - strength * lambda_j / (||f||_2 + eps)

    Equal counts or strength 0 give plain cross-entropy. Evaluate with the raw logits z.

    Args:
        logits: Logits z, [B, C].
        features: Input f of the classifier, [B, F].
        labels: Class numbers in [0, C), int64 [B].
        counts: Rows of each class at the client, [C].
        strength: alpha(k) * A, at least 0.
        missing: What a class without rows does. "clamp1" counts it as one row. "mask" also takes it out of the softmax.
            The paper does not say; lambda is the same in both.
        eps: Added to the feature norm.

    Returns:
        Loss of each row in nats, [B].

    Raises:
        ConfigError: ``missing`` is not "clamp1" or "mask".

    Example:
        >>> import torch
        >>> from fedskew.functional import local_balancer_loss
        >>> logits, features = torch.ones(3, 3), torch.tensor([[3.0, 4.0]]).repeat(3, 1)
        >>> local_balancer_loss(logits, features, torch.arange(3), torch.tensor([100, 10, 1]), strength=10.0)
        tensor([0.4076, 1.4076, 2.4076])

    References:
        Anonymous 2023, Knowledge Is Not Wisdom: Weight Balancing Mechanism for Local and Global Training in Federated
        Learning (submission, no public copy), local balancer.
        Li, Cheung and Jiang 2022, Feature-Balanced Loss for Long-Tailed Visual Recognition (ICME).
        https://arxiv.org/abs/2305.10772
    """
    choose("missing", missing, ("clamp1", "mask"))
    balanced = balanced_logits(logits, features, imbalance_gap(counts_for(logits, counts)), strength, eps)
    if missing == "mask":
        balanced = drop_missing(balanced, labels, counts <= 0)
    return cross_entropy(balanced, labels)
