"""FedLoGe: a fixed sparse frame trains the features, and trained heads lend their rows' lengths (Xiao et al. 2024)."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from fedskew import functional as F
from fedskew import rng
from fedskew.fields import Above
from fedskew.method import Component, Frozen, Gradient, InitialHead, Method
from fedskew.types import Context, Params, Task, Tree, View


@dataclass(frozen=True)
class RealignedHeads(Component):
    """Two classifiers beside the model's, on features that get no gradient from them: one is averaged, one stays.

    L + CE(A sg(h) + a, y) + CE(V sg(h) + v, y), sg: no gradient, h the features. A [C, F], a [C] are averaged with the
    model; V, v stay on the client. The global model's classifier is length A_c / ||A_c|| with a. The client's own
    model has ||V_c|| A_c + V_c with a + v.

    Source: Xiao et al. 2024, https://arxiv.org/abs/2401.08977

    Example:
        >>> names = ("fc.weight", "realigned_heads.shared.weight", "realigned_heads.own.weight")
        >>> RealignedHeads().private(names, None)
        ['realigned_heads.own.weight']
    """

    name = "realigned_heads"
    uploads = "C (F + 1)"
    downloads = "C (F + 1)"
    keeps = "C (F + 1) on every client"
    reference = "xiao2024"

    length: Annotated[float, Above(0)] = 1.7
    """length of the rows of the global model's classifier, which counts beside a"""
    serves: Literal["realigned", "trained", "fixed"] = "realigned"
    """the global model's classifier: A realigned, A as trained, or the one that the features were trained under"""
    beside: Literal["own", "shared", "none"] = "own"
    """what is added to ||V_c|| A_c in the client's own model: V, A, or nothing"""

    def init_params(self, params: Params, task: Task, key: Tensor) -> Params:
        """A, a, V and v, drawn within 1 / sqrt(F) of 0, as torch's linear layers begin."""
        named = [(part, name) for part, name in (("weight", task.weight), ("bias", task.bias)) if name in params]
        heads = [(f"{self.name}.{whose}.{part}", params[name]) for whose in ("shared", "own") for part, name in named]
        draws = [2 * rng.uniform(rng.fold(key, i), tuple(p.shape)) - 1 for i, (_, p) in enumerate(heads)]
        return {n: (u / math.sqrt(task.features)).to(p) for (n, p), u in zip(heads, draws, strict=True)}

    def private(self, names: Sequence[str], task: Task) -> Collection[str]:
        """V and v."""
        return [name for name in names if name.startswith(f"{self.name}.own.")]

    def loss(self, view: View) -> Tensor:
        """Mean cross-entropy of A, plus that of V, ()."""
        features = view.out.features.detach()
        heads = (self._head(view.params, "shared"), self._head(view.params, "own"))
        losses = (F.cross_entropy(features @ w.T + b, view.batch.y) for w, b in heads)
        return sum(map(view.batch.mean, losses), start=features.new_zeros(()))

    def serve(self, params: Params, state: Tree, task: Task) -> Params:
        """The model under A, or as it is."""
        if self.serves == "fixed":
            return params
        weight, bias = self._head(params, "shared")
        if self.serves == "realigned":
            weight = F.equal_lengths(weight, self.length)
        return _under(params, task, weight, bias)

    def personalize(self, params: Params, ctx: Context, gradient: Gradient) -> Params:
        """The model under ||V_c|| A_c and what stands beside it."""
        (weight, bias), (own_weight, own_bias) = self._head(params, "shared"), self._head(params, "own")
        lent = F.lent_lengths(weight, own_weight)
        if self.beside == "none":
            return _under(params, ctx.task, lent, bias)
        return _under(params, ctx.task, lent + (own_weight if self.beside == "own" else weight), bias + own_bias)

    def _head(self, params: Params, whose: str) -> tuple[Tensor, Tensor]:
        """(weight, bias) of A or V; zeros where the model has no bias."""
        weight = params[f"{self.name}.{whose}.weight"]
        return weight, params.get(f"{self.name}.{whose}.bias", weight.new_zeros(len(weight)))


def _under(params: Params, task: Task, weight: Tensor, bias: Tensor) -> Params:
    """The model with another classifier."""
    return {**params, task.weight: weight, **({task.bias: bias} if task.bias in params else {})}


def fedloge(sparsity: float = 0.6, norm: float = 0.1) -> Method:
    """FedLoGe: the features are trained under a sparse frame that stands still; A and V, beside it, classify.

    A is the global classifier and V the one of each client.

    The frame's rows have floor(sparsity F) zeros each. The global model gives every class a row of the same length, a
    client's own model one of the length that the client's rows gave it.

    Source: Xiao et al. 2024, https://arxiv.org/abs/2401.08977

    Args:
        sparsity: Share of zeros in the fixed classifier.
        norm: Length of its rows.

    Returns:
        The method.

    Example:
        >>> [part.name for part in fedloge().parts]
        ['cross_entropy', 'initial_head', 'frozen', 'realigned_heads']
    """
    frame = InitialHead(norm=norm, sparsity=sparsity)
    return Method("fedloge", parts=(frame, Frozen(), RealignedHeads()), reference="xiao2024")
