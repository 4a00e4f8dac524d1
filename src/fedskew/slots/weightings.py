"""Weightings: the weights of the clients in the mean.

Written by scripts/typed.py.
"""

from typing import TYPE_CHECKING

from fedskew.method.weightings import Size as Size
from fedskew.method.weightings import Uniform as Uniform
from fedskew.method.weightings import UnionShare as UnionShare
from fedskew.method.weightings import Wrapping as Wrapping
from fedskew.methods.climb import Dual as Dual
from fedskew.methods.fedbal import AggregationBalancer as AggregationBalancer
from fedskew.methods.feddisco import DiscrepancyAware as DiscrepancyAware
from fedskew.methods.fedla import LabelAware as LabelAware
from fedskew.methods.fednova import FedNova as FedNova
from fedskew.methods.fedpals import LabelMatching as LabelMatching

if not TYPE_CHECKING:
    __all__ = [name for name, kind in globals().items() if isinstance(kind, type)]
