"""Datasets, partitions, federations; names, rows that a seed gives and the partition file stay, all else may change.

Example:
    >>> from fedskew.data import federate
    >>> fed = federate("digits", "dirichlet", clients=4, seed=0)
    >>> fed.dataset.name, fed.clients, int(fed.sizes.sum())
    ('digits', 4, 1438)
"""

from fedskew.data.arrays import Dataset, from_arrays, keep_classes
from fedskew.data.federation import Federation, federate
from fedskew.data.partitioners import Partition
from fedskew.data.partitioners.file import load_partition, save_partition, verify_partition
from fedskew.data.partitioners.lists import from_flower, from_indices, to_flower
from fedskew.data.sources.delimited import from_table
from fedskew.data.sources.table import DATASETS, load

__all__ = [
    "DATASETS", "Dataset", "Federation", "Partition", "federate", "from_arrays", "from_flower", "from_indices",
    "from_table", "keep_classes", "load", "load_partition", "save_partition", "to_flower", "verify_partition",
]  # fmt: skip
