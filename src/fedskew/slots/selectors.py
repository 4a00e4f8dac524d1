"""Selectors: the clients of a round.

Written by scripts/typed.py.
"""

from typing import TYPE_CHECKING

from fedskew.method.selectors import Failing as Failing
from fedskew.method.selectors import Poisson as Poisson
from fedskew.method.selectors import Random as Random
from fedskew.methods.astraea import Mediators as Mediators
from fedskew.methods.clusteredsampling import Clustered as Clustered
from fedskew.methods.clusteredsampling import ClusteredByUpdate as ClusteredByUpdate
from fedskew.methods.fedvc import BySize as BySize
from fedskew.methods.powerofchoice import PowerOfChoice as PowerOfChoice
from fedskew.methods.seolkim import KLD as KLD

if not TYPE_CHECKING:
    __all__ = [name for name, kind in globals().items() if isinstance(kind, type)]
