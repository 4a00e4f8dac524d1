"""What every partitioner is made of: partitions, tables of labelled rows, rounding, dealing, and the checks."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from fedskew import rng
from fedskew.errors import DataError, require
from fedskew.fields import Checked, demand, fits

__all__ = [
    "Columns",
    "Floats",
    "Ints",
    "Partition",
    "Partitioner",
    "Table",
    "argsort",
    "by_label",
    "check_clients",
    "check_size",
    "deal",
    "enough_rows",
    "gather",
    "largest_remainder",
    "log_dirichlet",
    "normalised",
    "table_of",
]  # fmt: skip

CELLS = 1 << 31  # clients x classes: 16 GiB a matrix

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Columns = Mapping[str, npt.NDArray[Any]]


class Partition(NamedTuple):
    """Which rows each client owns: client k has ``rows[offsets[k]:offsets[k + 1]]``, in ascending order."""

    rows: Ints  # [n_used]
    offsets: Ints  # [N + 1]

    @property
    def clients(self) -> int:
        """N, with the clients that own nothing."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Ints:
        """Rows of each client n_k, [N]."""
        return np.diff(self.offsets)

    def of(self, k: int) -> Ints:
        """Rows of client k, [n_k]. Raises IndexError unless 0 <= k < N."""
        if not 0 <= k < self.clients:
            raise IndexError(f"client {k} is not in 0..{self.clients - 1}")
        return self.rows[self.offsets[k] : self.offsets[k + 1]]

    def counts(self, labels: npt.ArrayLike, classes: int) -> Ints:
        """Label histograms n_kc of the clients, [N, C]; ``labels`` [n] are those that were split, below ``classes``."""
        cell = np.repeat(np.arange(self.clients) * classes, self.sizes)
        cell += np.asarray(labels)[self.rows]
        return np.bincount(cell, minlength=self.clients * classes).reshape(self.clients, classes)


class Table(NamedTuple):
    """The labelled rows to split, classes renumbered 0..C-1 without gaps."""

    codes: Ints  # [n]
    totals: Ints  # [C] N_c, all >= 1
    columns: Columns  # [n] each


def largest_remainder(shares: Floats, totals: Ints) -> Ints:
    """Whole numbers [R, M] in proportion to ``shares`` [R, M] >= 0, each row summing exactly to ``totals`` [R].

    floor(total * share / sum), then one more for the largest fractions (ties: lowest index), so every entry is within
    one of its exact value. A row of zero shares must have total 0.
    """
    sums = shares.sum(axis=1, keepdims=True)
    exact = shares / np.where(sums > 0, sums, 1.0) * totals[:, None]
    whole = np.floor(exact)
    missing = totals - whole.sum(axis=1)
    order = np.argsort(whole - exact, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(shares.shape[1]), order.shape), axis=1)
    rounded: Ints = (whole + (rank < missing[:, None])).astype(np.int64)
    return rounded


def log_dirichlet(concentration: Floats, gen: np.random.Generator) -> Floats:
    """Logarithms of independent Dirichlet draws along the last axis, for any concentration > 0; shape kept.

    Gamma(a) = Gamma(a + 1) * U^(1/a), taken in logarithms and normalised by logsumexp: below a = 0.01 or so the gamma
    variates themselves underflow to zero and their ratio is NaN.
    """
    a = np.maximum(concentration, 1e-300)  # keeps log(U) / a finite
    log_gamma = np.log(gen.standard_gamma(a + 1.0)) - gen.standard_exponential(a.shape) / a  # -Exp(1) is log U
    return normalised(log_gamma)


def normalised(logs: Floats) -> Floats:
    """``logs`` - logsumexp(logs) along the last axis, in place."""
    logs -= logs.max(axis=-1, keepdims=True)
    out: Floats = logs - np.log(np.exp(logs).sum(axis=-1, keepdims=True))
    return out


def argsort(keys: npt.NDArray[Any], bound: int) -> Ints:
    """The stable order of ``keys`` [n], whole numbers in [0, bound): radix passes of 16 bits, O(n)."""
    low = np.argsort((keys & 0xFFFF).astype(np.uint16), kind="stable")
    if bound <= 1 << 16:
        return low
    if bound > 1 << 32:
        return np.argsort(keys, kind="stable")
    high = (keys >> 16).astype(np.uint16)
    return low[np.argsort(high[low], kind="stable")]


def gather(owner: Ints, clients: int) -> Partition:
    """A partition from the owner of each row, [n]; -1 leaves a row unused. Disjoint by construction."""
    places = owner + 1
    sizes = np.bincount(places, minlength=clients + 1)
    rows = argsort(places, clients + 1)[sizes[0] :]
    return Partition(rows, np.concatenate([[0], np.cumsum(sizes[1:])]))


def by_label(codes: Ints, classes: int, gen: np.random.Generator) -> Ints:
    """Places of all rows [n], class by class, those of a class in random order."""
    order = gen.permutation(len(codes))
    return order[argsort(codes[order], classes)]


