"""Exchange of partitions with the partitioners of flwr-datasets. That package is not imported here."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedskew.data.partitioners.base import Ints, Partition
from fedskew.errors import ConfigError, DataError


def from_flower(partitioner: Any, row_column: str = "") -> Partition:
    """The partition of a flwr-datasets partitioner.

    Args:
        partitioner: A partitioner of flwr-datasets whose ``dataset`` is set. Its partition k becomes client k.
        row_column: A column of row numbers 0..n-1 in that dataset, which you add by ``dataset.add_column("row",
            range(n))``. Without it the partitioner's own table of indices is read. A partitioner that sorts the dataset
            first numbers the sorted rows, so it needs the column.

    Returns:
        The partition.

    Raises:
        ConfigError: It is not such a partitioner, or the column is needed and not given.
        DataError: Two partitions share a row.
    """
    for attribute in ("load_partition", "num_partitions"):
        if not hasattr(partitioner, attribute):
            raise ConfigError(f"partitioner must be one of flwr-datasets; got {type(partitioner).__name__}")
    given = getattr(partitioner, "dataset", None)
    first = partitioner.load_partition(0)  # the first call divides, and in some sorts, the dataset
    count = int(partitioner.num_partitions)
    sorts = hasattr(partitioner, "_sort_dataset_if_needed") or getattr(partitioner, "dataset", None) is not given
    table = None if sorts else getattr(partitioner, "_partition_id_to_indices", None)
    if row_column:
        lists = [_column(first if k == 0 else partitioner.load_partition(k), row_column) for k in range(count)]
    elif table:
        lists = [np.asarray(table[k], dtype=np.int64) for k in range(count)]
    else:
        kind = type(partitioner).__name__
        hint = "give its dataset a column by add_column('row', range(n)) and name it"
        raise ConfigError(
            f"row_column must be given for a {kind}, which keeps no table of the rows as given; got ''; {hint}"
        )
    rows = np.concatenate(lists)
    if len(rows) and (rows.min() < 0 or (owners := np.bincount(rows)).max() > 1):
        raise DataError(f"partitions must be disjoint; row {rows.min() if rows.min() < 0 else owners.argmax()} is not")
    return Partition.of_lists([np.sort(part) for part in lists])


def to_flower(partition: Partition) -> dict[int, list[int]]:
    """The row lists of a partition, as flwr-datasets' partitioners keep them and ``dataset.select`` takes them.

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


def _column(part: Any, name: str) -> Ints:
    """The row numbers of a partition's column."""
    if name not in part.column_names:
        raise ConfigError(f"row_column must be a column of the partitioner's dataset; got {name!r}")
    return np.asarray(part[name], dtype=np.int64)
