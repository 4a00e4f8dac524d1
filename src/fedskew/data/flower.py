"""Exchange of partitions with the partitioners of flwr-datasets. That package is not imported here."""

from typing import Any

import numpy as np

from fedskew.data.partitioners.base import Partition
from fedskew.errors import ConfigError, DataError


def from_flower(partitioner: Any, row_column: str = "row") -> Partition:
    """The partition of a flwr-datasets partitioner.

    Args:
        partitioner: A partitioner of flwr-datasets whose ``dataset`` is set. Its partition k becomes client k.
        row_column: The column of row numbers 0..n-1 in that dataset, which you add by ``dataset.add_column("row",
            range(n))``. Some partitioners sort the dataset first; the column still says which row it was.

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
    lists = [np.asarray(part[row_column], dtype=np.int64) for part in parts]
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
