"""Steps: how one mini-batch becomes a step."""

from __future__ import annotations

from fedskew.component import LocalStep
from fedskew.methods.fedlesam import GlobalSharpnessAware
from fedskew.methods.fedsmoo import DynamicSharpnessAware
from fedskew.methods.fedsol import StabilisedOrthogonal
from fedskew.methods.perfedavg import Meta
from fedskew.methods.pfedme import Moreau
from fedskew.methods.precisionweighted import PrecisionWeighted
from fedskew.shared.sharpness import SharpnessAware
from fedskew.shared.steps import SGD

__all__ = [
    "SGD",
    "STEPS",
    "DynamicSharpnessAware",
    "GlobalSharpnessAware",
    "Meta",
    "Moreau",
    "PrecisionWeighted",
    "SharpnessAware",
    "StabilisedOrthogonal",
]

STEPS: dict[str, type[LocalStep]] = {
    "dynamic_sam": DynamicSharpnessAware,
    "lesam": GlobalSharpnessAware,
    "meta": Meta,
    "moreau": Moreau,
    "precision_weighted": PrecisionWeighted,
    "sam": SharpnessAware,
    "sgd": SGD,
    "stabilised_orthogonal": StabilisedOrthogonal,
}
