"""Losses of single rows: cross-entropy, focal loss, and those that shift, scale or weigh by the counts of classes.

B rows, C classes, F features. Counts are the client's own unless you choose others.

Each loss returns one value for each row, [B], so that you average with your own mask. All losses of this package work
under ``torch.vmap`` and ``torch.func.grad`` and stay finite for zero counts, single-class clients and large logits. A
loss that ignores missing classes never ignores a row's own label, so padded rows (label 0) stay finite too.
"""

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from fedskew.functional._numeric import (
    as_float,
    choose,
    counts_for,
    drop_missing,
    is_label,
    nonzero,
    per_label,
    pick,
    unit,
)

__all__ = [
    "balance_schedule", "balanced_logits", "balancefl_terms", "class_balanced_weights", "class_counts",
    "cosine_logits", "covariance_root", "cross_entropy", "fedgr_gamma", "fedlc_loss", "fedrs_scale", "focal_loss",
    "imbalance_gap", "importance_weights", "ldam_logits", "ldam_margins", "local_balancer_loss",
    "logit_adjusted_loss", "unbalanced_softmax_loss", "weighted_cross_entropy",
]  # fmt: skip


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


# Margins, priors and scales of the logits


Gamma = Literal["max1", "raw", "one", "weight"]


def fedlc_loss(
    logits: Tensor,
    labels: Tensor,
    counts: Tensor,
    tau: Tensor | float = 1.0,
    denominator: Literal["full", "exclude_true"] = "full",
    missing: Literal["mask", "tiny"] = "mask",
) -> Tensor:
    """Cross-entropy of logits that are lowered by a margin for each class (FedLC).

        z^c_i = z_i - tau n_i^(-1/4)
        "full":          L = -log( exp(z^c_y) / sum_i exp(z^c_i) )
        "exclude_true":  L = -log( exp(z^c_y) / sum_{i != y} exp(z^c_i) )

    Args:
        logits: Logits z, [B, C].
        labels: Class numbers y in [0, C), int64 [B].
        counts: Rows n of each class at the client, [C].
        tau: Scale of the margins, at least 0. 0 gives cross-entropy.
        denominator: "exclude_true" is the paper's form; its loss is unbounded below and training with it can collapse.
            A row without another class then gives 0. "full" sums over all classes.
        missing: What a class without rows does. Its margin is infinite, so "mask" takes it out of the softmax. "tiny",
            as in FL-bench, counts it as 1e-8 rows: a margin of 100 tau.

    Returns:
        Loss of each row in nats, [B].

    Raises:
        ConfigError: ``denominator`` or ``missing`` is not one of the options.

    Example:
        >>> import torch
        >>> from fedskew.functional import fedlc_loss
        >>> counts = torch.tensor([16.0, 81.0, 1.0])  # margins 1/2, 1/3 and 1
        >>> fedlc_loss(torch.ones(3, 3), torch.arange(3), counts)
        tensor([1.0253, 0.8586, 1.5253])
        >>> fedlc_loss(torch.ones(3, 3), torch.arange(3), counts, denominator="exclude_true")
        tensor([0.5810, 0.3074, 1.2799])

    References:
        Zhang et al. 2022, Federated Learning with Label Distribution Skew via Logits Calibration (ICML), logits
        calibration. https://arxiv.org/abs/2209.00189
    """
    choose("denominator", denominator, ("full", "exclude_true"))
    choose("missing", missing, ("mask", "tiny"))
    n, absent = counts_for(logits, counts), (counts <= 0) & (tau != 0)
    if missing == "tiny":
        n, absent = n.clamp(min=1e-8), torch.zeros_like(absent)
    calibrated = drop_missing(logits - tau * nonzero(n) ** -0.25, labels, absent)
    if denominator == "full":
        return cross_entropy(calibrated, labels)
    truth = is_label(labels, logits.shape[-1])
    alone = ~(~absent & ~truth).any(-1, keepdim=True)  # [B, 1]: nothing to contrast with
    return calibrated.masked_fill(truth & ~alone, -torch.inf).logsumexp(-1) - pick(calibrated, labels)


