"""Paired differences against a baseline, with Holm's correction; average ranks over settings, with Friedman's test.

Runs of two methods with the same seed are a pair: they share partition, initial weights and clients. n pairs, m methods
compared with the baseline. Ranks: Nemenyi's critical difference (Demsar, 2006) for N settings and k methods; a setting
is one observation, whose scores are means over seeds.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedskew import rng
from fedskew.errors import plural, require
from fedskew.studies.scores import ALPHA, LEVEL, Floats, Scores, described, quantum_of, settled
from fedskew.studies.verdicts import Interval, intervals


@dataclass(frozen=True)
class Difference:
    """A method less the baseline, over the pairs of one setting or of all.

    Attributes:
        method: Label of the method.
        baseline: Label of the baseline.
        setting: Label of the setting; None for the comparison over all settings.
        higher_is_better: False for a loss or a cost.
        seeds: Seeds of the pairs [n].
        values: Difference of each pair [n], method less baseline; over settings, its mean over the settings.
        dropped: Seeds of the study without a pair, since a run is missing.
        settings: Number of settings that count: 1, or those with pairs.
        mean: Mean difference; None without a pair.
        sd: Sample standard deviation; None below two pairs.
        low: Lower end of the t interval of the mean, at Holm's level among the methods; None below two pairs.
        high: Upper end.
        p: p of the exact signed-rank test, two-sided; None without a pair.
        p_holm: ``p`` after Holm's correction.
        least_p: The smallest ``p_holm`` that so many pairs can have.
    """

    method: str
    baseline: str
    setting: str | None
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
    p_holm: float | None = None
    least_p: float | None = None

    @property
    def pairs(self) -> int:
        """Number of pairs n."""
        return len(self.values)

    @property
    def significant(self) -> bool:
        """Whether the signed-rank test, corrected by Holm, finds a difference."""
        return self.p_holm is not None and self.p_holm <= ALPHA

    @property
    def gain(self) -> Interval:
        """The mean and its interval, oriented so that more is better; without ends below two pairs."""
        ends = (-math.inf, math.inf) if self.low is None or self.high is None else (self.low, self.high)
        gain = Interval(math.nan if self.mean is None else self.mean, *ends, self.pairs)
        return gain if self.higher_is_better else Interval(-gain.mean, -gain.high, -gain.low, self.pairs)

    @property
    def verdict(self) -> str:
        """What the interval shows: "a gain", "a loss", "no gain shown"; "no verdict" below five pairs."""
        return self.gain.shows

    @property
    def ranked(self) -> str:
        """What the signed-rank test finds: "better" or "worse" than the baseline, or "open"."""
        if not self.significant:
            return "open"
        values = np.array(self.values)
        leaning = _doubled_ranks(values) @ np.sign(values[values != 0])  # ranks of positive values less the others
        return "better" if (leaning > 0) == self.higher_is_better else "worse"


def differences(scores: Scores, baseline: str) -> tuple[Difference, ...]:
    """Compare every method with a baseline, under each setting and over all of them.

    Over settings, the unit is the seed: the difference of a seed is its mean over the settings, since its runs under
    several settings share draws. A seed counts where both methods have all runs. Holm's correction, of intervals and of
    p, is made over the methods, for each setting by itself.

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
        >>> gain = differences(Scores("accuracy", ("fedavg", "fedla"), ("alpha 0.1",), (0, 1, 2), values), "fedavg")[0]
        >>> round(gain.mean, 3), gain.p, gain.verdict
        (0.03, 0.25, 'no verdict')
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
    named = scores.methods[i], baseline, setting, scores.higher_is_better
    dropped, p = len(scores.seeds) - n, signed_rank(ordered) if n else None
    return Difference(*named, seeds, tuple(paired.tolist()), dropped, settings, *described(ordered), p)


def _corrected(family: list[Difference]) -> list[Difference]:
    """The same with Holm's correction among them; those without a pair are no comparison."""
    ends = intervals({str(place): d.values for place, d in enumerate(family)})
    spans = [(span.low, span.high) if (span := ends.get(str(n))) else (None, None) for n in range(len(family))]
    corrected = holm([d.p for d in family])
    least = holm([None if d.p is None else smallest_p(d.pairs) for d in family])
    return [
        dataclasses.replace(d, p_holm=p, least_p=smallest, low=low, high=high)
        for d, p, smallest, (low, high) in zip(family, corrected, least, spans, strict=True)
    ]


