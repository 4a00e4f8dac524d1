"""pFedMe: personalised models by Moreau envelopes (Dinh et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew.fields import Above, AtLeast
from fedskew.method import Gradient, LocalStep, Method
from fedskew.shared import Fixed
from fedskew.shared.servers import Plain
from fedskew.tree import Tree
from fedskew.types import Carry, Context, Differentiate, LocalRun, Params, Task

__all__ = ["Moreau", "pfedme"]


@dataclass(frozen=True)
class Moreau(LocalStep):
    """On one mini-batch, K times theta <- theta - lr_p (g(theta) + lam (theta - w)); then w <- w - lr lam (w - theta).

    theta starts at w^t in every round and is not reset between mini-batches; it stays on the client as its own model.
    """

    name = "moreau"
    keeps = "P on every client"
    compute = "K gradients a step"

    inner_steps: Annotated[int, AtLeast(1)] = 5
    """K, steps of theta on each mini-batch"""
    penalty: Annotated[float, AtLeast(0)] = 15.0
    """lam, how strongly theta is tied to w"""
    personal_lr: Annotated[float, Above(0)] = 0.09
    """learning rate of theta"""
    personal_decay: Annotated[float, AtLeast(0)] = 0.0
    """weight decay of theta; the authors' code uses 0.001"""
    reset: bool = False
    """start theta at w for every mini-batch"""

    def init_client(self, params: Params, buffers: Params, task: Task) -> Tree:
        """No theta yet: ``seen`` is 0."""
        return {"theta": params, "seen": torch.zeros(())}

    def start(self, params: Params, ctx: Context) -> tuple[Params, Tree]:
        """theta = w^t."""
        return params, {"theta": params, "seen": torch.ones_like(ctx.memory[self.name]["seen"])}

    def step(self, carry: Carry, ctx: Context, differentiate: Differentiate) -> tuple[Carry, Tensor]:
        """K steps of theta, one of w. The loop is over steps on one mini-batch."""
        w = carry.params
        theta = w if self.reset else carry.memory[self.name]["theta"]
        for _ in range(self.inner_steps):
            grads, loss, carry = differentiate(carry._replace(params=theta))
            theta = F.moreau_step(theta, grads, w, self.personal_lr, self.penalty, self.personal_decay)
        memory = {**carry.memory, self.name: {**carry.memory[self.name], "theta": theta}}
        return Carry(F.moreau_mix(w, theta, ctx.lr, self.penalty), carry.buffers, memory), loss

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """theta stays."""
        return {}, local.memory[self.name]

    def personalize(self, params: Params, ctx: Context, gradient: Gradient) -> Params:
        """theta, or the global model on a client that never took part."""
        memory = ctx.memory[self.name]
        return {n: torch.where(memory["seen"] > 0, theta, params[n]) for n, theta in memory["theta"].items()}


def pfedme(beta: float = 1.0, lr: float = 0.005) -> Method:
    """pFedMe; ``beta`` mixes the server's model, x <- (1 - beta) x + beta mean(w)."""
    return Method("pfedme", pace=Fixed(lr=lr), server=Plain(beta), local=Moreau(), reference="dinh2020")
