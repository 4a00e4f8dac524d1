"""Ditto: personal models tied to the global one (Li et al. 2021)."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedskew import tree
from fedskew.fields import AtLeast
from fedskew.method import BesideOwn, Gradient, Method, decayed
from fedskew.types import Carry, Context, Differentiate, Params


@dataclass(frozen=True)
class Tethered(BesideOwn):
    """A step of SGD for the global model, and one for the client's own model v, which is pulled towards w^t.

    b <- momentum * b + clip(g(v)) + weight_decay * v + lam (v - w^t);  v <- v - lr_p b, on the same mini-batch as the
    step of w. b starts at 0 in every round. lam = 0 is local training, a large lam is the global model. BatchNorm's
    running statistics of v are its own.

    Source: Li et al. 2021, algorithm 1, https://arxiv.org/abs/2012.04221

    Example:
        >>> Tethered(penalty=1.0).personal_lr
        0.0
    """

    name = "tethered"
    version = 3
    keeps = "P on every client"

    penalty: Annotated[float, AtLeast(0)] = 0.1
    """lam, strength of the pull of v towards w^t"""
    personal_lr: Annotated[float, AtLeast(0)] = 0.0
    """learning rate of v; 0 takes that of the pace"""

    def step(self, carry: Carry, ctx: Context, differentiate: Differentiate) -> tuple[Carry, Tensor]:
        """One step of w and one of v, on one mini-batch."""
        kept = carry.memory[self.name]
        v, statistics = kept["own"], kept.get("statistics", carry.buffers)
        grads, _, seen = differentiate(carry._replace(params=v, buffers=statistics))
        after, loss = super().step(carry, ctx, differentiate)
        pull = tree.add(decayed(grads, v, self.clip, self.weight_decay), tree.sub(v, ctx.params), self.penalty)
        along, memory = self._along(pull, after.memory[self.name], "own_momentum")
        memory = {**memory, "own": tree.add(v, along, -(self.personal_lr or ctx.lr))}
        if "statistics" in kept:
            memory["statistics"] = seen.buffers
        return after._replace(memory={**after.memory, self.name: memory}), loss

    def personalize(self, params: Params, ctx: Context, gradient: Gradient) -> Params:
        """v with its statistics; on a client that never took part, the initial model."""
        kept = ctx.memory[self.name]
        return {**kept["own"], **kept.get("statistics", {})}


def ditto(penalty: float = 0.1) -> Method:
    """Ditto: FedAvg, and on every client a model of its own that is tied to the global one.

    The own model follows the client's gradient and a pull towards the model that was sent.

    Source: Li et al. 2021, algorithm 1, https://arxiv.org/abs/2012.04221

    Args:
        penalty: lam of the tie.

    Returns:
        The method.

    Example:
        >>> ditto(1.0).local.penalty
        1.0
    """
    return Method("ditto", local=Tethered(penalty=penalty), reference="li2021ditto")
