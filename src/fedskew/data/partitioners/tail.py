"""The long tail: classes are thinned to a profile before a partitioner divides the rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from fedskew import rng
from fedskew.data.arrays import draw as draw_rows
from fedskew.data.partitioners.base import Columns, Layered, Partition, Partitioner, check_clients, table_of
from fedskew.data.partitioners.dirichlet import Dirichlet
from fedskew.errors import require
from fedskew.fields import demand, fits

__all__ = ["LongTail", "factor_rule", "long_tail"]

PROFILES = ("exp", "step")


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
    kept, rule, hint = _thinned(counts, factor, profile)
    require(not rule, "longtail", rule, factor, hint)
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
        table = table_of(labels, columns)
        check_clients(clients, len(table.totals))
        kept, rule, hint = _thinned(table.totals, self.factor, self.profile)
        demand(self, "factor", not rule, rule, hint)
        rows = draw_rows(table.codes, kept, rng.key(seed, "data", "longtail"))
        return self.divided(rows, labels, clients, seed, columns)
