"""Per-FedAvg: a global model from which one step personalises (Fallah et al. 2020)."""

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from fedskew import functional as F
from fedskew.fields import Above, AtLeast
from fedskew.method import Fixed, Gradient, LocalStep, Method, Uniform, decayed
from fedskew.types import Carry, Context, Differentiate, Params


@dataclass(frozen=True)
class Meta(LocalStep):
    """A step of meta-learning: the gradient after one step of adaptation.

    w~ = w - alpha g(w; D), then w <- w - lr (g~ - alpha H g~) with g~ = g(w~; D'). H g~ is approximated on D'' by
    (g(w + delta g~) - g(w - delta g~)) / (2 delta), or left out in first order.

    `clip` and `weight_decay` act on both gradients that are stepped along: that of the adaptation and the whole
    outer one. The decay adds weight_decay * w, with the same w in both. FedRepo's code has the decay in both places, in
    first order, and no clipping.

    Source: Fallah et al. 2020, algorithm 1, https://arxiv.org/abs/2002.07948

    Example:
        >>> Meta(hessian="none").batches
        2
    """

    name = "meta"
    own_only = True
    compute = "4 gradients a step, 2 in first order"

    alpha: Annotated[float, AtLeast(0)] = 0.01
    """step of the adaptation"""
    delta: Annotated[float, Above(0)] = 1e-3
    """half width of the difference"""
    hessian: Literal["free", "none"] = "free"
    """second derivatives: Hessian-free (HF), or none: the first-order variant (FO), w <- w - lr g~"""
    weight_decay: Annotated[float, AtLeast(0)] = 0.0
    """weight decay, added to the gradient of the adaptation and to that of the step"""
    clip: Annotated[float, AtLeast(0, infinite=True, hint="0 does not clip")] = 0.0
    """largest norm of the gradient of the adaptation and of that of the step; 0 does not clip"""

    @property
    def batches(self) -> int:
        """D and D', and D'' for the Hessian."""
        return 3 if self.hessian == "free" else 2

    def step(self, carry: Carry, ctx: Context, differentiate: Differentiate) -> tuple[Carry, Tensor]:
        """One step of meta-learning; BatchNorm statistics and memory follow the gradient on D'."""
        w = carry.params
        inner, _, _ = differentiate(carry, 0)
        outer, loss, after = differentiate(carry._replace(params=self._step(w, inner, self.alpha)), 1)
        if self.hessian == "none":
            return after._replace(params=self._step(w, outer, ctx.lr)), loss
        plus, _, _ = differentiate(after._replace(params=F.lookahead(w, outer, -self.delta)), 2)
        minus, _, _ = differentiate(after._replace(params=F.lookahead(w, outer, self.delta)), 2)
        grads = F.hessian_free_gradient(outer, plus, minus, self.alpha, self.delta)
        return after._replace(params=self._step(w, grads, ctx.lr)), loss

    def _step(self, w: Params, grads: Params, lr: Tensor | float) -> Params:
        return F.lookahead(w, decayed(grads, w, self.clip, self.weight_decay), lr)

    def personalize(self, params: Params, ctx: Context, gradient: Gradient) -> Params:
        """The model after one step of size alpha on the client's training rows."""
        return self._step(params, gradient(params), self.alpha)


def perfedavg(alpha: float = 0.01, beta: float = 0.003) -> Method:
    """Per-FedAvg: a global model that is good after one step of adaptation on a client.

    The Hessian is replaced by differences of gradients (HF) or left out, and clients count equally.

    alpha and beta are of the size that the code of T. Dinh et al. 2020 has for MNIST (alpha 0.005 to 0.03, beta 0.001
    to 0.003, 800 rounds of 20 steps). In fewer rounds it stays weak: on 100 clients of Fashion-MNIST, 50 rounds give
    0.20 where `beta=0.1` gives 0.79 (notes/log.md).

    Source: Fallah et al. 2020, algorithm 1, https://arxiv.org/abs/2002.07948

    Args:
        alpha: Step size of the adaptation; 0 is FedAvg on every second mini-batch.
        beta: Rate of the clients' model, the pace's `lr`.

    Returns:
        The method.

    Example:
        >>> perfedavg().with_("meta", hessian="none").local
        Meta(alpha=0.01, delta=0.001, hessian='none', weight_decay=0.0, clip=0.0)
    """
    return Method("perfedavg", pace=Fixed(lr=beta), weighting=Uniform(), local=Meta(alpha), reference="fallah2020")
