"""When a printed number agrees with ours: the rules of evidence.

A printed number is held against ours by its gain over the reference method of its table, paired by seed. Levels are
judged apart. docs/reference/statistics.md has the test.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedskew.seam import TWO_TESTS, Equivalence, equivalence
from fedskew_papers.printed import Printed

POINTS = 1.0  # of accuracy: gains that are no further apart are the same
SHARE = 0.1  # of a ratio of rounds or rows
Seeds = Mapping[int, float]  # a value for each seed


@dataclass(frozen=True)
class Gain:
    """The gain of a method over the reference method of its table, printed and ours.

    Attributes:
        reference: The method that both are compared with.
        printed: Printed gain in points; of counts, the printed ratio to the reference.
        ours: Mean over the seeds of ours; of ratios the geometric mean.
        low: Lower end of the 90 % interval of ours less the printed gain; of ratios, of ours over the printed ratio.
        high: Upper end.
        seeds: Pairs of ours.
        verdict: `Equivalence.verdict`.
        fitted: Ours under fitted biases and a temperature, in points; None where a run of them has none.
        times: Whether it is a ratio.
    """

    reference: str
    printed: float
    ours: float
    low: float | None
    high: float | None
    seeds: int
    verdict: str
    fitted: float | None = None
    times: bool = False

    @property
    def texts(self) -> tuple[str, str, str, str]:
        """Printed gain, ours, the interval of what is between them, and the fitted gain, for a table."""
        if self.times:
            span = "" if self.low is None else f"{self.low:.2f} to {self.high:.2f} times"
            return f"{self.printed:.2f} times", f"{self.ours:.2f} times", span, ""
        span = "" if self.low is None else f"{self.low:+z.1f} to {self.high:+z.1f}"
        fitted = "" if self.fitted is None else f"{self.fitted:+z.1f}"
        return f"{self.printed:+z.1f}", f"{self.ours:+z.1f}", span, fitted


def gain_of(number: Printed, reference: Printed | None, ours: Seeds, base: Seeds, name: str = "") -> Gain | None:
    """The gain of a number over that of the reference, printed and ours; None where there is nothing to compare.

    It is in points; of counts it is the logarithm of a ratio. A number that is itself a comparison ("A minus B", a
    change in percent) needs no reference. Where a spread is not printed, or the number of runs is not, the printed gain
    is taken as exact.

    Args:
        number: The printed number.
        reference: That of the reference method in the same place.
        ours: Our values of the number.
        base: Our values of the reference.
        name: The reference's name, where it has no printed number of its own.

    Example:
        >>> from fedskew_papers.printed import printed
        >>> from fedskew_papers.rules import gain_of
        >>> fedavg, fedga = (next(p for p in printed() if p.id == f"fedga-{i}") for i in ("049", "054"))
        >>> gain = gain_of(fedga, fedavg, dict.fromkeys(range(5), 0.942), dict.fromkeys(range(5), 0.942))
        >>> gain.reference, gain.verdict
        ('FedAvg', 'agrees')
    """
    change, spreads = number.metric.endswith("_change_pct"), tuple[float, ...]()
    times = number.counts or change
    if number.mean is None or not ours:
        return None
    if " minus " in number.method:
        target, each, label = number.mean, list(ours.values()), name
    elif change:
        target, each = math.log1p(number.mean / 100), [math.log1p(value / 100) for value in ours.values()]
        label = name if reference is None else reference.method
    elif reference is None or reference.mean is None or reference is number:
        return None
    else:
        label, pairs = reference.method, [(ours[seed], base[seed]) for seed in sorted(set(ours) & set(base))]
        if number.counts and min(number.mean, reference.mean) <= 0:
            return None
        if number.counts:
            target = math.log(number.mean / reference.mean)
            with np.errstate(divide="ignore", invalid="ignore"):
                each = [float(np.log(np.float64(a)) - np.log(np.float64(b))) for a, b in pairs]
        else:
            target, each = (number.points * (number.mean - reference.mean)), [number.points * (a - b) for a, b in pairs]
            printed = tuple(number.points * s for s in (number.spread, reference.spread) if s is not None)
            spreads = printed if len(printed) == 2 and number.runs == reference.runs >= 2 else ()
    if not each:
        return None
    compared = equivalence(each, target, math.log1p(SHARE) if times else POINTS, spreads, number.runs if spreads else 0)
    turn = math.exp if times else float
    low, high = (None if end is None else turn(end) for end in (compared.low, compared.high))
    return Gain(label, turn(target), turn(compared.mean), low, high, len(each), compared.verdict, times=times)


def at_level(number: Printed, each: Sequence[float]) -> Equivalence:
    """Whether our values have the printed mean, within a point or, of counts, within a tenth: as one interval.

    The spread of the printed mean is part of it where the number of runs is printed too. One value of ours then counts
    as spread as the printed runs are; without a printed spread it has no interval.

    Args:
        number: The printed number.
        each: Ours, one for each seed.

    Example:
        >>> from fedskew_papers.printed import printed
        >>> from fedskew_papers.rules import at_level
        >>> number = next(p for p in printed() if p.id == "fedga-001")  # 0.799 with its spread over 5 runs
        >>> at_level(number, [0.9, 0.91, 0.9, 0.91, 0.9]).verdict, at_level(number, [0.9, 0.91, 0.9]).verdict
        ('differs', 'no verdict')
    """
    from scipy.special import stdtrit

    assert number.mean is not None
    if number.counts:
        with np.errstate(divide="ignore"):
            logs = np.log(np.array([*each, number.mean], dtype=np.float64)).tolist()
        return equivalence(logs[:-1], logs[-1], math.log1p(SHARE))
    spread = number.points * (number.spread or 0.0)
    known = (spread,) if spread and number.runs >= 2 else ()
    points = [number.points * value for value in each]
    comparison = equivalence(points, number.points * number.mean, POINTS, known, number.runs if known else 0)
    if len(points) > 1 or not known or not math.isfinite(points[0]):
        return comparison
    half = float(stdtrit(number.runs - 1, (1 + TWO_TESTS) / 2)) * spread * math.sqrt(1 + 1 / number.runs)
    apart = comparison.mean - comparison.target
    return replace(comparison, apart=apart, low=apart - half, high=apart + half)


def level_of(number: Printed, ours: float, ends: tuple[float, float] | None) -> str:
    """Whether ours is at the printed level: "within" or "outside".

    With a printed spread s and an interval of ours, it is if [low, high] and [mean - s, mean + s] overlap; else if both
    are within one point, or within a tenth of the printed number where it counts.

    Example:
        >>> from fedskew_papers.printed import printed
        >>> from fedskew_papers.rules import level_of
        >>> number = printed()[2]  # FedBal's Table 2: 54.81, in percent
        >>> level_of(number, 55.5, None), level_of(number, 57.0, None)
        ('within', 'outside')
    """
    if number.mean is None or math.isnan(ours):
        return "outside"
    if number.spread is not None and ends is not None:
        near = ends[0] <= number.mean + number.spread and number.mean - number.spread <= ends[1]
        return "within" if near else "outside"
    far = SHARE * abs(number.mean) if number.counts else POINTS / _unit(number)
    return "within" if abs(ours - number.mean) <= far * (1 + 1e-9) else "outside"


def _unit(number: Printed) -> float:
    """Points in a unit of a metric; a weight is a share as accuracy is."""
    return 100.0 if "weight" in number.metric else number.points
