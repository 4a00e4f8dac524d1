"""FedDisco: weights from the size of a client and the discrepancy of its labels (Ye et al. 2023)."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch

from fedskew import functional as F
from fedskew.fields import AtLeast, demand
from fedskew.method import Method, Read, Sums, Wrapping, convex
from fedskew.types import Cohort, Federation, Task, Tree, Weights


@dataclass(frozen=True)
class DiscrepancyAware(Wrapping):
    """Weights that fall with the distance of a participant's labels from a target distribution.

    p_k ~ max(0, p_k - a d_k + b) with p_k the weight of `base` and d_k the distance of the labels that k trained on.
    Where nobody has anything left, the weights are those of `base`.

    Source: Ye et al. 2023, https://arxiv.org/abs/2305.19229

    Example:
        >>> F.disco_weights(torch.tensor([0.5, 0.5]), torch.tensor([0.8, 0.2]), a=0.5, b=0.1)
        tensor([0.2857, 0.7143])
    """

    name = "discrepancy_aware"
    compute = "server: O(K C)"
    uploads = "C"
    reference = "ye2023"

    a: Annotated[float, AtLeast(0)] = 0.5
    """weight of the discrepancy"""
    b: float = 0.1
    """constant that every participant gets"""
    metric: Literal["kl", "kl_plain", "l2", "l1", "cosine"] = "kl"
    """distance of labels; kl: divided by its sum over the participants, as the authors' code has it; `kl_plain`: not"""
    target: tuple[Annotated[float, AtLeast(0)], ...] = ()
    """rows or shares of each class in the target distribution, scaled to sum to 1; none: every class alike"""

    @property
    def reads(self) -> tuple[Read, ...]:
        """What the base reads, and distances of labels."""
        return (*self.inner.reads, Read("histogram", "sum"))

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """The target has one number for each class, and those of the inner weighting hold."""
        self.inner.check(method, fed, task)
        check_target(self, self.target, task)

    normed = True

    @property
    def stages(self) -> int:
        """Those of the base, that of the distances, and that of what is left."""
        return self._base_stages + 2

    def adds(self, state: Tree, own: Cohort, sums: Sums) -> Tree:
        """{"far": d_k before they are divided}, then {"left": max(0, p_k - a d_k + b)}, after the sums of the base."""
        if len(sums) < self._base_stages:
            return self._base_adds(state, own, sums)
        if len(sums) == self._base_stages:
            metric = "kl_plain" if self.metric == "kl" else self.metric
            far = F.label_discrepancy(own.used.double(), target_of(self.target, own.task), metric)
            return {"far": far.masked_fill(far.isinf(), 0)}
        return {"left": self._left(state, own, sums)}

    def _left(self, state: Tree, own: Cohort, sums: Sums) -> torch.Tensor:
        before = self._base_weights(state, own, sums).average
        far, target = sums[self._base_stages]["far"], target_of(self.target, own.task)
        d = F.label_discrepancy(own.used.double(), target, self.metric, far)
        return F.disco_left(before, d.to(before), self.a, self.b)

    def mass(self, state: Tree, own: Cohort, sums: Sums) -> Weights:
        """The reweighted base, for updates and buffers."""
        left, whole = self._left(state, own, sums), sums[-1]["left"]
        if not bool(whole > 0):
            return convex(self._base_weights(state, own, sums).average)
        return convex(left / whole)


def check_target(weighting: object, target: tuple[float, ...], task: Task) -> None:
    """Raise FieldError unless `target` has one number for each class and a positive sum, or is empty."""
    fits = not target or (len(target) == task.classes and sum(target) > 0)
    demand(weighting, "target", fits, f"hold {task.classes} numbers, one for each class, not all 0")


def target_of(target: tuple[float, ...], task: Task) -> torch.Tensor:
    """The shares of the classes, float64 [C]."""
    rows = torch.tensor(target or (1.0,) * task.classes, dtype=torch.float64)
    return rows / rows.sum()


def feddisco(a: float = 0.5, b: float = 0.1, metric: Literal["kl", "kl_plain", "l2", "l1", "cosine"] = "kl") -> Method:
    """FedDisco: FedAvg with smaller weights for clients whose labels are far from a target distribution.

    The default target has every class alike, as a balanced test set has.

    Source: Ye et al. 2023, https://arxiv.org/abs/2305.19229

    Args:
        a: Weight of the discrepancy; 0 with b = 0 is FedAvg.
        b: What every participant is given.
        metric: Distance of labels.

    Returns:
        The method.

    Example:
        >>> feddisco(metric="l2").weighting.metric
        'l2'
    """
    return Method("feddisco", weighting=DiscrepancyAware(a=a, b=b, metric=metric), reference="ye2023")
