"""Samplers: the rows that a client trains on in a round.

Written by scripts/typed.py.
"""

from typing import TYPE_CHECKING

from fedskew.method.samplers import ClassBalanced as ClassBalanced
from fedskew.method.samplers import PoissonBatches as PoissonBatches
from fedskew.method.samplers import Shuffle as Shuffle
from fedskew.methods.astraea import Augmentation as Augmentation
from fedskew.methods.fedvc import VirtualClient as VirtualClient
from fedskew.methods.seolkim import DecayingOversampling as DecayingOversampling

if not TYPE_CHECKING:
    __all__ = [name for name, kind in globals().items() if isinstance(kind, type)]
