"""Average ranks over settings, Friedman's test and Nemenyi's critical difference (Demsar, 2006).

N settings, k methods. A setting is one observation: its scores are means over seeds.
"""

import math
from dataclasses import dataclass

import numpy as np

from fedskew import rng
from fedskew.errors import plural, require
from fedskew.studies.scores import ALPHA, LEVEL, Floats, Scores, quantum_of, settled

__all__ = ["Ranks", "average_ranks", "critical_difference"]

PERMUTATIONS = 10_000
AT_ONCE = 2**21  # numbers of a chunk of permutations: 16 MB


@dataclass(frozen=True, eq=False)
class Ranks:
    """Average ranks of k methods over N settings: what a critical-difference diagram shows.

    Attributes:
        metric: Name of the metric.
        methods: Labels, best average rank first [k].
        ranks: Average ranks [k]; 1 is best.
        settings: Labels of the settings that count [N].
        dropped: Labels of the settings without a seed that all methods have.
        p: That of Friedman's test, by permuting the scores within each setting, which also holds for few settings.
        critical_difference: Nemenyi's; None below three methods or two settings.
    """

    metric: str
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


def average_ranks(scores: Scores, permutations: int = PERMUTATIONS, seed: int = 0) -> Ranks:
    """Rank the methods in each setting, average over settings, and test.

    Within a setting, each method's score is its mean over the seeds that all methods have. Equal scores share their
    mean rank.

    Args:
        scores: Scores of a study.
        permutations: Number of permutations for Friedman's p: (1 + as extreme) / (1 + permutations).
        seed: Seed of the permutations.

    Returns:
        Ranks and tests.

    Raises:
        ConfigError: There are fewer than two methods, or a number is out of its range.

    Example:
        >>> from fedskew.studies.ranks import average_ranks
        >>> from fedskew.studies.scores import Scores
        >>> values = [[[0.1], [0.2]], [[0.3], [0.2]], [[0.5], [0.4]]]
        >>> found = average_ranks(Scores("accuracy", ("a", "b", "c"), ("s", "t"), (0,), values))
        >>> found.methods, found.ranks
        (('c', 'b', 'a'), (1.0, 2.25, 2.75))
    """
    from scipy.stats import rankdata

    require(len(scores.methods) > 1, "methods", "be at least two to be ranked", len(scores.methods))
    blocks, kept, dropped = _blocks(scores)
    k, n = len(scores.methods), len(kept)
    if not n:
        return Ranks(scores.metric, scores.methods, (), (), dropped, None, None)
    ranked = rankdata(-blocks, axis=1)  # [N, k]
    mean = ranked.mean(axis=0)
    order = sorted(range(k), key=lambda i: (mean[i], scores.methods[i]))
    methods, means = tuple(scores.methods[i] for i in order), mean[order]
    p = cd = None
    if k > 2 and n > 1:
        p, cd = _permuted(ranked, permutations, seed), critical_difference(k, n)
    ranks = tuple(means.tolist())
    return Ranks(scores.metric, methods, ranks, kept, dropped, p, cd)


def critical_difference(methods: int, settings: int) -> float:
    """Nemenyi's critical difference at 5 %: q sqrt(k (k + 1) / (6 N)).

    q is the quantile 0.95 of the studentized range of k means with infinitely many degrees of freedom, over
    sqrt(2). Infinitely many, because the variance of ranks is known.

    Args:
        methods: k.
        settings: N.

    Returns:
        The difference of two average ranks from which on they differ significantly.

    Raises:
        ConfigError: There are fewer than two methods, or no setting.

    Example:
        >>> from fedskew.studies.ranks import critical_difference
        >>> round(critical_difference(4, 14), 2)  # Demsar's second example
        1.25
    """
    from scipy.stats import studentized_range

    require(methods > 1, "methods", "be at least two", methods)
    require(settings > 0, "settings", "be at least one", settings)
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


def _permuted(ranked: Floats, permutations: int, seed: int) -> float:
    """p of Friedman's statistic under permutations within settings; it grows with the squares of the rank sums."""
    n, k = ranked.shape
    doubled = np.sort(np.rint(2 * ranked), axis=1)  # whole numbers: ties compare exactly
    seen = float((np.rint(2 * ranked).sum(axis=0) ** 2).sum())
    g, extreme = rng.generator(seed, "friedman"), 0
    chunk = max(1, AT_ONCE // (n * k))
    for start in range(0, permutations, chunk):
        b = min(chunk, permutations - start)
        drawn = g.permuted(np.broadcast_to(doubled, (b, n, k)), axis=2)
        extreme += int(((drawn.sum(axis=1) ** 2).sum(axis=1) >= seen).sum())
    return (1 + extreme) / (1 + permutations)
