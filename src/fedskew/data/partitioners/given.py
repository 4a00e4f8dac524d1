"""Partitioners that the data or the user give: natural clients, a feature's column, a matrix of counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from fedskew import rng
from fedskew.data.counts import counts_matrix, read_counts
from fedskew.data.partitioners.base import (
    Columns,
    Ints,
    Partition,
    Partitioner,
    Table,
    deal,
    gather,
    log_dirichlet,
    table_of,
)
from fedskew.data.partitioners.dirichlet import ALPHA_HINT, rounded
from fedskew.errors import DataError, FieldError, closest, require
from fedskew.fields import Above, AtLeast, demand

__all__ = ["Counts", "Feature", "Natural"]

CELLS = 10**8  # values x clients of a feature that fit into memory with what is made of them


def column_of(partitioner: Natural | Feature, columns: Columns, prefer: str = "") -> str:
    """The column that is meant: as named, else ``prefer`` where there is one, else the only one there is."""
    column = partitioner.column
    if column in columns:
        return column
    if not column and prefer in columns:
        return prefer
    found = closest(column, columns).removeprefix("; ") if column else f"use one of {', '.join(columns)}"
    hint = found if columns else "the data have none: from_arrays takes columns="
    demand(partitioner, "column", not column and len(columns) == 1, "name a column of the data", hint)
    return next(iter(columns))


def _values(table: Table, name: str) -> npt.NDArray[Any]:
    values = np.asarray(table.columns[name])
    if values.shape != table.codes.shape:
        raise DataError(f"column {name!r} must hold {table.codes.shape} values; got {values.shape}")
    return values


@dataclass(frozen=True)
class Natural(Partitioner):
    """The data's own clients: each distinct value of a column is one, in the order of the sorted values.

    Every row is used and nothing is drawn; the values are kept as `Federation.client_names`. FEMNIST writers,
    Shakespeare speakers, hospital sites.
    """

    name: ClassVar[str] = "natural"
    formula: ClassVar[str] = "client k has the rows whose column is the k-th of the sorted values"
    users: ClassVar[str] = "LEAF (writers, speakers), FLamby (hospitals), flwr-datasets (natural id)"
    limits: ClassVar[str] = "every row is used; nothing is drawn"
    column: str = ""
    """Column whose values are the clients; unset: "client", or the only column there is."""

    @property
    def decides(self) -> bool:
        """The values are the clients."""
        return True

    def resolved(self, columns: Columns) -> str:
        """Name of the column that is used. Raises ConfigError if there is none, or several and none was named."""
        return column_of(self, columns, "client")

    def count(self, columns: Columns) -> int:
        """Number of clients: values that occur in the rows. Raises ConfigError if there is no such column."""
        return len(np.unique(np.asarray(columns[self.resolved(columns)])))

    def draw(self, table: Table, clients: int, gen: np.random.Generator) -> Partition:
        """Group the rows by value."""
        name = self.resolved(table.columns)
        names, owner = np.unique(_values(table, name), return_inverse=True)
        rule = f"equal the number of values of column {name!r}"
        require(clients == len(names), "clients", rule, clients, f"use {len(names)}")
        return gather(owner.astype(np.int64), clients)


@dataclass(frozen=True)
class Feature(Partitioner):
    """Feature skew by a column: for each value v of it p_v ~ Dir(alpha 1_N) over clients, the shuffled rows cut.

    As dirichlet, with the values of a column of the user's (a domain, a brightness, a country) in the place of the
    labels; `bins` first groups the sorted values into so many groups of nearly equal numbers of rows.
    """

    name: ClassVar[str] = "feature"
    formula: ClassVar[str] = "p_v ~ Dir(α·1_N) for each value v;  n_kv = ⌊N_v·P_vk⌋ − ⌊N_v·P_v,k−1⌋"
    users: ClassVar[str] = "domains: FL-bench, PFLlib; Hist-Dirichlet: FedArtML"
    limits: ClassVar[str] = "α→∞: each client has every value in the shares of all rows; α→0: one client a value"
    column: str = ""
    """Column whose values are skewed; unset: the only column there is."""
    alpha: Annotated[float, Above(0, hint=ALPHA_HINT)] = 0.1
    """Concentration: small gives each value to few clients."""
    bins: Annotated[int, AtLeast(0)] = 0
    """Groups of neighbouring values; 0: each value is its own."""

    def draw(self, table: Table, clients: int, gen: np.random.Generator) -> Partition:
        """Groups, shares [G, N], cut, dealt."""
        groups = self._groups(_values(table, column_of(self, table.columns)))
        totals = np.bincount(groups)
        most = max(CELLS // clients, 1)
        rule = f"make at most {most} groups of the {len(totals)} values for {clients} clients"
        demand(self, "bins", len(totals) <= most, rule, f"use {min(most, 100)}")
        shares = np.exp(log_dirichlet(np.full((len(totals), clients), self.alpha), gen))
        return deal(groups, rounded(shares, totals, None).T, gen)

    def _groups(self, values: npt.NDArray[Any]) -> Ints:
        """Group of each row, 0..G-1 without gaps, [n]; equal values stay together."""
        _, codes, rows = np.unique(values, return_inverse=True, return_counts=True)
        if not self.bins:
            return codes.astype(np.int64)
        middle = np.cumsum(rows) - (rows + 1) / 2  # place of a value's middle row
        _, group = np.unique(np.floor(middle * self.bins / len(values)), return_inverse=True)
        found: Ints = group[codes].astype(np.int64)
        return found


@dataclass(frozen=True)
class Counts(Partitioner):
    """A matrix of the user's: client k gets ``matrix[k][c]`` random rows of class c, columns in the order of labels.

    Given as numbers or as a file (csv, npy, npz); the columns' sums must be at most the rows of the classes.
    """

    name: ClassVar[str] = "counts"
    formula: ClassVar[str] = "n_kc as given"
    users: ClassVar[str] = "whoever knows the histograms of a real federation; flwr-datasets (distribution)"
    limits: ClassVar[str] = "the histograms are exactly those given"
    path: str = ""
    """File of the matrix: csv with or without a head, npy, or npz with one array."""
    matrix: tuple[tuple[int, ...], ...] | None = None
    """The matrix itself, [N][C]."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(self.path))
        if self.matrix is not None:
            plain = counts_matrix(np.asarray(self.matrix), "Counts.matrix").tolist()
            object.__setattr__(self, "matrix", tuple(map(tuple, plain)))
        super().__post_init__()
        one = self.matrix is None or not self.path
        demand(self, "path", one, "be unset where a matrix is given", "give one of both")

    @property
    def decides(self) -> bool:
        """The matrix has a row a client."""
        return True

    def count(self, columns: Columns) -> int:
        """Rows of the matrix."""
        return len(self.load())

    def load(self) -> Ints:
        """The matrix, [N, C]. Raises ConfigError where none is given, DataError for a file that holds none."""
        if self.matrix is not None:
            return np.asarray(self.matrix, dtype=np.int64)
        demand(self, "path", bool(self.path), "name a csv, npy or npz file of counts [N, C]")
        return counts_matrix(read_counts(self.path).counts, f"{self.path}")

    def split(self, labels: npt.ArrayLike, clients: int, seed: int, columns: Columns | None = None) -> Partition:
        """As `Partitioner.split`; column c of the matrix is label c, whichever labels occur."""
        table_of(labels, columns)
        codes, matrix = np.asarray(labels).astype(np.int64), self.load()
        rule = "equal the rows of the matrix of counts"
        require(clients == len(matrix), "clients", rule, clients, f"use {len(matrix)}")
        classes = matrix.shape[1]
        if not 0 <= codes.min() <= codes.max() < classes:
            got = f"{codes.min()}..{codes.max()}"
            raise DataError(f"the matrix of counts has {classes} columns, labels 0..{classes - 1}; the data have {got}")
        _fits(matrix.sum(axis=0), np.bincount(codes, minlength=classes))
        return deal(codes, matrix, rng.generator(rng.key(seed, "partition", self.name)))

    def draw(self, table: Table, clients: int, gen: np.random.Generator) -> Partition:
        """Deal by the matrix; classes must be numbered as its columns."""
        return deal(table.codes, self.load(), gen)


def _fits(asked: Ints, have: Ints) -> None:
    over = int((asked - have).argmax())
    if asked[over] > have[over]:
        factor = np.min(have[asked > 0] / asked[asked > 0])
        rule = f"ask for at most the {have[over]} rows of class {over}"
        hint = f"scaled by {np.floor(factor * 1e4) / 1e4:g} it would fit"
        raise FieldError("Counts", "matrix", rule, int(asked[over]), hint)
