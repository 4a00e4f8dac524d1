"""FedRoD: a generic head for all and a personal one beside it (Chen and Chao 2022)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from torch import Tensor

from fedskew import functional as F
from fedskew.method import Component, Gradient, Method
from fedskew.methods.fedlc import LogitAdjustment
from fedskew.types import Context, Params, Task, View

__all__ = ["PersonalHead", "fedrod"]


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
        shift = view.params.get(f"{self.name}.bias", 0.0)
        own = view.out.features.detach() @ view.params[f"{self.name}.weight"].T + shift
        logits = view.out.logits.detach() + own
        return view.batch.mean(F.cross_entropy(logits, view.batch.y))

    def personalize(self, params: Params, ctx: Context, gradient: Gradient) -> Params:
        """The model with the sum of both classifiers."""
        return {**params, **{name: params[name] + params[own] for own, name in self._pairs(params, ctx.task)}}

    def _pairs(self, params: Params, task: Task) -> list[tuple[str, str]]:
        """(name in the second classifier, name in the first) of weight and bias."""
        pairs = ((f"{self.name}.weight", task.weight), (f"{self.name}.bias", task.bias))
        return [(own, name) for own, name in pairs if name in params]


def fedrod(tau: float = 1.0) -> Method:
    """FedRoD: the balanced softmax trains the shared model, plain cross-entropy a personal head beside it.

    The paper's hypernetwork, which gives new clients a head from their class counts, is not here.

    Source: Chen and Chao 2022, section 4, https://arxiv.org/abs/2107.00778

    Args:
        tau: Strength of the shift by the client's class counts, the paper's gamma.

    Returns:
        The method.

    Example:
        >>> fedrod().parts
        (LogitAdjustment(tau=1.0), PersonalHead())
    """
    return Method("fedrod", parts=(LogitAdjustment(tau), PersonalHead()), reference="chen2022rod")
