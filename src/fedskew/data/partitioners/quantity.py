"""Partitioners by quantity alone: sizes differ, labels are as IID as a random sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedskew.data.partitioners.base import (
    Ints,
    Partition,
    Partitioner,
    Table,
    enough_rows,
    gather,
    log_dirichlet,
    redrawn,
)
from fedskew.data.partitioners.sizes import Sized, lognormal, power, whole
from fedskew.fields import Above, AtLeast, later

__all__ = ["Iid", "QuantityDir", "QuantityLognormal", "QuantityPower"]


@dataclass(frozen=True)
class Iid(Sized):
    """Equal random parts: all rows are shuffled, n_k = n/N (sizes differ by at most one row). The usual IID reference.

    With `sizes` client k gets that many rows of the shuffle.

    Raises:
        ConfigError: There are more clients than rows.

    Example:
        >>> from fedskew.data import federate
        >>> from fedskew.data.partitioners import Iid
        >>> federate("digits", Iid(), clients=4).sizes.tolist()
        [360, 359, 360, 359]
    """

    name: ClassVar[str] = "iid"
    formula: ClassVar[str] = "n_k = n / N rows of a shuffle"
    users: ClassVar[str] = "the IID reference of all papers"
    limits: ClassVar[str] = "equal sizes differ by at most one row; every row is used"

    def draw(self, table: Table, clients: int, gen: np.random.Generator) -> Partition:
        """Give the row at place i of a shuffle to client floor(i N / n), or n_k places in turn to client k."""
        n = len(table.codes)
        enough_rows(self, clients, n)
        if self.uneven:
            return _dealt(self.fitted(self.shares(clients, gen), n), n, gen)
        owner = np.empty(n, dtype=np.int64)
        owner[gen.permutation(n)] = np.arange(n) * clients // n
        return gather(owner, clients)


def _dealt(sizes: Ints, rows: int, gen: np.random.Generator) -> Partition:
    """Random rows for clients of these sizes [N]; rows beyond their sum belong to nobody."""
    owner = np.full(rows, -1)
    owner[gen.permutation(rows)[: sizes.sum()]] = np.repeat(np.arange(len(sizes)), sizes)
    return gather(owner, len(sizes))


@dataclass(frozen=True)
class QuantityPower(Partitioner):
    """Sizes follow a power law, labels are IID: the i-th client of a random ranking gets a share ~ i^(-a) of the rows.

    Every client first gets `least` rows; the others are divided by largest remainders. Fluke and FLSim use it.

    Raises:
        ConfigError: A field breaks a rule, or there are too few rows.
    """

    name: ClassVar[str] = "quantity_power"
    formula: ClassVar[str] = "n_k = m + (n − N·m)·rank(k)^(−a) / Σ_j j^(−a)"
    users: ClassVar[str] = "fluke, FLSim, LEAF-like benchmarks"
    limits: ClassVar[str] = "a = 0: equal sizes; a→∞: one client has all but m rows each. Every row is used."
    exponent: Annotated[float, AtLeast(0)] = 1.0
    """a, the power law's exponent; 0: equal sizes"""
    least: Annotated[int, AtLeast(0)] = 1
    """m, rows that every client gets first"""

    def draw(self, table: Table, clients: int, gen: np.random.Generator) -> Partition:
        """Draw ranks, compute sizes, deal."""
        n = len(table.codes)
        enough_rows(self, clients, n)
        return _dealt(whole(power(clients, self.exponent, gen), n, self.least), n, gen)


@dataclass(frozen=True)
class QuantityLognormal(Partitioner):
    """Sizes are lognormal, labels are IID: shares ~ exp(sigma z_k) with z_k normal.

    Every client first gets `least` rows; the others are divided by largest remainders. FedLab uses it, and FedDyn for
    its unbalanced split.

    Raises:
        ConfigError: A field breaks a rule, or there are too few rows.

    References:
        Acar et al. 2021, Federated Learning Based on Dynamic Regularization (ICLR). https://arxiv.org/abs/2111.04263
    """

    name: ClassVar[str] = "quantity_lognormal"
    formula: ClassVar[str] = "z_k ~ N(0, 1);  n_k = m + (n − N·m)·e^{σ·z_k} / Σ_j e^{σ·z_j}"
    users: ClassVar[str] = "FedLab, FedDyn (unbalanced)"
    limits: ClassVar[str] = "σ = 0: equal sizes; σ→∞: one client has all but m rows each. Every row is used."
    sigma: Annotated[float, AtLeast(0)] = 1.0
    """standard deviation of the logarithm of a client's size; 0: equal sizes"""
    least: Annotated[int, AtLeast(0)] = 1
    """m, rows that every client gets first"""

    def draw(self, table: Table, clients: int, gen: np.random.Generator) -> Partition:
        """Draw shares, compute sizes, deal."""
        n = len(table.codes)
        enough_rows(self, clients, n)
        return _dealt(whole(lognormal(clients, self.sigma, gen), n, self.least), n, gen)


@dataclass(frozen=True)
class QuantityDir(Partitioner):
    """Sizes are Dirichlet, labels are IID: one draw q ~ Dir(alpha 1_N) is each client's share of the rows.

    Every client first gets `least` rows; the others are divided by largest remainders. NIID-Bench calls it
    "iid-diff-quantity"; FedLab has it, too. Both give nothing first: they draw q again until every client has 10 rows,
    which is `least` 10 with `redraw`.

    Raises:
        ConfigError: A field breaks a rule, there are too few rows, or ``least`` is not met in 100 draws.

    References:
        Li et al. 2022, Federated Learning on Non-IID Data Silos: An Experimental Study (ICDE).
        https://arxiv.org/abs/2102.02079
    """

    name: ClassVar[str] = "quantity_dir"
    formula: ClassVar[str] = "q ~ Dir(α·1_N);  n_k = m + (n − N·m)·q_k"
    users: ClassVar[str] = "NIID-Bench (iid-diff-quantity), FedLab"
    limits: ClassVar[str] = "α→∞: equal sizes; α→0: one client has all but m rows each. Every row is used."
    alpha: Annotated[float, Above(0, hint="use 0.001 for extreme skew")] = 0.5
    """concentration of the sizes"""
    least: Annotated[int, AtLeast(0)] = 1
    """m, rows that every client gets first"""
    redraw: bool | None = later()
    """give nobody rows first, and draw again, at most 100 times, until all have `least` rows (NIID-Bench, FedLab)"""

    def draw(self, table: Table, clients: int, gen: np.random.Generator) -> Partition:
        """Draw shares, compute sizes, deal."""
        n = len(table.codes)
        enough_rows(self, clients, n)
        first = 0 if self.redraw else self.least

        def sizes() -> Ints:
            return whole(np.exp(log_dirichlet(np.full(clients, self.alpha), gen)), n, first)[:, None]

        found = redrawn(self, sizes, self.least) if self.redraw else sizes()
        return _dealt(found[:, 0], n, gen)
