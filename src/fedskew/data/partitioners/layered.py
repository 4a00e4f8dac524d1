"""Partitioners over another one: they choose rows, a long tail or a set that clients share, and it divides them."""

import math
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from fedskew import rng
from fedskew.data.arrays import draw as draw_rows
from fedskew.data.partitioners.base import Columns, Ints, Partition, Partitioner, Table, table_of
from fedskew.data.partitioners.dirichlet import Dirichlet
from fedskew.errors import FieldError, require
from fedskew.fields import Above, Within, demand, fits, later

__all__ = ["PROFILES", "LongTail", "Shared", "factor_rule", "long_tail"]

PROFILES = ("exp", "step")


class Layered(Partitioner):
    """Base of the partitioners that choose rows and leave their division to another one."""

    base: Partitioner

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.base.overlaps or self.base.name in ("counts", "file", self.name):
            rule, hint = "be a partitioner that draws", "for example dirichlet"
            raise FieldError(type(self).__name__, "base", rule, self.base.name, hint)

    @property
    def decides(self) -> bool:
        """Whether the base decides the number of clients."""
        return self.base.decides

    def count(self, columns: Columns) -> int:
        """Number of clients that the base decides."""
        return self.base.count(columns)

    def divided(self, rows: Ints, labels: npt.ArrayLike, clients: int, seed: int, columns: Columns | None) -> Partition:
        """The base's division of these rows; a base that decides the number of clients divides all rows before."""
        if self.base.decides:
            whole = self.base.split(labels, clients, seed, columns)
            return whole.masked(np.isin(whole.rows, rows))
        facts = {name: np.asarray(values)[rows] for name, values in (columns or {}).items()}
        local = self.base.split(np.asarray(labels)[rows], clients, seed, facts)
        return Partition(rows[local.rows], local.offsets)


