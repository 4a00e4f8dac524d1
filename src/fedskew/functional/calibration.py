"""Calibrated logits."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedskew.functional._numeric import as_float, choose, counts_for, drop_missing, is_label, nonzero, pick
from fedskew.functional.losses import cross_entropy

__all__ = ["fedgr_gamma", "fedlc_loss", "fedrs_scale", "logit_adjusted_loss", "unbalanced_softmax_loss"]


def fedlc_loss(
    logits: Tensor,
    labels: Tensor,
    counts: Tensor,
    tau: Tensor | float = 1.0,
    denominator: Literal["full", "exclude_true"] = "full",
    missing: Literal["mask", "tiny"] = "mask",
) -> Tensor:
    """Cross-entropy of z_i - tau n_i^{-1/4}, [B]; counts [C] the client's own.

    A class the client lacks has an infinite margin, so it leaves the denominator ("mask"); with tau = 0 none does.
    "tiny", as in FL-bench, counts it as 1e-8 rows: a margin of 100 tau.
    "exclude_true", the paper's form, sums the denominator over i != y and is unbounded below; a row without another
    class then gives 0. Raises ConfigError for another ``denominator`` or ``missing``. Source: FedLC.
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
    """Cross-entropy of z + tau log(n / sum n), [B]; counts [C]. tau = 1 is the balanced softmax.

    A class without samples has prior 0 and leaves the denominator; with tau = 0 none does.
    Source: logit adjustment and balanced softmax.
    """
    n = counts_for(logits, counts)
    prior = nonzero(n) / nonzero(n.sum(-1, keepdim=True))
    return cross_entropy(drop_missing(logits + tau * prior.log(), labels, (n <= 0) & (tau != 0)), labels)


def fedrs_scale(
    counts: Tensor, alpha: Tensor | float = 0.5, scaling: Literal["paper", "code"] = "paper", few: int = 0
) -> Tensor:
    """Factors s [C] that FedRS multiplies the logits with; counts [C] the client's own.

    "paper": 1 for owned classes, alpha for the others. "code": (1 - alpha) n_c / n_max + alpha.
    A class with at most ``few`` rows counts as not owned (fluke has 2). Raises ConfigError for another ``scaling``.
    Source: FedRS, restricted softmax.
    """
    choose("scaling", scaling, ("paper", "code"))
    n = as_float(counts)
    n = torch.where(n > few, n, 0.0)
    share = (n > 0).to(n.dtype) if scaling == "paper" else n / nonzero(n.amax(-1, keepdim=True))
    return (1 - alpha) * share + alpha


def fedgr_gamma(
    counts: Tensor, gamma: Literal["max1", "raw"] = "max1", missing: Literal["mask", "code"] = "mask"
) -> Tensor:
    """Factors gamma [C] of FedGR's unbalanced softmax from a client's counts [C].

    "raw", the paper: N / n_c. "max1", the code: n_min / n_c, in (0, 1].
    A class the client lacks gets 1, to be masked ("mask"), or counts as 4 n_max samples ("code").
    Raises ConfigError for other options. Source: FedGR, unbalanced softmax.
    """
    choose("gamma", gamma, ("max1", "raw"))
    choose("missing", missing, ("mask", "code"))
    n = as_float(counts)
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
    gamma: Literal["max1", "raw"] = "max1",
    missing: Literal["mask", "code"] = "mask",
) -> Tensor:
    """-log( exp(gamma_y z_y) / sum_c exp(gamma_c z_c) ), [B], over owned classes ("mask") or all of them ("code").

    logits [B, C] without bias, counts [C] the client's own. Source: FedGR, unbalanced softmax.
    """
    scaled = logits * fedgr_gamma(counts_for(logits, counts), gamma, missing)
    if missing == "mask":
        scaled = drop_missing(scaled, labels, counts <= 0)
    return cross_entropy(scaled, labels)
