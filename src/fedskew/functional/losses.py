"""Per-sample losses and the class weights inside them. B rows, C classes, F features.

Every loss returns one value a row, [B], so that the caller averages with its own mask; every function works under
``torch.vmap`` and ``torch.func.grad`` and stays finite for zero counts, single-class clients and very large logits.
A class that a loss must ignore is never a row's own label: a padded row (label 0) therefore stays finite as well.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedskew.functional._numeric import (
    as_float,
    choose,
    cosine,
    counts_for,
    drop_missing,
    is_label,
    nonzero,
    per_label,
    pick,
)
from fedskew.tree import Params

__all__ = [
    "balance_schedule", "balanced_logits", "class_counts", "cross_entropy", "fedga_binary_loss", "fedga_binary_targets",
    "fedga_loss", "fedga_targets", "fedgr_gamma", "fedgrab_map", "fedgrab_pid", "fedlc_loss", "fedntd_loss",
    "fedrs_scale", "focal_loss", "imbalance_gap", "local_balancer_loss", "logit_adjusted_loss", "moon_contrastive",
    "proximal", "proximal_pull", "unbalanced_softmax_loss", "weighted_bce",
]  # fmt: skip


def class_counts(labels: Tensor, classes: int, mask: Tensor | None = None) -> Tensor:
    """Histogram of labels [B] over C classes, rows weighted by ``mask`` [B]: [C] in the mask's dtype, else float32."""
    hits = is_label(labels, classes)  # [B, C]
    if mask is None:
        return hits.to(torch.float32).sum(-2)
    return (hits * mask.unsqueeze(-1)).sum(-2)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """-log softmax(z)_y of every row, [B]; logits [B, C], labels [B]. In nats."""
    return -pick(logits.log_softmax(-1), labels)


# FedBal, local balancer


def imbalance_gap(counts: Tensor) -> Tensor:
    """How far each class is behind the largest, in log counts: lambda [C] in [0, 1], all 0 when the counts are equal.

    lambda_j = (log n_max - log n_j) / (log n_max - log n_min) with every count clamped to 1 from below.
    Source: FedBal, local balancer; the definition of Feature-Balanced Loss.
    """
    log_n = as_float(counts).clamp(min=1).log()
    top, bottom = log_n.amax(-1, keepdim=True), log_n.amin(-1, keepdim=True)
    return (top - log_n) / nonzero(top - bottom)


def balance_schedule(index: Tensor | float, total: Tensor | float) -> Tensor | float:
    """alpha(k) = (k / K)^2 for a one-based index k of K (epochs, steps or rounds). Source: FedBal, local balancer."""
    return (index / total) ** 2


def balanced_logits(
    logits: Tensor, features: Tensor, gap: Tensor, strength: Tensor | float, eps: float = 1e-12
) -> Tensor:
    """z_j - strength * lambda_j / (||f||_2 + eps): [B, C], with the gradient flowing through the norm.

    logits [B, C], features [B, F], gap [C], strength () = alpha(k) * A. A row whose features are all zero is shifted by
    strength * lambda_j / eps. Source: FedBal, local balancer; its eps is 1e-12.
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
    """Cross-entropy of the balanced logits, [B]; counts [C] are the client's own.

    A class the client lacks counts as one sample ("clamp1"), or also leaves the denominator ("mask"); lambda is the
    same in both. Raises ConfigError for another ``missing``. Source: FedBal, local balancer.
    """
    choose("missing", missing, ("clamp1", "mask"))
    balanced = balanced_logits(logits, features, imbalance_gap(counts_for(logits, counts)), strength, eps)
    if missing == "mask":
        balanced = drop_missing(balanced, labels, counts <= 0)
    return cross_entropy(balanced, labels)


# FedGA


def _log_partition(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Shifted logits [B, C], their logsumexp [B, 1] and the shift [B, 1]: z - max, log sum e^{z - max}, max.

    p = exp(shifted - logsumexp) is then, bit for bit, the gradient of the logsumexp, so that the exact form's p - q of
    an absent class (q = p) is zero and not rounding; the shift keeps it accurate for large logits.
    """
    shift = logits.detach().amax(-1, keepdim=True)
    shifted = logits - shift
    return shifted, shifted.logsumexp(-1, keepdim=True), shift


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


