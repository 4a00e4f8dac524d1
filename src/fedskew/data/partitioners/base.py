"""What all partitioners share: partitions, tables of labelled rows, rounding, dealing, bounded redraws and checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fedskew import rng
from fedskew.errors import DataError, FieldError, claim, require
from fedskew.fields import Checked, demand, fits

__all__ = ["LabelTable", "Partition", "Partitioner", "deal", "largest_remainder", "log_dirichlet"]

CELLS = 1 << 31  # clients x classes: 16 GiB a matrix
TRIES = 100  # most draws for `least`, so that the loop ends
DRAWN = 10**8  # most cells, clients x classes, over all these draws
FULL = "use 1: below 1 all clients could be full before all rows are given"
Rounding = Literal["cut", "cut_last", "largest_remainder"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Columns = Mapping[str, npt.NDArray[Any]]


class Partition(NamedTuple):
    """The rows of each client: client k has `rows[offsets[k]:offsets[k + 1]]`, in ascending order.

    Attributes:
        rows: Row numbers, int64 [n_used].
        offsets: Where each client's rows begin, int64 [N + 1].

    Example:
        >>> import numpy as np
        >>> from fedskew.data import Partition
        >>> parts = Partition(rows=np.array([0, 3, 1, 2]), offsets=np.array([0, 2, 4]))
        >>> parts.of(1).tolist(), parts.sizes.tolist()
        ([1, 2], [2, 2])
        >>> parts.counts(labels=[0, 1, 1, 0], classes=2).tolist()
        [[2, 0], [0, 2]]
    """

    rows: Ints  # [n_used]
    offsets: Ints  # [N + 1]

    @property
    def clients(self) -> int:
        """Number of clients N, including clients without rows."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Ints:
        """Rows of each client, int64 [N]."""
        return np.diff(self.offsets)

    def of(self, k: int) -> Ints:
        """Rows of one client.

        Args:
            k: Number of the client, from 0.

        Returns:
            Row numbers, int64 [n_k].

        Raises:
            IndexError: There is no client k.
        """
        if not 0 <= k < self.clients:
            raise IndexError(f"client {k} is not in 0..{self.clients - 1}")
        return self.rows[self.offsets[k] : self.offsets[k + 1]]

    @staticmethod
    def of_lists(lists: Sequence[Ints]) -> Partition:
        """The partition of the rows of each client, in ascending order."""
        return Partition(np.concatenate(lists), np.cumsum([0, *map(len, lists)]).astype(np.int64))

    def counts(self, labels: npt.ArrayLike, classes: int) -> Ints:
        """Label histograms of the clients.

        Args:
            labels: Labels of all rows, [n], below `classes`.
            classes: Number of classes C.

        Returns:
            Rows of each class at each client, int64 [N, C].
        """
        return label_histograms(self.sizes, np.asarray(labels)[self.rows], classes)

    def masked(self, mask: npt.NDArray[np.bool_]) -> Partition:
        """The partition of some of its rows: those of a mask [n_used]. Clients stay even if they lose all rows."""
        ends = np.concatenate([[0], np.cumsum(mask)])
        return Partition(self.rows[mask], ends[self.offsets])


def label_histograms(sizes: Ints, labels: npt.NDArray[Any], classes: int) -> Ints:
    """Rows of each class at each client, int64 [N, C], of clients with these sizes [N] and their labels in turn."""
    clients = len(sizes)
    cell = np.repeat(np.arange(clients) * classes, sizes) + labels
    return np.bincount(cell, minlength=clients * classes).reshape(clients, classes)


class LabelTable(NamedTuple):
    """The labelled rows to divide. Classes are renumbered 0..C-1 without gaps."""

    codes: Ints  # [n]
    totals: Ints  # [C] N_c, all >= 1
    columns: Columns  # [n] each


