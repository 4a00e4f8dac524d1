"""Weightings: the aggregation weights of a round."""

import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from fedskew.method.component import Sums, Weighting, forwarding, in_halves
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


def mass_and_one(mass: Tensor) -> Tree:
    """What each participant adds to the sum that `share_of` divides by."""
    return {"mass": mass, "clients": torch.ones_like(mass)}


def share_of(mass: Tensor, total: Tree) -> Tensor:
    """Each participant's part of the sum of all masses; the same for everybody where that is 0."""
    whole = total["mass"]
    return torch.where(whole > 0, mass / whole.clamp(min=1e-300), 1 / total["clients"])


@dataclass(frozen=True)
class Size(Weighting):
    """Weights in proportion to the rows that each participant trained on.

    p_k = n_k / sum_j n_j over the participants j.

    Source: McMahan et al. 2017, algorithm 1, https://arxiv.org/abs/1602.05629

    Example:
        >>> import torch
        >>> from fedskew import functional as F
        >>> F.size_weights(torch.tensor([30.0, 10.0]))
        tensor([0.7500, 0.2500])
    """

    name = "size"
    reads = (Read("rows", "sum"),)

    def mass(self, state: Tree, own: Cohort, sums: Sums) -> Weights:
        """n_k from the client's report."""
        return convex(own.reports.samples.double())


@dataclass(frozen=True)
class Uniform(Weighting):
    """The same weight for every participant.

    p_k = 1 / m with m participants.

    Source: Karimireddy et al. 2020, algorithm 1, https://arxiv.org/abs/1910.06378

    Example:
        >>> import torch
        >>> from fedskew import functional as F
        >>> F.uniform_weights(torch.tensor([30.0, 10.0]))
        tensor([0.5000, 0.5000])
    """

    name = "uniform"

    def mass(self, state: Tree, own: Cohort, sums: Sums) -> Weights:
        """1 for each participant."""
        return convex(torch.ones(len(own.ids), dtype=torch.float64))


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

    normed = True
    stages = 1

    def adds(self, state: Tree, own: Cohort, sums: Sums) -> Tree:
        """Rows that the client trains on, and {"owned"} that it has."""
        return {**mass_and_one(own.reports.samples.double()), "owned": own.owned.sum(1)}

    def mass(self, state: Tree, own: Cohort, sums: Sums) -> Weights:
        """n_k / |D| for updates, size weights for buffers."""
        samples = own.reports.samples.double()
        whole = state["rows"] if self.union == "all" else sums[0]["owned"]
        return Weights(samples / whole.to(samples), share_of(samples, sums[0]))


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

    def __init_subclass__(cls, **options: object) -> None:
        """A subclass with a `mass` of its own weighs by it, and not as its base."""
        super().__init_subclass__(**options)
        if "mass" in vars(cls) and "weigh" not in vars(cls):
            cls.weigh = Weighting.weigh  # type: ignore[method-assign]

    @property
    def _base_stages(self) -> int:
        """Sums until the weights of the base are known; none where it sees all participants at once."""
        return self.inner.stages + (not self.inner.normed) if in_halves(self.inner) else 0

    def _base_adds(self, state: Tree, own: Cohort, sums: Sums) -> Tree:
        """What a client adds to these sums, the last of which is that of the masses."""
        if len(sums) < self.inner.stages:
            return self.inner.adds(state, own, sums)
        return mass_and_one(self.inner.mass(state, own, sums).average)

    def _base_weights(self, state: Tree, own: Cohort, sums: Sums) -> Weights:
        """The weights of the base, which each client knows from the sum of all masses."""
        if not in_halves(self.inner):
            return self.inner.weigh(state, own)
        mass = self.inner.mass(state, own, sums)
        if self.inner.normed:
            return mass
        total = sums[self.inner.stages]
        average = share_of(mass.average, total)
        return Weights(average if mass.update is mass.average else mass.update / total["mass"], average)
