"""Terms on the spread of a mini-batch's features and outputs: FedDecorr and FedUV. B rows, C classes, F features."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedskew.functional._numeric import choose, nonzero

__all__ = ["feature_correlation", "feature_uniformity", "output_spread"]


def feature_correlation(features: Tensor, mask: Tensor, form: Literal["code", "printed"] = "code") -> Tensor:
    """Decorrelation term of FedDecorr: how far the features of a mini-batch are from uncorrelated.

        z = (f - mean f) / sqrt(var f + 1e-8) over the B real rows, var with B - 1;  Z = z^T z
        "code":     sum_{i != j} Z_ij^2 / (F (F - 1) B)
        "printed":  ||K||_F^2 / F^2,   K = Z / (B - 1) the correlation matrix

    Args:
        features: f, [B, F].
        mask: 1 for real rows, 0 for padding, [B].
        form: "code" is what the authors run: it grows with B. "printed" is the formula of the paper.

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
    z = centred / (variance + 1e-8).sqrt()
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
    found = known.sum()
    ordered = torch.where(known, apart, torch.inf).flatten().sort().values
    median = ordered.gather(0, ((found - 1) // 2).clamp(min=0).unsqueeze(0)).squeeze(0)
    scale = torch.where(found > 0, median, torch.ones_like(median))
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
