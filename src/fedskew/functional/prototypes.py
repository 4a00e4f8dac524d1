"""Prototypes of classes on the unit sphere, as FedNH has them. B rows, C classes, F features, K clients."""

from __future__ import annotations

import torch
from torch import Tensor

from fedskew.functional._numeric import is_label, unit

__all__ = ["class_prototypes", "prototype_agreement", "prototype_logits", "smoothed_prototypes", "spread_prototypes"]


def spread_prototypes(noise: Tensor) -> Tensor:
    """Unit vectors that are far apart: orthonormal where there are at least as many features as classes.

    Q of a QR decomposition of the noise, with a positive diagonal of R; its rows are scaled to length 1.

    Args:
        noise: Random entries of mean 0, [C, F], such as a classifier's initial weight.

    Returns:
        W, [C, F], rows of length 1.

    Example:
        >>> import torch
        >>> from fedskew.functional import spread_prototypes
        >>> spread_prototypes(torch.tensor([[2.0, 0.0], [0.0, 3.0]])).abs()
        tensor([[1., 0.],
                [0., 1.]])

    References:
        Dai et al. 2023, Tackling Data Heterogeneity in Federated Learning with Class Prototypes (AAAI).
        https://arxiv.org/abs/2212.02758
    """
    wide = noise.double()
    tall = wide if len(wide) >= wide.shape[1] else wide.T
    q, r = torch.linalg.qr(tall)
    q = q * torch.where(r.diagonal() < 0, -1.0, 1.0)
    return unit(q if tall is wide else q.T).to(noise)


def prototype_logits(features: Tensor, prototypes: Tensor, scale: Tensor | float = 30.0) -> Tensor:
    """Logits of features by their cosines with the prototypes.

        z_bc = s f_b' W_c / ||f_b||,  which is s cos(f_b, W_c) for prototypes of length 1

    Args:
        features: f, [B, F].
        prototypes: W, [C, F].
        scale: s, a number or ().

    Returns:
        Logits, [B, C]; 0 for a row without features.

    Example:
        >>> import torch
        >>> from fedskew.functional import prototype_logits
        >>> prototype_logits(torch.tensor([[3.0, 4.0]]), torch.eye(2), scale=10.0)
        tensor([[6., 8.]])

    References:
        Dai et al. 2023, Tackling Data Heterogeneity in Federated Learning with Class Prototypes (AAAI).
        https://arxiv.org/abs/2212.02758
    """
    return scale * unit(features) @ prototypes.T


def class_prototypes(
    features: Tensor, labels: Tensor, mask: Tensor, classes: int, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The direction of each class at one client.

        mu_c = unit( mean of f_b / ||f_b|| over the rows of c ),  or  unit( sum_b p_b f_b / ||f_b|| )

    Args:
        features: f, [B, F].
        labels: Class numbers in [0, C), int64 [B].
        mask: 1 for real rows, 0 for padding, [B].
        classes: Number of classes C.
        weights: p, [B]; None: every row alike.

    Returns:
        (mu [C, F], rows of each class n [C]); mu is 0 for a class without rows.

    Example:
        >>> import torch
        >>> from fedskew.functional import class_prototypes
        >>> class_prototypes(torch.tensor([[2.0, 0.0], [0.0, 5.0]]), torch.tensor([1, 1]), torch.ones(2), 2)[0]
        tensor([[0.0000, 0.0000],
                [0.7071, 0.7071]])

    References:
        Dai et al. 2023, Tackling Data Heterogeneity in Federated Learning with Class Prototypes (AAAI).
        https://arxiv.org/abs/2212.02758
    """
    owner = is_label(labels, classes).to(features) * mask.unsqueeze(1).to(features)
    counted = owner if weights is None else owner * weights.unsqueeze(1)
    return unit(counted.T @ unit(features)), owner.sum(0)


def prototype_agreement(prototypes: Tensor, means: Tensor) -> Tensor:
    """Weights of the clients' directions by their cosines with the prototypes.

        a_kc = exp( W_c' mu_kc )

    Args:
        prototypes: W, [C, F], rows of length 1.
        means: mu, [K, C, F].

    Returns:
        a, [K, C]; 1 where a client has no row of the class, whose direction is 0.

    Example:
        >>> import torch
        >>> from fedskew.functional import prototype_agreement
        >>> prototype_agreement(torch.eye(2), torch.tensor([[[0.0, 0.0], [0.0, 1.0]]]))
        tensor([[1.0000, 2.7183]])

    References:
        Dai et al. 2023, Tackling Data Heterogeneity in Federated Learning with Class Prototypes (AAAI).
        https://arxiv.org/abs/2212.02758
    """
    return (prototypes * means).sum(-1).exp()


def smoothed_prototypes(prototypes: Tensor, means: Tensor, counts: Tensor, smoothing: float) -> Tensor:
    """The server's prototypes after those of the clients.

        W_c <- unit( rho W_c + (1 - rho) unit( sum_k n_kc mu_kc ) )

    Args:
        prototypes: W, [C, F], rows of length 1.
        means: mu, [K, C, F].
        counts: n, [K, C].
        smoothing: rho.

    Returns:
        W, [C, F]; a class that nobody has stays.

    Example:
        >>> import torch
        >>> from fedskew.functional import smoothed_prototypes
        >>> smoothed_prototypes(torch.tensor([[1.0, 0.0]]), torch.tensor([[[0.0, 1.0]]]), torch.ones(1, 1), 0.5)
        tensor([[0.7071, 0.7071]])

    References:
        Dai et al. 2023, Tackling Data Heterogeneity in Federated Learning with Class Prototypes (AAAI).
        https://arxiv.org/abs/2212.02758
    """
    mean = unit((counts.unsqueeze(-1) * means).sum(0))
    return unit(smoothing * prototypes + (1 - smoothing) * mean)
