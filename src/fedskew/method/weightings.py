"""Weightings: the aggregation weights of a round."""

import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from torch import Tensor

from fedskew import functional as F
from fedskew.method.component import Weighting, forwarding
from fedskew.method.reads import Read
from fedskew.types import Cohort, Federation, Params, Task, Tree, Weights


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
    reads = (Read("rows", "sum"),)

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
        return convex(F.uniform_weights(cohort.ids.double()))


@dataclass(frozen=True)
class UnionShare(Weighting):
    """Rows trained on as a share of the rows of whole data sets; these weights need not sum to 1.

    p_k = n_k / |D| with n_k the rows that client k trained on, and |D| the rows that the participants own, or those of
    all clients. Where clients train on every row they own, "cohort" is `size`; where they train on subsets, the sum
    is below 1; where they oversample, it may exceed 1. Buffers are averaged by size. With the server `weighted_sum`
    the model is sum_k p_k y_k, which shrinks by the missing share every round; with `plain` only the update does.

    Source: Seol and Kim 2023, equation 2 as printed, https://doi.org/10.3390/s23031152

    Example:
        >>> UnionShare(union="all")
        UnionShare(union='all')
    """

    name = "union_share"
    reads = (Read("rows", "sum"),)
    reference = "seol2023"

    union: Literal["cohort", "all"] = "cohort"
    """clients whose data sets count: the participants, or all"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """{"rows": rows of all clients}."""
        return {"rows": fed.sizes.sum()}

    def weigh(self, state: Tree, cohort: Cohort) -> Weights:
        """n_k / |D| for updates, size weights for buffers."""
        samples = cohort.reports.samples.double()
        whole = state["rows"] if self.union == "all" else cohort.owned.sum()
        return Weights(samples / whole.to(samples), F.size_weights(samples))


@forwarding("inner", Weighting)
@dataclass(frozen=True)
class Wrapping(Weighting):
    """A weighting around another one: every hook that a subclass does not define is the hook of `base`.

    The base uses the namespace of the wrapper: its state, broadcast, uploads and memory stand under the wrapper's name.
    A subclass defines `weigh` and calls `self.inner.weigh`.

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
