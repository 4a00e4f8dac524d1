"""Paired differences against a baseline: their interval, two tests, Holm's correction, and what may be concluded.

Runs of two methods with the same seed are a pair: they share partition, initial weights and clients. n pairs, m methods
compared with the baseline.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedskew.errors import require
from fedskew.studies.intervals import described
from fedskew.studies.scores import ALPHA, Floats, Scores, quantum_of, settled

__all__ = ["Difference", "differences", "holm", "signed_rank", "smallest_p"]


@dataclass(frozen=True)
class Difference:
    """A method less the baseline, over the pairs of one setting or of all.

    Attributes:
        method: Label of the method.
        baseline: Label of the baseline.
        setting: Label of the setting; None for the comparison over all settings.
        metric: Name of the metric.
        higher_is_better: False for a loss or a cost.
        seeds: Seeds of the pairs [n].
        values: Difference of each pair [n], method less baseline; over settings, its mean over the settings.
        dropped: Seeds of the study without a pair, since a run is missing.
        settings: Number of settings that count: 1, or those with pairs.
        mean: Mean difference; None without a pair.
        sd: Sample standard deviation; None below two pairs.
        low: Lower end of the t interval of the mean; None below two pairs.
        high: Upper end.
        p: p of the exact signed-rank test, two-sided; None without a pair.
        comparisons: m, the methods among which Holm's correction is made.
        p_holm: ``p`` after Holm's correction.
    """

    method: str
    baseline: str
    setting: str | None
    metric: str
    higher_is_better: bool
    seeds: tuple[int, ...]
    values: tuple[float, ...]
    dropped: int
    settings: int
    mean: float | None
    sd: float | None
    low: float | None
    high: float | None
    p: float | None
    comparisons: int = 1
    p_holm: float | None = None

    @property
    def pairs(self) -> int:
        """Number of pairs n."""
        return len(self.values)

    @property
    def significant(self) -> bool:
        """Whether the signed-rank test, corrected by Holm, finds a difference."""
        return self.p_holm is not None and self.p_holm <= ALPHA

    @property
    def verdict(self) -> str:
        """ "better" or "worse" than the baseline, or "open"."""
        if not self.significant:
            return "open"
        return "better" if (_leaning(np.array(self.values)) > 0) == self.higher_is_better else "worse"


def differences(scores: Scores, baseline: str) -> tuple[Difference, ...]:
    """Compare every method with a baseline, under each setting and over all of them.

    Over settings, the unit is the seed: the difference of a seed is its mean over the settings, since its runs under
    several settings share draws. A seed counts where both methods have all runs. Holm's correction is made over the
    methods, for each setting by itself.

    Args:
        scores: Scores of a study.
        baseline: Label of the baseline.

    Returns:
        (M - 1) x S differences, the methods of the first setting first; then, of several settings, M - 1 over all.

    Raises:
        ConfigError: The baseline is unknown.

    Example:
        >>> from fedskew.studies.differences import differences
        >>> from fedskew.studies.scores import Scores
        >>> values = [[[0.50, 0.52, 0.51]], [[0.53, 0.56, 0.53]]]
        >>> found = differences(Scores("accuracy", ("fedavg", "fedla"), ("alpha 0.1",), (0, 1, 2), values), "fedavg")[0]
        >>> round(found.mean, 3), found.p, found.verdict
        (0.03, 0.25, 'open')
    """
    gained = scores.values - scores.values[scores.index(baseline)]  # [M, S, K], NaN where either run is missing
    compared: list[Difference] = []
    others = [i for i, method in enumerate(scores.methods) if method != baseline]
    for s, setting in enumerate(scores.settings):
        compared += _corrected([_difference(scores, i, baseline, setting, gained[i, s], 1) for i in others])
    if len(scores.settings) > 1:
        family = []
        for i in others:
            have = ~np.isnan(gained[i]).all(axis=1)  # a setting that refuses a method takes no seed from the others
            mean = gained[i][have].mean(axis=0) if have.any() else np.full(len(scores.seeds), math.nan)
            family.append(_difference(scores, i, baseline, None, mean, int(have.sum())))
        compared += _corrected(family)
    return tuple(compared)


def _difference(
    scores: Scores, i: int, baseline: str, setting: str | None, gained: Floats, settings: int
) -> Difference:
    """The difference of one method, of what each seed gained [K]."""
    held = ~np.isnan(gained)
    seeds = tuple(seed for seed, there in zip(scores.seeds, held, strict=True) if there)
    paired = settled(gained[held], quantum_of(scores.values))
    ordered = np.sort(paired)  # no sum depends on the order of the seeds
    n = len(paired)
    named = scores.methods[i], baseline, setting, scores.metric, scores.higher_is_better
    dropped, p = len(scores.seeds) - n, signed_rank(ordered) if n else None
    return Difference(*named, seeds, tuple(paired.tolist()), dropped, settings, *described(ordered), p)


def _corrected(family: list[Difference]) -> list[Difference]:
    """The same with Holm's correction among them; those without a p are no comparison."""
    comparisons = max(sum(d.p is not None for d in family), 1)
    corrected = holm([d.p for d in family])
    return [dataclasses.replace(d, comparisons=comparisons, p_holm=p) for d, p in zip(family, corrected, strict=True)]


