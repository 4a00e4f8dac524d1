"""Importance weights, cosines and distillation of absent classes: related methods for class imbalance.

B rows, C classes, F features.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedskew.functional._numeric import as_float, is_label, nonzero, unit
from fedskew.functional.losses import cross_entropy

__all__ = [
    "balancefl_terms",
    "cosine_logits",
    "covariance_root",
    "importance_weights",
]


def importance_weights(prior: Tensor, counts: Tensor) -> Tensor:
    """Importance weights of FedIR: the ratio of the global and the client's label distribution.

        w_c = p_c / q_c,   q = counts / sum(counts)

    Average a batch with sum_b w_b L_b / sum_b w_b.

    Args:
        prior: Global label distribution p, [..., C].
        counts: Rows of each class at the client, [..., C].

    Returns:
        Weights, [..., C]; 0 for a class without rows. p = q gives ones.

    Example:
        >>> import torch
        >>> from fedskew.functional import importance_weights
        >>> importance_weights(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([8, 2, 0]))
        tensor([0.6250, 1.5000, 0.0000])

    References:
        Hsu, Qi and Brown 2020, Federated Visual Classification with Real-World Data Distribution (ECCV), FedIR.
        https://arxiv.org/abs/2003.08082
    """
    q = as_float(counts) / nonzero(as_float(counts).sum(-1, keepdim=True))
    return torch.where(q > 0, prior.to(q) / nonzero(q), torch.zeros_like(q))


def cosine_logits(features: Tensor, weight: Tensor) -> Tensor:
    """Cosines of features and classifier rows.

    Args:
        features: [B, F].
        weight: Classifier rows, [C, F].

    Returns:
        Cosines in [-1, 1], [B, C]; 0 where a vector is zero.

    Example:
        >>> import torch
        >>> from fedskew.functional import cosine_logits
        >>> cosine_logits(torch.tensor([[3.0, 4.0]]), torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
        tensor([[0.6000, 0.8000]])
    """
    return unit(features) @ unit(weight).transpose(-1, -2)


def covariance_root(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Square root of the pooled within-class covariance of features, for BalanceFL's feature augmentation.

        R R^T = (1 / B) sum_b (f_b - mean of its class) (f_b - mean of its class)^T

    Noise R xi with standard normal xi has this covariance. R comes from Cholesky in float64, with 1e-12 of the mean
    variance added to the diagonal: features that a ReLU keeps at zero make the matrix singular.

    Args:
        features: f, [B, F].
        labels: Class numbers in [0, C), int64 [B].
        classes: Number of classes C.

    Returns:
        R, lower triangular, [F, F].

    Example:
        >>> import torch
        >>> from fedskew.functional import covariance_root
        >>> features = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 5.0], [0.0, 5.0]])
        >>> covariance_root(features, torch.tensor([0, 0, 1, 1]), 2).round(decimals=4)
        tensor([[0.7071, 0.0000],
                [0.0000, 0.0000]])

    References:
        Shuai et al. 2022, BalanceFL: Addressing Class Imbalance in Long-Tail Federated Learning (IPSN), feature
        augmentation. https://github.com/sxontheway/BalanceFL
    """
    wide = features.to(torch.float64)
    truth = is_label(labels, classes).to(wide)
    means = truth.T @ wide / nonzero(truth.sum(0)).unsqueeze(1)
    centred = wide - means[labels]
    covariance = centred.T @ centred / max(len(features), 1)
    lift = 1e-12 * covariance.diagonal().mean() + 1e-30
    identity = torch.eye(len(covariance), dtype=wide.dtype, device=wide.device)
    root: Tensor = torch.linalg.cholesky_ex(covariance + lift * identity).L
    return root.to(features.dtype)


def balancefl_terms(
    logits: Tensor,
    augmented: Tensor,
    teacher: Tensor,
    labels: Tensor,
    positive: Tensor,
    temperature: float = 2.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """The three terms of BalanceFL's local loss.

        classification:  cross-entropy of the augmented logits over the positive classes
        distillation:    -sum_{c negative} t_c log s_c,  t, s the softmax over the negatives of z^g / T, z / T
        entropy:         -sum_{c positive} p_c log p_c,   p the softmax of z over the positives

    The authors' loss is mean(classification) + lambda mean(distillation) - 0.002 sum(entropy), lambda = 1.

    Args:
        logits: Logits z, [B, C].
        augmented: Logits of augmented features, [B, C].
        teacher: Logits z^g of the global model, [B, C]; detached.
        labels: Class numbers in [0, C), int64 [B], all of positive classes.
        positive: Bool [C]. The paper takes the client's classes, the authors' code those of the batch.
        temperature: T, positive.

    Returns:
        (classification, distillation, entropy), each [B] in nats. Without negative classes the distillation is 0; with
        one positive class the classification and the entropy are 0.

    Example:
        >>> import torch
        >>> from fedskew.functional import balancefl_terms
        >>> z, teacher = torch.tensor([[2.0, 1.0, 0.0, -1.0]]), torch.tensor([[1.0, 1.0, 2.0, 0.0]])
        >>> balancefl_terms(z, z, teacher, torch.tensor([0]), torch.tensor([True, True, False, False]))
        (tensor([0.3133]), tensor([0.6085]), tensor([0.5822]))

    References:
        Shuai et al. 2022, BalanceFL: Addressing Class Imbalance in Long-Tail Federated Learning (IPSN).
        https://github.com/sxontheway/BalanceFL
    """
    low = torch.finfo(logits.dtype).min / 4
    only_pos = torch.where(positive, torch.zeros_like(logits), torch.full_like(logits, low))
    only_neg = torch.where(positive, torch.full_like(logits, low), torch.zeros_like(logits))
    classify = cross_entropy(augmented + only_pos, labels)
    wanted = (teacher.detach() / temperature + only_neg).softmax(-1)
    spoken = F.log_softmax(logits / temperature + only_neg, -1)
    distil = -torch.where(positive, torch.zeros_like(spoken), wanted * spoken).sum(-1)
    log_p = F.log_softmax(logits + only_pos, -1)
    entropy = -torch.where(positive, log_p.exp() * log_p, torch.zeros_like(log_p)).sum(-1)
    return classify, distil, entropy
