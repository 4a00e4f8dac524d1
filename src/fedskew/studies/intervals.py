"""Means and intervals: of one method under one setting, and over all settings.

M methods, S settings, K seeds, B resamples. Bootstrap intervals are those of Agarwal et al. (2021) and their package
rliable: runs are drawn with replacement within each setting, and the interval holds the middle of the B statistics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedskew.errors import unknown
from fedskew.studies.bootstrap import LEVEL, RESAMPLES, check_resamples, drawn, percentiles
from fedskew.studies.scores import Floats, Scores

__all__ = [
    "Estimate", "Summary", "aggregate", "described", "deviation", "interquartile_mean", "summaries", "t_interval",
]  # fmt: skip

STATISTICS = ("mean", "iqm", "median")


# One method under one setting


@dataclass(frozen=True)
class Summary:
    """The runs of one method under one setting.

    Attributes:
        method: Label of the method.
        setting: Label of the setting.
        runs: Number of runs n.
        missing: Seeds of the study without a run.
        mean: Mean; None without a run.
        sd: Sample standard deviation, the sum of squares over n - 1; None below two runs.
        low: Lower end of the t interval of the mean; None below two runs.
        high: Upper end.
    """

    method: str
    setting: str
    runs: int
    missing: int
    mean: float | None
    sd: float | None
    low: float | None
    high: float | None


def deviation(values: Floats) -> float:
    """The sample standard deviation, the sum of squares over n - 1; exactly 0 where all n values are equal."""
    return float(np.std(values, ddof=1)) if np.ptp(values) else 0.0


def t_interval(values: Floats) -> tuple[float, float] | None:
    """Student's t interval of the mean at 95 %: m -+ t(n - 1, 0.975) s / sqrt(n).

    Args:
        values: float64 [n], no NaN.

    Returns:
        (low, high); None below two values.

    Example:
        >>> import numpy as np
        >>> from fedskew.studies.intervals import t_interval
        >>> [round(end, 3) for end in t_interval(np.array([1.0, 2.0, 3.0]))]
        [-0.484, 4.484]
    """
    from scipy.special import stdtrit

    n = len(values)
    if n < 2:
        return None
    half = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * deviation(values) / math.sqrt(n)
    mean = float(np.mean(values))
    return mean - half, mean + half


def described(values: Floats) -> tuple[float | None, float | None, float | None, float | None]:
    """(mean, sample standard deviation, low and high end of the t interval); None where there are too few values."""
    if not len(values):
        return None, None, None, None
    return float(np.mean(values)), deviation(values) if len(values) > 1 else None, *(t_interval(values) or (None, None))


def summaries(scores: Scores) -> tuple[Summary, ...]:
    """Mean, standard deviation and t interval of each method under each setting.

    The interval of what is a share, as accuracy is, is cut at 0 and 1: that of two seeds is often wider.

    Args:
        scores: Scores of a study.

    Returns:
        M x S summaries, the settings of the first method first.

    Example:
        >>> from fedskew.studies.intervals import summaries
        >>> from fedskew.studies.scores import Scores
        >>> found = summaries(Scores("accuracy", ("fedavg",), ("alpha 0.1",), (0, 1, 2), [[[0.5, 0.6, 0.7]]]))[0]
        >>> round(found.mean, 3), round(found.low, 3), round(found.high, 3)
        (0.6, 0.352, 0.848)
    """
    return tuple(
        Summary(method, setting, len(values), len(scores.seeds) - len(values), *_bounded(scores, *described(values)))
        for method in scores.methods
        for setting, values in zip(scores.settings, scores.of_method(method), strict=True)
    )


def _bounded(
    scores: Scores, mean: float | None, sd: float | None, low: float | None, high: float | None
) -> tuple[float | None, float | None, float | None, float | None]:
    """The same; the interval of what is a share, as accuracy is, is cut at 0 and 1."""
    if low is None or high is None or not scores.is_share:
        return mean, sd, low, high
    return mean, sd, max(low, 0.0), min(high, 1.0)


# One method over all settings


@dataclass(frozen=True)
class Estimate:
    """A statistic of one method over all settings, with its stratified bootstrap interval.

    Attributes:
        method: Label of the method.
        statistic: ``"mean"``, ``"iqm"`` or ``"median"``.
        value: The statistic; None where the method has no run under one of the settings.
        low: Lower end of the interval; None where a setting has fewer than two runs.
        high: Upper end.
        settings: Number of settings S.
        runs: Number of runs over all settings.
        fewest: Number of runs of the setting that has fewest.
        lacking: Settings without a run of this method.
    """

    method: str
    statistic: str
    value: float | None
    low: float | None
    high: float | None
    settings: int
    runs: int
    fewest: int
    lacking: tuple[str, ...] = ()


def interquartile_mean(values: Floats) -> Floats:
    """The mean of the middle half along the last axis: floor(n / 4) values are cut at each end.

    Args:
        values: float64 [..., n], no NaN.

    Returns:
        float64 [...].

    Example:
        >>> import numpy as np
        >>> from fedskew.studies.intervals import interquartile_mean
        >>> float(interquartile_mean(np.array([0.0, 0.5, 0.6, 9.0])))
        0.55
    """
    from scipy.stats import trim_mean

    return np.asarray(trim_mean(values, 0.25, axis=-1), dtype=np.float64)


def aggregate(
    scores: Scores, statistic: str = "mean", resamples: int = RESAMPLES, seed: int = 0
) -> tuple[Estimate, ...]:
    """A statistic of each method over all settings, with a stratified bootstrap interval.

    "mean" is the mean of the settings' means: each setting counts equally. "iqm" is the mean of the middle half of all
    runs, whatever their setting. "median" is the median of the settings' means: one bad setting does not move it. Of
    one or two settings it is the mean. The interval is that of rliable: B times, the runs of each setting are drawn
    with replacement, and the interval holds the middle of the B statistics. Settings are not drawn, so it speaks of new
    seeds under these settings.

    Args:
        scores: Scores of a study.
        statistic: ``"mean"``, ``"iqm"`` or ``"median"``.
        resamples: B.
        seed: Seed of the draws. All methods share them.

    Returns:
        M estimates.

    Raises:
        ConfigError: The statistic is unknown, or ``resamples`` is below 100.

    Example:
        >>> from fedskew.studies.intervals import aggregate
        >>> from fedskew.studies.scores import Scores
        >>> values = [[[0.5, 0.6, 0.7], [0.3, 0.4, 0.5]]]
        >>> found = aggregate(Scores("accuracy", ("fedavg",), ("alpha 1", "alpha 0.1"), (0, 1, 2), values))[0]
        >>> round(found.value, 3), round(found.low, 3), round(found.high, 3)
        (0.5, 0.433, 0.567)
    """
    check_resamples(resamples)
    if statistic not in STATISTICS:
        raise unknown("statistic", str(statistic), STATISTICS)
    estimates = []
    for method in scores.methods:
        strata = scores.of_method(method)
        sizes = [len(values) for values in strata]
        lacking = tuple(name for name, n in zip(scores.settings, sizes, strict=True) if not n)
        value = None if lacking else float(_statistic(statistic, [values[None] for values in strata])[0])
        low = high = None
        if min(sizes) > 1:
            ends = percentiles(_statistic(statistic, drawn(strata, scores.settings, resamples, seed)))
            low, high = map(float, ends)
        estimates.append(Estimate(method, statistic, value, low, high, len(strata), sum(sizes), min(sizes), lacking))
    return tuple(estimates)


def _statistic(name: str, strata: Sequence[Floats]) -> Floats:
    """The statistic of each resample, [b], of S arrays [b, n_s]."""
    if name == "iqm":
        return interquartile_mean(np.concatenate(strata, axis=1))
    over = np.median if name == "median" else np.mean
    return np.asarray(over([values.mean(axis=1) for values in strata], axis=0), dtype=np.float64)
