"""Gradients that the server asks for beside training."""

from __future__ import annotations

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew.types import Tree, View


def head_gradient(view: View) -> Tree:
    """The gradient of the mean cross-entropy by the classifier's weight, in evaluation mode.

    Args:
        view: The rows and the model.

    Returns:
        The gradient [C, F] under the name of the weight.
    """
    name = view.ctx.task.weight

    def mean(weight: Tensor) -> Tensor:
        params, rows = {**view.params, name: weight}, view.batch
        out, _ = view.forward(params, view.buffers, rows.x, rows.mask, train=False, key=view.key)
        return rows.mean(F.cross_entropy(out.logits, rows.y))

    return {name: torch.func.grad(mean)(view.params[name])}


def minus_head_gradient(view: View) -> Tree:
    """Minus `head_gradient`: the direction in which a step of training would change the weight."""
    return {name: -gradient for name, gradient in head_gradient(view).items()}
