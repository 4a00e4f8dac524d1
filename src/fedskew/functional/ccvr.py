"""Class Gaussians of features, as CCVR uploads, pools and draws from them. B rows, C classes, F features, K clients."""

from __future__ import annotations

import torch
from torch import Tensor

from fedskew.functional._numeric import is_label, nonzero

__all__ = ["class_statistics", "gaussian_features", "pooled_statistics"]

Statistics = tuple[Tensor, Tensor, Tensor]


def class_statistics(features: Tensor, labels: Tensor, mask: Tensor, classes: int) -> Statistics:
    """Mean, covariance and number of the features of each class at one client.

        mu_c = mean of f_b over the rows of c;   S_c = sum (f_b - mu_c) (f_b - mu_c)^T / (n_c - 1)

    Args:
        features: f, [B, F].
        labels: Class numbers in [0, C), int64 [B].
        mask: 1 for real rows, 0 for padding, [B].
        classes: Number of classes C.

    Returns:
        (mu [C, F], S [C, F, F], n [C]). Zeros for a class without rows; S is 0 for one row.

    Example:
        >>> import torch
        >>> from fedskew.functional import class_statistics
        >>> mean, covariance, n = class_statistics(torch.tensor([[1.0], [3.0]]), torch.tensor([1, 1]), torch.ones(2), 2)
        >>> mean[1], covariance[1], n
        (tensor([2.]), tensor([[2.]]), tensor([0., 2.]))

    References:
        Luo et al. 2021, No Fear of Heterogeneity: Classifier Calibration for Federated Learning with Non-IID Data
        (NeurIPS). https://arxiv.org/abs/2106.05001
    """
    owner = is_label(labels, classes).to(features) * mask.unsqueeze(1).to(features)
    n = owner.sum(0)
    mean = owner.T @ features / nonzero(n).unsqueeze(1)
    centred = features - owner @ mean
    products = torch.einsum("bc,bf,bg->cfg", owner, centred, centred)
    return mean, products / (n - 1).clamp(min=1)[:, None, None], n


def pooled_statistics(means: Tensor, covariances: Tensor, counts: Tensor) -> Statistics:
    """The statistics of all clients' rows together, from those of each client.

        mu_c = sum_k n_kc mu_kc / n_c
        S_c = (sum_k (n_kc - 1) S_kc + sum_k n_kc (mu_kc - mu_c) (mu_kc - mu_c)^T) / (n_c - 1)

    Args:
        means: mu_k, [K, C, F].
        covariances: S_k, [K, C, F, F].
        counts: n_k, [K, C].

    Returns:
        (mu [C, F], S [C, F, F], n [C]), as `class_statistics` of the union.

    Example:
        >>> import torch
        >>> from fedskew.functional import pooled_statistics
        >>> means, counts = torch.tensor([[[1.0]], [[3.0]]]), torch.ones(2, 1)
        >>> pooled_statistics(means, torch.zeros(2, 1, 1, 1), counts)
        (tensor([[2.]]), tensor([[[2.]]]), tensor([2.]))

    References:
        Luo et al. 2021, No Fear of Heterogeneity: Classifier Calibration for Federated Learning with Non-IID Data
        (NeurIPS), equations 2 and 3. https://arxiv.org/abs/2106.05001
    """
    n = counts.sum(0)
    mean = (counts.unsqueeze(-1) * means).sum(0) / nonzero(n).unsqueeze(-1)
    apart = (means - mean) * counts.sqrt().unsqueeze(-1)
    within = ((counts - 1).clamp(min=0)[..., None, None] * covariances).sum(0)
    between = torch.einsum("kcf,kcg->cfg", apart, apart)
    return mean, (within + between) / (n - 1).clamp(min=1)[:, None, None], n


def gaussian_features(mean: Tensor, covariance: Tensor, noise: Tensor) -> Tensor:
    """Virtual features of each class: mu_c + R_c xi with R_c R_c^T = S_c.

    R_c is the Cholesky factor, in float64. A small part of the mean variance is added to the diagonal, 1e-12 or a
    thousand times more as often as it takes: features that a ReLU keeps at 0 make S_c singular.

    Args:
        mean: mu, [C, F].
        covariance: S, [C, F, F].
        noise: xi, standard normal, [C, n, F].

    Returns:
        Features, [C, n, F], of the mean's dtype.

    Example:
        >>> import torch
        >>> from fedskew.functional import gaussian_features
        >>> gaussian_features(torch.tensor([[1.0]]), torch.tensor([[[4.0]]]), torch.tensor([[[0.0], [1.0]]]))
        tensor([[[1.],
                 [3.]]])

    References:
        Luo et al. 2021, No Fear of Heterogeneity: Classifier Calibration for Federated Learning with Non-IID Data
        (NeurIPS), algorithm 1. https://arxiv.org/abs/2106.05001
    """
    wide = covariance.double()
    size = wide.diagonal(dim1=-2, dim2=-1).mean(-1).clamp(min=1e-30)[:, None, None]
    eye = torch.eye(wide.shape[-1], dtype=wide.dtype, device=wide.device)
    for part in (1e-12, 1e-9, 1e-6, 1e-3, 1.0):
        root, failed = torch.linalg.cholesky_ex(wide + part * size * eye)
        if not failed.any():
            break
    drawn: Tensor = mean.double().unsqueeze(1) + noise.double() @ root.transpose(-1, -2)
    return drawn.to(mean)
