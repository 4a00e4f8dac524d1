"""APFL: a personal model mixed with the shared one (Deng et al. 2020)."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedskew import tree
from fedskew.fields import Within, omit_if_default
from fedskew.method import BesideOwn, Gradient, Method, decayed
from fedskew.types import Carry, Context, Differentiate, Params, Task, Tree


@dataclass(frozen=True)
class Mixed(BesideOwn):
    """A step of SGD for the global model w, and one for the client's own model v through their mixture.

    m = alpha v + (1 - alpha) w;  b <- momentum * b + alpha g;  v <- v - lr b, on the same mini-batch as the step of w,
    with g = clip(g(m)) + weight_decay * m. b starts at 0 in every round. Where alpha is learnt: alpha <- alpha - lr
    <g, v - w>, held within [0, 1], at the first mini-batch of a round. m is the client's own model; at evaluation with
    the global model as w. BatchNorm's running statistics of m are its own.

    Source: Deng et al. 2020, algorithm 1 and equation 10, https://arxiv.org/abs/2003.13461; when alpha is learnt: the
    authors' code, https://github.com/MLOPTPSU/FedTorch

    Example:
        >>> Mixed(alpha=0.25).learnt
        True
    """

    name = "mixed"
    version = 3
    keeps = "P + 1 on every client"

    alpha: Annotated[float, Within(0, 1)] = 0.5
    """initial share of v in the mixture"""
    learnt: bool = True
    """learn the share at each client"""
    learns: Literal["round", "step"] = omit_if_default(default="round")
    """when it does: at the first mini-batch of a round, or at every one"""

    def init_client(self, params: Params, buffers: Params, task: Task) -> Tree:
        """{"own": v, the initial model, "alpha": ()}, and {"statistics": its buffers} where the network has some."""
        alpha = next(iter(params.values())).new_tensor(self.alpha)
        return {**super().init_client(params, buffers, task), "alpha": alpha}

    def start(self, params: Params, ctx: Context) -> tuple[Params, Tree]:
        """The broadcast parameters, two empty momentum buffers, v and alpha as they were left, and that no step was."""
        params, memory = super().start(params, ctx)
        return params, {**memory, "first": torch.ones_like(memory["alpha"], dtype=torch.bool)}

    def step(self, carry: Carry, ctx: Context, differentiate: Differentiate) -> tuple[Carry, Tensor]:
        """One step of w, one of v and, where it is learnt, one of alpha, on one mini-batch."""
        memory, w = carry.memory[self.name], carry.params
        v, alpha, statistics = memory["own"], memory["alpha"], memory.get("statistics", carry.buffers)
        mixture = self._mixture(v, w, alpha)
        grads, _, seen = differentiate(carry._replace(params=mixture, buffers=statistics))
        grads = decayed(grads, mixture, self.clip, self.weight_decay)
        after, loss = super().step(carry, ctx, differentiate)
        # lr (alpha g) and (lr alpha) g differ by rounding: without momentum v keeps the bits that it had before
        slope_of_v, lr = (tree.scale(grads, alpha), ctx.lr) if self.momentum else (grads, ctx.lr * alpha)
        along, moved = self._along(slope_of_v, after.memory[self.name], "own_momentum")
        moved = {**moved, "own": tree.add(v, along, -lr)}
        if self.learnt:
            difference = tree.sub(v, w)
            slope = sum(((grads[n] * difference[n]).sum() for n in grads), start=alpha.new_zeros(()))
            after_step = (alpha - ctx.lr * slope).clamp(0, 1)
            moved["alpha"] = torch.where(memory["first"], after_step, alpha) if self.learns == "round" else after_step
            moved["first"] = torch.zeros_like(memory["first"])
        if "statistics" in memory:
            moved["statistics"] = seen.buffers
        return after._replace(memory={**after.memory, self.name: moved}), loss

    def personalize(self, params: Params, ctx: Context, gradient: Gradient) -> Params:
        """alpha v + (1 - alpha) w^t, with the statistics of the mixture."""
        kept = ctx.memory[self.name]
        return {**self._mixture(kept["own"], params, kept["alpha"]), **kept.get("statistics", {})}

    def _mixture(self, v: Params, w: Params, alpha: Tensor) -> Params:
        """m. A share that stays at 1 gives v itself, which w + (v - w) misses by rounding."""
        mixture: Params = tree.add(w, tree.sub(v, w), alpha)
        return v if self.alpha == 1 and not self.learnt else mixture


def apfl(alpha: float = 0.5, learnt: bool = True, learns: Literal["round", "step"] = "round") -> Method:
    """APFL: FedAvg, and on every client a mixture of the shared model with one of its own.

    Each client trains both models on the same mini-batches and is served their mixture, whose share can be learnt.

    Source: Deng et al. 2020, algorithm 1, https://arxiv.org/abs/2003.13461

    Args:
        alpha: Initial share of the client's own model.
        learnt: Whether each client learns its share.
        learns: At the first mini-batch of a round, as the authors' code does, or at every step.

    Returns:
        The method.

    Example:
        >>> apfl(0.25).local.alpha
        0.25
    """
    return Method("apfl", local=Mixed(alpha=alpha, learnt=learnt, learns=learns), reference="deng2020")
