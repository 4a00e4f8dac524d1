"""Conventions that split labelled rows over clients, each a frozen value with a name.

n rows, N clients, C classes that occur in the labels, N_c rows of class c. "Dir(0.1)" means at least seven different
splits in the literature, so every convention states its own formula and who uses it. All of them give disjoint rows,
depend on nothing but their fields, the labels and the seed, and check that the request can be met before they draw:
only dir_class with `least` draws again, a bounded number of times, and clients that end up without rows are kept.
Memory is at most about 10 numbers of 8 bytes a row and a cell of [N, C].
"""

from __future__ import annotations

from fedskew.data.conventions.base import Convention, Partition, Table, deal, largest_remainder, log_dirichlet
from fedskew.data.conventions.dirichlet import DirBernoulli, DirClientEqual, DirClientNorm, Dirichlet, DirPrior
from fedskew.data.conventions.given import Counts, Feature, Natural
from fedskew.data.conventions.labels import DirExtended, Double, ExclusiveIid, LabelsK, Mix, Shards
from fedskew.data.conventions.quantity import Iid, QuantityDirichlet, QuantityLognormal, QuantityPower
from fedskew.data.conventions.tail import LongTail
from fedskew.data.portable import File

__all__ = [
    "PARTITIONS", "Convention", "Counts", "DirBernoulli", "DirClientEqual", "DirClientNorm", "DirExtended", "DirPrior",
    "Dirichlet", "Double", "ExclusiveIid", "Feature", "File", "Iid", "LabelsK", "LongTail", "Mix", "Natural",
    "Partition", "QuantityDirichlet", "QuantityLognormal", "QuantityPower", "Shards", "Table", "deal",
    "largest_remainder", "log_dirichlet",
]  # fmt: skip

PARTITIONS: dict[str, type[Convention]] = {
    "iid": Iid,
    "dirichlet": Dirichlet,
    "dir_class": Dirichlet,
    "dir_client_equal": DirClientEqual,
    "dir_client_norm": DirClientNorm,
    "dir_prior": DirPrior,
    "dir_extended": DirExtended,
    "dir_bernoulli": DirBernoulli,
    "labels_k": LabelsK,
    "double": Double,
    "shards": Shards,
    "mix": Mix,
    "exclusive_iid": ExclusiveIid,
    "longtail": LongTail,
    "quantity_power": QuantityPower,
    "quantity_lognormal": QuantityLognormal,
    "quantity_dir": QuantityDirichlet,
    "feature": Feature,
    "natural": Natural,
    "counts": Counts,
    "file": File,
}