# The tests


def signed_rank(values: Sequence[float] | Floats) -> float:
    """The two-sided p of Wilcoxon's signed-rank test, exact.

    Differences that are zero are left out; equal sizes share their mean rank. p is 2 min(P(W <= w), P(W >= w)), at most
    1, where every difference has either sign with probability 1/2, and w is the sum of the ranks of positive ones. This
    is exact with ties, too, which the table of the untied test is not.

    Args:
        values: Differences of n pairs, finite.

    Returns:
        p; 1 where no pair differs. It is at least 2 / 2^n.

    Example:
        >>> from fedskew.studies.differences import signed_rank
        >>> signed_rank([0.1, 0.2, 0.3, 0.4, 0.5])
        0.0625
    """
    finite = np.asarray(values, dtype=np.float64)
    ranks = _doubled_ranks(finite)
    if not ranks.size:
        return 1.0
    chance = np.zeros(int(ranks.sum()) + 1)  # of each sum of doubled ranks
    chance[0] = 1.0
    for rank in ranks:
        chance = (chance + np.concatenate([np.zeros(rank), chance[:-rank]])) / 2
    w = int(ranks[finite[finite != 0] > 0].sum())
    return min(1.0, 2 * min(float(chance[: w + 1].sum()), float(chance[w:].sum())))


def _doubled_ranks(values: Floats) -> NDArray[np.int64]:
    """Twice the rank of each size among the values that are not zero; whole numbers, since ties share a mean."""
    from scipy.stats import rankdata

    sizes = np.abs(values[values != 0])
    if not sizes.size:
        return np.empty(0, dtype=np.int64)
    ranks = rankdata(settled(sizes, quantum_of(sizes)))
    return np.asarray(np.rint(2 * ranks), dtype=np.int64)


def holm(p_values: Sequence[float | None]) -> tuple[float | None, ...]:
    """Holm's correction: p_(i) becomes max over j <= i of min(1, (m - j + 1) p_(j)), p sorted upwards.

    The probability of one wrong finding or more among the m comparisons stays below the level, however they depend on
    each other.

    Args:
        p_values: p of each comparison; None where there is none, which does not count.

    Returns:
        Corrected p, in the same order.

    Example:
        >>> from fedskew.studies.differences import holm
        >>> holm([0.01, 0.25, None, 0.02])
        (0.03, 0.25, None, 0.04)
    """
    given = [(p, i) for i, p in enumerate(p_values) if p is not None]
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


PERMUTATIONS = 10_000
AT_ONCE = 2**21  # numbers of a chunk of permutations: 16 MB


@dataclass(frozen=True, eq=False)
class Ranks:
    """Average ranks of k methods over N settings: what a critical-difference diagram shows.

    Attributes:
        methods: Labels, best average rank first [k].
        ranks: Average ranks [k]; 1 is best.
        settings: Labels of the settings that count [N].
        dropped: Labels of the settings without a seed that all methods have.
        p: That of Friedman's test, by permuting the scores within each setting, which also holds for few settings.
        critical_difference: Nemenyi's; None below three methods or two settings.
    """

    methods: tuple[str, ...]
    ranks: tuple[float, ...]
    settings: tuple[str, ...]
    dropped: tuple[str, ...]
    p: float | None
    critical_difference: float | None

    @property
    def significant(self) -> bool:
        """Whether Friedman's test finds that the methods differ."""
        return self.p is not None and self.p <= ALPHA

    @property
    def conclusion(self) -> str:
        """What the ranks show and what they do not, in sentences."""
        excluded = f" {plural(len(self.dropped), 'setting')} excluded because runs are missing." if self.dropped else ""
        if not self.settings:
            return f"No setting has runs of all methods, so there are no ranks.{excluded}"
        best = f"Best average rank over {plural(len(self.settings), 'setting')}: "
        best += f"{self.methods[0]}, {self.ranks[0]:.3g} of {len(self.methods)}."
        return f"{best} {self._tested()}{excluded}"

    def _tested(self) -> str:
        k, n = len(self.methods), len(self.settings)
        if n < 2:
            return "Ranks of one setting cannot be tested: use the paired differences."
        if k < 3 or self.p is None or self.critical_difference is None:
            return "Ranks of two methods are not tested: use the paired differences."
        friedman = f"Friedman's test: p = {self.p:.3g}"
        if not self.significant:
            return f"{friedman}, no significant difference at 5 %. This does not show that the methods are equal."
        differ = f"Average ranks that differ by {self.critical_difference:.3g} or more are significantly different"
        which = f"{friedman}, the methods differ. {differ} at 5 % (Nemenyi)."
        if self.critical_difference > k - 1:
            return f"{which} With {n} settings, average ranks cannot differ by this much."
        return which


