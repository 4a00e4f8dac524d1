"""Samplers: the rows that a client trains on in a round.

Written by scripts/typed.py.
"""

from fedskew.method.samplers import ClassBalanced, PoissonBatches, Shuffle
from fedskew.methods.astraea import Augmentation
from fedskew.methods.fedvc import VirtualClient
from fedskew.methods.seolkim import DecayingOversampling

__all__ = [
    "Augmentation",
    "ClassBalanced",
    "DecayingOversampling",
    "PoissonBatches",
    "Shuffle",
    "VirtualClient",
]
