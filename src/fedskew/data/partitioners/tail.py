"""The long tail: classes are thinned to a profile before a partitioner divides the rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from fedskew import rng
from fedskew.data.arrays import draw as draw_rows
from fedskew.data.partitioners.base import (
    Columns,
    Partition,
    Partitioner,
    Table,
    check_clients,
    table_of,
)
from fedskew.data.partitioners.dirichlet import Dirichlet
from fedskew.errors import FieldError, require
from fedskew.fields import demand, fits

__all__ = ["LongTail", "check_factor", "long_tail", "restrict"]

PROFILES = ("exp", "step")


def long_tail(counts: np.ndarray, factor: float, profile: str = "exp", parameter: str = "longtail") -> np.ndarray:
    """Rows that each class keeps in a long tail, with class 0 the head.

        "exp":   floor(n_max IF^(-c / (C-1)))
        "step":  n_max for the first C - floor(C/2) classes, floor(n_max / IF) for the others

    n_max is the largest head for which no class has too few rows, so the profile is exact even where classes differ in
    size.

    Args:
        counts: Rows of each class, [C], C at least 2.
        factor: IF = n_max / n_min, at least 1. CReFF and Fed-GraB give its inverse as their option.
        profile: "exp" or "step".
        parameter: Name of the factor in error messages.

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
    kept, rule, hint = _thinned(counts, factor, profile)
    require(not rule, parameter, rule, factor, hint)
    return kept


def _thinned(counts: np.ndarray, factor: float, profile: str) -> tuple[np.ndarray, str, str]:
    """(rows that each class keeps, the rule that is broken or "", a suggestion) of `long_tail`."""
    classes = len(counts)
    if classes < 2:
        return counts, "be used with two classes at least", "leave it out"
    exponent = np.arange(classes) / (classes - 1)
    if profile == "step":
        exponent = (np.arange(classes) >= classes - classes // 2).astype(np.float64)
    decay = factor ** (-exponent)
    head = math.floor((counts / decay).min() + 1e-9)
    kept: np.ndarray = np.floor(head * decay + 1e-9).astype(np.int64)
    hint = f"use at most {head}, the rows of the head" if head else "a class has no rows"
    return kept, "" if kept.min() > 0 else "leave a row of each class", hint


FACTOR = "be n_max / n_min of at least 1"


def check_factor(factor: float, parameter: str) -> None:
    """Raise ConfigError unless the factor is a finite number of at least 1; suggest the inverse below 1."""
    require(_is_factor(factor), parameter, FACTOR, factor, _factor_hint(factor))


def _is_factor(factor: float) -> bool:
    return fits(factor, float) and 1 <= factor < math.inf


def _factor_hint(factor: float) -> str:
    return f"use {1 / factor:g}, the inverse" if fits(factor, float) and 0 < factor < 1 else "for example 10"


@dataclass(frozen=True)
class LongTail(Partitioner):
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
        demand(self, "factor", _is_factor(self.factor), FACTOR, _factor_hint(self.factor))
        if self.base.overlaps or self.base.name in ("counts", "file", self.name):
            raise FieldError("LongTail", "base", "be a partitioner that draws", self.base.name, "for example dirichlet")

    @property
    def decides(self) -> bool:
        """Whether the base decides the number of clients."""
        return self.base.decides

    def count(self, columns: Columns) -> int:
        """Number of clients that the base decides."""
        return self.base.count(columns)

    def split(self, labels: npt.ArrayLike, clients: int, seed: int, columns: Columns | None = None) -> Partition:
        """Divide as `Partitioner.split`. The thinning is keyed as in `federate`, the rest as the base alone."""
        table = table_of(labels, columns)
        check_clients(clients, len(table.totals))
        kept, rule, hint = _thinned(table.totals, self.factor, self.profile)
        demand(self, "factor", not rule, rule, hint)
        rows = draw_rows(table.codes, kept, rng.key(seed, "data", "longtail"))
        if self.base.decides:
            return restrict(self.base.split(labels, clients, seed, columns), rows, len(table.codes))
        left = {name: np.asarray(values)[rows] for name, values in table.columns.items()}
        local = self.base.split(np.asarray(labels)[rows], clients, seed, left)
        return Partition(rows[local.rows], local.offsets)

    def draw(self, table: Table, clients: int, gen: np.random.Generator) -> Partition:
        """Draw as the base does; the table must be thinned already."""
        return self.base.draw(table, clients, gen)


def restrict(whole: Partition, rows: np.ndarray, n: int) -> Partition:
    """The partition without rows other than ``rows``, of n in all; clients stay even if they lose all rows."""
    stays = np.zeros(n, dtype=bool)
    stays[rows] = True
    mask = stays[whole.rows]
    ends = np.concatenate([[0], np.cumsum(mask)])
    return Partition(whole.rows[mask], ends[whole.offsets])
