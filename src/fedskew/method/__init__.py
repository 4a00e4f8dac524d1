"""A method is a value: parts and slots, and the ingredients that no single method has alone."""

from fedskew.method.component import (
    SLOTS,
    Component,
    LocalStep,
    Pace,
    Sampler,
    Selector,
    ServerOptimizer,
    Weighting,
    former,
    spec,
)
from fedskew.method.reads import WORDS, Read, suffices
from fedskew.method.value import Method, check_method, method_spec, renamed
from fedskew.types import Gradient

__all__ = [
    "SLOTS", "WORDS", "Component", "Gradient", "LocalStep", "Method", "Pace", "Read", "Sampler", "Selector",
    "ServerOptimizer", "Weighting", "check_method", "former", "method_spec", "renamed", "spec", "suffices",
]  # fmt: skip
