"""Paces: batch size, number of steps and learning rate of a client.

Written by scripts/typed.py.
"""

from typing import TYPE_CHECKING

from fedskew.method.paces import Cosine as Cosine
from fedskew.method.paces import Drops as Drops
from fedskew.method.paces import Fixed as Fixed
from fedskew.method.paces import Part as Part
from fedskew.method.paces import Staged as Staged
from fedskew.method.paces import Steps as Steps
from fedskew.methods.seolkim import Dynamic as Dynamic

if not TYPE_CHECKING:
    __all__ = [name for name, kind in globals().items() if isinstance(kind, type)]
