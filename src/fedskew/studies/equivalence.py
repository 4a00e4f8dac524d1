"""Whether a mean is a given number: two one-sided tests against a margin, read off one interval.

n values of ours, a target, a margin on either side of it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedskew.errors import require
from fedskew.studies.intervals import deviation

__all__ = ["Equivalence", "equivalence"]

LEVEL = 0.90  # of the interval: each of its two tests is at 5 %


@dataclass(frozen=True)
class Equivalence:
    """A mean beside a target.

    Attributes:
        mean: Mean of the n values.
        target: The number that it is held against.
        apart: ``mean`` less ``target``.
        low: Lower end of the interval of ``apart``; None below two values, or where one is not finite.
        high: Its upper end.
        margin: What counts as the same.
    """

    mean: float
    target: float
    apart: float
    low: float | None
    high: float | None
    margin: float

    @property
    def verdict(self) -> str:
        """ "agrees", "differs" or "not resolved": the interval inside of the margin, outside of it, or across an end.

        Values of which none is finite and all have one sign differ: a run that never gets there is no near miss.
        """
        if self.low is None or self.high is None:
            return "differs" if math.isinf(self.apart) else "not resolved"
        if -self.margin <= self.low and self.high <= self.margin:
            return "agrees"
        return "differs" if self.low > self.margin or self.high < -self.margin else "not resolved"


def equivalence(
    values: Sequence[float], target: float, margin: float, spreads: Sequence[float] = (), runs: int = 0
) -> Equivalence:
    """Two one-sided tests (TOST) of "the mean is within the margin of the target", as one interval.

    d = mean - target, with d -+ t SE, SE^2 = s^2 / n + sum over j of s_j^2 / m. t is the quantile 0.95 of
    Student's t on the degrees of freedom of Welch and Satterthwaite: SE^4 over the sum of each squared term by its own
    n - 1 or m - 1. A 90 % interval inside the margin rejects "further apart than the margin" at 5 %, and one
    outside the margin rejects "no further apart" at 5 %.

    Args:
        values: Our n values, such as a gain paired by seed.
        target: The number to compare with.
        margin: Largest difference that counts as equal, above 0.
        spreads: Standard deviations s_j of the terms of the target, each over ``runs`` runs; none if the target is
            exact. A printed gain has two, which count as independent: if their runs share seeds, the interval is too
            wide, so fewer values agree and fewer differ.
        runs: m, at least two with spreads.

    Raises:
        ConfigError: There is no value, or an option breaks a rule.

    Example:
        >>> from fedskew.studies.equivalence import equivalence
        >>> found = equivalence([2.0, 2.3, 1.9, 2.1, 2.2], target=2.5, margin=1)
        >>> round(found.low, 2), round(found.high, 2), found.verdict
        (-0.55, -0.25, 'agrees')
    """
    from scipy.special import stdtrit

    require(len(values) > 0, "values", "hold a number", list(values))
    require(margin > 0, "margin", "be above 0", margin)
    require(runs >= 2 or not len(spreads), "runs", "be at least 2 beside spreads", runs)
    held = np.asarray(values, dtype=np.float64)
    n, mean = len(held), float(np.mean(held))
    apart = mean - target
    if n < 2 or not np.isfinite(held).all() or not math.isfinite(target):
        alike = n > 1 and not np.isfinite(held).any() and not math.isnan(mean) and math.isfinite(target)
        return Equivalence(mean, target, apart if alike else math.nan, None, None, margin)
    terms = [(deviation(held) ** 2 / n, n - 1), *((spread**2 / runs, runs - 1) for spread in spreads)]
    whole = sum(term for term, _ in terms)
    below = sum(term**2 / freedom for term, freedom in terms)
    half = float(stdtrit(whole**2 / below, (1 + LEVEL) / 2)) * math.sqrt(whole) if below else 0.0
    return Equivalence(mean, target, apart, apart - half, apart + half, margin)
