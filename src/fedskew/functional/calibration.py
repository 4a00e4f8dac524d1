"""Losses that shift or scale the logits by the client's class counts: FedLC, logit adjustment, FedRS, FedGR.

B rows, C classes. Counts are the client's own unless you choose others.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from fedskew.functional._numeric import as_float, choose, counts_for, drop_missing, is_label, nonzero, pick
from fedskew.functional.losses import cross_entropy

__all__ = ["fedgr_gamma", "fedlc_loss", "fedrs_scale", "logit_adjusted_loss", "unbalanced_softmax_loss"]

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
        gamma: "raw" is the paper's formula; it multiplies logits by up to N. "max1" is the authors' code, the same up
            to a common factor. "weight" has the same values, which weigh the loss and not the logits.
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
    logits: Tensor,
    labels: Tensor,
    counts: Tensor,
    gamma: Gamma = "max1",
    missing: Literal["mask", "code"] = "mask",
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
