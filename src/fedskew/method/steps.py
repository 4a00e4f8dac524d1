"""Local steps: how one mini-batch becomes a step of the client."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew import tree
from fedskew.fields import Above, AtLeast, Within
from fedskew.method.component import LocalStep
from fedskew.types import Carry, Context, Differentiate, LocalRun, Params, Raw, Task, Tree


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
        >>> params = {"w": torch.tensor([1.0, 0.0])}
        >>> decayed({"w": torch.tensor([3.0, 4.0])}, params, clip=1.0, weight_decay=0.5)
        {'w': tensor([1.1000, 0.8000])}
    """
    grads = clip_by_norm(grads, clip) if clip else grads
    return tree.add(grads, params, weight_decay) if weight_decay else grads


@dataclass(frozen=True)
class _WithinRound(LocalStep):
    """A step whose memory begins and ends with the local run."""

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """Nothing is uploaded and nothing kept: its memory ends with the round."""
        return {}, {}


@dataclass(frozen=True)
class SGD(_WithinRound):
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

    def step(self, carry: Carry, ctx: Context, differentiate: Differentiate) -> tuple[Carry, Tensor]:
        """One step on one mini-batch."""
        grads, loss, carry = differentiate(carry)
        grads = decayed(grads, carry.params, self.clip, self.weight_decay)
        grads, memory = self._along(grads, carry.memory[self.name], "momentum")
        params = tree.map_tree(lambda w, g: w - ctx.lr * g, carry.params, grads)
        return Carry(params, carry.buffers, {**carry.memory, self.name: memory}), loss

    def _along(self, grads: Params, memory: Tree, buffer: str) -> tuple[Params, Tree]:
        """(v <- momentum * v + g, this step's memory after it), v under the name `buffer`; g where momentum is 0."""
        if not self.momentum:
            return grads, memory
        grads = tree.add(grads, memory[buffer], self.momentum)
        return grads, {**memory, buffer: grads}

    def a_norm(self, steps: Tensor, lr: Tensor, mu: float) -> Tensor:
        """||a||_1 of plain steps, with momentum, or with a proximal term of coefficient `mu`.

        Source: Wang et al. 2020, section 4, https://arxiv.org/abs/2007.07481
        """
        return F.sgd_a_norm(steps.double(), self.momentum, lr * mu if mu else 0.0)


@dataclass(frozen=True)
class BesideOwn(SGD):
    """A step of SGD for the global model, in a step that moves a model v of the client's own as well.

    Momentum, weight decay and clipping are of both. v and its BatchNorm statistics stay on the client; its momentum
    buffer, "own_momentum", starts at 0 in every round as that of the global model does.
    """

    trains_own = True
    compute = "2 gradients a step"

    def init_client(self, params: Params, buffers: Params, task: Task) -> Tree:
        """{"own": v, the initial model}, and {"statistics": its buffers} where the network has some."""
        return {"own": params, **({"statistics": buffers} if buffers else {})}

    def start(self, params: Params, ctx: Context) -> tuple[Params, Tree]:
        """The broadcast parameters, two empty momentum buffers, and what the client kept."""
        params, memory = super().start(params, ctx)
        own_buffers = {f"own_{buffer}": zeros for buffer, zeros in memory.items()}
        return params, {**memory, **own_buffers, **ctx.memory[self.name]}

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """No upload; what the client kept stays, as it is now."""
        return {}, {n: local.memory[self.name][n] for n in local.ctx.memory[self.name]}