def fedga_binary_loss(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """Binary cross-entropy of two logits under `fedga_binary_targets`, [B]; logits [B, 2], labels [B], counts [2].

    The one sigmoid output is z_1 - z_0, so that the residual p - q reaches both logits with opposite signs; equal
    counts give cross-entropy. Source: FedGA, binary form.
    """
    score = logits[..., 1] - logits[..., 0]
    targets = fedga_binary_targets(score, labels, counts)
    return -(targets * F.logsigmoid(score) + (1 - targets) * F.logsigmoid(-score))


def fedga_binary_targets(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """Calibrated targets [B], detached, for one sigmoid output; logits [B], labels [B] in {0, 1}, counts [2].

    A negative gets max(0, (N0 - N1) / N0) p, a positive 1 - max(0, (N1 - N0) / N1) (1 - p): the residual p - q of the
    larger class shrinks to the smaller one's share, which brings the error asymmetry to 1. Source: FedGA, binary form.
    """
    counts = counts_for(logits, counts)
    probability = logits.detach().sigmoid()
    excess = ((counts - counts.flip(-1)) / nonzero(counts)).clamp(min=0)  # [2]
    return torch.where(labels == 1, 1 - excess[..., 1] * (1 - probability), excess[..., 0] * probability)


# FedGR, unbalanced softmax


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


# Regularisers of the local objective


def proximal(params: Params, anchor: Params, mu: Tensor | float) -> Tensor:
    """(mu / 2) ||w - x||^2 over the parameters of two dicts of one structure, (). Source: FedProx."""
    squares = [(params[name] - anchor[name]).square().sum() for name in params]
    return 0.5 * mu * torch.stack(squares).sum()


def proximal_pull(
    params: Params, anchor: Params, mu: Tensor | float, form: Literal["norm", "smooth_l1"] = "norm"
) -> Params:
    """Gradient of what others run as FedProx's term, shaped as ``params``; `proximal` itself has mu (w - x).

    "norm", of mu sum_t ||w_t - x_t||_2 over the tensors t: mu (w - x) / ||w - x||, 0 at w = x (the FedGA authors).
    "smooth_l1", of mu mean_t mean_i huber(w_ti - x_ti): mu clip(w - x, -1, 1) / (entries * tensors) (FedRepo, FedGR).
    Raises ConfigError for another ``form``.
    """
    choose("form", form, ("norm", "smooth_l1"))
    moved = {name: params[name] - anchor[name] for name in params}
    if form == "norm":
        return {n: mu * d / nonzero(torch.linalg.vector_norm(d)) for n, d in moved.items()}
    return {n: mu * d.clamp(-1, 1) / (d.numel() * len(moved)) for n, d in moved.items()}


def moon_contrastive(z: Tensor, z_global: Tensor, z_previous: Tensor, temperature: float = 0.5) -> Tensor:
    """-log( e^{cos(z, z_g)/T} / (e^{cos(z, z_g)/T} + e^{cos(z, z_p)/T}) ), [B]; representations [B, F].

    Gradients reach all three arguments: detach the global and the previous ones. Source: MOON.
    """
    return -F.logsigmoid((cosine(z, z_global) - cosine(z, z_previous)) / temperature)


def fedntd_loss(
    logits: Tensor, teacher: Tensor, labels: Tensor, temperature: float = 1.0, scaled: bool = True
) -> Tensor:
    """tau^2 KL( softmax(z^g_{without y} / tau) || softmax(z_{without y} / tau) ), [B]; the teacher is detached.

    logits and teacher [B, C]; the true class is removed from both. With C = 2 the term is 0. ``scaled=False`` omits
    tau^2, as the FedGA authors' copy does. Source: FedNTD.
    """
    truth = is_label(labels, logits.shape[-1])

    def log_probabilities(z: Tensor) -> Tensor:  # 0 at the true class, which has no part in the sum
        return (z / temperature).masked_fill(truth, -torch.inf).log_softmax(-1).masked_fill(truth, 0.0)

    log_teacher = log_probabilities(teacher.detach())
    weight = log_teacher.exp().masked_fill(truth, 0.0)
    divergence = (weight * (log_teacher - log_probabilities(logits))).sum(-1)
    return temperature**2 * divergence if scaled else divergence


# Margins, scales and weights by class


def focal_loss(logits: Tensor, labels: Tensor, gamma: float = 2.0, alpha: Tensor | float | None = None) -> Tensor:
    """-alpha_y (1 - p_y)^gamma log p_y, [B]; alpha [C], () or None for 1. gamma = 0 gives cross-entropy.

    The factor (1 - p_y)^gamma is not detached. Source: Fed-Focal.
    """
    log_p = pick(logits.log_softmax(-1), labels)
    rest = -torch.expm1(log_p)  # 1 - p without cancellation
    # At p = 1 a power below one has an infinite slope; the limit of value and gradient is that of -log p: zero.
    loss = torch.where(rest > 0, torch.where(rest > 0, rest, 1.0) ** gamma, 1.0) * -log_p
    if alpha is None:
        return loss
    return loss * (per_label(alpha, labels) if isinstance(alpha, Tensor) and alpha.dim() else alpha)


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


# Fed-GraB


def fedgrab_map(u: Tensor) -> Tensor:
    """f(u) = (10/9) / (1/9 + e^{-u/2}), in (0, 10) with f(0) = 1. Source: Fed-GraB, gradient balancer.

    u is clamped at -160, where f is 1e-34, so that the exponential cannot overflow.
    """
    return 10 / (1 + 9 * torch.exp(-0.5 * u.clamp(min=-160)))


def fedgrab_pid(
    error: Tensor, earlier: Tensor, previous: Tensor, kp: float = 10.0, ki: float = 0.01, kd: float = 0.1
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of the incremental PID controller: (output increment, new earlier, new previous), each shaped as error.

    increment = kp (e_t - e_{t-1}) + ki e_t + kd (e_t - 2 e_{t-1} + e_{t-2}), e_t = -(positive - negative).
    The state is the last two errors, ``earlier`` e_{t-2} and ``previous`` e_{t-1}, both zero before the first step,
    so that a first error of -1 gives -(kp + ki + kd) = -10.11. The controller's output, the u of `fedgrab_map`, is
    the running sum of the increments: kp e_t + ki sum_s e_s + kd (e_t - e_{t-1}). Source: Fed-GraB, authors' code.
    """
    increment = kp * (error - previous) + ki * error + kd * (error - 2 * previous + earlier)
    return increment, previous, error


def weighted_bce(logits: Tensor, labels: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """Sum over classes of the sigmoid cross-entropy, weighted by class, [B]; positive and negative [C].

    The entry of a row's label is weighted by ``positive``, every other by ``negative``. The weights are detached, so
    weighting the terms multiplies their gradients by the same numbers: d/dz_c = w_c (sigmoid(z_c) - 1[c = y]).
    Weights of one give plain binary cross-entropy. Source: Fed-GraB.
    """
    truth = is_label(labels, logits.shape[-1])
    terms = -F.logsigmoid(torch.where(truth, logits, -logits))
    return (torch.where(truth, positive.detach(), negative.detach()) * terms).sum(-1)
