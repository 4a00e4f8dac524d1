"""Weightings: the weights of the clients in the mean.

Written by scripts/typed.py.
"""

from fedskew.method.weightings import Size, Uniform, UnionShare, Wrapping
from fedskew.methods.climb import Dual
from fedskew.methods.fedbal import AggregationBalancer
from fedskew.methods.feddisco import DiscrepancyAware
from fedskew.methods.fedla import LabelAware
from fedskew.methods.fednova import FedNova
from fedskew.methods.fedpals import LabelMatching

__all__ = [
    "AggregationBalancer",
    "DiscrepancyAware",
    "Dual",
    "FedNova",
    "LabelAware",
    "LabelMatching",
    "Size",
    "Uniform",
    "UnionShare",
    "Wrapping",
]
