"""Samplers: which rows a client trains on this round."""

from __future__ import annotations

from fedskew.component import Sampler
from fedskew.methods.astraea import Augmentation
from fedskew.methods.fedvc import VirtualClient
from fedskew.methods.seolkim import DecayingOversampling
from fedskew.shared.samplers import ClassBalanced, Shuffle

__all__ = [
    "SAMPLERS",
    "Augmentation",
    "ClassBalanced",
    "DecayingOversampling",
    "Shuffle",
    "VirtualClient",
]

SAMPLERS: dict[str, type[Sampler]] = {
    "augmentation": Augmentation,
    "class_balanced": ClassBalanced,
    "decaying_oversampling": DecayingOversampling,
    "shuffle": Shuffle,
    "virtual_client": VirtualClient,
}
