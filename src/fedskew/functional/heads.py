"""Classifier weights that are made rather than learnt."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["generated_head", "orthonormal", "simplex_head"]


def generated_head(
    shares: Tensor, layers: tuple[Tensor, Tensor, Tensor, Tensor], features: int
) -> tuple[Tensor, Tensor]:
    """The classifier that a network of two layers makes of a client's class shares.

        (V, c) = B relu(A a + s) + t,  one row (V_y, c_y) for each class y

    Args:
        shares: Share of each class among the client's rows, a, [C].
        layers: A [H, C], s [H], B [C R, H] and t [C R]; R is F + 1, or F for a classifier without a bias.
        features: F.

    Returns:
        (V [C, F], c [C]); c is 0 where R is F.

    Example:
        >>> from fedskew.functional import generated_head
        >>> layers = torch.eye(2), torch.zeros(2), torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0], [0.0, 4.0]])
        >>> generated_head(torch.tensor([0.5, 0.5]), (*layers, torch.zeros(4)), features=1)
        (tensor([[0.5000],
                [1.5000]]), tensor([1., 2.]))

    References:
        Chen and Chao 2022, On Bridging Generic and Personalized Federated Learning, section 4.3.
        https://arxiv.org/abs/2107.00778
    """
    first, shift, second, start = layers
    rows = (second @ torch.relu(first @ shares + shift) + start).reshape(len(shares), -1)
    weight, bias = rows[:, :features], rows[:, features:]
    return weight, bias.sum(1)


def orthonormal(draws: Tensor) -> Tensor:
    """Orthonormal columns that span those of a matrix: its QR factor with a positive diagonal of R.

        U R = draws,  U' U = I

    Args:
        draws: Matrix of full column rank, [F, K] with K at most F; normal draws make U uniform.

    Returns:
        U, [F, K].

    Example:
        >>> from fedskew.functional import orthonormal
        >>> orthonormal(torch.tensor([[3.0], [-4.0]]))
        tensor([[ 0.6000],
                [-0.8000]])
    """
    q, r = torch.linalg.qr(draws)
    signs = torch.where(torch.diagonal(r) < 0, -1.0, 1.0).to(q)
    basis: Tensor = q * signs
    return basis


def simplex_head(basis: Tensor) -> Tensor:
    """The weight of a simplex equiangular tight frame: C unit vectors, each pair at the same, largest possible angle.

        W = sqrt(C / (C - 1)) H U',  with H H' = I - 1 1' / C, so that w_c' w_d = -1 / (C - 1) for c != d

    Args:
        basis: U, orthonormal columns, [F, C - 1].

    Returns:
        W, [C, F].

    Example:
        >>> from fedskew.functional import simplex_head
        >>> simplex_head(torch.eye(2)).mul(100).round()  # three directions in a plane
        tensor([[  87.,   50.],
                [ -87.,   50.],
                [   0., -100.]])

    References:
        Papyan et al. 2020, Prevalence of neural collapse. https://arxiv.org/abs/2008.08186
    """
    corners = basis.shape[1]  # C - 1
    contrasts = basis.new_zeros(corners + 1, corners)
    for j in range(1, corners + 1):  # Helmert's: the first j classes against the next one
        contrasts[:j, j - 1] = 1 / math.sqrt(j * (j + 1))
        contrasts[j, j - 1] = -j / math.sqrt(j * (j + 1))
    weight: Tensor = math.sqrt((corners + 1) / corners) * contrasts @ basis.T
    return weight
