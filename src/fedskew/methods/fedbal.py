"""FedBal: a balanced local loss and weights from the change of the classifier (anonymous submission, 2023)."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew.fields import Above, AtLeast, demand
from fedskew.method import Component, Method, Read, Size, Weighting, convex
from fedskew.types import Cohort, Federation, Task, Tree, View, Weights


@dataclass(frozen=True)
class LocalBalancer(Component):
    """Cross-entropy of logits that are lowered for rare classes in proportion to 1 / ||f|| (Feature-Balanced Loss).

    z^b_j = z_j - alpha(k) A lambda_j / (||f|| + eps), with f the features, A the strength, lambda_j = (log n_max - log
    n_j) / (log n_max - log n_min) of the client's counts, and the schedule alpha(k) = (k/K)^2 over the epochs k = 1..K
    of the round. The norm is not detached. Evaluation uses z. FedBal's equation 12 has neither A nor eps, and the paper
    no formula of lambda_j, which falls with n_j: these are of Feature-Balanced Loss and its code.

    Source: Li et al. 2022, https://arxiv.org/abs/2305.10772, as used by FedBal, equations 4, 12 and 13

    Example:
        >>> counts, z = torch.tensor([100.0, 10.0, 1.0]), torch.ones(1, 3)
        >>> F.local_balancer_loss(z, torch.tensor([[3.0, 4.0]]), torch.tensor([2]), counts, 10.0)
        tensor([2.4076])
    """

    name = "local_balancer"
    reference = "li2022fbl"
    compute = "one norm a row"
    classification = True
    version = 2  # eps was 1e-12 by default

    strength: Annotated[float, AtLeast(0)] = 60.0
    """A, the strength of the offset"""
    schedule_unit: Literal["epoch", "step", "round"] = "epoch"
    """unit of k"""
    one_based: bool = True
    """count k from 1 to K; false: from 0, which disables the balancer for a single epoch"""
    missing: Literal["clamp1", "mask"] = "clamp1"
    """classes without rows: count 1, or left out of the softmax"""
    early: Annotated[int, AtLeast(0)] = 0
    """alpha(k) = (k / (K - early))^2; Feature-Balanced Loss's code: 10, with k from 0"""
    eps: Annotated[float, Above(0, infinite=True)] = 1.0
    """added to the norm of the features, by which the paper divides alone; with 1e-12, as in Feature-Balanced Loss's
    code, a row of zero features makes the step explode"""

    @property
    def needs_two_classes(self) -> bool:
        """Every class without rows is lowered by up to A / (||f|| + eps), or left out."""
        return self.strength >= 10 or self.missing == "mask"

    @property
    def reads_rounds(self) -> bool:
        """Whether the schedule runs over the rounds."""
        return self.schedule_unit == "round"

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """The schedule must end after it begins; the number of steps of a client is not known beforehand."""
        last = {"epoch": method.pace.epochs, "round": task.rounds}.get(self.schedule_unit, self.early + 1)
        demand(self, "early", self.early < last, f"be less than the number of {self.schedule_unit}s, {last}")

    def loss(self, view: View) -> Tensor:
        """Mean cross-entropy of the balanced logits, ()."""
        index, total = getattr(view.progress, self.schedule_unit), getattr(view.progress, f"{self.schedule_unit}s")
        dtype, total = view.out.logits.dtype, (total - self.early).clamp(min=1)
        alpha = F.balance_schedule((index - (0 if self.one_based else 1)).to(dtype), total.to(dtype))
        out, y, strength = view.out, view.batch.y, alpha * self.strength
        loss = F.local_balancer_loss(out.logits, out.features, y, view.ctx.used, strength, self.missing, self.eps)
        return view.batch.mean(loss)


@dataclass(frozen=True)
class AggregationBalancer(Weighting):
    """Weights from the similarity of each client's classifier to the global one.

    p = softmax(max(v, mean v - beta std v)) with v_i = cos(theta(x), theta(y_i)), theta the flattened classifier. The
    standard deviation divides by the number of participants. Up to 10 participants beta = 3 changes nothing.

    Source: FedBal, anonymous submission 2023, equations 5 to 8

    Example:
        >>> F.aggregation_balancer_weights(torch.tensor([1.0, 0.0]), beta=3.0)
        tensor([0.7311, 0.2689])
    """

    name = "aggregation_balancer"
    compute = "server: K dot products of the classifier's size"
    reads = (Read("update", "each"),)
    reads_deltas = True

    beta: Annotated[float, AtLeast(0, infinite=True)] = 3.0
    """how many standard deviations below the mean a similarity may lie"""
    temperature: Annotated[float, Above(0, infinite=True)] = 1.0
    """divides the similarities in the softmax; equation 8 has none, the text says that beta can be one"""
    inverse: bool = False
    """softmax(-v) instead, our reading of the "inversely proportional term" of the paper's section 5.2"""
    include_bias: bool = True
    """compare the classifier's bias too"""
    scope: Literal["head", "features", "all"] = "head"
    """which parameters are compared"""
    similarity: Literal["cosine", "l2"] = "cosine"
    """how they are compared; l2 is minus the distance"""

    def weigh(self, state: Tree, cohort: Cohort) -> Weights:
        """The softmax of the clipped similarities, for updates and buffers."""
        head = [n for n in (cohort.task.weight, cohort.task.bias) if n in cohort.before]
        names = {"head": head, "features": [n for n in cohort.before if n not in head], "all": list(cohort.before)}[
            self.scope
        ]
        names = [n for n in names if self.include_bias or n != cohort.task.bias]
        demand(self, "scope", bool(names), "be head for a network that is nothing but its classifier")
        before = torch.cat([cohort.before[n].flatten() for n in names])
        moved = torch.cat([cohort.deltas[n].flatten(1) for n in names], 1)
        similarity = F.classifier_similarity(before, before + moved, self.similarity)
        return convex(F.aggregation_balancer_weights(similarity, self.beta, self.temperature, self.inverse))


def fedbal(
    local: bool = True, aggregation: bool = True, strength: float = 1.0, beta: float = 3.0, inverse: bool = False
) -> Method:
    """FedBal: the local balancer at the clients, the aggregation balancer at the server, or one of them.

    The first lowers the logits of a client's rare classes, the second weighs clients by how alike their classifiers
    are to the global one.

    Equation 12 has no strength: 1. Feature-Balanced Loss has 60, for ResNets with BatchNorm. On held-out training rows
    of six federations 60 is 1 to 5 points above 1 on five. If each client holds one class, the loss starts near 0 with
    60, and nothing trains (`fedskew compare readings`, notes/five.md).

    Source: FedBal, anonymous submission 2023

    Args:
        local: Use the local balancer; False is "w/ AB" in the paper's tables.
        aggregation: Use the aggregation balancer; False is "LocalBalancer" in the paper's tables.
        strength: Strength A of the local balancer.
        beta: Standard deviations below the mean at which similarities are clipped.
        inverse: Weights softmax(-v) instead.

    Returns:
        The method.

    Example:
        >>> fedbal(aggregation=False).weighting
        Size()
        >>> fedbal().with_("local_balancer", eps=1.0).parts[0].eps
        1.0
    """
    parts = (LocalBalancer(strength),) if local else ()
    weighting: Weighting = AggregationBalancer(beta, inverse=inverse) if aggregation else Size()
    return Method("fedbal", parts=parts, weighting=weighting, reference="fedbal")
