"""Row lists of other libraries as partitions, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedskew.data.partitioners.base import Ints, Partition, checked
from fedskew.data.values import FARTHEST
from fedskew.errors import ConfigError, DataError, claim, one_line

__all__ = ["from_flower", "from_indices", "to_flower"]

RULE = "hold a vector of row numbers for each client"
SHORT = 60  # characters of a value in a message


def from_indices(indices: Iterable[Any], rows: int | None = None) -> Partition:
    """The partition of row lists, as FedLab, NIID-Bench, FL-bench and others have them.

    Args:
        indices: Row numbers of each client, counted from 0 in the training set: a list with an entry for each client,
            or a dict whose keys are the clients 0..N-1, also as words ("0"). An entry is a list, a set, an array or a
            tensor of whole numbers in any order; an empty one is a client without rows.
        rows: Number of training rows n; None leaves the row numbers unbounded.

    Returns:
        The partition, the rows of each client in ascending order.

    Raises:
        DataError: A row number is not whole or not in 0..n-1, a row is given twice, or the keys are not 0..N-1. The
            message names the client and the row.

    Example:
        >>> import numpy as np
        >>> from fedskew.data import from_indices
        >>> parts = from_indices({1: np.array([5, 0]), 0: [3, 4, 1]})
        >>> [parts.of(k).tolist() for k in range(parts.clients)]
        [[1, 3, 4], [0, 5]]
    """
    several = isinstance(indices, Iterable) and not isinstance(indices, str | bytes)
    claim(several, "indices", RULE, type(indices).__name__)
    entries = _in_order(indices) if isinstance(indices, Mapping) else indices
    lists = [_row_numbers(entry, k) for k, entry in enumerate(entries)]
    claim(lists, "indices", RULE, "no client")
    partition = Partition.of_lists(lists)
    return checked(partition, int(partition.rows.max(initial=0)) + 1 if rows is None else rows, "indices")


def _in_order(indices: Mapping[Any, Any]) -> list[Any]:
    """The entries of the clients 0..N-1."""
    numbers = {int(key) if isinstance(key, str) and key.isdecimal() else key: key for key in indices}
    if lacking := [k for k in range(len(indices)) if k not in numbers]:
        hint = "a client without rows has an empty list, and list(indices.values()) numbers clients in their order"
        raise DataError(f"indices must have the keys 0..{len(indices) - 1}; {lacking[0]} is missing; {hint}")
    return [indices[numbers[k]] for k in range(len(indices))]


def _row_numbers(entry: Any, k: int) -> Ints:
    """The row numbers of one client, int64 [n_k]."""
    try:
        values = np.asarray(list(entry) if isinstance(entry, set | frozenset) else entry)
    except (TypeError, ValueError, RuntimeError):  # lists of several lengths; a tensor that is not on the CPU
        values = np.empty((), object)
    samples = hasattr(entry, "dataset")  # a Subset of torch
    hint = "give one of its lists" if isinstance(entry, Mapping) else "give its indices" if samples else ""
    fits, got = values.ndim == 1 and not samples, one_line(repr(entry), SHORT)
    claim(fits, "indices", f"{RULE}; client {k} has {got}", hint=hint)
    cells = () if values.dtype.kind in "iu" else values.tolist()
    for cell in cells:
        if isinstance(cell, bool) or not isinstance(cell, int | float) or cell != cell // 1:
            raise DataError(f"indices must hold whole row numbers; client {k} has {one_line(repr(cell), SHORT)}")
    if len(far := np.flatnonzero((values < 0) | (values > FARTHEST))):
        raise DataError(f"indices must give rows of the data, counted from 0; client {k} has row {values[far[0]]}")
    return values.astype(np.int64)


def from_flower(partitioner: Any, row_column: str = "row") -> Partition:
    """The partition of a flwr-datasets partitioner.

    Args:
        partitioner: A partitioner of flwr-datasets whose `dataset` is set. Its partition k becomes client k.
        row_column: The column of row numbers 0..n-1 in that dataset, which you add by `dataset.add_column("row",
            range(n))`. Some partitioners sort the dataset first; the column still says which row it was.

    Returns:
        The partition.

    Raises:
        ConfigError: It is not such a partitioner, or its dataset lacks the column.
        DataError: Two partitions share a row.
    """
    for attribute in ("load_partition", "num_partitions"):
        if not hasattr(partitioner, attribute):
            raise ConfigError(f"partitioner must be one of flwr-datasets; got {type(partitioner).__name__}")
    first = partitioner.load_partition(0)  # the first call divides the dataset, and the number is known then
    parts = [first, *map(partitioner.load_partition, range(1, int(partitioner.num_partitions)))]
    if row_column not in first.column_names:
        hint = "give the partitioner's dataset one by add_column('row', range(n))"
        raise ConfigError(f"row_column must be a column of the partitioner's dataset; got {row_column!r}; {hint}")
    return from_indices([part[row_column] for part in parts])


def to_flower(partition: Partition) -> dict[int, list[int]]:
    """The row lists of a partition, as flwr-datasets' partitioners keep them and `dataset.select` takes them.

    Args:
        partition: The partition.

    Returns:
        Rows of each client by its number.

    Example:
        >>> from fedskew.data import federate, to_flower
        >>> lists = to_flower(federate("digits", "iid", clients=3).partition)
        >>> [len(rows) for rows in lists.values()]
        [480, 479, 479]
    """
    return {k: partition.of(k).tolist() for k in range(partition.clients)}
