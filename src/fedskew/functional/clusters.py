"""Clustered sampling of clients: one distribution for each draw. N clients, m draws."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["cluster_draws"]


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
