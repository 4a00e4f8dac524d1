"""Local steps: how one mini-batch becomes a step."""

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

__all__ = ["SGD", "clip_by_norm"]


def clip_by_norm(grads: Params, limit: float) -> Params:
    """g * min(1, limit / ||g||_2), the norm over all parameters together."""
    norm = torch.sqrt(sum((g.square().sum() for g in grads.values()), start=torch.zeros(())))
    factor = torch.clamp(limit / (norm + 1e-6), max=1.0)
    return {name: g * factor for name, g in grads.items()}


@dataclass(frozen=True)
class SGD(LocalStep):
    """v <- momentum * v + clip(g) + weight_decay * w;  w <- w - lr * v.  v starts at 0 in every round."""

    name = "sgd"

    momentum: Annotated[float, Within(0, 1, "[)")] = 0.0
    """momentum of the clients' SGD, its buffer empty at the start of every round"""
    weight_decay: Annotated[float, AtLeast(0)] = 0.0
    """weight decay, added to the gradient before momentum"""
    clip: Annotated[float, AtLeast(0, infinite=True, hint="0 does not clip")] = 0.0
    """largest gradient norm over all parameters; 0 does not clip"""

    def start(self, params: Params, ctx: Context) -> tuple[Params, Tree]:
        """An empty momentum buffer."""
        return params, {"momentum": tree.zeros_like(params)} if self.momentum else {}

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """Nothing is kept on the client."""
        return {}, {}

    @property
    def stateful(self) -> bool:
        """Its memory lives within a round only."""
        return False

    def decayed(self, params: Params, grads: Params) -> Params:
        """Gradients after clipping and weight decay."""
        if self.clip:
            grads = clip_by_norm(grads, self.clip)
        return tree.add(grads, params, self.weight_decay) if self.weight_decay else grads

    def step(self, carry: Carry, ctx: Context, differentiate: Differentiate) -> tuple[Carry, Tensor]:
        """One step on one mini-batch."""
        grads, loss, carry = differentiate(carry)
        grads, memory = self.decayed(carry.params, grads), carry.memory
        if self.momentum:
            grads = tree.add(grads, carry.memory[self.name]["momentum"], self.momentum)
            memory = {**carry.memory, self.name: {"momentum": grads}}
        params = tree.map_tree(lambda w, g: w - ctx.lr * g, carry.params, grads)
        return Carry(params, carry.buffers, memory), loss

    def a_norm(self, steps: Tensor, lr: Tensor, mu: float) -> Tensor:
        """Momentum and proximal forms of ||a||_1 (Wang et al. 2020)."""
        return F.sgd_a_norm(steps.double(), self.momentum, lr * mu if mu else 0.0)
