"""Steps: how one mini-batch becomes a step."""

from __future__ import annotations

from fedskew.component import LocalStep
from fedskew.methods.apfl import Mixed
from fedskew.methods.ditto import Tethered
from fedskew.methods.fedlesam import GlobalSharpnessAware
from fedskew.methods.fedsmoo import DynamicSharpnessAware
from fedskew.methods.fedsol import StabilisedOrthogonal
from fedskew.methods.perfedavg import Meta
from fedskew.methods.pfedme import Moreau
from fedskew.methods.precisionweighted import PrecisionWeighted
from fedskew.shared.sharpness import SharpnessAware
from fedskew.shared.steps import SGD, AdamW

__all__ = [
    "SGD",
    "STEPS",
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

STEPS: dict[str, type[LocalStep]] = {
    "adamw": AdamW,
    "dynamic_sam": DynamicSharpnessAware,
    "lesam": GlobalSharpnessAware,
    "meta": Meta,
    "mixed": Mixed,
    "moreau": Moreau,
    "precision_weighted": PrecisionWeighted,
    "sam": SharpnessAware,
    "sgd": SGD,
    "tethered": Tethered,
    "stabilised_orthogonal": StabilisedOrthogonal,
}
