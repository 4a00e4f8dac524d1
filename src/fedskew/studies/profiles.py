"""Performance profiles and the probability of improvement, as Agarwal et al. (2021) and their package rliable.

S settings, T thresholds, B resamples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedskew.errors import require
from fedskew.studies.bootstrap import RESAMPLES, check_resamples, counts, percentiles
from fedskew.studies.scores import Floats, Scores, quantum_of

__all__ = ["Improvement", "Profile", "improvement", "profiles"]

PROFILE_RESAMPLES = 2_000  # as rliable

# Performance profiles


@dataclass(frozen=True, eq=False)
class Profile:
    """The share of a method's runs that are better than a threshold, for T thresholds.

    Attributes:
        method: Label of the method.
        thresholds: float64 [T], increasing.
        share: Share of runs strictly better than each threshold, the mean over settings. float64 [T].
        low: Lower edge of the band at each threshold, float64 [T]; None where a setting has fewer than two runs.
        high: Upper edge.
        lacking: Settings without a run of this method, which are left out.
    """

    method: str
    thresholds: Floats
    share: Floats
    low: Floats | None
    high: Floats | None
    lacking: tuple[str, ...] = ()


def profiles(
    scores: Scores, thresholds: Sequence[float] | Floats, resamples: int = PROFILE_RESAMPLES, seed: int = 0
) -> tuple[Profile, ...]:
    """The performance profile of each method: the share of runs with a score better than tau.

    share(tau) = mean over settings of |{k : score_k > tau}| / n, or of score_k < tau where lower is better. A profile
    that lies above another everywhere dominates it. The band is the stratified bootstrap's at each tau alone: the whole
    curve leaves a 95 % band more often than in 5 % of studies.

    Args:
        scores: Scores of a study.
        thresholds: Values of tau, increasing.
        resamples: B.
        seed: Seed of the draws.

    Returns:
        M profiles.

    Raises:
        ConfigError: Thresholds are not finite or do not increase, or a number is out of its range.

    Example:
        >>> from fedskew.studies.profiles import profiles
        >>> from fedskew.studies.scores import Scores
        >>> found = profiles(Scores("accuracy", ("fedavg",), ("alpha 0.1",), (0, 1), [[[0.5, 0.7]]]), [0.4, 0.6, 0.7])
        >>> found[0].share.tolist()
        [1.0, 0.5, 0.0]
    """
    check_resamples(resamples)
    taus: Floats = np.asarray(thresholds, dtype=np.float64)
    increase = taus.ndim == 1 and taus.size > 0 and np.isfinite(taus).all() and (np.diff(taus) > 0).all()
    require(bool(increase), "thresholds", "be increasing finite numbers", taus.tolist())
    curves = []
    for method in scores.methods:
        have = [(name, v) for name, v in zip(scores.settings, scores.of_method(method), strict=True) if len(v)]
        lacking = tuple(name for name in scores.settings if name not in dict(have))
        above = [v[:, None] > taus if scores.higher_is_better else v[:, None] < taus for _, v in have]  # [n_s, T]
        if not have:
            curves.append(Profile(method, taus, np.full(len(taus), math.nan), None, None, lacking))
            continue
        share = np.mean([a.mean(axis=0) for a in above], axis=0)
        low = high = None
        if min(map(len, above)) > 1:
            shares: Floats = np.zeros((resamples, len(taus)))
            for (name, v), a in zip(have, above, strict=True):
                shares += counts(len(v), resamples, seed, "profile", name) @ a / (len(v) * len(have))
            low, high = percentiles(shares)
        curves.append(Profile(method, taus, share, low, high, lacking))
    return tuple(curves)


# Probability of improvement


@dataclass(frozen=True)
class Improvement:
    """The probability that a run of a method is better than a run of the baseline.

    Attributes:
        method: Label of the method.
        baseline: Label of the baseline.
        value: The probability; None where no setting has runs of both.
        low: Lower end of the stratified bootstrap interval; None where a setting has fewer than two runs of one.
        high: Upper end.
        settings: Number of settings with runs of both.
        fewest: The smallest number of runs of either under one of these settings.
    """

    method: str
    baseline: str
    value: float | None
    low: float | None
    high: float | None
    settings: int
    fewest: int


def improvement(scores: Scores, baseline: str, resamples: int = RESAMPLES, seed: int = 0) -> tuple[Improvement, ...]:
    """The probability of improvement of each method over a baseline, as rliable defines it.

    P = mean over settings of U / (n m), U = |{(i, j) : x_i better than y_j}| + |{(i, j) : x_i = y_j}| / 2: the
    Mann-Whitney statistic. It compares each run of one with each run of the other, and does not pair seeds. It says how
    often a method is better, not by how much.

    Args:
        scores: Scores of a study.
        baseline: Label of the baseline.
        resamples: B; runs of both are drawn with replacement, independently and within each setting.
        seed: Seed of the draws.

    Returns:
        One result for each method but the baseline.

    Raises:
        ConfigError: The baseline is unknown, or a number is out of its range.

    Example:
        >>> from fedskew.studies.profiles import improvement
        >>> from fedskew.studies.scores import Scores
        >>> values = [[[0.5, 0.6, 0.7]], [[0.6, 0.7, 0.8]]]
        >>> found = improvement(Scores("accuracy", ("fedavg", "fedla"), ("alpha 0.1",), (0, 1, 2), values), "fedavg")
        >>> round(found[0].value, 3)
        0.778
    """
    check_resamples(resamples)
    sign = 1.0 if scores.higher_is_better else -1.0
    step, baseline_runs = quantum_of(scores.values), scores.of_method(baseline)
    compared = []
    for method in (name for name in scores.methods if name != baseline):
        probabilities, drawn, sizes = [], [], []
        for name, x, y in zip(scores.settings, scores.of_method(method), baseline_runs, strict=True):
            if not len(x) or not len(y):
                continue
            ahead = sign * (x[:, None] - y)  # [n, m]
            better = np.where(np.abs(ahead) <= step, 0.5, (ahead > 0).astype(np.float64))
            probabilities.append(float(better.mean()))
            sizes += [len(x), len(y)]
            if min(sizes) > 1:
                a, b = (counts(len(v), resamples, seed, "improvement", who, name) for who, v in (("x", x), ("y", y)))
                drawn.append(((a @ better) * b).sum(axis=1) / (len(x) * len(y)))
        value = float(np.mean(probabilities)) if probabilities else None
        low = high = None
        if probabilities and len(drawn) == len(probabilities):
            low, high = map(float, percentiles(np.mean(drawn, axis=0)))
        fewest = min(sizes, default=0)
        compared.append(Improvement(method, baseline, value, low, high, len(probabilities), fewest))
    return tuple(compared)