def deal(codes: Ints, counts: Ints, gen: np.random.Generator) -> Partition:
    """Give client k ``counts[k, c]`` random rows of class c: shuffle each class, deal it in the order of the clients.

    ``codes`` [n] are classes below C, ``counts`` is [N, C] with column sums of at most the rows of that class.
    """
    clients, classes = counts.shape
    order = by_label(codes, classes, gen)
    starts = np.cumsum(np.bincount(codes, minlength=classes)) - np.bincount(codes, minlength=classes)
    owner = np.full(len(codes), -1)
    for start, hands in zip(starts, counts.T, strict=True):
        dealt = np.repeat(np.arange(clients), hands)
        owner[order[start : start + len(dealt)]] = dealt
    return gather(owner, clients)


def table_of(labels: npt.ArrayLike, columns: Columns | None) -> Table:
    """The table of integer ``labels`` [n] of any type and layout. Raises DataError unless they are such a vector."""
    values = np.asarray(labels)
    if values.ndim != 1 or not len(values) or values.dtype.kind not in "iu":
        raise DataError(f"labels must be a non-empty vector of integers; got {values.dtype} of shape {values.shape}")
    low, high = int(values.min()), int(values.max())
    if not 0 <= low <= high < 1 << 20:  # np.unique sorts; labels as they usually are can be counted
        _, codes, totals = np.unique(values, return_inverse=True, return_counts=True)
        return Table(codes.astype(np.int64), totals.astype(np.int64), columns or {})
    rows = np.bincount(values, minlength=high + 1)
    present = np.flatnonzero(rows)
    code = np.zeros(high + 1, dtype=np.int64)
    code[present] = np.arange(len(present))
    return Table(code[values], rows[present].astype(np.int64), columns or {})


def check_clients(clients: int, classes: int) -> None:
    """ConfigError unless a whole number of at least 1 whose counts [N, C] can be held."""
    require(fits(clients, int) and clients >= 1, "clients", "be a whole number of at least 1", clients, "use 1")
    most = CELLS // classes
    rule = f"be at most {most} for {classes} classes: the counts [N, C] are held in memory"
    require(clients <= most, "clients", rule, clients, f"use {most}")


def enough_rows(partitioner: Partitioner, clients: int, rows: int) -> None:
    """ConfigError unless every client can have the rows of the field ``least``, which may be unset or missing."""
    each = getattr(partitioner, "least", 1) or 0
    if each <= 1:
        require(clients * each <= rows, "clients", f"be at most the {rows} rows", clients, f"use {rows}")
    most = rows // clients
    hint = f"use {most}" if most else f"use at most {rows} clients"
    demand(partitioner, "least", clients * each <= rows, f"be at most {most} here, rows / clients", hint)


def check_size(partitioner: Any, largest: int, clients: int, most: int) -> int:
    """Rows per client: ``samples``, or the largest feasible when it is 0. ``most`` clients are the largest number."""
    rule = "leave every client at least one row under this partition"
    require(largest > 0, "clients", rule, clients, f"use at most {most}")
    holds = partitioner.samples <= largest
    demand(partitioner, "samples", holds, f"be at most {largest} here", f"use {largest} or 0")
    return int(partitioner.samples) or largest


class Partitioner(Checked, ABC):
    """A way to split labelled rows over clients: a frozen dataclass, its first line the definition."""

    name: ClassVar[str]
    stream: ClassVar[str] = ""  # the name in the key of its draws, where that is another: a key never changes
    formula: ClassVar[str] = ""
    users: ClassVar[str] = ""
    limits: ClassVar[str] = ""

    @property
    def decides(self) -> bool:
        """Whether the partitioner itself says how many clients there are (see `count`)."""
        return False

    def count(self, columns: Columns) -> int:
        """Number of clients where the partitioner decides it. Raises TypeError where the caller must say it."""
        raise TypeError(f"partition {self.name!r} takes any number of clients")

    def split(self, labels: npt.ArrayLike, clients: int, seed: int, columns: Columns | None = None) -> Partition:
        """Split rows with ``labels`` [n] over N ``clients``; ``columns`` [n] each hold what else is known of a row.

        The draw is keyed by (seed, "partition", name). Raises ConfigError if the request cannot be met (nothing has
        been drawn then), DataError if the labels are not a non-empty vector of integers.
        """
        table = table_of(labels, columns)
        check_clients(clients, len(table.totals))
        return self.draw(table, int(clients), rng.generator(rng.key(seed, "partition", self.stream or self.name)))

    @abstractmethod
    def draw(self, table: Table, clients: int, gen: np.random.Generator) -> Partition:
        """Check the request against the table, then draw."""

    def options(self) -> dict[str, Any]:
        """The fields that are set (None is unset), as they are told to a reader; {} for a partitioner without any."""
        of: Any = self
        names = [f.name for f in dataclasses.fields(of)] if dataclasses.is_dataclass(of) else []
        return {name: value for name in names if (value := getattr(self, name)) is not None}
