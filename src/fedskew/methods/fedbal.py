"""FedBal: a local balancer in the loss and an aggregation balancer in the average."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew.fields import Above, AtLeast, demand
from fedskew.method import Component, Method, Weighting
from fedskew.shared import Size
from fedskew.shared.weightings import convex
from fedskew.tree import Tree
from fedskew.types import Cohort, Task, View, Weights

if TYPE_CHECKING:
    from fedskew.data.federation import Federation

__all__ = ["AggregationBalancer", "LocalBalancer", "fedbal"]


@dataclass(frozen=True)
class LocalBalancer(Component):
    """CE of z_j - alpha(k) A lambda_j / ||f||; lambda_j: normalised log gap to the top class, alpha(k) = (k/K)^2."""

    name = "local_balancer"
    reference = "li2022fbl"
    compute = "one norm a row"
    classification = True

    strength: Annotated[float, AtLeast(0)] = 60.0
    """A, the strength of the offset"""
    schedule_unit: Literal["epoch", "step", "round"] = "epoch"
    """what k counts"""
    one_based: bool = True
    """k = 1..K; False counts from 0, which disables the balancer for a single epoch"""
    missing: Literal["clamp1", "mask"] = "clamp1"
    """classes without rows: count 1, or left out of the softmax"""
    early: Annotated[int, AtLeast(0)] = 0
    """alpha(k) = (k / (K - early))^2; Feature-Balanced Loss's code: 10, with k from 0"""
    eps: Annotated[float, Above(0, infinite=True)] = 1e-12
    """added to the norm; 1e-12, the paper's, lets a row whose features are all zero blow the step up, 1 does not"""

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """The schedule must end after it begins; how many steps a client takes is not known beforehand."""
        last = {"epoch": method.pace.epochs, "round": task.rounds}.get(self.schedule_unit, self.early + 1)
        demand(self, "early", self.early < last, f"be less than the number of {self.schedule_unit}s, {last}")

    def loss(self, view: View) -> Tensor:
        """See the class."""
        index, total = getattr(view.progress, self.schedule_unit), getattr(view.progress, f"{self.schedule_unit}s")
        dtype, total = view.out.logits.dtype, (total - self.early).clamp(min=1)
        alpha = F.balance_schedule((index - (0 if self.one_based else 1)).to(dtype), total.to(dtype))
        out, y, strength = view.out, view.batch.y, alpha * self.strength
        loss = F.local_balancer_loss(out.logits, out.features, y, view.ctx.used, strength, self.missing, self.eps)
        return view.batch.mean(loss)


@dataclass(frozen=True)
class AggregationBalancer(Weighting):
    """p = softmax(max(v, mean v - beta std v)), v_i the cosine between the old classifier and client i's."""

    name = "aggregation_balancer"
    compute = "server: K dot products of the classifier's size"
    reads_deltas = True

    beta: Annotated[float, AtLeast(0, infinite=True)] = 3.0
    """how many standard deviations below the mean a similarity may lie"""
    temperature: Annotated[float, Above(0, infinite=True)] = 1.0
    """divides the similarities in the softmax"""
    inverse: bool = False
    """softmax(-v) instead: the study's inverse variant"""
    include_bias: bool = True
    """compare the classifier's bias too"""
    scope: Literal["head", "features", "all"] = "head"
    """which parameters are compared"""
    similarity: Literal["cosine", "l2"] = "cosine"
    """how they are compared; l2 is minus the distance"""

    def weigh(self, state: Tree, cohort: Cohort) -> Weights:
        """See the class."""
        assert cohort.deltas is not None
        head = [n for n in (cohort.task.weight, cohort.task.bias) if n in cohort.before]
        names = {"head": head, "features": [n for n in cohort.before if n not in head], "all": list(cohort.before)}[
            self.scope
        ]
        names = [n for n in names if self.include_bias or n != cohort.task.bias]
        before = torch.cat([cohort.before[n].flatten() for n in names])
        moved = torch.cat([cohort.deltas[n].flatten(1) for n in names], 1)
        similarity = F.classifier_similarity(before, before + moved, self.similarity)
        return convex(F.aggregation_balancer_weights(similarity, self.beta, self.temperature, self.inverse))


def fedbal(
    local: bool = True, aggregation: bool = True, strength: float = 60.0, beta: float = 3.0, inverse: bool = False
) -> Method:
    """Both balancers, or either: ``aggregation=False`` is "LocalBalancer", ``local=False`` is "w/ AB"."""
    parts = (LocalBalancer(strength),) if local else ()
    weighting: Weighting = AggregationBalancer(beta, inverse=inverse) if aggregation else Size()
    return Method("fedbal", parts=parts, weighting=weighting, reference="fedbal")
