"""Weightings: the aggregation weights."""

from __future__ import annotations

from fedskew.component import Weighting
from fedskew.methods.climb import Dual
from fedskew.methods.fedbal import AggregationBalancer
from fedskew.methods.feddisco import DiscrepancyAware
from fedskew.methods.fedla import LabelAware
from fedskew.methods.fednova import FedNova
from fedskew.methods.fedpals import LabelMatching
from fedskew.shared.weightings import Size, Uniform, UnionShare, Wrapping

__all__ = [
    "WEIGHTINGS",
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

WEIGHTINGS: dict[str, type[Weighting]] = {
    "aggregation_balancer": AggregationBalancer,
    "discrepancy_aware": DiscrepancyAware,
    "dual": Dual,
    "fednova": FedNova,
    "label_aware": LabelAware,
    "label_matching": LabelMatching,
    "size": Size,
    "uniform": Uniform,
    "union_share": UnionShare,
}
