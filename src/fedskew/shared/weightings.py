"""Weightings: the aggregation weights of a round."""

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
    """Weights for updates and buffers alike, from weights that are non-negative and sum to 1.

    Example:
        >>> import torch
        >>> convex(torch.tensor([0.25, 0.75])).average
        tensor([0.2500, 0.7500])
    """
    return Weights(weights, weights)


@dataclass(frozen=True)
class Size(Weighting):
    """Weights in proportion to the rows that each participant trained on.

    p_k = n_k / sum_j n_j over the participants j.

    Source: McMahan et al. 2017, algorithm 1, https://arxiv.org/abs/1602.05629

    Example:
        >>> import torch
        >>> F.size_weights(torch.tensor([30.0, 10.0]))
        tensor([0.7500, 0.2500])
    """

    name = "size"
    discloses = "sample count"

    def weigh(self, state: Tree, cohort: Cohort) -> Weights:
        """n_k / sum_j n_j from the clients' reports."""
        return convex(F.size_weights(cohort.reports.samples.double()))


@dataclass(frozen=True)
class Uniform(Weighting):
    """The same weight for every participant.

    p_k = 1 / m with m participants.

    Source: Karimireddy et al. 2020, algorithm 1, https://arxiv.org/abs/1910.06378

    Example:
        >>> import torch
        >>> F.uniform_weights(torch.tensor([30.0, 10.0]))
        tensor([0.5000, 0.5000])
    """

    name = "uniform"

    def weigh(self, state: Tree, cohort: Cohort) -> Weights:
        """1 / m for each of the m participants."""
        return convex(F.uniform_weights(cohort.reports.samples.double()))


@forwarding("inner", Weighting)
@dataclass(frozen=True)
class Wrapping(Weighting):
    """A weighting around another one: every hook that a subclass does not define is the hook of ``base``.

    The base uses the namespace of the wrapper: its state, broadcast, uploads and memory stand under the wrapper's name.
    A subclass defines ``weigh`` and calls ``self.inner.weigh``.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Halved(Wrapping):
        ...     name = "halved"
        ...     def weigh(self, state, cohort):
        ...         update, average = self.inner.weigh(state, cohort)
        ...         return Weights(update / 2, average)
        >>> Halved(Uniform()).inner.name
        'halved'
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
