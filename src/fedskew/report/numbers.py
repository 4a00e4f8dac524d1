"""The few statistics of a report. M methods, K seeds, S settings; NaN is a run that is missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from fedskew.studies.differences import holm, signed_rank
from fedskew.studies.intervals import deviation, t_interval
from fedskew.studies.ranks import critical_difference
from fedskew.studies.scores import quantum_of, settled

__all__ = ["LEVEL", "Difference", "Estimate", "Ranks", "differences", "estimate", "ranks"]

Floats = npt.NDArray[np.float64]
LEVEL = 0.05  # of a test; intervals cover 1 - LEVEL


class Estimate(NamedTuple):
    """The mean of a method over its seeds."""

    n: int
    mean: float
    sd: float  # of the sample, n - 1; NaN below two seeds
    low: float  # Student's interval; NaN below two seeds
    high: float


class Difference(NamedTuple):
    """A method less the baseline, over the seeds that both have."""

    n: int
    mean: float
    low: float
    high: float
    p: float  # of the exact signed-rank test, two sides; NaN below two pairs
    holm: float  # corrected for all comparisons of the family

    @property
    def significant(self) -> bool:
        """Whether the corrected p is below the level."""
        return self.holm <= LEVEL


class Ranks(NamedTuple):
    """Average ranks of the methods over the settings that all of them have; 1 is the best."""

    settings: int
    average: tuple[float, ...]
    critical: float  # Nemenyi's critical difference at the level; NaN below two settings
    p: float  # of Friedman's test; NaN below two settings or three methods


def estimate(values: Sequence[float] | Floats) -> Estimate:
    """Mean, standard deviation and Student's interval mean ± t_{n-1} sd / sqrt(n).

    Args:
        values: A number for each seed, [K]; NaN is left out.

    Returns:
        The estimate; its mean is NaN without a value.

    Example:
        >>> from fedskew.report.numbers import estimate
        >>> found = estimate([0.5, 0.6, 0.7])
        >>> round(found.mean, 3), round(found.low, 3), round(found.high, 3)
        (0.6, 0.352, 0.848)
    """
    seen = np.asarray(values, dtype=np.float64)
    seen = seen[np.isfinite(seen)]
    n = len(seen)
    span = t_interval(seen, 1 - LEVEL)
    if span is None:
        return Estimate(n, float(seen[0]) if n else math.nan, math.nan, math.nan, math.nan)
    return Estimate(n, float(seen.mean()), deviation(seen), *span)


def differences(values: Floats, baseline: int) -> list[Difference | None]:
    """Paired differences from a baseline, with the exact signed-rank test and Holm's correction over the methods.

    Args:
        values: A number for each method and seed, [M, K].
        baseline: Row of the baseline.

    Returns:
        A difference for each method; None for the baseline.

    Example:
        >>> import numpy as np
        >>> from fedskew.report.numbers import differences
        >>> found = differences(np.array([[0.5, 0.6, 0.7], [0.6, 0.71, 0.79]]), 0)[1]
        >>> round(found.mean, 3), found.p, found.significant
        (0.1, 0.25, False)
    """
    step = quantum_of(values)
    plain = [None if m == baseline else _paired(row - values[baseline], step) for m, row in enumerate(values)]
    family = [None if math.isnan(d.p) else d.p for d in plain if d is not None]
    corrected = iter(math.nan if p is None else p for p in holm(family))
    return [d and d._replace(holm=next(corrected)) for d in plain]


def _paired(difference: Floats, step: float) -> Difference:
    found = estimate(difference)
    if found.n < 2:
        return Difference(found.n, found.mean, math.nan, math.nan, math.nan, math.nan)
    p = signed_rank(settled(difference[np.isfinite(difference)], step))
    return Difference(found.n, found.mean, found.low, found.high, p, p)


def ranks(means: Floats, higher: bool = True) -> Ranks:
    """Average ranks over settings, Nemenyi's critical difference and Friedman's test.

    Two methods differ at the level where their average ranks differ by more than CD = q sqrt(M (M + 1) / (6 S)), q the
    quantile of the studentized range over sqrt(2).

    Args:
        means: Mean of each method under each setting, [M, S]; a setting that a method lacks is left out.
        higher: Whether the highest mean has rank 1.

    Returns:
        The ranks.

    Example:
        >>> import numpy as np
        >>> from fedskew.report.numbers import ranks
        >>> ranks(np.array([[0.9, 0.8], [0.7, 0.6], [0.5, 0.7]])).average
        (1.0, 2.5, 2.5)
    """
    whole = means[:, np.isfinite(means).all(0)]
    methods, settings = whole.shape
    if not settings:
        return Ranks(0, (math.nan,) * methods, math.nan, math.nan)
    placed = stats.rankdata(-whole if higher else whole, axis=0)
    average = tuple(float(r) for r in placed.mean(1))
    if settings < 2 or methods < 2:
        return Ranks(settings, average, math.nan, math.nan)
    critical = critical_difference(methods, settings, 1 - LEVEL)
    tied = bool((placed == placed[:1]).all())
    p = float(stats.friedmanchisquare(*placed).pvalue) if methods > 2 and not tied else math.nan
    return Ranks(settings, average, critical, p)
