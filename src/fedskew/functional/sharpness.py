"""Perturbations of sharpness-aware minimisation, on dicts of tensors."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedskew.functional._numeric import choose
from fedskew.tree import Params

__all__ = ["sam_ascent", "unit_columns"]


def sam_ascent(
    direction: Params,
    rho: Tensor | float,
    params: Params | None = None,
    norm: Literal["all", "tensors"] = "all",
) -> Params:
    """The perturbation of sharpness-aware minimisation: a step of length rho along a direction.

        e = rho d / (||d||_2 + 1e-7);   with ``params`` w the adaptive form, e = rho w^2 d / (||w d||_2 + 1e-7)

    Args:
        direction: d, a dict of tensors: the gradient.
        rho: Length of the step, in units of the parameters.
        params: w, shaped as ``direction``; None takes the plain form.
        norm: all: of all parameters together; tensors: the sum of each tensor's norm.

    Returns:
        e, shaped as ``direction``; 0 where d is 0.

    Raises:
        ConfigError: ``norm`` is unknown.

    Example:
        >>> import torch
        >>> from fedskew.functional import sam_ascent
        >>> sam_ascent({"w": torch.tensor([3.0, 4.0])}, rho=0.5)
        {'w': tensor([0.3000, 0.4000])}

    References:
        Foret, Kleiner, Mobahi and Neyshabur 2021, Sharpness-Aware Minimization for Efficiently Improving
        Generalization. https://arxiv.org/abs/2010.01412. Kwon, Kim, Park and Choi 2021, ASAM.
        https://arxiv.org/abs/2102.11600
    """
    choose("norm", norm, ("all", "tensors"))
    scaled = direction if params is None else {n: params[n].abs() * d for n, d in direction.items()}
    squares = torch.stack([d.square().sum() for d in scaled.values()])
    size = squares.sum().sqrt() if norm == "all" else squares.sqrt().sum()
    factor = rho / (size + 1e-7)
    if params is not None:
        return {n: params[n].square() * d * factor for n, d in direction.items()}
    return {n: d * factor for n, d in direction.items()}


def unit_columns(x: Tensor) -> Tensor:
    """A tensor over its norm along the first axis: FedSOL's scale of a perturbation.

        x_i... / max(||x_:...||_2, 1e-8)

    Args:
        x: A parameter's move, [n, ...].

    Returns:
        The scaled tensor, shaped as ``x``. A number () is divided by its size. The floor keeps rounding errors of what
        has not moved from counting as much as a move.

    Example:
        >>> import torch
        >>> from fedskew.functional import unit_columns
        >>> unit_columns(torch.tensor([[3.0, 0.0], [4.0, 0.0]]))
        tensor([[0.6000, 0.0000],
                [0.8000, 0.0000]])

    References:
        Lee et al. 2024, FedSOL: Stabilized Orthogonal Learning with Proximal Restrictions in Federated Learning (CVPR).
        https://arxiv.org/abs/2308.12532
    """
    size = x.abs() if x.ndim == 0 else torch.linalg.vector_norm(x, dim=0, keepdim=True)
    return x / size.clamp(min=1e-8)
