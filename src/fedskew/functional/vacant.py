"""Losses of FedVLS for clients that lack classes. B rows, C classes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedskew.functional._numeric import counts_for, is_label
from fedskew.functional.losses import cross_entropy

__all__ = ["fedvls_loss", "logit_suppression", "vacant_distillation"]

FLOOR = 1e-9  # added to every share before its logarithm, as in the authors' code


def _log_share(logits: Tensor, counts: Tensor) -> Tensor:
    """log(n_c / n + 1e-9), [C], in the dtype of the logits."""
    wide = counts_for(logits, counts).float() if counts.dtype.itemsize < 4 else counts_for(logits, counts)
    return (wide / wide.sum(-1, keepdim=True).clamp(min=1) + FLOOR).log().to(logits)


def fedvls_loss(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """Cross-entropy of logits moved by the logarithm of the client's class shares.

        CE(z + log(n / sum n + 1e-9), y)

    A class that the client lacks keeps a small part in the softmax, where `logit_adjusted_loss` leaves it out.

    Args:
        logits: Logits z, [B, C].
        labels: Class numbers y in [0, C), int64 [B].
        counts: Rows of each class at the client, [C].

    Returns:
        Loss of each row in nats, [B].

    Example:
        >>> import torch
        >>> from fedskew.functional import fedvls_loss
        >>> fedvls_loss(torch.zeros(2, 2), torch.tensor([0, 1]), torch.tensor([3.0, 1.0]))
        tensor([0.2877, 1.3863])

    References:
        Guo et al. 2025, Exploring Vacant Classes in Label-Skewed Federated Learning (AAAI).
        https://arxiv.org/abs/2401.02329
    """
    return cross_entropy(logits + _log_share(logits, counts), labels)


def vacant_distillation(logits: Tensor, teacher: Tensor, vacant: Tensor) -> Tensor:
    """Divergence from the global model over the classes that the client lacks.

        KL( softmax(z^g_vacant) || softmax(z_vacant) )

    Args:
        logits: Logits z of the local model, [B, C].
        teacher: Logits z^g of the global model, [B, C]; detached.
        vacant: Whether the client lacks the class, bool [C].

    Returns:
        Term of each row in nats, [B]; 0 where the client lacks no class or one class.

    Example:
        >>> import torch
        >>> from fedskew.functional import vacant_distillation
        >>> z, teacher = torch.tensor([[5.0, 1.0, 0.0]]), torch.tensor([[0.0, 1.0, 2.0]])
        >>> vacant_distillation(z, teacher, torch.tensor([False, True, True]))
        tensor([0.4621])

    References:
        Guo et al. 2025, Exploring Vacant Classes in Label-Skewed Federated Learning (AAAI).
        https://arxiv.org/abs/2401.02329
    """
    some = vacant.any()
    hidden = ~vacant & some  # without a vacant class nothing is hidden, and the term is dropped below

    def log_probabilities(z: Tensor) -> Tensor:
        return z.masked_fill(hidden, -torch.inf).log_softmax(-1).masked_fill(hidden, 0.0)

    target = log_probabilities(teacher.detach())
    weight = target.exp().masked_fill(hidden, 0.0) * some
    return (weight * (target - log_probabilities(logits))).sum(-1)


def logit_suppression(logits: Tensor, labels: Tensor, counts: Tensor, mask: Tensor) -> Tensor:
    """Suppression of logits in rows of other classes, by the client's class shares pi = n / sum n.

        sum_c pi_c log( (1 / B) sum_b exp(1[y_b != c] (z_bc - log(pi_c + 1e-9) + log(1 / C + 1e-9))) )

    A row of class c counts with exp(0) = 1, as the authors' code has it.

    Args:
        logits: Logits z, [B, C].
        labels: Class numbers y in [0, C), int64 [B].
        counts: Rows of each class at the client, [C].
        mask: 1 for real rows, 0 for padding, [B].

    Returns:
        The term, (). It may be negative.

    Example:
        >>> import torch
        >>> from fedskew.functional import logit_suppression
        >>> logits, labels = torch.tensor([[4.0, 1.0], [0.0, 4.0]]), torch.tensor([0, 1])
        >>> logit_suppression(logits, labels, torch.tensor([1.0, 1.0]), torch.ones(2))
        tensor(0.3101)

    References:
        Guo et al. 2025, Exploring Vacant Classes in Label-Skewed Federated Learning (AAAI).
        https://arxiv.org/abs/2401.02329
    """
    classes = logits.shape[-1]
    moved = logits - _log_share(logits, counts) + math.log(1 / classes + FLOOR)
    other = moved.masked_fill(is_label(labels, classes), 0.0)
    least = torch.finfo(logits.dtype).min / 2  # finite, so that a mini-batch of padding alone stays finite
    pooled = other.masked_fill(mask.unsqueeze(1) == 0, least).logsumexp(0) - mask.sum().clamp(min=1).log()
    share = counts.to(logits) / counts.to(logits).sum().clamp(min=1)
    return torch.where(mask.sum() > 0, (share * pooled).sum(), torch.zeros_like(pooled.sum()))
