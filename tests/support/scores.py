"""Scores with made-up names."""

from __future__ import annotations

from fedskew import rng
from fedskew.studies.scores import Floats, Scores


def study(values: Floats, higher_is_better: bool = True) -> Scores:
    """Scores of an array [M, S, K]."""
    m, s, k = values.shape
    names = tuple(f"m{i}" for i in range(m)), tuple(f"s{i}" for i in range(s))
    return Scores("accuracy", *names, tuple(range(k)), values, higher_is_better)


def drawn(*shape: int, seed: int = 0) -> Floats:
    """Draws around 0.6."""
    return rng.generator(seed, "test").normal(0.6, 0.1, size=shape)
