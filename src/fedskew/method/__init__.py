"""Methods as values; hooks and names of ingredients stay, how they are held together may change.

Here stand the ingredients that no single method has alone, too.
"""

from fedskew.method.component import (
    SLOTS,
    Component,
    LocalStep,
    Pace,
    Sampler,
    Selector,
    ServerOptimizer,
    Sums,
    Weighting,
    former,
    spec,
)
from fedskew.method.keeping import Frozen, Private
from fedskew.method.paces import Fixed
from fedskew.method.parts import InitialHead
from fedskew.method.reads import WORDS, Read, suffices
from fedskew.method.samplers import Shuffle
from fedskew.method.selectors import draw_clients
from fedskew.method.steps import SGD, BesideOwn, SharpnessAware, decayed
from fedskew.method.value import Method, check_method, method_spec, renamed
from fedskew.method.weightings import Size, Uniform, Wrapping, convex
from fedskew.types import Gradient

__all__ = [
    "SGD", "SLOTS", "WORDS", "BesideOwn", "Component", "Fixed", "Frozen", "Gradient", "InitialHead", "LocalStep",
    "Method", "Pace", "Private", "Read", "Sampler", "Selector", "ServerOptimizer", "SharpnessAware", "Shuffle", "Size",
    "Sums", "Uniform", "Weighting", "Wrapping", "check_method", "convex", "decayed", "draw_clients", "former",
    "method_spec", "renamed", "spec", "suffices",
]  # fmt: skip
