"""Classifier weights that are made rather than learnt."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["orthonormal", "simplex_head"]


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
