"""Conventions by quantity alone: sizes differ, labels are as IID as a random sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedskew.data.partitioners.base import (
    Floats,
    Partition,
    Partitioner,
    Table,
    enough_rows,
    gather,
    largest_remainder,
    log_dirichlet,
)
from fedskew.fields import Above, AtLeast

__all__ = ["Iid", "QuantityDir", "QuantityLognormal", "QuantityPower"]


@dataclass(frozen=True)
class Iid(Partitioner):
    """Equal random parts: all rows shuffled, n_k = n/N (sizes differ by at most one row). The usual IID reference."""

    name: ClassVar[str] = "iid"
    formula: ClassVar[str] = "n_k = n / N rows of a shuffle"
    users: ClassVar[str] = "the IID reference of all papers"
    limits: ClassVar[str] = "sizes differ by at most one row; every row is used"

    def draw(self, table: Table, clients: int, gen: np.random.Generator) -> Partition:
        """Row at place i of the shuffle goes to client floor(i N / n)."""
        n = len(table.codes)
        enough_rows(self, clients, n)
        owner = np.empty(n, dtype=np.int64)
        owner[gen.permutation(n)] = np.arange(n) * clients // n
        return gather(owner, clients)


def _by_size(table: Table, shares: Floats, least: int, gen: np.random.Generator) -> Partition:
    """``least`` rows for each client, the others in proportion to ``shares`` [N], all random; every row is used."""
    n, clients = len(table.codes), len(shares)
    sizes = least + largest_remainder(shares[None], np.array([n - least * clients]))[0]
    owner = np.empty(n, dtype=np.int64)
    owner[gen.permutation(n)] = np.repeat(np.arange(clients), sizes)
    return gather(owner, clients)


@dataclass(frozen=True)
class QuantityPower(Partitioner):
    """Sizes follow a power law, labels are IID: the i-th client of a random ranking gets a share ~ i^(-a) of the rows.

    Every client first gets `least` rows, the others are shared out by largest remainders. Fluke's and FLSim's sharder.
    """

    name: ClassVar[str] = "quantity_power"
    formula: ClassVar[str] = "n_k = m + (n − N·m)·rank(k)^(−a) / Σ_j j^(−a)"
    users: ClassVar[str] = "fluke, FLSim, LEAF-like benchmarks"
    limits: ClassVar[str] = "a = 0: equal sizes; a→∞: one client has all but m rows each. Every row is used."
    exponent: Annotated[float, AtLeast(0)] = 1.0
    """a, the power law's exponent; 0: equal sizes."""
    least: Annotated[int, AtLeast(0)] = 1
    """m, rows that every client gets first."""

    def draw(self, table: Table, clients: int, gen: np.random.Generator) -> Partition:
        """Ranks, then sizes, then rows."""
        enough_rows(self, clients, len(table.codes))
        rank = gen.permutation(clients).astype(np.float64) + 1.0
        return _by_size(table, np.power(rank, -self.exponent), self.least, gen)


@dataclass(frozen=True)
class QuantityLognormal(Partitioner):
    """Sizes are lognormal, labels are IID: shares ~ exp(sigma z_k) with z_k normal.

    Every client first gets `least` rows, the others are shared out by largest remainders. FedLab's, FedDyn's unbalanced
    split.
    """

    name: ClassVar[str] = "quantity_lognormal"
    formula: ClassVar[str] = "z_k ~ N(0, 1);  n_k = m + (n − N·m)·e^{σ·z_k} / Σ_j e^{σ·z_j}"
    users: ClassVar[str] = "FedLab, FedDyn (unbalanced)"
    limits: ClassVar[str] = "σ = 0: equal sizes; σ→∞: one client has all but m rows each. Every row is used."
    sigma: Annotated[float, AtLeast(0)] = 1.0
    """Standard deviation of the logarithm of a client's size; 0: equal sizes."""
    least: Annotated[int, AtLeast(0)] = 1
    """m, rows that every client gets first."""

    def draw(self, table: Table, clients: int, gen: np.random.Generator) -> Partition:
        """Shares, then sizes, then rows."""
        enough_rows(self, clients, len(table.codes))
        logs = self.sigma * gen.standard_normal(clients)
        return _by_size(table, np.exp(logs - logs.max()), self.least, gen)


@dataclass(frozen=True)
class QuantityDir(Partitioner):
    """Sizes are Dirichlet, labels are IID: one draw q ~ Dir(alpha 1_N) says each client's share of the rows.

    Every client first gets `least` rows, the others are shared out by largest remainders. NIID-Bench's "iid-diff-
    quantity", FedLab.
    """

    name: ClassVar[str] = "quantity_dir"
    formula: ClassVar[str] = "q ~ Dir(α·1_N);  n_k = m + (n − N·m)·q_k"
    users: ClassVar[str] = "NIID-Bench (iid-diff-quantity), FedLab"
    limits: ClassVar[str] = "α→∞: equal sizes; α→0: one client has all but m rows each. Every row is used."
    alpha: Annotated[float, Above(0, hint="use 0.001 for extreme skew")] = 0.5
    """Concentration of the sizes."""
    least: Annotated[int, AtLeast(0)] = 1
    """m, rows that every client gets first."""

    def draw(self, table: Table, clients: int, gen: np.random.Generator) -> Partition:
        """Shares, then sizes, then rows."""
        enough_rows(self, clients, len(table.codes))
        return _by_size(table, np.exp(log_dirichlet(np.full(clients, self.alpha), gen)), self.least, gen)
