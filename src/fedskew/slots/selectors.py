"""Selectors: the clients of a round.

Written by scripts/typed.py.
"""

from fedskew.method.selectors import Failing, Poisson, Random
from fedskew.methods.astraea import Mediators
from fedskew.methods.clusteredsampling import Clustered, ClusteredByUpdate
from fedskew.methods.fedvc import BySize
from fedskew.methods.powerofchoice import PowerOfChoice
from fedskew.methods.seolkim import KLD

__all__ = [
    "KLD",
    "BySize",
    "Clustered",
    "ClusteredByUpdate",
    "Failing",
    "Mediators",
    "Poisson",
    "PowerOfChoice",
    "Random",
]
