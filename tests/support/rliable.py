"""The package rliable, for comparison: installed by the extra dev, and drawing from numpy's global generator."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pytest


def module() -> Any:
    """Its module of intervals and profiles, or skip.

    rliable asks for arch < 8, whose `arch.univariate` pandas 3 no longer lets in. rliable needs `arch.bootstrap` alone,
    so the package arch is entered without its ``__init__``.
    """
    pytest.importorskip("rliable")
    if "arch" not in sys.modules:
        spec = importlib.util.find_spec("arch")
        if spec is None or spec.submodule_search_locations is None:
            pytest.skip("rliable needs arch")
        sys.modules["arch"] = bare = ModuleType("arch")
        bare.__path__ = list(spec.submodule_search_locations)
    from rliable import library

    return library


def intervals(function: Callable[..., Any], scores: Any, resamples: int, seed: int = 0) -> Any:
    """rliable's 95 % intervals of a function of scores [runs, settings], or of two such arrays: [2, ...]."""
    theirs = module()
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002, its option random_state does not reach the draws
    try:
        found: tuple[Any, Mapping[str, Any]] = theirs.get_interval_estimates({"a": scores}, function, reps=resamples)
    finally:
        np.random.set_state(state)  # noqa: NPY002
    return found[1]["a"]
