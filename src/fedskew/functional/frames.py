"""Sparse equiangular frames, and classifiers that take the lengths of others' rows. C classes, F features."""

from __future__ import annotations

import torch
from torch import Tensor

from fedskew.functional._numeric import nonzero, unit

__all__ = ["equal_lengths", "frame_energy", "lent_lengths", "sparse_frame"]

_NEAR = 0.99999  # cosines beyond it count as this one, where the arc cosine has no slope


def frame_energy(weight: Tensor, length: float) -> tuple[Tensor, Tensor]:
    """How far rows are from one length and from wide angles, and the gradient of that.

        E = sum_c (||w_c|| - length)^2 - 1/C sum_c arccos( max_{d != c} cos(w_c, w_d) )

    Args:
        weight: W, [C, F], C at least 2.
        length: What each row should have.

    Returns:
        (E (), dE / dW [C, F]). Cosines are cut at +-0.99999, with no slope beyond.

    Example:
        >>> from fedskew.functional import frame_energy
        >>> frame_energy(torch.eye(2), 1.0)[0]  # a right angle
        tensor(-1.5708)

    References:
        Xiao et al. 2024, FedLoGe (ICLR), the two conditions on SSE-C, as its code adds them up.
        https://arxiv.org/abs/2401.08977
    """
    classes = len(weight)
    size = torch.linalg.vector_norm(weight, dim=1, keepdim=True)
    rows = unit(weight)
    nearest, which = (rows @ rows.T).fill_diagonal_(-1.0).max(1)
    cut = nearest.clamp(-_NEAR, _NEAR)
    energy = (size - length).square().sum() - cut.arccos().mean()
    slope = torch.where(nearest == cut, 1 / (classes * (1 - cut.square()).sqrt()), 0.0)
    pulls = torch.zeros(classes, classes).to(weight).scatter(1, which.unsqueeze(1), slope.unsqueeze(1))
    turn = (pulls + pulls.T) @ rows
    across = (turn - rows * (rows * turn).sum(1, keepdim=True)) / nonzero(size)
    return energy, 2 * (size - length) * rows + across


def sparse_frame(weight: Tensor, kept: Tensor, length: float, rate: float, steps: int) -> Tensor:
    """A classifier whose angles are as wide as they get while some entries stay 0.

        W <- W o kept, then ``steps`` of Adam (0.9, 0.999, 1e-8) on `frame_energy`, of the kept entries

    Args:
        weight: Start, such as `simplex_head`'s, [C, F].
        kept: 1 where an entry may be other than 0, [C, F].
        length: What each row should have.
        rate: Adam's rate.
        steps: Number of steps.

    Returns:
        W, [C, F].

    Example:
        >>> from fedskew.functional import sparse_frame
        >>> start = torch.tensor([[2.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
        >>> found = sparse_frame(start, start > 0, length=1.0, rate=0.01, steps=400)
        >>> bool(found[0] @ found[1] < -0.9), found[0, 2].item()
        (True, 0.0)

    References:
        Xiao et al. 2024, FedLoGe (ICLR). https://arxiv.org/abs/2401.08977
    """
    found = weight * kept
    mean, square = torch.zeros_like(found), torch.zeros_like(found)
    for t in range(1, steps + 1):
        slope = frame_energy(found, length)[1] * kept
        mean = 0.9 * mean + 0.1 * slope
        square = 0.999 * square + 0.001 * slope.square()
        found = found - rate / (1 - 0.9**t) * mean / ((square / (1 - 0.999**t)).sqrt() + 1e-8)
    return found


def equal_lengths(weight: Tensor, length: float = 1.7) -> Tensor:
    """Rows of one length, so that no class wins by the length that its frequency gave it.

        W_c = length w_c / ||w_c||

    Args:
        weight: w, a trained classifier, [C, F].
        length: That length.

    Returns:
        W, [C, F]; a row of zeros stays.

    Example:
        >>> from fedskew.functional import equal_lengths
        >>> equal_lengths(torch.tensor([[3.0, 4.0], [0.0, 0.5]]), 5.0)
        tensor([[3., 4.],
                [0., 5.]])

    References:
        Xiao et al. 2024, FedLoGe (ICLR), realignment of the global model. https://arxiv.org/abs/2401.08977
    """
    return length * unit(weight)


def lent_lengths(weight: Tensor, lender: Tensor) -> Tensor:
    """Rows scaled by the lengths of another classifier's, which a client's own class frequencies gave them.

        W_c = ||v_c|| w_c

    Args:
        weight: w, [C, F].
        lender: v, [C, F].

    Returns:
        W, [C, F].

    Example:
        >>> from fedskew.functional import lent_lengths
        >>> lent_lengths(torch.eye(2), torch.tensor([[3.0, 4.0], [0.0, 0.5]]))
        tensor([[5.0000, 0.0000],
                [0.0000, 0.5000]])

    References:
        Xiao et al. 2024, FedLoGe (ICLR), realignment of the clients' models. https://arxiv.org/abs/2401.08977
    """
    lent: Tensor = weight * torch.linalg.vector_norm(lender, dim=-1, keepdim=True)
    return lent
