"""Precision-weighted averaging: each parameter by the inverse variance of its gradient (Reyes et al. 2021)."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedskew import tree
from fedskew.fields import Above, Within
from fedskew.method import SGD, Method, Read, Uniform
from fedskew.types import Carry, Cohort, Context, Differentiate, LocalRun, Params, Rule, Tree


@dataclass(frozen=True)
class PrecisionWeighted(SGD):
    """A step of SGD that estimates the gradient's second moment, by whose inverse the server averages.

    v <- beta2 v + (1 - beta2) g^2 from 0, entry by entry, and v / (1 - beta2^tau) after tau steps. The aggregate is
    sum_k a_k delta_k with a_k = (v_k + eps)^-1 / sum_j (v_j + eps)^-1, whatever the weighting, which is left to the
    BatchNorm statistics. g is the gradient before weight decay, clipping and momentum. Unproved: no public code was
    found.

    Source: Reyes et al. 2021, https://arxiv.org/abs/2107.09627

    Example:
        >>> PrecisionWeighted(beta2=0.9).eps
        1e-08
    """

    name = "precision_weighted"
    uploads = "P"
    compute = "O(P) a step; server: O(K P)"
    reads = (Read("upload", "each", "second moment of the gradients"), Read("update", "each"))
    averages_all = True
    reference = "reyes2021"

    beta2: Annotated[float, Within(0, 1, "[)")] = 0.999
    """decay of the second moment; 0 takes that of the last step"""
    eps: Annotated[float, Above(0)] = 1e-8
    """eps, which bounds the precision of a parameter without gradients; a large one gives the uniform mean"""

    def start(self, params: Params, ctx: Context) -> tuple[Params, Tree]:
        """The parameters, and v = 0 with 1 - beta2^0 = 0 beside it."""
        params, memory = super().start(params, ctx)
        return params, {**memory, "second": tree.zeros_like(params), "whole": torch.zeros_like(ctx.lr)}

    def step(self, carry: Carry, ctx: Context, differentiate: Differentiate) -> tuple[Carry, Tensor]:
        """One step on one mini-batch; v learns its gradient."""
        seen: list[Params] = []

        def noted(carry: Carry, batch: int = 0, rule: Rule | None = None) -> tuple[Params, Tensor, Carry]:
            differentiated = differentiate(carry, batch, rule)
            seen.append(differentiated[0])
            return differentiated

        after, loss = super().step(carry, ctx, noted)
        memory, rest = after.memory[self.name], 1 - self.beta2
        second = {n: self.beta2 * v + rest * seen[0][n].square() for n, v in memory["second"].items()}
        learnt = {**memory, "second": second, "whole": self.beta2 * memory["whole"] + rest}
        return Carry(after.params, after.buffers, {**after.memory, self.name: learnt}), loss

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """v, corrected for its start at 0, is uploaded."""
        memory = local.memory[self.name]
        whole = memory["whole"].clamp(min=1e-30)
        return {"variance": {n: v / whole.to(v) for n, v in memory["second"].items()}}, {}

    def combine(self, state: Tree, cohort: Cohort) -> Params:
        """a_k delta_k / p_k, whose average under the weights p is sum_k a_k delta_k."""
        p, variance = cohort.weights.update, cohort.uploads[self.name]["variance"]
        share = torch.where(p > 0, 1 / p.clamp(min=1e-300), torch.zeros_like(p))

        def weighed(delta: Tensor, v: Tensor) -> Tensor:
            counts = (p > 0).to(delta).view(-1, *[1] * (delta.ndim - 1))
            precision = counts / (v.to(delta) + self.eps)
            part = precision / precision.sum(0)
            return part * delta * share.to(delta).view(-1, *[1] * (delta.ndim - 1))

        return {n: weighed(d, variance[n]) for n, d in cohort.deltas.items()}


def precisionweighted(eps: float = 1e-8) -> Method:
    """Precision-weighted averaging of the clients' models, entry by entry.

    A client counts more where its gradients vary less, by the inverse of their second moment.

    Source: Reyes et al. 2021, https://arxiv.org/abs/2107.09627

    Args:
        eps: Added to the second moments, positive; a large one is FedAvg under the uniform mean.

    Returns:
        The method.

    Example:
        >>> precisionweighted(eps=1e-4).local.eps
        0.0001
    """
    return Method("precisionweighted", weighting=Uniform(), local=PrecisionWeighted(eps=eps), reference="reyes2021")