def largest_remainder(shares: Floats, totals: Ints) -> Ints:
    """Round shares to whole numbers that sum exactly to given totals.

    Each entry is floor(total * share / sum of shares); the largest fractions get one more, ties by lowest index.

    Args:
        shares: Numbers of at least 0, [R, M]. A row of zeros must have total 0.
        totals: Sum of each row of the result, [R].

    Returns:
        int64 [R, M]; each entry is within one of its exact value.

    Example:
        >>> import numpy as np
        >>> from fedskew.data.partitioners import largest_remainder
        >>> largest_remainder(np.array([[0.5, 0.3, 0.2]]), np.array([9])).tolist()
        [[4, 3, 2]]
    """
    sums = shares.sum(axis=1, keepdims=True)
    exact = shares / np.where(sums > 0, sums, 1.0) * totals[:, None]
    whole = np.floor(exact)
    missing = totals - whole.sum(axis=1)
    order = np.argsort(whole - exact, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(shares.shape[1]), order.shape), axis=1)
    return np.asarray(whole + (rank < missing[:, None]), np.int64)


def log_dirichlet(concentration: Floats, gen: np.random.Generator) -> Floats:
    """Logarithms of independent Dirichlet draws along the last axis.

    Uses Gamma(a) = Gamma(a + 1) U^(1/a) in logarithms: below a = 0.01 gamma variates underflow to 0 and their ratio is
    NaN.

    Args:
        concentration: Parameters above 0, [..., M].
        gen: Source of random numbers.

    Returns:
        Log shares, [..., M]; exp of them sums to 1.
    """
    a = np.maximum(concentration, 1e-300)  # keeps log(U) / a finite
    log_gamma = np.log(gen.standard_gamma(a + 1.0)) - gen.standard_exponential(a.shape) / a  # -Exp(1) is log U
    return normalised(log_gamma)


def normalised(logs: Floats) -> Floats:
    """`logs` - logsumexp(logs) along the last axis. Changes `logs`."""
    logs -= logs.max(axis=-1, keepdims=True)
    return np.asarray(logs - np.log(np.exp(logs).sum(axis=-1, keepdims=True)))


def gather(owner: Ints, clients: int) -> Partition:
    """The partition of an owner for each row, [n]. Rows of owner -1 belong to nobody."""
    places = owner + 1
    sizes = np.bincount(places, minlength=clients + 1)
    rows = np.argsort(places, kind="stable")[sizes[0] :]
    return Partition(rows, np.concatenate([[0], np.cumsum(sizes[1:])]))


def by_label(codes: Ints, gen: np.random.Generator) -> Ints:
    """Row numbers [n] sorted by class, in random order within a class."""
    order = gen.permutation(len(codes))
    return order[np.argsort(codes[order], kind="stable")]


def deal(codes: Ints, counts: Ints, gen: np.random.Generator) -> Partition:
    """Give each client random rows of each class.

    Args:
        codes: Class of each row, in [0, C), [n].
        counts: Rows of each class for each client, [N, C]. A column must not ask for more rows than the class has.
        gen: Source of random numbers.

    Returns:
        The partition. Rows of each class are shuffled and dealt in the order of the clients.
    """
    clients, classes = counts.shape
    order = by_label(codes, gen)
    starts = np.cumsum(np.bincount(codes, minlength=classes)) - np.bincount(codes, minlength=classes)
    owner = np.full(len(codes), -1)
    for start, hands in zip(starts, counts.T, strict=True):
        dealt = np.repeat(np.arange(clients), hands)
        owner[order[start : start + len(dealt)]] = dealt
    return gather(owner, clients)


def table_of(labels: npt.ArrayLike, columns: Columns | None = None, clients: int = 1) -> LabelTable:
    """The table of a vector of labels.

    Args:
        labels: Integers of any type, [n].
        columns: Further facts of each row, [n] each.
        clients: Number of clients who divide it.

    Returns:
        The table.

    Raises:
        ConfigError: There is no client, or the counts [N, C] would not fit into memory.
        DataError: The labels are not a non-empty vector of integers.
    """
    values = np.asarray(labels)
    fine = values.ndim == 1 and len(values) and values.dtype.kind in "iu"
    claim(fine, "labels", "be a non-empty vector of integers", f"{values.dtype} of shape {values.shape}")
    _, codes, totals = np.unique(values, return_inverse=True, return_counts=True)
    require(fits(clients, int) and clients >= 1, "clients", "be a whole number of at least 1", clients, "use 1")
    most = CELLS // len(totals)
    rule = f"be at most {most} for {len(totals)} classes: the counts [N, C] are held in memory"
    require(clients <= most, "clients", rule, clients, f"use {most}")
    return LabelTable(codes.astype(np.int64), totals.astype(np.int64), columns or {})


