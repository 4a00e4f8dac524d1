"""Selectors: which clients take part, and how much data of each class each may use."""

from __future__ import annotations

from fedskew.component import Selector
from fedskew.methods.astraea import Mediators
from fedskew.methods.clusteredsampling import Clustered, ClusteredByUpdate
from fedskew.methods.fedvc import BySize
from fedskew.methods.powerofchoice import PowerOfChoice
from fedskew.methods.seolkim import KLD
from fedskew.shared.selectors import Random, TrainAll

__all__ = [
    "KLD",
    "SELECTORS",
    "BySize",
    "Clustered",
    "ClusteredByUpdate",
    "Mediators",
    "PowerOfChoice",
    "Random",
    "TrainAll",
]

SELECTORS: dict[str, type[Selector]] = {
    "by_size": BySize,
    "clustered": Clustered,
    "clustered_by_update": ClusteredByUpdate,
    "kld": KLD,
    "mediators": Mediators,
    "power_of_choice": PowerOfChoice,
    "random": Random,
    "train_all": TrainAll,
}
