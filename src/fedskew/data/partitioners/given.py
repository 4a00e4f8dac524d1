"""Partitioners that follow the data or a matrix of yours: natural clients, counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fedskew import rng
from fedskew.data.counts import count_table, counts_matrix, read_counts
from fedskew.data.encoding import folded
from fedskew.data.partitioners import base
from fedskew.data.partitioners.base import Columns, Ints, LabelTable, Partition, Partitioner
from fedskew.errors import FieldError, claim, closest, require, some
from fedskew.fields import demand

__all__ = ["Counts", "Natural"]


@dataclass(frozen=True)
class Natural(Partitioner):
    """The data's own clients: each distinct value of a column is a client, in the order of the sorted values.

    Every row is used and nothing is drawn. The values become `Federation.client_names`. Examples are
    Shakespeare's speakers and hospital sites.

    Formula: client k has the rows whose column is the k-th of the sorted values
    Used by: LEAF (writers, speakers), FLamby (hospitals), flwr-datasets (natural id)
    Limits: every row is used; nothing is drawn

    Raises:
        ConfigError: There is no such column, or the number of clients differs from the number of values.

    Example:
        >>> import numpy as np
        >>> from fedskew.data import federate, from_arrays
        >>> from fedskew.data.partitioners import Natural
        >>> data = from_arrays(np.eye(4), [0, 1, 0, 1], np.eye(4), [0, 1, 0, 1], columns={"site": ["b", "a", "b", "b"]})
        >>> fed = federate(data, Natural("site"))
        >>> fed.client_names, fed.sizes.tolist()
        (('a', 'b'), [1, 3])
    """

    name: ClassVar[str] = "natural"
    column: str = ""
    """column whose values are the clients; unset: "client", or the only column"""

    def resolved(self, columns: Columns) -> str:
        """Name of the column that is used. Raises ConfigError unless it is clear."""
        if self.column in columns:
            return self.column
        if not self.column and "client" in columns:
            return "client"
        hint = "these data have none; of a csv or parquet file, data.columns names some"
        if columns:
            hint = closest(self.column, columns)[2:] if self.column else f"use one of {', '.join(columns)}"
        demand(self, "column", not self.column and len(columns) == 1, "name a column of the data", hint)
        return next(iter(columns))

    def count(self, columns: Columns) -> int:
        """Number of values that occur. Raises ConfigError unless the column exists."""
        return len(np.unique(np.asarray(columns[self.resolved(columns)])))

    def draw(self, table: LabelTable, clients: int, gen: np.random.Generator) -> Partition:
        """Group the rows by value."""
        name = self.resolved(table.columns)
        names, owner = np.unique(table.columns[name], return_inverse=True)
        rule = f"equal the number of values of column {name!r}"
        require(clients == len(names), "clients", rule, clients, f"use {len(names)}")
        return base.gather(owner.astype(np.int64), clients)


@dataclass(frozen=True)
class Counts(Partitioner):
    """A matrix of yours: client k gets `matrix[k][c]` random rows of class c, columns in the order of the labels.

    Give numbers or a file (csv, npy). Column sums must not exceed the rows of the classes.

    Formula: n_kc as given
    Used by: whoever knows the histograms of a real federation; flwr-datasets (distribution)
    Limits: the histograms are exactly those given

    Raises:
        ConfigError: There is no matrix, both a path and a matrix, or a column asks for more rows than its class has.
        DataError: The matrix does not hold counts, or the data have labels beyond its columns.

    Example:
        >>> from fedskew.data import federate
        >>> from fedskew.data.partitioners import Counts
        >>> federate("digits", Counts(matrix=[[5] * 10, [20] * 10])).sizes.tolist()
        [50, 200]
    """

    name: ClassVar[str] = "counts"
    path: str = ""
    """file of the matrix: csv with or without a header, or npy"""
    matrix: tuple[tuple[int, ...], ...] | None = None
    """the matrix itself, [N][C]"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(self.path))
        if self.matrix is not None:
            plain = counts_matrix(np.asarray(self.matrix), "Counts.matrix").tolist()
            object.__setattr__(self, "matrix", tuple(map(tuple, plain)))
        super().__post_init__()
        alone = self.matrix is None or not self.path
        demand(self, "path", alone, "be unset if a matrix is given", "give only one of them")

    def count(self, columns: Columns) -> int:
        """Number of rows of the matrix."""
        return len(self.load())

    def load(self) -> Ints:
        """The matrix, [N, C]. Raises ConfigError if there is none, DataError if the file holds none."""
        if self.matrix is not None:
            return np.asarray(self.matrix, dtype=np.int64)
        demand(self, "path", bool(self.path), "name a csv or npy file of counts [N, C]")
        return read_counts(self.path)[0]

    def insist_on_classes(self, names: Sequence[str]) -> None:
        """Raise DataError where the file has classes of these names in another order, or clients of these names."""
        if not self.path.endswith(".csv"):
            return
        table = count_table(self.path)
        known, heads, sites = (list(map(folded, words)) for words in (names, table.classes, table.sites))
        words = {name for name in known if not name.isdecimal() or sorted(heads) == sorted(known)}
        moved = [name for at, name in enumerate(heads) if name in words and known.index(name) != at]
        rule = f"have columns in the order of the classes, {some(names)}"
        claim(not moved, self.path, rule, some(table.classes), "reorder the columns")
        turned = words & {*sites} and not words & {*heads}
        rule = "have a row for each client and a column for each class"
        claim(not turned, self.path, rule, some(table.sites), "turn the table")

    def split(self, labels: npt.ArrayLike, clients: int, seed: int, columns: Columns | None = None) -> Partition:
        """Divide as `Partitioner.split`. Column c of the matrix is label c, whichever labels occur."""
        base.table_of(labels)
        codes, matrix = np.asarray(labels).astype(np.int64), self.load()
        rule = "equal the rows of the matrix of counts"
        require(clients == len(matrix), "clients", rule, clients, f"use {len(matrix)}")
        classes = matrix.shape[1]
        rule, got = f"have a column for each label, it has {classes}", f"labels {codes.min()}..{codes.max()}"
        claim(0 <= codes.min() <= codes.max() < classes, "the matrix of counts", rule, got)
        asked, have = matrix.sum(axis=0), np.bincount(codes, minlength=classes)
        over = int((asked - have).argmax())
        if asked[over] > have[over]:
            factor = np.min(have[asked > 0] / asked[asked > 0])
            rule = f"ask for at most the {have[over]} rows of class {over}"
            hint = f"scaled by {np.floor(factor * 1e4) / 1e4:g} it would fit"
            raise FieldError("Counts", "matrix", rule, int(asked[over]), hint)
        return base.deal(codes, matrix, rng.generator(rng.key(seed, "partition", self.name)))
