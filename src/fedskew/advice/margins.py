"""What a method gained over the stronger baseline on one measured federation."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedskew.advice.evidence import MEASURES, Setting
from fedskew.records.summary import FITTED
from fedskew.studies.fitted import verdict

__all__ = ["BASELINES", "Margin", "baseline_of", "margin", "predicted", "scores_of", "spreads_of"]

Row = dict[str, Any]
BASELINES = ("fedavg", "fedavg, weighting uniform")


class Margin(NamedTuple):
    """What a method gained over the stronger baseline on one measured federation, paired by seed."""

    federation: str
    place: int  # of the federation among the neighbours, from 1
    mean: float
    low: float | None  # 95 % interval of Student's t over the seeds; None below three
    high: float | None
    seeds: int
    others: dict[str, float]  # the mean by every other measure, each over the baseline that is stronger by it
    worst_recall: float | None  # of the worst class after the last round, mean over the seeds; None: not on record
    worst_recall_baseline: float | None  # the same of the stronger baseline
    fitted: dict[str, Any] | None = None  # mean, low, high of the fitted models, and the verdict on the gain


def scores_of(setting: Setting, measure: str) -> dict[str, dict[int | str, float]]:
    """method -> seed -> score."""
    out: dict[str, dict[int | str, float]] = {}
    for run in setting.runs:
        if (score := getattr(run, measure)) is not None:  # of a fitted model, it may be
            out.setdefault(run.method, {})[run.seed] = score
    return out


def baseline_of(setting: Setting, measure: str) -> str:
    """The baseline with the higher mean."""
    scores = scores_of(setting, measure)
    return max((b for b in BASELINES if b in scores), key=lambda b: statistics.fmean(scores[b].values()))


def margin(setting: Setting, method: str, measure: str, place: int = 0) -> Margin | None:
    """Mean paired difference to the stronger baseline, and its t interval where there are three seeds or more."""
    paired = _paired(setting, method, measure)
    if not paired:
        return None
    mean, low, high = statistics.fmean(paired), *_interval(paired)
    others = {m: statistics.fmean(_paired(setting, method, m)) for m in MEASURES if m != measure}
    worst = _worst(setting, method), _worst(setting, baseline_of(setting, measure))
    return Margin(
        setting.name,
        place,
        mean,
        low,
        high,
        len(paired),
        others,
        *worst,
        _fitted(setting, method, measure, (low, high)),
    )


def _fitted(setting: Setting, method: str, measure: str, raw: tuple[float | None, float | None]) -> Row | None:
    """The margin of the fitted models, and what it says of the raw one; None where none are on record."""
    name = f"{FITTED}{measure}"
    known = scores_of(setting, name)
    if method not in known or not any(b in known for b in BASELINES):
        return None
    paired = _paired(setting, method, name)
    if not paired:
        return None
    low, high = _interval(paired)
    both = None not in (*raw, low, high)
    said = verdict((raw[0] or 0.0, raw[1] or 0.0), (low or 0.0, high or 0.0)) if both else ""
    return {"mean": statistics.fmean(paired), "low": low, "high": high, "verdict": said}


def _interval(paired: list[float]) -> tuple[float | None, float | None]:
    """Student's interval at 95 %, of three seeds or more."""
    from fedskew.studies.intervals import t_interval

    return (t_interval(np.array(paired)) if len(paired) >= 3 else None) or (None, None)


def _paired(setting: Setting, method: str, measure: str) -> list[float]:
    """The method's score less that of the stronger baseline, for each seed that both have."""
    scores = scores_of(setting, measure)
    base = scores[baseline_of(setting, measure)]
    return [v - base[seed] for seed, v in scores.get(method, {}).items() if seed in base]


def _worst(setting: Setting, method: str) -> float | None:
    seen = [r.worst_recall for r in setting.runs if r.method == method and r.worst_recall is not None]
    return statistics.fmean(seen) if seen else None


def spreads_of(setting: Setting, measure: str) -> list[float]:
    """Standard deviation of each method's paired differences, where there are three seeds or more."""
    methods = dict.fromkeys(r.method for r in setting.runs if r.method not in BASELINES)
    paired = [_paired(setting, method, measure) for method in methods]
    return [statistics.stdev(p) for p in paired if len(p) >= 3]


def predicted(margins: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """Where the margin on one more federation should lie in nine of ten cases, if it is like those that are near.

    v -+ t(0.95; m - 1) s sqrt(1 + 1/m), v the weighted mean of the margins, m = (sum w)^2 / sum w^2, and s^2 their
    weighted mean square about v, times m / (m - 1).

    Args:
        margins: (margin, weight) of each near federation on which the method was run.

    Returns:
        Its ends; None below three federations.

    Example:
        >>> low, high = predicted([(0.01, 1.0), (0.02, 1.0), (0.03, 1.0)])
        >>> round(low, 4), round(high, 4)
        (-0.0137, 0.0537)
    """
    if len(margins) < 3:
        return None
    from scipy.stats import t

    total = math.fsum(w for _, w in margins)
    m = total**2 / math.fsum(w**2 for _, w in margins)
    if m <= 1.0 + 1e-9:
        return None
    mean = math.fsum(w * v for v, w in margins) / total
    square = math.fsum(w * (v - mean) ** 2 for v, w in margins) / total * m / (m - 1)
    half = float(t.ppf(0.95, m - 1)) * math.sqrt(square * (1 + 1 / m))
    return mean - half, mean + half
