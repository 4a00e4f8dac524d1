"""pFedMe: personal models by Moreau envelopes (T. Dinh et al. 2020)."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew.fields import Above, AtLeast
from fedskew.method import Fixed, Gradient, LocalStep, Method, decayed
from fedskew.method.servers import Plain
from fedskew.types import Carry, Context, Differentiate, LocalRun, Params, Task, Tree


@dataclass(frozen=True)
class Moreau(LocalStep):
    """A step towards a personal model theta that stays near w.

    On one mini-batch, K times theta <- theta - lr_p (g(theta) + lam (theta - w)); then w <- w - lr lam (w - theta).
    `clip` and `weight_decay` act on g(theta) in each of the K steps, and not on the step of w; FedRepo's and the
    authors' code have the weight decay there, and no clipping.
    theta starts at w^t in every round and is not reset between mini-batches. It stays on the client as its own model.

    Source: T. Dinh et al. 2020, algorithm 1, https://arxiv.org/abs/2006.08848

    Example:
        >>> Moreau(inner_steps=3).penalty
        15.0
    """

    name = "moreau"
    keeps = "P on every client"
    compute = "inner_steps gradients a step"

    inner_steps: Annotated[int, AtLeast(1)] = 5
    """K, steps of theta on each mini-batch"""
    penalty: Annotated[float, AtLeast(0)] = 15.0
    """lam, strength of the pull of theta towards w"""
    personal_lr: Annotated[float, Above(0)] = 0.09
    """learning rate of theta"""
    weight_decay: Annotated[float, AtLeast(0)] = 0.0
    """weight decay of theta; the authors' code uses 0.001"""
    reset: bool = False
    """start theta at w for every mini-batch"""
    clip: Annotated[float, AtLeast(0, infinite=True, hint="0 does not clip")] = 0.0
    """largest norm of g(theta); 0 does not clip"""

    def init_client(self, params: Params, buffers: Params, task: Task) -> Tree:
        """The initial model as theta; `seen` is 0 until the client takes part."""
        return {"theta": params, "seen": torch.zeros(())}

    def start(self, params: Params, ctx: Context) -> tuple[Params, Tree]:
        """The broadcast parameters, and theta = w^t."""
        return params, {"theta": params, "seen": torch.ones_like(ctx.memory[self.name]["seen"])}

    def step(self, carry: Carry, ctx: Context, differentiate: Differentiate) -> tuple[Carry, Tensor]:
        """K steps of theta and one of w, all on one mini-batch."""
        w = carry.params
        theta = w if self.reset else carry.memory[self.name]["theta"]
        for _ in range(self.inner_steps):
            grads, loss, carry = differentiate(carry._replace(params=theta))
            grads = decayed(grads, theta, self.clip, 0.0)  # the weight decay is the formula's own
            theta = F.moreau_step(theta, grads, w, self.personal_lr, self.penalty, self.weight_decay)
        memory = {**carry.memory, self.name: {**carry.memory[self.name], "theta": theta}}
        return Carry(F.moreau_mix(w, theta, ctx.lr, self.penalty), carry.buffers, memory), loss

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """No upload; theta stays."""
        return {}, local.memory[self.name]

    def personalize(self, params: Params, ctx: Context, gradient: Gradient) -> Params:
        """theta, or the global model on a client that never took part."""
        memory = ctx.memory[self.name]
        return {n: torch.where(memory["seen"] > 0, theta, params[n]) for n, theta in memory["theta"].items()}


def pfedme(beta: float = 1.0, lr: float = 0.005) -> Method:
    """pFedMe: the server mixes its model with the mean of the clients' models.

    Each client's own model minimises its loss plus a quadratic pull to the model that it sends.

    x <- (1 - beta) x + beta sum_k p_k w_k.

    Source: T. Dinh et al. 2020, algorithm 1, https://arxiv.org/abs/2006.08848

    Args:
        beta: Factor of the server's mixing, positive.
        lr: Learning rate of the clients' model w.

    Returns:
        The method.

    Example:
        >>> pfedme(beta=2.0).server
        Plain(lr=2.0)
    """
    return Method("pfedme", pace=Fixed(lr=lr), server=Plain(beta), local=Moreau(), reference="dinh2020")
