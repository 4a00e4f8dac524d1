"""FedRoD: a generic head for all and a personal one beside it (Chen and Chao 2022)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedskew import functional as F
from fedskew import rng
from fedskew.errors import require
from fedskew.fields import AtLeast
from fedskew.method import Component, Gradient, Method
from fedskew.methods.fedlc import LogitAdjustment
from fedskew.types import Context, Params, Task, View

__all__ = ["GeneratedHead", "PersonalHead", "fedrod"]


@dataclass(frozen=True)
class PersonalHead(Component):
    """A second classifier of the client's own, whose logits are added to those of the first.

    L + CE(sg(z) + V sg(h) + c, y), sg: no gradient, z the logits of the model, h its features: the term trains V [C, F]
    and c [C] alone, which begin as the classifier's initial values. They stay on the client. Its own model has the
    weight W + V and the bias b + c.

    Source: Chen and Chao 2022, section 4, https://arxiv.org/abs/2107.00778

    Example:
        >>> PersonalHead().private(("fc.weight", "personal_head.weight"), None)
        ['personal_head.weight']
    """

    name = "personal_head"
    keeps = "C (F + 1) on every client"

    def init_params(self, params: Params, task: Task, key: Tensor) -> Params:
        """{"personal_head.weight": [C, F], "personal_head.bias": [C]}, copies of the classifier."""
        return {own: params[name].clone() for own, name in self._pairs(params, task)}

    def private(self, names: Sequence[str], task: Task) -> Collection[str]:
        """The second classifier."""
        return [name for name in names if name.startswith(f"{self.name}.")]

    def loss(self, view: View) -> Tensor:
        """Mean cross-entropy of the sum of both classifiers, ()."""
        weight = view.params[f"{self.name}.weight"]
        return _loss_beside(view, weight, view.params.get(f"{self.name}.bias", weight.new_zeros(len(weight))))

    def personalize(self, params: Params, ctx: Context, gradient: Gradient) -> Params:
        """The model with the sum of both classifiers."""
        return {**params, **{name: params[name] + params[own] for own, name in self._pairs(params, ctx.task)}}

    def _pairs(self, params: Params, task: Task) -> list[tuple[str, str]]:
        """(name in the second classifier, name in the first) of weight and bias."""
        pairs = ((f"{self.name}.weight", task.weight), (f"{self.name}.bias", task.bias))
        return [(own, name) for own, name in pairs if name in params]


@dataclass(frozen=True)
class GeneratedHead(Component):
    """A second classifier that a network makes of the client's class shares; its logits are added to the first's.

    (V, c) = H(a): a_y is the share of class y among the client's rows, and H has two linear layers with a relu between.
    L + CE(sg(z) + V sg(h) + c, y), sg: no gradient, z the logits of the model, h its features: the term trains H alone.
    H is sent and averaged with the model. A client's own model has the weight W + V and the bias b + c, so a client
    that never trained has one by its class counts.

    Source: Chen and Chao 2022, section 4.3, https://arxiv.org/abs/2107.00778

    Example:
        >>> GeneratedHead(width=16)
        GeneratedHead(width=16)
    """

    name = "generated_head"
    uploads = "width (C + 1) + (width + 1) C (F + 1)"
    downloads = "width (C + 1) + (width + 1) C (F + 1)"

    width: Annotated[int, AtLeast(1)] = 32
    """numbers between the two layers"""

    def init_params(self, params: Params, task: Task, key: Tensor) -> Params:
        """Both layers of H, each drawn within 1 / sqrt(numbers that enter it) of 0, as torch's linear layers begin."""
        like = params[task.weight]
        made = task.classes * (task.features + (task.bias in params))
        shapes = ((self.width, task.classes), (self.width,), (made, self.width), (made,))
        reach = [1 / math.sqrt(n) for n in (task.classes, task.classes, self.width, self.width)]
        draws = [
            r * (2 * rng.uniform(rng.fold(key, i), s) - 1) for i, (r, s) in enumerate(zip(reach, shapes, strict=True))
        ]
        return {name: draw.to(like) for name, draw in zip(self._names, draws, strict=True)}

    def loss(self, view: View) -> Tensor:
        """Mean cross-entropy of the sum of both classifiers, ()."""
        return _loss_beside(view, *self._head(view.params, view.ctx))

    def personalize(self, params: Params, ctx: Context, gradient: Gradient) -> Params:
        """The model with the sum of both classifiers."""
        made = zip((ctx.task.weight, ctx.task.bias), self._head(params, ctx), strict=True)
        return {**params, **{name: params[name] + head for name, head in made if name in params}}

    @property
    def _names(self) -> list[str]:
        return [f"{self.name}.{layer}.{part}" for layer in ("first", "second") for part in ("weight", "bias")]

    def _head(self, params: Params, ctx: Context) -> tuple[Tensor, Tensor]:
        """(V, c) of this client."""
        first, shift, second, start = (params[name] for name in self._names)
        owned = ctx.owned.to(first)
        return F.generated_head(owned / owned.sum().clamp(min=1), (first, shift, second, start), ctx.task.features)


def _loss_beside(view: View, weight: Tensor, bias: Tensor) -> Tensor:
    """Mean cross-entropy of the model's logits plus those of a second classifier, which alone gets a gradient, ()."""
    logits = view.out.logits.detach() + (view.out.features.detach() @ weight.T + bias)
    return view.batch.mean(F.cross_entropy(logits, view.batch.y))


def fedrod(tau: float = 1.0, hyper: int = 0) -> Method:
    """FedRoD: the balanced softmax trains the shared model, plain cross-entropy a personal head beside it.

    With ``hyper`` the personal head comes out of a network that all clients train, by their class shares, and clients
    that never trained have one, too.

    Source: Chen and Chao 2022, section 4, https://arxiv.org/abs/2107.00778

    Args:
        tau: Strength of the shift by the client's class counts, the paper's gamma.
        hyper: Width of the network that makes the personal heads; 0: none, each client keeps a head of its own.

    Returns:
        The method.

    Raises:
        ConfigError: ``hyper`` is below 0.

    Example:
        >>> fedrod().parts
        (LogitAdjustment(tau=1.0), PersonalHead())
        >>> fedrod(hyper=16).parts[1]
        GeneratedHead(width=16)
    """
    require(type(hyper) is int and hyper >= 0, "hyper", "be a whole number, at least 0", hyper)
    head = GeneratedHead(hyper) if hyper else PersonalHead()
    return Method("fedrod", parts=(LogitAdjustment(tau), head), reference="chen2022rod")
