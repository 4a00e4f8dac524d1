"""Terms added to the local objective: FedProx, MOON, FedNTD, FedMLB, FedDecorr, FedUV and FedVLS.

B rows, C classes, F features.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedskew.functional._numeric import choose, cosine, counts_for, is_label, nonzero
from fedskew.functional.losses import cross_entropy
from fedskew.tree import Params

__all__ = [
    "feature_correlation", "feature_uniformity", "fedntd_loss", "fedvls_loss", "hybrid_divergence",
    "logit_suppression", "moon_contrastive", "output_spread", "proximal", "proximal_pull", "vacant_distillation",
]  # fmt: skip


def proximal(params: Params, anchor: Params, mu: Tensor | float) -> Tensor:
    """Proximal term of FedProx.

        (mu / 2) ||w - x||^2,   with gradient mu (w - x)

    Args:
        params: Local parameters w, a dict of tensors.
        anchor: Global parameters x, with the same names and shapes.
        mu: Strength, at least 0.

    Returns:
        The term, ().

    Example:
        >>> import torch
        >>> from fedskew.functional import proximal
        >>> proximal({"w": torch.tensor([1.0, 2.0])}, {"w": torch.zeros(2)}, mu=0.5)
        tensor(1.2500)

    References:
        Li et al. 2020, Federated Optimization in Heterogeneous Networks (MLSys). https://arxiv.org/abs/1812.06127
    """
    squares = [(params[name] - anchor[name]).square().sum() for name in params]
    return 0.5 * mu * torch.stack(squares).sum()


def proximal_pull(
    params: Params, anchor: Params, mu: Tensor | float, form: Literal["norm", "smooth_l1"] = "norm"
) -> Params:
    """Gradient of two terms that public code runs under the name FedProx.

        "norm":       mu (w_t - x_t) / ||w_t - x_t||, of mu sum_t ||w_t - x_t||_2
        "smooth_l1":  mu clip(w - x, -1, 1) / (entries of t * tensors), of mu mean_t mean_i huber(w_ti - x_ti)

    t runs over the tensors, i over the entries of one. The paper's term is `proximal`, with gradient mu (w - x).

    Args:
        params: Local parameters w, a dict of tensors.
        anchor: Global parameters x, with the same names and shapes.
        mu: Strength, at least 0.
        form: "norm" is the code of the FedGA authors; 0 where w = x. "smooth_l1" is the code of FedRepo and FedGR.

    Returns:
        Gradient by w, a dict as ``params``.

    Raises:
        ConfigError: ``form`` is not "norm" or "smooth_l1".

    Example:
        >>> import torch
        >>> from fedskew.functional import proximal_pull
        >>> w, x = {"w": torch.tensor([3.0, 4.0])}, {"w": torch.zeros(2)}
        >>> proximal_pull(w, x, mu=0.5), proximal_pull(w, x, mu=0.5, form="smooth_l1")
        ({'w': tensor([0.3000, 0.4000])}, {'w': tensor([0.2500, 0.2500])})

    References:
        Li et al. 2020, Federated Optimization in Heterogeneous Networks (MLSys). https://arxiv.org/abs/1812.06127
    """
    choose("form", form, ("norm", "smooth_l1"))
    moved = {name: params[name] - anchor[name] for name in params}
    if form == "norm":
        return {n: mu * d / nonzero(torch.linalg.vector_norm(d)) for n, d in moved.items()}
    return {n: mu * d.clamp(-1, 1) / (d.numel() * len(moved)) for n, d in moved.items()}


def moon_contrastive(z: Tensor, z_global: Tensor, z_previous: Tensor, temperature: float = 0.5) -> Tensor:
    """Model-contrastive term of MOON: representations near the global model's, far from the previous local model's.

        -log( e^{cos(z, z_g) / T} / (e^{cos(z, z_g) / T} + e^{cos(z, z_p) / T}) )

    Gradients reach all three arguments: detach ``z_global`` and ``z_previous``.

    Args:
        z: Representations of the current model, [B, F].
        z_global: Representations of the global model, [B, F].
        z_previous: Representations of the client's previous local model, [B, F].
        temperature: T, positive.

    Returns:
        Term of each row, [B], in [log(1 + e^{-2/T}), log(1 + e^{2/T})]. A zero vector has cosine 0.

    Example:
        >>> import torch
        >>> from fedskew.functional import moon_contrastive
        >>> z, z_global, z_previous = torch.tensor([[[1.0, 0.0]], [[1.0, 1.0]], [[0.0, 2.0]]])
        >>> moon_contrastive(z, z_global, z_previous)
        tensor([0.2176])

    References:
        Li, He and Song 2021, Model-Contrastive Federated Learning (CVPR). https://arxiv.org/abs/2103.16257
    """
    return -F.logsigmoid((cosine(z, z_global) - cosine(z, z_previous)) / temperature)


def fedntd_loss(
    logits: Tensor, teacher: Tensor, labels: Tensor, temperature: float = 1.0, scaled: bool = True
) -> Tensor:
    """Not-true distillation of FedNTD: divergence from the global model over the classes other than the label.

        tau^2 KL( softmax(z^g_{without y} / tau) || softmax(z_{without y} / tau) )

    With two classes the term is 0.

    Args:
        logits: Logits z of the local model, [B, C].
        teacher: Logits z^g of the global model, [B, C]; detached.
        labels: Class numbers y in [0, C), int64 [B].
        temperature: tau, positive.
        scaled: Multiply by tau^2, as the paper does. The FedGA authors' copy does not.

    Returns:
        Term of each row in nats, [B].

    Example:
        >>> import torch
        >>> from fedskew.functional import fedntd_loss
        >>> logits, teacher = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0.0, 1.0, 2.0]])
        >>> fedntd_loss(logits, teacher, torch.tensor([0]))
        tensor([0.4621])
        >>> fedntd_loss(logits, teacher, torch.tensor([0]), temperature=3.0)
        tensor([0.4954])

    References:
        Lee et al. 2022, Preservation of the Global Knowledge by Not-True Distillation in Federated Learning (NeurIPS).
        https://arxiv.org/abs/2106.03097
    """
    truth = is_label(labels, logits.shape[-1])

    def log_probabilities(z: Tensor) -> Tensor:  # 0 at the true class, which has no part in the sum
        return (z / temperature).masked_fill(truth, -torch.inf).log_softmax(-1).masked_fill(truth, 0.0)

    log_teacher = log_probabilities(teacher.detach())
    weight = log_teacher.exp().masked_fill(truth, 0.0)
    divergence = (weight * (log_teacher - log_probabilities(logits))).sum(-1)
    return temperature**2 * divergence if scaled else divergence


# The divergence between a network and its hybrid paths: FedMLB


def hybrid_divergence(logits: Tensor, hybrid: Tensor, temperature: float = 1.0) -> Tensor:
    """Divergence of the local network's outputs from those of a hybrid path.

        KL( softmax(z^h / tau) || softmax(z / tau) )

    There is no factor tau^2, and gradients reach both arguments, as in the authors' code: the hybrid path runs through
    the first blocks of the local network.

    Args:
        logits: Logits z of the local network, [B, C].
        hybrid: Logits z^h of the hybrid path, [B, C].
        temperature: tau, positive.

    Returns:
        Term of each row in nats, [B].

    Example:
        >>> import torch
        >>> from fedskew.functional import hybrid_divergence
        >>> z, hybrid = torch.tensor([[0.0, 0.0]]), torch.tensor([[2.0, 0.0]])
        >>> hybrid_divergence(z, hybrid), hybrid_divergence(z, hybrid, temperature=2.0)
        (tensor([0.3278]), tensor([0.1109]))

    References:
        Kim, Kim and Han 2022, Multi-Level Branched Regularization for Federated Learning (ICML).
        https://arxiv.org/abs/2206.06936
    """
    target, log_p = (hybrid / temperature).log_softmax(-1), (logits / temperature).log_softmax(-1)
    return (target.exp() * (target - log_p)).sum(-1)


# The spread of a mini-batch's features and outputs: FedDecorr and FedUV


def feature_correlation(
    features: Tensor, mask: Tensor, form: Literal["code", "printed"] = "code", eps: float = 1e-8
) -> Tensor:
    """Decorrelation term of FedDecorr: how far the features of a mini-batch are from uncorrelated.

        z = (f - mean f) / sqrt(var f + eps) over the B real rows, var with B - 1;  Z = z^T z
        "code":     sum_{i != j} Z_ij^2 / (F (F - 1) B)
        "printed":  ||K||_F^2 / F^2,   K = Z / (B - 1) the correlation matrix

    Args:
        features: f, [B, F].
        mask: 1 for real rows, 0 for padding, [B].
        form: "code" is what the authors run: it grows with B. "printed" is the formula of the paper.
        eps: Added to each variance; the authors' is 1e-8. The gradient of a feature that hardly varies is of the order
            of 1 / sqrt(eps).

    Returns:
        The term, (); 0 where there is one row.

    Raises:
        ConfigError: ``form`` is unknown.

    Example:
        >>> import torch
        >>> from fedskew.functional import feature_correlation
        >>> features, mask = torch.tensor([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]), torch.ones(3)
        >>> feature_correlation(features, mask), feature_correlation(features, mask, "printed")
        (tensor(1.3333), tensor(1.))

    References:
        Shi, Liang, Zhang, Tan and Bai 2023, Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous
        Federated Learning (ICLR). https://arxiv.org/abs/2210.00226
    """
    choose("form", form, ("code", "printed"))
    real, width = mask.unsqueeze(1), features.shape[1]
    rows = mask.sum().clamp(min=1)
    centred = (features - (features * real).sum(0) / rows) * real
    variance = centred.square().sum(0) / (rows - 1).clamp(min=1)
    z = centred / (variance + eps).sqrt()
    squares = (z.T @ z).square()
    if form == "printed":
        return squares.sum() / (rows - 1).clamp(min=1).square() / width**2
    return (squares.sum() - squares.diagonal().sum()) / (max(width * (width - 1), 1) * rows)


def feature_uniformity(features: Tensor, mask: Tensor) -> Tensor:
    """Uniformity term of FedUV: small where the features of a mini-batch lie far apart.

        mean over pairs b < d of exp(-||f_b - f_d||^2 / s),   s the median of the squared distances that are not 0

    The median is the lower one of two, and the gradient passes through it, as the authors' code has it. A distance
    counts as 0 up to 1e-12 of ||f_b||^2 + ||f_d||^2: rounding must not tell a row from its copy.

    Args:
        features: f, [B, F].
        mask: 1 for real rows, 0 for padding, [B].

    Returns:
        The term, () in [0, 1]; 0 where there is no pair.

    Example:
        >>> import torch
        >>> from fedskew.functional import feature_uniformity
        >>> feature_uniformity(torch.tensor([[0.0], [1.0], [3.0]]), torch.ones(3))
        tensor(0.4174)

    References:
        Son et al. 2024, FedUV: Uniformity and Variance for Heterogeneous Federated Learning (CVPR).
        https://arxiv.org/abs/2402.18372
    """
    apart = (features.unsqueeze(1) - features.unsqueeze(0)).square().sum(-1)
    pairs = torch.triu(mask.unsqueeze(1) * mask.unsqueeze(0), diagonal=1)
    size = features.square().sum(-1)
    known = (pairs > 0) & (apart > 1e-12 * (size.unsqueeze(1) + size.unsqueeze(0)))
    count = known.sum()
    ordered = torch.where(known, apart, torch.inf).flatten().sort().values
    median = ordered.gather(0, ((count - 1) // 2).clamp(min=0).unsqueeze(0)).squeeze(0)
    scale = torch.where(count > 0, median, torch.ones_like(median))
    return ((-apart / scale).exp() * pairs).sum() / pairs.sum().clamp(min=1)


def output_spread(logits: Tensor, mask: Tensor) -> Tensor:
    """Variance term of FedUV: a hinge on the standard deviation of every class's probability over a mini-batch.

        mean over classes of max(0, 1 / sqrt(C) - std_b softmax(z_b)_c),   std with B - 1

    1 / sqrt(C) is the deviation over C rows that are sure of one class each.

    Args:
        logits: z, [B, C].
        mask: 1 for real rows, 0 for padding, [B].

    Returns:
        The term, (); 1 / sqrt(C), without a gradient, where there is one row.

    Example:
        >>> import torch
        >>> from fedskew.functional import output_spread
        >>> output_spread(torch.tensor([[50.0, 0.0], [0.0, 50.0]]), torch.ones(2))
        tensor(0.)
        >>> output_spread(torch.ones(2, 2), torch.ones(2))
        tensor(0.7071)

    References:
        Son et al. 2024, FedUV: Uniformity and Variance for Heterogeneous Federated Learning (CVPR).
        https://arxiv.org/abs/2402.18372
    """
    p, real = logits.softmax(-1), mask.unsqueeze(1)
    rows = mask.sum().clamp(min=1)
    centred = (p - (p * real).sum(0) / rows) * real
    variance = centred.square().sum(0) / (rows - 1).clamp(min=1)
    deviation = nonzero(variance).sqrt() * (variance > 0)  # the root has no slope at 0
    hinge: Tensor = (logits.shape[-1] ** -0.5 - deviation).clamp(min=0).mean()
    return hinge


# FedVLS, for clients that lack classes


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
