"""Aggregation weights."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor

from fedskew import functional as F
from fedskew.component import Weighting, forwarding
from fedskew.tree import Tree
from fedskew.types import Cohort, Weights

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


@forwarding("inner", Weighting)
@dataclass(frozen=True)
class Wrapping(Weighting):
    """A weighting around another one: every hook that a subclass does not define is the hook of ``base``.

    The base uses the namespace of the wrapper: its state, broadcast, uploads and memory stand under the wrapper's name.
    A subclass defines `weigh` and calls ``self.inner.weigh``.
    """

    base: Weighting = field(default_factory=Size)
    """the inner weighting"""

    @cached_property
    def inner(self) -> Weighting:
        """The base under the name of the wrapper."""
        inner = copy.copy(self.base)
        vars(inner).pop("inner", None)  # a wrapper in a wrapper: its own inner one was made under another name
        vars(inner)["name"] = self.name
        return inner

    @property
    def stateful(self) -> bool:
        """Whether the wrapper or its base keeps memory on clients or uploads more than the model."""
        return super().stateful
