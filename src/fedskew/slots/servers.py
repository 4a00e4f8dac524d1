"""Servers: what is done with the aggregated update."""

from __future__ import annotations

from fedskew.component import ServerOptimizer
from fedskew.methods.fedacg import Accelerated
from fedskew.methods.feddyn import DynamicCorrection
from fedskew.methods.fedexp import Extrapolated
from fedskew.methods.fednova import GlobalMomentum
from fedskew.methods.fedspeed import CorrectedMean
from fedskew.shared.servers import Adagrad, Adam, Momentum, Plain, WeightedSum, Yogi

__all__ = [
    "SERVERS",
    "Accelerated",
    "Adagrad",
    "Adam",
    "CorrectedMean",
    "DynamicCorrection",
    "Extrapolated",
    "GlobalMomentum",
    "Momentum",
    "Plain",
    "WeightedSum",
    "Yogi",
]

SERVERS: dict[str, type[ServerOptimizer]] = {
    "accelerated": Accelerated,
    "adagrad": Adagrad,
    "adam": Adam,
    "corrected_mean": CorrectedMean,
    "dynamic_correction": DynamicCorrection,
    "extrapolated": Extrapolated,
    "global_momentum": GlobalMomentum,
    "momentum": Momentum,
    "plain": Plain,
    "weighted_sum": WeightedSum,
    "yogi": Yogi,
}
