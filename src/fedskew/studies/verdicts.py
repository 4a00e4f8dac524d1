"""One rule for what a gain over the baseline is: of the method's own, or what a cheap control of the baseline has, too.

Four models of a run are compared, each with the same model of the baseline: *raw*, the model of the last rounds;
*averaged*, the mean of the last ten global models; *fitted*, raw with fitted biases and a temperature; *both*, the mean
model, fitted. *Work* compares *both* with a baseline that trains for as many local steps and client contacts. Runs of
before the mean models have raw and fitted alone: the rule says of them what it can.

Intervals are Student's, of paired differences, at Holm's levels over the methods of a table: with p-values sorted
upwards, the j-th of m methods has level 1 - alpha / (m - j + 1) until the first that is not rejected, whose level the
others share. An interval excludes 0 exactly where Holm's procedure rejects.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedskew.studies.scores import ALPHA, FEWEST, NO_VERDICT, deviation

POINT = 0.01  # a gain that is surely below one point counts as none; of a loss, below a hundredth of a nat
RAW = "raw"
# by control, cheapest first: what a gain is that this control undoes
UNDONE = {
    "averaged": "noise of the last rounds",
    "fitted": "a bias",
    "both": "noise of the last rounds and a bias",
    "work": "more work",
}
GAIN, LOSS, UNSEEN = "a gain", "a loss", "no gain shown"
OWN, OPEN = "of its own", "open"


class Interval(NamedTuple):
    """A mean of paired differences, oriented so that more is better.

    Attributes:
        mean: Over the pairs.
        low: Lower end.
        high: Upper end.
        pairs: Number of pairs n.
    """

    mean: float
    low: float
    high: float
    pairs: int

    @property
    def gains(self) -> bool:
        """Whether it lies above 0."""
        return self.low > 0

    @property
    def shows(self) -> str:
        """What it shows by itself: "a gain", "a loss", "no gain shown"; "no verdict" below `FEWEST` pairs."""
        if self.pairs < FEWEST:
            return NO_VERDICT
        return GAIN if self.gains else LOSS if self.high < 0 else UNSEEN

    @property
    def undone(self) -> bool:
        """Whether nothing is left: it includes 0, or lies below, and ends below one point."""
        return self.low <= 0 and self.high < POINT


def intervals(values: Mapping[str, Sequence[float]]) -> dict[str, Interval]:
    """The intervals of a family of methods, at Holm's levels.

    Args:
        values: Paired differences of each method, oriented so that more is better; finite. Methods with fewer than two
            pairs have no interval.

    Returns:
        By method.

    Example:
        >>> from fedskew.studies.verdicts import intervals
        >>> by_name = intervals({"a": [0.03, 0.05, 0.04, 0.05, 0.03], "b": [0.01, -0.02, 0.0, 0.01, 0.01]})
        >>> {name: (round(one.low, 3), round(one.high, 3)) for name, one in by_name.items()}
        {'a': (0.024, 0.056), 'b': (-0.014, 0.018)}
    """
    from scipy.special import stdtr, stdtrit

    moments = {}
    for name, each in values.items():
        array = np.sort(np.asarray(each, dtype=np.float64))  # no sum depends on the order of the seeds
        if len(array) > 1:
            moments[name] = float(array.mean()), deviation(array) / math.sqrt(len(array)), len(array)

    def p_of(name: str) -> float:
        mean, error, pairs = moments[name]
        if error == 0:
            return 1.0 if mean == 0 else 0.0
        return float(2 * stdtr(pairs - 1, -abs(mean) / error))

    ordered, by_name = sorted(moments, key=lambda name: (p_of(name), name)), dict[str, Interval]()
    levels = [ALPHA / (len(ordered) - place) for place in range(len(ordered))]
    kept = next((place for place, name in enumerate(ordered) if p_of(name) > levels[place]), len(ordered))
    for place, name in enumerate(ordered):
        mean, error, pairs = moments[name]
        reach = error * float(stdtrit(pairs - 1, 1 - levels[min(place, kept)] / 2)) if error else 0.0
        by_name[name] = Interval(mean, mean - reach, mean + reach, pairs)
    return {name: by_name[name] for name in values if name in by_name}


def verdict(of: Mapping[str, Interval], dear: bool = False) -> str:
    """What the intervals of a method say together.

    Args:
        of: By model: "raw", and as many of `UNDONE` as were measured.
        dear: Whether the method takes more work than the baseline, or work that is not known. Without the control of
            more work its gain is then not of its own, but open.

    Returns:
        "of its own" where the gain shows over every control; a control's words of `UNDONE` where it undoes the gain,
        the cheapest first; "open", and which control is missing, where nothing that was measured undoes it; "no gain
        shown"; "a loss"; "no verdict" below `FEWEST` seeds.

    Example:
        >>> from fedskew.studies.verdicts import Interval, verdict
        >>> raw, none = Interval(0.05, 0.03, 0.07, 5), Interval(0.0, -0.01, 0.005, 5)
        >>> verdict({"raw": raw, "averaged": none, "fitted": none, "both": none})
        'noise of the last rounds'
        >>> verdict({"raw": raw, "fitted": none}), verdict({"raw": raw, "fitted": raw})
        ('a bias', 'open: not averaged')
    """
    raw = of.get(RAW)
    if raw is None or min(interval.pairs for interval in of.values()) < FEWEST:
        return NO_VERDICT
    if not raw.gains:
        return raw.shows
    measured = [name for name in UNDONE if name in of]
    if undone := next((name for name in measured if of[name].undone), None):
        return UNDONE[undone]
    if "both" not in of:
        lacking = [name for name in ("averaged", "fitted") if name not in of]
        return f"{OPEN}: not {' or '.join(lacking) or 'averaged and fitted'}"
    if dear and "work" not in of:
        return f"{OPEN}: work not matched"
    return OWN if all(of[name].gains for name in measured) else OPEN
