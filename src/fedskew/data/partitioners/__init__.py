"""Partitioners: ways to divide labelled rows among clients. Each is a frozen value with a name.

n rows, N clients, C classes that occur in the labels, N_c rows of class c. "Dir(0.1)" means at least seven different
splits in the literature, so every partitioner states its formula and who uses it. All partitioners but `Shared` give
disjoint rows. All depend on nothing but their fields, the labels and the seed, and check before they draw that the
request can be met. Only `Dirichlet` and `DirExtended`, with `least` or random owners, and `QuantityDir` with
`redraw` draw again, at most 100 times. Clients that end up without rows are kept.
Memory is at most about ten 8-byte numbers for each row and each cell of [N, C].

Example:
    >>> import numpy as np
    >>> from fedskew.data.partitioners import PARTITIONERS, Shards
    >>> labels = np.repeat([0, 1, 2], 4)
    >>> Shards(shards=1).split(labels, clients=3, seed=0).counts(labels, 3).tolist()
    [[0, 0, 4], [4, 0, 0], [0, 4, 0]]
    >>> PARTITIONERS["shards"]().shards
    2
"""

from fedskew import plugins
from fedskew.data.partitioners.base import *
from fedskew.data.partitioners.dirichlet import *
from fedskew.data.partitioners.file import File as File
from fedskew.data.partitioners.given import *
from fedskew.data.partitioners.labels import *
from fedskew.data.partitioners.shared import *
from fedskew.data.partitioners.sizes import *

_OWN: tuple[type[Partitioner], ...] = (
    Iid, Dirichlet, DirClientEqual, DirPrior, DirExtended, LabelsK, Pathological,
    Double, Shards, ExclusiveIid, Shared, QuantityDir, Natural, Counts, File,
)  # fmt: skip
PARTITIONERS = plugins.Registry("partitioner", {kind.name: kind for kind in _OWN}, Partitioner)
