"""Draws of the stratified bootstrap, the rules of its options, and how numbers stand in sentences.

S settings, n_s runs of setting s, B resamples. A setting's draws depend on the seed, the purpose and its name alone, so
methods share them, and neither the order of the settings nor that of the seeds changes an interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedskew import rng
from fedskew.errors import require
from fedskew.studies.scores import Floats

__all__ = [
    "FEW",
    "NARROW",
    "RESAMPLES",
    "between",
    "check_level",
    "check_resamples",
    "counts",
    "drawn",
    "middle",
    "shown",
]

RESAMPLES = 10_000
FEW = 5  # seeds: with so few, a percentile interval is clearly too narrow, see docs/reference/statistics.md
NARROW = f"Resamples of {FEW} runs or fewer are too alike, so the interval is too narrow."
AT_ONCE = 2**21  # numbers of a chunk of resamples: 16 MB


def shown(value: float) -> str:
    """A number in a sentence: three significant digits."""
    return f"{value:.3g}"


def between(level: float, low: float, high: float) -> str:
    """An interval in a sentence: "95 % interval 0.1 to 0.2"."""
    return f"{100 * level:g} % interval {shown(low)} to {shown(high)}"


def check_level(level: float) -> None:
    """Raise ConfigError unless the level is a number between 0 and 1."""
    good = isinstance(level, int | float) and not isinstance(level, bool) and 0 < level < 1
    require(good, "level", "be in (0, 1)", level, "for example 0.95")


def check_resamples(resamples: int, name: str = "resamples") -> None:
    """Raise ConfigError unless there are 100 resamples or more; ``name`` is that of the parameter."""
    good = isinstance(resamples, int) and not isinstance(resamples, bool) and resamples >= 100
    require(good, name, "be a whole number of at least 100", resamples, "for example 10000")


def drawn(strata: Sequence[Floats], names: Sequence[str], resamples: int, seed: int) -> Iterator[list[Floats]]:
    """Resamples in chunks of b.

    Args:
        strata: Runs of each setting, S arrays [n_s].
        names: Labels of the settings.
        resamples: B.
        seed: Seed of the draws.

    Yields:
        S arrays [b, n_s], drawn with replacement within each setting.
    """
    generators = [rng.generator(seed, "bootstrap", name) for name in names]
    chunk = max(1, AT_ONCE // max(1, sum(map(len, strata))))
    for start in range(0, resamples, chunk):
        b = min(chunk, resamples - start)
        yield [v[g.integers(len(v), size=(b, len(v)))] for v, g in zip(strata, generators, strict=True)]


def counts(n: int, resamples: int, seed: int, *purpose: str) -> Floats:
    """How often each of n runs is drawn in each resample, float64 [B, n]: n draws with replacement."""
    return rng.generator(seed, *purpose).multinomial(n, np.full(n, 1 / n), size=resamples).astype(np.float64)


def middle(statistics: Floats, level: float) -> tuple[float, float]:
    """The percentile interval of the statistics of B resamples, float64 [B]."""
    low, high = np.quantile(statistics, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