def logit_adjusted_loss(logits: Tensor, labels: Tensor, counts: Tensor, tau: Tensor | float = 1.0) -> Tensor:
    """Cross-entropy of logits shifted by the log prior of each class (logit adjustment, balanced softmax).

        L = -log softmax(z + tau log(n / sum n))_y

    Args:
        logits: Logits z, [B, C].
        labels: Class numbers y in [0, C), int64 [B].
        counts: Rows n of each class, [C]. A class without rows has prior 0 and leaves the softmax, unless tau is 0.
        tau: Strength of the adjustment. 1 is the balanced softmax, 0 gives cross-entropy.

    Returns:
        Loss of each row in nats, [B].

    Example:
        >>> import torch
        >>> from fedskew.functional import logit_adjusted_loss
        >>> logit_adjusted_loss(torch.zeros(2, 2), torch.tensor([0, 1]), torch.tensor([3, 1]))
        tensor([0.2877, 1.3863])

    References:
        Menon et al. 2021, Long-Tail Learning via Logit Adjustment (ICLR). https://arxiv.org/abs/2007.07314
        Ren et al. 2020, Balanced Meta-Softmax for Long-Tailed Visual Recognition (NeurIPS).
        https://arxiv.org/abs/2007.10740
    """
    n = counts_for(logits, counts)
    prior = nonzero(n) / nonzero(n.sum(-1, keepdim=True))
    return cross_entropy(drop_missing(logits + tau * prior.log(), labels, (n <= 0) & (tau != 0)), labels)


def fedrs_scale(
    counts: Tensor, alpha: Tensor | float = 0.5, scaling: Literal["paper", "code"] = "paper", few: int = 0
) -> Tensor:
    """Factors by which FedRS multiplies the logits; those of missing classes are smaller.

        "paper":  s_c = 1 if n_c > few, else alpha
        "code":   s_c = (1 - alpha) n_c / n_max + alpha

    The loss is the cross-entropy of s * z. alpha = 1 gives plain cross-entropy. alpha = 0 fixes the logit of a missing
    class at 0; it does not remove the class.

    Args:
        counts: Rows n of each class at the client, [..., C].
        alpha: Factor of a missing class, in [0, 1].
        scaling: "paper", or "code" for the rule of the authors' code.
        few: A class with at most this many rows counts as missing. fluke has 2.

    Returns:
        Factors s in [0, 1], [..., C].

    Raises:
        ConfigError: ``scaling`` is not "paper" or "code".

    Example:
        >>> import torch
        >>> from fedskew.functional import cross_entropy, fedrs_scale
        >>> counts = torch.tensor([30, 10, 0])
        >>> fedrs_scale(counts), fedrs_scale(counts, scaling="code")
        (tensor([1.0000, 1.0000, 0.5000]), tensor([1.0000, 0.6667, 0.5000]))
        >>> cross_entropy(fedrs_scale(counts) * torch.tensor([[2.0, 1.0, -1.0]]), torch.tensor([0]))
        tensor([0.3715])

    References:
        Li and Zhan 2021, FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data (KDD),
        restricted softmax. https://doi.org/10.1145/3447548.3467254
    """
    choose("scaling", scaling, ("paper", "code"))
    n = as_float(counts)
    n = torch.where(n > few, n, 0.0)
    share = (n > 0).to(n.dtype) if scaling == "paper" else n / nonzero(n.amax(-1, keepdim=True))
    return (1 - alpha) * share + alpha


