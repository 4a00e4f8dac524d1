"""Class weights, importance weights, margins and distillation of absent classes: related methods for class imbalance.

B rows, C classes, F features.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedskew.functional._numeric import as_float, is_label, nonzero, per_label, unit
from fedskew.functional.losses import cross_entropy

__all__ = [
    "balancefl_terms",
    "class_balanced_weights",
    "cosine_logits",
    "covariance_root",
    "importance_weights",
    "ldam_logits",
    "ldam_margins",
    "weighted_cross_entropy",
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


def class_balanced_weights(counts: Tensor, beta: float = 0.9999) -> Tensor:
    """Class weights by the effective number of rows (class-balanced loss).

        w_c proportional to (1 - beta) / (1 - beta^{n_c}) over the owned classes

    Args:
        counts: Rows n of each class, [..., C].
        beta: In [0, 1). 0 gives ones; towards 1 the weights become proportional to 1 / n_c.

    Returns:
        Weights, float64 [..., C]. They sum to the number of owned classes; a class without rows has 0.

    Example:
        >>> import torch
        >>> from fedskew.functional import class_balanced_weights
        >>> class_balanced_weights(torch.tensor([1, 2]), beta=0.9)
        tensor([1.3103, 0.6897], dtype=torch.float64)

    References:
        Cui et al. 2019, Class-Balanced Loss Based on Effective Number of Samples (CVPR).
        https://arxiv.org/abs/1901.05555
    """
    n = counts.to(torch.float64)
    owned = n > 0
    effective = -torch.expm1(n * torch.log(torch.tensor(beta, dtype=torch.float64))) if beta > 0 else owned.to(n)
    raw = torch.where(owned, (1 - beta) / torch.where(owned, effective, 1.0), torch.zeros_like(n))
    total = raw.sum(-1, keepdim=True)
    return raw * owned.sum(-1, keepdim=True) / torch.where(total > 0, total, 1.0)


def ldam_margins(counts: Tensor, largest: float = 0.5) -> Tensor:
    """Margins of LDAM: rare classes get the largest.

        Delta_c = largest * (n_min / n_c)^(1/4),   n_min over the owned classes

    Args:
        counts: Rows n of each class, [..., C].
        largest: Margin of the rarest class, at least 0.

    Returns:
        Margins, [..., C]; 0 for a class without rows.

    Example:
        >>> import torch
        >>> from fedskew.functional import ldam_margins
        >>> ldam_margins(torch.tensor([16, 1]))
        tensor([0.2500, 0.5000])

    References:
        Cao et al. 2019, Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss (NeurIPS).
        https://arxiv.org/abs/1906.07413
    """
    n = as_float(counts)
    least = torch.where(n > 0, n, torch.inf).amin(-1, keepdim=True)
    return torch.where(n > 0, largest * (least / nonzero(n)) ** 0.25, torch.zeros_like(n))


def ldam_logits(cosines: Tensor, labels: Tensor, margins: Tensor, scale: float = 30.0) -> Tensor:
    """Logits of LDAM: cosines with a margin subtracted at the label, times a scale.

        scale * (z - Delta_y e_y)

    Args:
        cosines: z, cosines of normalised features and rows, [B, C]; see `cosine_logits`.
        labels: Class numbers y in [0, C), int64 [B].
        margins: Delta, [C], from `ldam_margins`.
        scale: Positive.

    Returns:
        Logits for cross-entropy, [B, C].

    Example:
        >>> import torch
        >>> from fedskew.functional import cross_entropy, ldam_logits
        >>> labels = torch.tensor([0, 1])
        >>> logits = ldam_logits(torch.tensor([[0.2, 0.1]] * 2), labels, torch.tensor([0.25, 0.5]), scale=10.0)
        >>> logits, cross_entropy(logits, labels)
        (tensor([[-0.5000,  1.0000],
                [ 2.0000, -4.0000]]), tensor([1.7014, 6.0025]))

    References:
        Cao et al. 2019, Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss (NeurIPS).
        https://arxiv.org/abs/1906.07413
    """
    truth = is_label(labels, cosines.shape[-1])
    return scale * (cosines - torch.where(truth, margins.to(cosines), torch.zeros_like(cosines)))


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


def weighted_cross_entropy(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Cross-entropy of each row times the weight of its class.

    Args:
        logits: [B, C].
        labels: Class numbers in [0, C), int64 [B].
        weights: Weight of each class, [C].

    Returns:
        Loss of each row, [B].

    Example:
        >>> import torch
        >>> from fedskew.functional import weighted_cross_entropy
        >>> weighted_cross_entropy(torch.zeros(2, 2), torch.tensor([0, 1]), torch.tensor([1.0, 3.0]))
        tensor([0.6931, 2.0794])
    """
    return per_label(weights.to(logits), labels) * cross_entropy(logits, labels)