def ordered(partition: Partition) -> bool:
    """Whether the offsets cut the rows."""
    ends = np.asarray(partition.offsets)
    return len(ends) > 1 and ends[0] == 0 and ends[-1] == len(partition.rows) and bool((np.diff(ends) >= 0).all())


def ascending(partition: Partition) -> bool:
    """Whether the rows of each client are in ascending order, none of them twice."""
    starts = np.zeros(len(partition.rows) + 1, dtype=bool)
    starts[partition.offsets[:-1]] = True
    return not len(partition.rows) or bool(((np.diff(partition.rows) > 0) | starts[1:-1]).all())


def checked(partition: Partition, n: int, what: str, overlaps: bool = False) -> Partition:
    """The partition in int64, the rows of each client in ascending order.

    Args:
        partition: Rows and offsets, arrays of integers of any type.
        n: Number of rows to divide.
        what: What made the partition, for errors.
        overlaps: Whether a row may belong to several clients.

    Returns:
        The partition.

    Raises:
        DataError: The offsets do not cut the rows, there are no rows, a row is not in 0..n-1, or a row is given twice,
            with `overlaps` to one client. The message names the client and the row.
    """
    rows, ends = np.asarray(partition.rows), np.asarray(partition.offsets).astype(np.int64)
    fine = rows.size and rows.dtype.kind in "iu" and ordered(Partition(rows, ends))
    got = f"{rows.dtype} of shape {rows.shape} and broken offsets" if rows.size else f"none of {n} rows"
    claim(fine, what, "have a vector of row numbers, cut by its offsets", got)
    owners = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    if len(far := np.flatnonzero((rows < 0) | (rows >= n))):
        got = f"client {owners[far[0]]} has row {rows[far[0]]}"
        raise DataError(f"{what} must give rows of the data; {got}, outside 0..{n - 1}")
    made = Partition(rows.astype(np.int64), ends)
    if not ascending(made):
        made = made._replace(rows=made.rows[np.lexsort((made.rows, owners))])
    if len(repeated := np.flatnonzero((np.diff(made.rows) == 0) & (np.diff(owners) == 0))):
        got = f"client {owners[repeated[0]]} has row {made.rows[repeated[0]]} twice"
        raise DataError(f"{what} must give a client each row once; {got}")
    every = np.sort(made.rows)
    if not overlaps and len(shared := every[1:][np.diff(every) == 0]):
        row = shared[0]
        first, second, *_ = owners[made.rows == row]
        raise DataError(f"{what} must give each row to one client; clients {first} and {second} both have row {row}")
    return made


def guarded(logs: Floats, totals: Ints, guard: float, rounding: Rounding) -> Ints:
    """Counts [N, C], class by class: a client that has `guard` n/N rows or more gets a share of 0 of the next.

    Args:
        logs: Log shares of each class, [C, N]; -inf for clients that do not own it.
        totals: Rows of each class, [C].
        guard: Multiple of n/N, at least 1; infinity for none.
        rounding: As for `rounded`.

    Returns:
        Rows, int64 [N, C]. Where all owners of a class are full, the last of them gets it whole.
    """
    classes, clients = logs.shape
    counts = np.zeros((clients, classes), dtype=np.int64)
    full = guard * totals.sum() / clients
    sizes = np.zeros(clients, dtype=np.int64)
    for c, total in enumerate(totals):
        open_ = np.where(sizes < full, logs[c], -np.inf)
        if not (open_ > -np.inf).any():
            open_[np.flatnonzero(logs[c] > -np.inf)[-1]] = 0.0
        shares = np.exp(normalised(open_))[None]
        counts[:, c] = rounded(shares, np.array([total]), rounding, open_ > -np.inf)[0]
        sizes += counts[:, c]
    return counts


def rounded(shares: Floats, totals: Ints, rounding: Rounding, takes: np.ndarray | None = None) -> Ints:
    """Rows of each class for shares that sum to 1.

    Args:
        shares: Shares of each class, [C, N].
        totals: Rows of each class, [C].
        rounding: "largest_remainder"; "cut" to cut at the cumulative shares; "cut_last" to cut and give what this
            leaves over to the last client, even one with a share of 0.
        takes: Clients that may take rows, bool [N]; the last of them gets what a cut leaves over.

    Returns:
        Rows, int64 [C, N].
    """
    if rounding == "largest_remainder":
        return largest_remainder(shares, totals)
    cuts = np.floor(np.minimum(np.cumsum(shares, axis=1), 1.0) * totals[:, None]).astype(np.int64)
    last = -1 if takes is None or rounding == "cut_last" else int(np.flatnonzero(takes)[-1])
    cuts[:, last:] = totals[:, None]
    return np.diff(cuts, axis=1, prepend=0)


