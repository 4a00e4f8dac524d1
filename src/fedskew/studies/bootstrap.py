"""Draws of the stratified bootstrap, and its percentile intervals.

S settings, n_s runs of setting s, B resamples. A setting's draws depend on the seed, the purpose and its name alone, so
methods share them, and neither the order of the settings nor that of the seeds changes an interval.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedskew import rng
from fedskew.errors import require
from fedskew.studies.scores import Floats

RESAMPLES = 10_000
LEVEL = 0.95  # of every interval; tests are at 1 - LEVEL
ALPHA = 0.05
FEW = 5  # seeds: with so few, a percentile interval is clearly too narrow, see docs/reference/statistics.md
NARROW = f"Resamples of {FEW} runs or fewer are too similar, so the interval is too narrow."


def check_resamples(resamples: int, name: str = "resamples") -> None:
    """Raise ConfigError unless there are 100 resamples or more; ``name`` is that of the parameter."""
    good = isinstance(resamples, int) and not isinstance(resamples, bool) and resamples >= 100
    require(good, name, "be a whole number of at least 100", resamples, "for example 10000")


def drawn(strata: Sequence[Floats], names: Sequence[str], resamples: int, seed: int) -> list[Floats]:
    """Resamples with replacement within each setting.

    Args:
        strata: Runs of each setting, S arrays [n_s].
        names: Labels of the settings.
        resamples: B.
        seed: Seed of the draws.

    Returns:
        S arrays [B, n_s].
    """
    return [
        runs[rng.generator(seed, "bootstrap", name).integers(len(runs), size=(resamples, len(runs)))]
        for name, runs in zip(names, strata, strict=True)
    ]


def percentiles(statistics: Floats) -> tuple[Floats, Floats]:
    """The percentile interval of the statistics of B resamples, float64 [B, ...]: two arrays [...]."""
    low, high = np.quantile(statistics, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return low, high