# The tests


def signed_rank(values: Sequence[float] | Floats) -> float:
    """The two-sided p of Wilcoxon's signed-rank test, exact.

    Differences that are zero are left out; equal sizes share their mean rank. p is 2 min(P(W <= w), P(W >= w)), at most
    1, where every difference has either sign with probability 1/2, and w is the sum of the ranks of positive ones. This
    is exact with ties, too, which the table of the untied test is not.

    Args:
        values: Differences of n pairs, not NaN.

    Returns:
        p; 1 where no pair differs. It is at least 2 / 2^n.

    Raises:
        ConfigError: There is no value, or one is not finite.

    Example:
        >>> from fedskew.studies.differences import signed_rank
        >>> signed_rank([0.1, 0.2, 0.3, 0.4, 0.5])
        0.0625
    """
    found = _finite(values)
    ranks = _doubled_ranks(found)
    if not ranks.size:
        return 1.0
    chance = np.zeros(int(ranks.sum()) + 1)  # of each sum of doubled ranks
    chance[0] = 1.0
    for rank in ranks:
        chance = (chance + np.concatenate([np.zeros(rank), chance[:-rank]])) / 2
    w = int(ranks[found[found != 0] > 0].sum())
    return min(1.0, 2 * min(float(chance[: w + 1].sum()), float(chance[w:].sum())))


def _doubled_ranks(values: Floats) -> NDArray[np.int64]:
    """Twice the rank of each size among the values that are not zero; whole numbers, since ties share a mean."""
    from scipy.stats import rankdata

    sizes = np.abs(values[values != 0])
    if not sizes.size:
        return np.empty(0, dtype=np.int64)
    ranks = rankdata(settled(sizes, quantum_of(sizes)))
    return np.asarray(np.rint(2 * ranks), dtype=np.int64)


def _leaning(values: Floats) -> float:
    """The ranks of positive differences less those of negative ones."""
    return float(_doubled_ranks(values) @ np.sign(values[values != 0]))


def holm(p_values: Sequence[float | None]) -> tuple[float | None, ...]:
    """Holm's correction: p_(i) becomes max over j <= i of min(1, (m - j + 1) p_(j)), p sorted upwards.

    The probability of one wrong finding or more among the m comparisons stays below the level, however they depend on
    each other.

    Args:
        p_values: p of each comparison; None where there is none, which does not count.

    Returns:
        Corrected p, in the same order.

    Raises:
        ConfigError: A p is not in [0, 1].

    Example:
        >>> from fedskew.studies.differences import holm
        >>> holm([0.01, 0.25, None, 0.02])
        (0.03, 0.25, None, 0.04)
    """
    given = [(p, i) for i, p in enumerate(p_values) if p is not None]
    for p, _ in given:
        require(0 <= p <= 1, "p_values", "be in [0, 1]", p)
    out: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for place, (p, i) in enumerate(sorted(given)):
        largest = max(largest, min(1.0, (len(given) - place) * p))
        out[i] = largest
    return tuple(out)


def smallest_p(pairs: int) -> float:
    """The smallest two-sided p of a signed-rank test of n pairs: 2 / 2^n, at most 1.

    Example:
        >>> from fedskew.studies.differences import smallest_p
        >>> smallest_p(5)
        0.0625
    """
    return min(1.0, 2.0 ** (1 - pairs))


def _finite(values: Sequence[float] | Floats) -> Floats:
    try:
        found = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.empty((0, 0))
    good = found.ndim == 1 and found.size > 0 and bool(np.isfinite(found).all())
    require(good, "values", "be a list of finite numbers; leave out pairs that lack a run", values)
    return found
