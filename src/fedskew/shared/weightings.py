"""Aggregation weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from fedskew import functional as F
from fedskew.component import Weighting
from fedskew.tree import Tree
from fedskew.types import Answers, Cohort, Params, Query, Task, Weights

if TYPE_CHECKING:
    from fedskew.data.federation import Federation
    from fedskew.method import Method

__all__ = ["Size", "Uniform", "Wrapping", "convex"]


def convex(weights: Tensor) -> Weights:
    """Weights that are non-negative and sum to one serve updates and buffers alike."""
    return Weights(weights, weights)


@dataclass(frozen=True)
class Size(Weighting):
    """p_k = n_k / sum_j n_j over the participants, n_k the rows trained on (McMahan et al. 2017)."""

    name = "size"
    discloses = "sample count"

    def weigh(self, state: Tree, cohort: Cohort) -> Weights:
        """See the class."""
        return convex(F.size_weights(cohort.reports.samples.double()))


@dataclass(frozen=True)
class Uniform(Weighting):
    """p_k = 1 / m ("uniform division")."""

    name = "uniform"

    def weigh(self, state: Tree, cohort: Cohort) -> Weights:
        """See the class."""
        return convex(F.uniform_weights(cohort.reports.samples.double()))


@dataclass(frozen=True)
class Wrapping(Weighting):
    """A weighting around another, ``base``; it lends the base its namespace, hooks and disclosure."""

    base: Weighting = field(default_factory=Size)
    """the inner weighting"""

    @property
    def reads_deltas(self) -> bool:
        """As the base does."""
        return self.base.reads_deltas

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """The base's state."""
        return self.base.init_server(params, fed, task)

    def ask(self, state: Tree, round: int, key: Tensor) -> Query | None:
        """The base's question."""
        return self.base.ask(state, round, key)

    def receive(self, state: Tree, answers: Answers, key: Tensor) -> Tree:
        """The base's state after its answers."""
        return self.base.receive(state, answers, key)

    def absorb(self, state: Tree, cohort: Cohort, key: Tensor) -> tuple[Tree, Tree | None]:
        """The base's state after the round."""
        return self.base.absorb(state, cohort, key)

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """The base's rules."""
        self.base.check(method, fed, task)
