"""Which clients are drawn, and which are alike: clustered sampling, FedAMP and IFCA. N clients, m draws."""

from __future__ import annotations

import torch
from torch import Tensor

from fedskew.tree import Params

__all__ = ["attention", "cluster_draws"]


def cluster_draws(sizes: Tensor, draws: int) -> Tensor:
    """Distributions over the clients, one a draw, whose mean is the share of each client's rows.

    The clients go by falling size into m boxes that hold sum n rows each, client i with m n_i rows: a box is filled to
    the brim before the next one, so that a client may lie in several. r_li is i's part of box l:

        sum_i r_li = 1,   (1 / m) sum_l r_li = n_i / sum_j n_j

    Args:
        sizes: Rows n of each client, int64 [N], not all 0.
        draws: m, at least 1.

    Returns:
        r, float64 [m, N].

    Example:
        >>> import torch
        >>> from fedskew.functional import cluster_draws
        >>> cluster_draws(torch.tensor([1, 2, 1]), 2)
        tensor([[0.0000, 1.0000, 0.0000],
                [0.5000, 0.0000, 0.5000]], dtype=torch.float64)

    References:
        Fraboni, Vidal, Kameni and Lorenzi 2021, Clustered Sampling: Low-Variance and Improved Representativity for
        Clients Selection in Federated Learning (ICML), algorithm 1. https://arxiv.org/abs/2105.05883
    """
    order = torch.argsort(sizes, descending=True, stable=True)
    upper = (draws * sizes[order]).cumsum(0)  # where client i ends on a line of m sum n rows
    lower, brim = upper - draws * sizes[order], sizes.sum() * torch.arange(draws, device=sizes.device).unsqueeze(1)
    part = torch.minimum(upper, brim + sizes.sum()) - torch.maximum(lower, brim)
    out = torch.zeros(draws, len(sizes), dtype=torch.float64, device=sizes.device)
    out[:, order] = part.clamp(min=0).double() / sizes.sum()
    return out


def attention(models: Params, ids: Tensor, alpha: float, sigma: float) -> Tensor:
    """FedAMP's attention of some clients to all: larger for a client whose model is near.

        xi_kj = (alpha / sigma) exp(-||w_k - w_j||^2 / sigma)

    Args:
        models: The clients' models, leaves [N, ...].
        ids: Clients k, int64 [K].
        alpha: Step of the messages.
        sigma: Width, positive.

    Returns:
        xi, [K, N]; alpha / sigma of a client to itself, which FedAMP replaces by what the others leave.

    Example:
        >>> import torch
        >>> from fedskew.functional import attention
        >>> attention({"w": torch.tensor([[0.0], [1.0]])}, torch.tensor([0]), alpha=0.5, sigma=1.0)
        tensor([[0.5000, 0.1839]])

    References:
        Huang et al. 2021, Personalized Cross-Silo Federated Learning on Non-IID Data (AAAI), equations 3 to 5.
        https://arxiv.org/abs/2007.03797
    """

    def apart(k: int) -> Tensor:  # one client at a time: all at once would hold K N models
        return torch.stack([(w - w[k]).flatten(1).square().sum(-1) for w in models.values()]).sum(0)

    return alpha / sigma * (-torch.stack([apart(int(k)) for k in ids]) / sigma).exp()
