"""Local steps: what a client does with a gradient.

Written by scripts/typed.py.
"""

from typing import TYPE_CHECKING

from fedskew.method.steps import SGD as SGD
from fedskew.method.steps import AdamW as AdamW
from fedskew.method.steps import SharpnessAware as SharpnessAware
from fedskew.methods.apfl import Mixed as Mixed
from fedskew.methods.ditto import Tethered as Tethered
from fedskew.methods.fedlesam import GlobalSharpnessAware as GlobalSharpnessAware
from fedskew.methods.fedsmoo import DynamicSharpnessAware as DynamicSharpnessAware
from fedskew.methods.fedsol import StabilisedOrthogonal as StabilisedOrthogonal
from fedskew.methods.perfedavg import Meta as Meta
from fedskew.methods.pfedme import Moreau as Moreau
from fedskew.methods.precisionweighted import PrecisionWeighted as PrecisionWeighted

if not TYPE_CHECKING:
    __all__ = [name for name, kind in globals().items() if isinstance(kind, type)]
