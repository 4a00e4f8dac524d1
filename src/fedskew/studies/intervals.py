"""Means and intervals of one method under one setting: M methods, S settings, K seeds."""

import math
from dataclasses import dataclass

import numpy as np

from fedskew.studies.scores import LEVEL, Floats, Scores

__all__ = ["Summary", "described", "deviation", "summaries", "t_interval"]


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
    least, most = (0.0, 1.0) if scores.is_share else (-math.inf, math.inf)
    found = []
    for method in scores.methods:
        for setting, values in zip(scores.settings, scores.of_method(method), strict=True):
            mean, sd, low, high = described(values)
            ends = (None, None) if low is None or high is None else (max(low, least), min(high, most))
            runs = len(values), len(scores.seeds) - len(values)
            found.append(Summary(method, setting, *runs, mean, sd, *ends))
    return tuple(found)