@dataclass(frozen=True)
class AdamW(_WithinRound):
    """Adam with decoupled weight decay; its moments start at 0 in every round.

    m <- beta1 m + (1 - beta1) g;  v <- beta2 v + (1 - beta2) g^2;  w <- w - lr weight_decay w
    - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) in local step t = 1, 2, ..., with g after clipping.

    A step of Adam is no multiple of the gradient, so SCAFFOLD's control variates and FedNova's ||a||_1, which counts
    steps here, are not what their papers derive. The usual rate is 0.001.

    Source: Loshchilov and Hutter 2019, algorithm 2, https://arxiv.org/abs/1711.05101

    Example:
        >>> AdamW(weight_decay=0.0)
        AdamW(beta1=0.9, beta2=0.999, eps=1e-08, weight_decay=0.0, clip=0.0)
    """

    name = "adamw"
    reference = "loshchilov2019"

    beta1: Annotated[float, Within(0, 1, "[)")] = 0.9
    """decay of the first moment"""
    beta2: Annotated[float, Within(0, 1, "[)")] = 0.999
    """decay of the second moment"""
    eps: Annotated[float, Above(0)] = 1e-8
    """eps, added to the root of the second moment"""
    weight_decay: Annotated[float, AtLeast(0)] = 0.01
    """weight decay, times the rate, taken off the weights themselves"""
    clip: Annotated[float, AtLeast(0, infinite=True, hint="0 does not clip")] = 0.0
    """largest gradient norm over all parameters; 0 does not clip"""

    def start(self, params: Params, ctx: Context) -> tuple[Params, Tree]:
        """The parameters, empty moments, and t = 0."""
        return params, {"m": tree.zeros_like(params), "v": tree.zeros_like(params), "t": torch.zeros_like(ctx.lr)}

    def step(self, carry: Carry, ctx: Context, differentiate: Differentiate) -> tuple[Carry, Tensor]:
        """One step on one mini-batch."""
        grads, loss, carry = differentiate(carry)
        grads = clip_by_norm(grads, self.clip) if self.clip else grads
        moments = carry.memory[self.name]
        m = {n: self.beta1 * a + (1 - self.beta1) * grads[n] for n, a in moments["m"].items()}
        v = {n: self.beta2 * a + (1 - self.beta2) * grads[n].square() for n, a in moments["v"].items()}
        t = moments["t"] + 1
        shrink, root = 1 - ctx.lr * self.weight_decay, _grown(self.beta2, t).sqrt()
        rate = ctx.lr * root / _grown(self.beta1, t)
        params = {n: shrink * w - rate * m[n] / (v[n].sqrt() + self.eps * root) for n, w in carry.params.items()}
        memory = {**carry.memory, self.name: {"m": m, "v": v, "t": t}}
        return Carry(params, carry.buffers, memory), loss


def _grown(beta: float, t: Tensor) -> Tensor:
    """1 - beta^t, () without the cancellation of float32."""
    return -torch.expm1(t * (math.log(beta) if beta else -math.inf))


@dataclass(frozen=True)
class SharpnessAware(SGD):
    """A step of SGD along the gradient at a perturbed point, on the same mini-batch.

    e = rho g(w) / ||g(w)||_2, then g <- (1 - alpha) g(w) + alpha g(w + e) in the place of g(w). The perturbation
    follows the loss terms alone; corrections of the gradient, clipping, weight decay and momentum come after, and act
    at w. BatchNorm statistics are those of the pass at w. `adaptive` scales e with the parameters:
    e = rho w^2 g / ||w g||_2. `normalised` False takes e = rho g.

    Source: Foret et al. 2021, equations 2 and 3, https://arxiv.org/abs/2010.01412

    Example:
        >>> SharpnessAware(rho=0.05).alpha
        1.0
    """

    name = "sam"
    compute = "2 gradients a step"
    reference = "foret2021"

    rho: Annotated[float, AtLeast(0)] = 0.1
    """length rho of the perturbation, in units of the parameters; 0 is SGD"""
    alpha: Annotated[float, Within(0, 1)] = 1.0
    """share of the gradient at the perturbed point; 0 is SGD"""
    adaptive: bool = False
    """perturb each parameter in proportion to its square (ASAM)"""
    normalised: bool = True
    """divide the perturbation by the norm of the gradient; False: e = rho g, or rho w^2 g"""

    def step(self, carry: Carry, ctx: Context, differentiate: Differentiate) -> tuple[Carry, Tensor]:
        """One step on one mini-batch, with two gradients."""
        return super().step(carry, ctx, partial(differentiate, rule=self._gradient))

    def _gradient(self, raw: Raw, w: Params) -> tuple[Params, Tensor, Any]:
        """((1 - alpha) g(w) + alpha g(w + e), the loss and the forward pass at w)."""
        first, loss, seen = raw(w)
        second, _, _ = raw(tree.add(w, self._ascent(first, w)))
        return self._mixed(first, second), loss, seen

    def _ascent(self, grads: Params, w: Params) -> Params:
        """e."""
        if self.normalised:
            return F.sam_ascent(grads, self.rho, w if self.adaptive else None)
        scale = {n: w[n].square() for n in grads} if self.adaptive else dict.fromkeys(grads, 1.0)
        return {n: self.rho * scale[n] * g for n, g in grads.items()}

    def _mixed(self, first: Params, second: Params) -> Params:
        if self.alpha == 1:
            return second
        return {n: (1 - self.alpha) * first[n] + self.alpha * g for n, g in second.items()}