class Partitioner(Checked):
    """Base of the partitioners. Derive a frozen dataclass with `draw`, and name it.

    The first line of a partitioner's docstring is its definition; lines of it give formula, users and limits. Its
    fields are its options.

    Attributes:
        name: Name in the table `PARTITIONERS` and in records.
        overlaps: Whether a row may belong to several clients; else that is an error.
        stream: Name in the key of its draws, where that differs from `name`; a key never changes.

    Example:
        >>> from dataclasses import dataclass
        >>> import numpy as np
        >>> from fedskew.data import federate
        >>> from fedskew.data.partitioners import Partitioner
        >>> from fedskew.data.partitioners.base import gather
        >>> @dataclass(frozen=True)
        ... class Alternate(Partitioner):
        ...     name = "alternate"
        ...
        ...     def draw(self, table, clients, gen):
        ...         return gather(np.arange(len(table.codes)) % clients, clients)
        >>> federate("digits", Alternate(), clients=3).sizes.tolist()
        [480, 479, 479]
    """

    name: ClassVar[str]
    overlaps: ClassVar[bool] = False  # True: a row may belong to several clients
    stream: ClassVar[str] = ""  # name in the key of its draws where it differs: a key never changes

    @property
    def decides(self) -> bool:
        """Whether the partitioner decides the number of clients: it has a `count` of its own."""
        return type(self).count is not Partitioner.count

    def count(self, columns: Columns) -> int:
        """Number of clients, for a partitioner that decides it.

        Args:
            columns: Further facts of each row, [n] each.

        Returns:
            Number of clients N.

        Raises:
            TypeError: The partitioner takes any number of clients.
        """
        raise TypeError(f"partition {self.name!r} takes any number of clients")

    def split(self, labels: npt.ArrayLike, clients: int, seed: int, columns: Columns | None = None) -> Partition:
        """Divide labelled rows among clients.

        Args:
            labels: Labels of the rows, integers [n].
            clients: Number of clients N, at least 1.
            seed: Seed; the draw is keyed by (seed, "partition", name).
            columns: Further facts of each row, [n] each, such as the user it comes from.

        Returns:
            The partition.

        Raises:
            ConfigError: The request cannot be met. Nothing has been drawn then.
            DataError: The labels are not a non-empty vector of integers.
        """
        table = table_of(labels, columns, clients)
        return self.draw(table, int(clients), rng.generator(rng.key(seed, "partition", self.stream or self.name)))

    def draw(self, table: LabelTable, clients: int, gen: np.random.Generator) -> Partition:
        """Check the request against the table, then draw. This is what a partitioner implements.

        Args:
            table: The labelled rows.
            clients: Number of clients N.
            gen: Source of random numbers.

        Returns:
            The partition.

        Raises:
            ConfigError: The request cannot be met.
        """
        raise NotImplementedError(f"{type(self).__name__} must define draw")

    def enough_rows(self, clients: int, rows: int) -> None:
        """Raise ConfigError unless every client can have the rows of the field `least`, which may be unset."""
        each = getattr(self, "least", 1) or 0
        if each <= 1:
            require(clients * each <= rows, "clients", f"be at most the {rows} rows", clients, f"use {rows}")
        most = rows // clients
        hint = f"use {most}" if most else f"use at most {rows} clients"
        demand(self, "least", clients * each <= rows, f"be at most {most} here, rows / clients", hint)

    def redrawn(self: Any, draw: Callable[[], Ints]) -> Ints:
        """Counts [N, C] in which every client has `least` rows; FieldError where 100 draws give none."""
        best = turn = 0
        for turn in range(1, TRIES + 1):
            counts = draw()
            fewest = int(counts.sum(axis=1).min())
            if fewest >= (self.least or 0):
                return counts
            best = max(best, fewest)
            if (turn + 1) * counts.size > DRAWN:
                break
        rule = f"be met by one of {turn} draws at alpha {self.alpha:g}"
        raise FieldError(type(self).__name__, "least", rule, self.least, f"use {best}, a larger alpha or fewer clients")