def fedgr_gamma(counts: Tensor, gamma: Gamma = "max1", missing: Literal["mask", "code"] = "mask") -> Tensor:
    """Factors of FedGR's unbalanced softmax; rare classes get the largest.

        "raw":             gamma_c = N / n_c,   N = sum_c n_c
        "max1", "weight":  gamma_c = n_min / n_c, in (0, 1];   n_min over the owned classes
        "one":             gamma_c = 1

    Args:
        counts: Rows n of each class at the client, [..., C].
        gamma: "raw" is equation 3; it multiplies logits by up to N. "max1" is the authors' code, the same up to a
            common factor. "weight" has the same values, which weigh the loss and not the logits.
        missing: Factor of a class without rows. "mask" gives 1: `unbalanced_softmax_loss` leaves the class out, as the
            paper's sum does. "code" counts the class as 4 n_max rows, as the authors' code does.

    Returns:
        Factors gamma, [..., C].

    Raises:
        ConfigError: ``gamma`` or ``missing`` is not one of the options.

    Example:
        >>> import torch
        >>> from fedskew.functional import fedgr_gamma
        >>> counts = torch.tensor([100, 10, 0])
        >>> fedgr_gamma(counts), fedgr_gamma(counts, "raw"), fedgr_gamma(counts, missing="code")
        (tensor([0.1000, 1.0000, 1.0000]), tensor([ 1.1000, 11.0000,  1.0000]), tensor([0.1000, 1.0000, 0.0250]))

    References:
        Guo et al. 2023, FedGR: Federated Learning with Gravitation Regulation for Double Imbalance Distribution
        (DASFAA), unbalanced softmax. https://doi.org/10.1007/978-3-031-30637-2_47
    """
    choose("gamma", gamma, get_args(Gamma))
    choose("missing", missing, ("mask", "code"))
    n = as_float(counts)
    if gamma == "one":
        return torch.ones_like(n)
    absent = n <= 0
    smallest = n.masked_fill(absent, torch.inf).amin(-1, keepdim=True)
    top = n.sum(-1, keepdim=True) if gamma == "raw" else torch.where(smallest.isinf(), torch.ones_like(n), smallest)
    if missing == "mask":
        return torch.where(absent, torch.ones_like(n), top / nonzero(n))
    return top / nonzero(torch.where(absent, 4 * n.amax(-1, keepdim=True), n))


def unbalanced_softmax_loss(
    logits: Tensor, labels: Tensor, counts: Tensor, gamma: Gamma = "max1", missing: Literal["mask", "code"] = "mask"
) -> Tensor:
    """Loss of FedGR's unbalanced softmax.

        "max1", "raw", "one":  L = -log( exp(gamma_y z_y) / sum_c exp(gamma_c z_c) )
        "weight":              L = -gamma_y log( exp(z_y) / sum_c exp(z_c) )

    With "one", and with "max1" and equal counts, this is cross-entropy over the owned classes. A batch of "weight" is
    averaged with sum_b L_b / sum_b gamma_{y_b}, so that a common factor of gamma changes nothing.

    The factors scale the logits: training fits gamma z, but prediction uses z, in which a frequent class is
    n_c / n_min times as large. If a client has one row of a class, gamma of its other classes is near 0, and the
    client hardly trains.

    Args:
        logits: Logits z of a classifier without bias, [B, C].
        labels: Class numbers y in [0, C), int64 [B].
        counts: Rows of each class at the client, [C].
        gamma: "max1" (authors' code), "raw" (paper), "one" (the sum over owned classes alone) or "weight" (equations 5
            and 6, in which y_i is overloaded; the authors' file of FedRS has it as a comment); see `fedgr_gamma`.
        missing: "mask" sums over the owned classes (paper), "code" over all classes (authors' code).

    Returns:
        Loss of each row in nats, [B].

    Raises:
        ConfigError: ``gamma`` or ``missing`` is not one of the options.

    Example:
        >>> import torch
        >>> from fedskew.functional import unbalanced_softmax_loss
        >>> logits, labels = torch.tensor([[1.0, 2.0, 3.0]] * 2), torch.tensor([0, 1])
        >>> unbalanced_softmax_loss(logits, labels, torch.tensor([100, 10, 0]))
        tensor([2.0394, 0.1394])

    References:
        Guo et al. 2023, FedGR: Federated Learning with Gravitation Regulation for Double Imbalance Distribution
        (DASFAA), unbalanced softmax. https://doi.org/10.1007/978-3-031-30637-2_47
    """
    factor = fedgr_gamma(counts_for(logits, counts), gamma, missing)
    scaled = logits if gamma == "weight" else logits * factor
    if missing == "mask":
        scaled = drop_missing(scaled, labels, counts <= 0)
    loss = cross_entropy(scaled, labels)
    return loss * factor[labels] if gamma == "weight" else loss


# The local balancer of FedBal: Feature-Balanced Loss at each client, with the client's own class counts


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


# Class weights, importance weights, margins, and the distillation of absent classes


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
    logits: Tensor, augmented: Tensor, teacher: Tensor, labels: Tensor, positive: Tensor, temperature: float = 2.0
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
    log_student = F.log_softmax(logits / temperature + only_neg, -1)
    distil = -torch.where(positive, torch.zeros_like(log_student), wanted * log_student).sum(-1)
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