def long_tail(counts: np.ndarray, factor: float, profile: str = "exp") -> np.ndarray:
    """Rows that each class keeps in a long tail, with class 0 the head.

        "exp":   floor(n_max IF^(-c / (C-1)))
        "step":  n_max for the first C - floor(C/2) classes, floor(n_max / IF) for the others

    n_max is the largest head for which no class has too few rows, so the profile is exact even where classes differ in
    size.

    Args:
        counts: Rows of each class, [C], C at least 2.
        factor: IF = n_max / n_min, at least 1. CReFF and Fed-GraB give its inverse as their option.
        profile: "exp" or "step".

    Returns:
        Rows kept, int64 [C].

    Raises:
        ConfigError: The last class would keep no row, or there is one class only.

    Example:
        >>> import numpy as np
        >>> from fedskew.data.federation import long_tail
        >>> long_tail(np.full(5, 100), factor=10).tolist()
        [100, 56, 31, 17, 10]

    References:
        Cao et al. 2019, Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss (NeurIPS).
        https://arxiv.org/abs/1906.07413
    """
    classes = len(counts)
    require(classes > 1, "longtail", "be used with two classes at least", factor, "leave it out")
    exponent = np.arange(classes) / (classes - 1)
    if profile == "step":
        exponent = (np.arange(classes) >= classes - classes // 2).astype(np.float64)
    decay = factor ** (-exponent)
    head = math.floor((counts / decay).min() + 1e-9)
    kept: np.ndarray = np.floor(head * decay + 1e-9).astype(np.int64)
    hint = f"use at most {head}, the rows of the head" if head else "a class has no rows"
    require(kept.min() > 0, "longtail", "leave a row of each class", factor, hint)
    return kept


def factor_rule(factor: float) -> tuple[bool, str, str]:
    """(whether a factor is a finite number of at least 1, this rule, a suggestion: below 1 the inverse)."""
    number = fits(factor, float)
    hint = f"use {1 / factor:g}, the inverse" if number and 0 < factor < 1 else "for example 10"
    return number and 1 <= factor < math.inf, "be n_max / n_min of at least 1", hint


@dataclass(frozen=True)
class LongTail(Layered):
    """Long tail, then any partitioner: class c is thinned to n_max IF^(-c / (C-1)) rows, and the base divides the rest.

    The rows are those of `federate(..., base, longtail=factor)`. Thinned rows belong to nobody. Classes are in the
    order of their labels; IF = n_max / n_min. Natural clients that lose all their rows are kept, empty.

    Raises:
        ConfigError: A field breaks a rule, or a class would keep no row.

    Example:
        >>> from fedskew.data import federate
        >>> from fedskew.data.partitioners import Iid, LongTail
        >>> federate("digits", LongTail(Iid(), factor=10), clients=4).counts.sum(0).tolist()
        [142, 109, 85, 65, 51, 39, 30, 23, 18, 14]

    References:
        Cao et al. 2019, Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss (NeurIPS).
        https://arxiv.org/abs/1906.07413
    """

    name: ClassVar[str] = "longtail"
    formula: ClassVar[str] = "n_c = ⌊n_max·IF^(−c/(C−1))⌋ (exp), or n_max for one half, ⌊n_max/IF⌋ for the other (step)"
    users: ClassVar[str] = "CReFF, Fed-GraB, FedLoGe, BalanceFL (with dirichlet)"
    limits: ClassVar[str] = "IF = 1: every class as scarce as the scarcest, then the base"
    base: Partitioner = field(default_factory=Dirichlet)
    """partitioner that divides the thinned rows"""
    factor: float = 100.0
    """IF = n_max / n_min >= 1, the first class over the last (authors' options are often the inverse)"""
    profile: Literal["exp", "step"] = "exp"
    """exponential decay over the classes, or two steps"""

    def __post_init__(self) -> None:
        super().__post_init__()
        demand(self, "factor", *factor_rule(self.factor))

    def split(self, labels: npt.ArrayLike, clients: int, seed: int, columns: Columns | None = None) -> Partition:
        """Divide as `Partitioner.split`. The thinning is keyed as in `federate`, the rest as the base alone."""
        table = table_of(labels, columns, clients)
        kept = long_tail(table.totals, self.factor, self.profile)
        rows = draw_rows(table.codes, kept, rng.key(seed, "data", "longtail"))
        return self.divided(rows, labels, clients, seed, columns)


@dataclass(frozen=True)
class Shared(Layered):
    """Shared data: a set G, even over the classes, is taken out; a base divides the rest, each client adds a part of G.

    G has m = floor(beta n / ((1 + beta) C)) rows of each class, so that its size is about beta times that of the rows D
    that the base divides. A client adds floor(alpha C m + 1/2) rows of G, drawn from all of G alike. So rows of G have
    several owners, and count at each of them. What nobody draws stays unused. The paper also trains the first model on
    G at the server: a run whose only client has all of G (``divides="shared"``) makes it, another begins from it.

    Raises:
        ConfigError: A field breaks a rule, or beta gives no row of a class, or all rows of one.

    Example:
        >>> from fedskew.data import federate
        >>> from fedskew.data.partitioners import LabelsK, Shared
        >>> federate("digits", Shared(LabelsK(1), beta=0.1, alpha=0.5), clients=10).counts[0].tolist()
        [8, 7, 6, 7, 3, 7, 6, 7, 7, 138]

    References:
        Zhao et al. 2018, Federated Learning with Non-IID Data. https://arxiv.org/abs/1806.00582
    """

    name: ClassVar[str] = "shared"
    formula: ClassVar[str] = "m = ⌊β·n/((1+β)·C)⌋ rows of each class make G;  rows of k = base(D, k) ∪ ⌊α·C·m + ½⌋ of G"
    users: ClassVar[str] = "Zhao et al. 2018 (10 clients of 1 or 2 labels; β up to 0.25)"
    limits: ClassVar[str] = "α = 0: the base alone on D; α = 1: every client has all of G"
    overlaps: ClassVar[bool] = True
    base: Partitioner = field(default_factory=Dirichlet)
    """partitioner that divides the rows besides G"""
    beta: Annotated[float, Above(0)] = 0.05
    """size of G over that of the rows besides it"""
    alpha: Annotated[float, Within(0, 1)] = 0.5
    """part of G that each client adds, in [0, 1]"""
    divides: Literal["rest", "shared"] = later(default="rest")
    """rows that the base divides: all besides G, or only G, to train a first model on it"""

    def split(self, labels: npt.ArrayLike, clients: int, seed: int, columns: Columns | None = None) -> Partition:
        """Divide as `Partitioner.split`. The base is keyed as alone, client k's part of G by (seed, k)."""
        table = table_of(labels, columns, clients)
        key = rng.key(seed, "partition", self.name)
        common = draw_rows(table.codes, self._of_each_class(table), key)
        left = np.setdiff1d(np.arange(len(table.codes)), common, assume_unique=True)
        if self.divides == "shared":
            left, common = common, common[:0]
        own = self.divided(left, labels, clients, seed, columns)
        take = math.floor(self.alpha * len(common) + 0.5)
        added = [common[rng.generator(key, "part", k).permutation(len(common))[:take]] for k in range(clients)]
        return Partition.of_lists([np.sort(np.concatenate([own.of(k), part])) for k, part in enumerate(added)])

    def _of_each_class(self, table: Table) -> Ints:
        """m for every class, [C]."""
        classes, scarce = len(table.totals), int(table.totals.min())
        each = math.floor(self.beta * len(table.codes) / (1 + self.beta) / classes + 1e-9)
        demand(self, "beta", each > 0, f"give a row of each of the {classes} classes", "use more")
        demand(self, "beta", each < scarce, f"leave rows of each class, one has {scarce}", "use less")
        return np.full(classes, each)