def average_ranks(scores: Scores, permutations: int = PERMUTATIONS) -> Ranks:
    """Rank the methods in each setting, average over settings, and test.

    Within a setting, each method's score is its mean over the seeds that all methods have. Equal scores share their
    mean rank.

    Args:
        scores: Scores of a study.
        permutations: Number of permutations for Friedman's p: (1 + as extreme) / (1 + permutations).

    Returns:
        Ranks and tests.

    Raises:
        ConfigError: There are fewer than two methods, or a number is out of its range.

    Example:
        >>> from fedskew.studies.differences import average_ranks
        >>> from fedskew.studies.scores import Scores
        >>> values = [[[0.1], [0.2]], [[0.3], [0.2]], [[0.5], [0.4]]]
        >>> ranks = average_ranks(Scores("accuracy", ("a", "b", "c"), ("s", "t"), (0,), values))
        >>> ranks.methods, ranks.ranks
        (('c', 'b', 'a'), (1.0, 2.25, 2.75))
    """
    from scipy.stats import rankdata

    require(len(scores.methods) > 1, "methods", "be at least two to be ranked", len(scores.methods))
    blocks, kept, dropped = _blocks(scores)
    k, n = len(scores.methods), len(kept)
    if not n:
        return Ranks(scores.methods, (), (), dropped, None, None)
    ranked = rankdata(-blocks, axis=1)  # [N, k]
    mean = ranked.mean(axis=0)
    order = sorted(range(k), key=lambda i: (mean[i], scores.methods[i]))
    methods, means = tuple(scores.methods[i] for i in order), mean[order]
    p = cd = None
    if k > 2 and n > 1:
        p, cd = _permuted(ranked, permutations), critical_difference(k, n)
    ranks = tuple(means.tolist())
    return Ranks(methods, ranks, kept, dropped, p, cd)


def critical_difference(methods: int, settings: int) -> float:
    """Nemenyi's critical difference at 5 %: q sqrt(k (k + 1) / (6 N)).

    q is the quantile 0.95 of the studentized range of k means with infinitely many degrees of freedom, over
    sqrt(2). Infinitely many, because the variance of ranks is known.

    Args:
        methods: k, at least two.
        settings: N.

    Returns:
        The difference of two average ranks from which on they differ significantly.

    Example:
        >>> from fedskew.studies.differences import critical_difference
        >>> round(critical_difference(4, 14), 2)  # Demsar's second example
        1.25
    """
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(LEVEL, methods, np.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * settings))


def _blocks(scores: Scores) -> tuple[Floats, tuple[str, ...], tuple[str, ...]]:
    """Score of each method in each setting that counts, [N, k], more is better; labels of those and of the others."""
    step = quantum_of(scores.values)
    rows, kept, dropped = [], [], []
    for s, setting in enumerate(scores.settings):
        values = scores.oriented[:, s]
        common = ~np.isnan(values).any(axis=0)
        if common.any():
            rows.append(settled(np.sort(values[:, common], axis=1).mean(axis=1), step))
            kept.append(setting)
        else:
            dropped.append(setting)
    return np.array(rows).reshape(len(rows), len(scores.methods)), tuple(kept), tuple(dropped)


def _permuted(ranked: Floats, permutations: int) -> float:
    """p of Friedman's statistic under permutations within settings; it grows with the squares of the rank sums."""
    n, k = ranked.shape
    doubled = np.sort(np.rint(2 * ranked), axis=1)  # whole numbers: ties compare exactly
    seen = float((np.rint(2 * ranked).sum(axis=0) ** 2).sum())
    g, extreme = rng.generator(0, "friedman"), 0
    chunk = max(1, AT_ONCE // (n * k))
    for start in range(0, permutations, chunk):
        b = min(chunk, permutations - start)
        drawn = g.permuted(np.broadcast_to(doubled, (b, n, k)), axis=2)
        extreme += int(((drawn.sum(axis=1) ** 2).sum(axis=1) >= seen).sum())
    return (1 + extreme) / (1 + permutations)
