"""Local steps: how one mini-batch becomes a step of the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew import tree
from fedskew.component import LocalStep
from fedskew.fields import AtLeast, Within
from fedskew.tree import Tree
from fedskew.types import Carry, Context, Differentiate, LocalRun, Params

__all__ = ["SGD", "clip_by_norm", "decayed"]


def clip_by_norm(grads: Params, limit: float) -> Params:
    """Gradients scaled down to a largest norm.

    g * min(1, limit / (||g||_2 + 1e-6)), the norm over all parameters together.

    Args:
        grads: Gradients by name.
        limit: Largest norm.

    Returns:
        The scaled gradients.

    Example:
        >>> clip_by_norm({"w": torch.tensor([3.0, 4.0])}, 1.0)
        {'w': tensor([0.6000, 0.8000])}
    """
    norm = torch.sqrt(sum((g.square().sum() for g in grads.values()), start=torch.zeros(())))
    factor = torch.clamp(limit / (norm + 1e-6), max=1.0)
    return {name: g * factor for name, g in grads.items()}


def decayed(grads: Params, params: Params, clip: float, weight_decay: float) -> Params:
    """Gradients after clipping and weight decay, in this order.

    g * min(1, clip / (||g||_2 + 1e-6)) + weight_decay * w.

    Args:
        grads: Gradients by name.
        params: Parameters w at which the decay acts.
        clip: Largest norm; 0 does not clip.
        weight_decay: Weight decay; 0 has none.

    Returns:
        The new gradients.

    Example:
        >>> one = {"w": torch.tensor([1.0, 0.0])}
        >>> decayed({"w": torch.tensor([3.0, 4.0])}, one, clip=1.0, weight_decay=0.5)
        {'w': tensor([1.1000, 0.8000])}
    """
    grads = clip_by_norm(grads, clip) if clip else grads
    return tree.add(grads, params, weight_decay) if weight_decay else grads


@dataclass(frozen=True)
class SGD(LocalStep):
    """Stochastic gradient descent with momentum, weight decay and gradient clipping.

    v <- momentum * v + clip(g) + weight_decay * w;  w <- w - lr * v.  v starts at 0 in every round.

    Source: McMahan et al. 2017, algorithm 1, https://arxiv.org/abs/1602.05629

    Example:
        >>> SGD(momentum=0.9, weight_decay=1e-4)
        SGD(momentum=0.9, weight_decay=0.0001, clip=0.0)
    """

    name = "sgd"

    momentum: Annotated[float, Within(0, 1, "[)")] = 0.0
    """momentum of the clients' SGD, its buffer empty at the start of every round"""
    weight_decay: Annotated[float, AtLeast(0)] = 0.0
    """weight decay, added to the gradient before momentum"""
    clip: Annotated[float, AtLeast(0, infinite=True, hint="0 does not clip")] = 0.0
    """largest gradient norm over all parameters; 0 does not clip"""

    def start(self, params: Params, ctx: Context) -> tuple[Params, Tree]:
        """The parameters, and an empty momentum buffer."""
        return params, {"momentum": tree.zeros_like(params)} if self.momentum else {}

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """Nothing is uploaded and nothing kept: the buffer ends with the round."""
        return {}, {}

    @property
    def stateful(self) -> bool:
        """False: its memory lives within a round."""
        return False

    def step(self, carry: Carry, ctx: Context, differentiate: Differentiate) -> tuple[Carry, Tensor]:
        """One step on one mini-batch."""
        grads, loss, carry = differentiate(carry)
        grads, memory = decayed(grads, carry.params, self.clip, self.weight_decay), carry.memory
        if self.momentum:
            grads = tree.add(grads, carry.memory[self.name]["momentum"], self.momentum)
            memory = {**carry.memory, self.name: {**carry.memory[self.name], "momentum": grads}}
        params = tree.map_tree(lambda w, g: w - ctx.lr * g, carry.params, grads)
        return Carry(params, carry.buffers, memory), loss

    def a_norm(self, steps: Tensor, lr: Tensor, mu: float) -> Tensor:
        """||a||_1 of plain steps, with momentum, or with a proximal term of coefficient ``mu``.

        Source: Wang et al. 2020, section 4, https://arxiv.org/abs/2007.07481
        """
        return F.sgd_a_norm(steps.double(), self.momentum, lr * mu if mu else 0.0)
