"""Local steps: what a client does with a gradient.

Written by scripts/typed.py.
"""

from fedskew.method.steps import SGD, AdamW, SharpnessAware
from fedskew.methods.apfl import Mixed
from fedskew.methods.ditto import Tethered
from fedskew.methods.fedlesam import GlobalSharpnessAware
from fedskew.methods.fedsmoo import DynamicSharpnessAware
from fedskew.methods.fedsol import StabilisedOrthogonal
from fedskew.methods.perfedavg import Meta
from fedskew.methods.pfedme import Moreau
from fedskew.methods.precisionweighted import PrecisionWeighted

__all__ = [
    "SGD",
    "AdamW",
    "DynamicSharpnessAware",
    "GlobalSharpnessAware",
    "Meta",
    "Mixed",
    "Moreau",
    "PrecisionWeighted",
    "SharpnessAware",
    "StabilisedOrthogonal",
    "Tethered",
]
