"""FedPALS: weights that bring the participants' labels near to those of a target (Listo Zec et al. 2025)."""

from dataclasses import dataclass
from typing import Annotated

from fedskew import functional as F
from fedskew.fields import AtLeast
from fedskew.method import Method, Read, Weighting, convex
from fedskew.methods.feddisco import check_target, target_of
from fedskew.types import Cohort, Federation, Task, Tree, Weights


@dataclass(frozen=True)
class LabelMatching(Weighting):
    """Weights whose mixture of labels is nearest to a target distribution.

    p = argmin over the simplex of ||t - sum_k p_k q_k||^2 + lam sum_k p_k^2 / n_k, q_k the shares of the labels that
    participant k trained on and n_k its rows. A large lam gives `size`. Unproved: no public code was found.

    Source: Listo Zec et al. 2025, https://arxiv.org/abs/2411.03799

    Example:
        >>> LabelMatching(target=(0.7, 0.3)).lam
        10.0
    """

    name = "label_matching"
    compute = "server: a quadratic programme, about K systems of K equations"
    reads = (Read("histogram", "each"), Read("rows", "each"))
    uploads = "C"
    reference = "listozec2025"

    lam: Annotated[float, AtLeast(0)] = 10.0
    """weight lam of the spread, in rows: it trades a nearer match for an average over more rows"""
    target: tuple[Annotated[float, AtLeast(0)], ...] = ()
    """rows or shares of each class where the model will be used, scaled to sum to 1; none: every class alike"""

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """The target has one number for each class."""
        check_target(self, self.target, task)

    def weigh(self, state: Tree, cohort: Cohort) -> Weights:
        """The solution of the programme, for updates and buffers."""
        sizes = cohort.reports.samples.double()
        target = target_of(self.target, cohort.task).to(sizes)
        return convex(F.pals_weights(cohort.used.to(sizes), sizes, target, self.lam))


def fedpals(lam: float = 10.0, target: tuple[float, ...] = ()) -> Method:
    """FedPALS: FedAvg with weights that match the labels of a target.

    The weighted mean of the participants' label distributions comes near the target's, while the effective number
    of clients stays large.

    Source: Listo Zec et al. 2025, https://arxiv.org/abs/2411.03799

    Args:
        lam: Weight of the spread; a very large one is FedAvg.
        target: Rows or shares of each class where the model will be used; none: every class alike.

    Returns:
        The method.

    Example:
        >>> fedpals(lam=1.0, target=(3.0, 1.0)).weighting
        LabelMatching(lam=1.0, target=(3.0, 1.0))
    """
    return Method("fedpals", weighting=LabelMatching(lam=lam, target=target), reference="listozec2025")
