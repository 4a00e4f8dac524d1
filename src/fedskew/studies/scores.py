"""The scores of a study, one number for each method, setting and seed; their means and intervals, equivalence;
and what it costs a run to reach a target: rounds, bytes, samples and seconds.

M methods, S settings, K seeds. Draws are seeded, so the same scores give the same numbers.
docs/reference/statistics.md has the formula of each statistic, what it assumes, and when it misleads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedskew.errors import ConfigError, FieldError, RecordError, require, unknown
from fedskew.records.metrics import metric_of

Floats = NDArray[np.float64]
LEVEL, ALPHA = 0.95, 0.05  # of every interval and of every test
FEWEST = 5  # seeds of a verdict: the interval of fewer is wide, and that of two may have no width by chance
NO_VERDICT = "no verdict"  # of fewer
FOR_RANKS = 8  # seeds from which on a rank test is shown: it cannot reach the level with five, and seldom before eight
WITHIN = "within the printed spread"
RELATIVE = 2.0**-40  # of the largest score: what is closer is rounding, and counts as equal
SUMMED = ("upload_bytes", "download_bytes", "samples", "wall_s")
COSTS = ("rounds", "bytes", "samples", "seconds")


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of M methods under S settings with K seeds.

    Attributes:
        metric: Name of the metric, for example ``"mean10_accuracy"``.
        methods: Labels of the methods, each once.
        settings: Labels of the settings, each once.
        seeds: Seeds, each once. Runs of one seed and one setting are a pair.
        values: float64 [M, S, K]; NaN where a run is missing or failed. The array is a copy that cannot be written.
        higher_is_better: False for a loss or a cost.

    Raises:
        FieldError: A value is infinite.

    Example:
        >>> from fedskew.studies.scores import Scores
        >>> scores = Scores("accuracy", ("fedavg", "fedla"), ("alpha 0.1",), (0, 1), [[[0.5, 0.6]], [[0.7, None]]])
        >>> scores.values.shape
        (2, 1, 2)
    """

    metric: str
    methods: tuple[str, ...]
    settings: tuple[str, ...]
    seeds: tuple[int, ...]
    values: Floats
    higher_is_better: bool = True

    def __post_init__(self) -> None:
        """Copy the values. Raises FieldError for an infinite one."""
        values = np.array(self.values, np.float64)
        if np.isinf(values).any():
            worst = float(values[np.isinf(values)][0])
            raise FieldError("Scores", "values", "be finite", worst, "a run that failed is NaN")
        values.flags.writeable = False
        object.__setattr__(self, "values", values)

    @classmethod
    def of(
        cls, runs: Iterable[tuple[str, str, int, float | None]], metric: str = "accuracy", higher_is_better: bool = True
    ) -> Scores:
        """The scores of runs.

        Args:
            runs: (method, setting, seed, value) of each run. None, NaN and infinite values are runs that failed.
            metric: Name of the metric.
            higher_is_better: False for a loss or a cost.

        Returns:
            Scores with methods and settings in the order in which they come first, and seeds in increasing order. A
            combination without a run is NaN.

        Raises:
            ConfigError: There is no run, or two runs have the same method, setting and seed.

        Example:
            >>> from fedskew.studies.scores import Scores
            >>> runs = [("fedavg", "alpha 1", 0, 0.5), ("fedla", "alpha 1", 0, 0.7), ("fedavg", "alpha 1", 1, 0.6)]
            >>> Scores.of(runs).values.tolist()
            [[[0.5, 0.6]], [[0.7, nan]]]
        """
        scored: dict[tuple[str, str, int], float] = {}
        for method, setting, seed, value in runs:
            key = (method, setting, seed)
            if key in scored:
                raise ConfigError(f"runs must hold one run for each method, setting and seed; got {key!r} twice")
            scored[key] = math.nan if value is None or not math.isfinite(value) else float(value)
        require(bool(scored), "runs", "hold at least one run", [])
        methods, settings, seeds = (tuple(dict.fromkeys(labels)) for labels in zip(*scored, strict=True))
        seeds = tuple(sorted(seeds))
        values = [[[scored.get((m, s, k), math.nan) for k in seeds] for s in settings] for m in methods]
        return cls(metric, methods, settings, seeds, np.array(values), higher_is_better)

    @property
    def is_share(self) -> bool:
        """Whether the metric lies between 0 and 1, by its name and its values: no loss and no cost of a run."""
        known = self.values[~np.isnan(self.values)]
        return in_points(self.metric) and bool(((known >= 0) & (known <= 1)).all())

    @property
    def oriented(self) -> Floats:
        """The values, negated where lower is better, so that more is better. float64 [M, S, K]."""
        return self.values if self.higher_is_better else -self.values

    def index(self, method: str) -> int:
        """The place of a method. Raises ConfigError, with a suggestion, where there is none of this name."""
        if method not in self.methods:
            raise unknown("method", str(method), self.methods)
        return self.methods.index(method)

    def of_method(self, method: str) -> tuple[Floats, ...]:
        """The runs of a method under each setting, sorted and without NaN: S arrays.

        Sorted, so that no statistic depends on the order of the seeds, not even in its last bit.
        """
        return tuple(present(row) for row in self.values[self.index(method)])


def in_points(metric: str) -> bool:
    """Whether a difference of a metric is told in points, hundredths: not of a loss or a cost of a run."""
    known = metric_of(metric)
    return known.unit == "share" if known else not metric.startswith(("total_", "mean_"))


def gain_words(value: float, metric: str) -> str:
    """A difference in the unit of its metric; what rounds to zero is "+0.0", here and wherever a sign is printed.

    Example:
        >>> from fedskew.studies.scores import gain_words
        >>> gain_words(0.0234, "final_accuracy"), gain_words(-0.0004, "final_accuracy"), gain_words(-0.5, "final_loss")
        ('+2.3', '+0.0', '-0.500')
    """
    digits, number = (".1f", 100 * value) if in_points(metric) else (".3f" if metric_of(metric) else ".4g", value)
    return f"{number:+z{digits}}"


def present(values: Floats) -> Floats:
    """The values that are no NaN, in increasing order."""
    return np.sort(values[~np.isnan(values)])


def quantum_of(values: Floats) -> float:
    """What counts as rounding among these values: 2^-40, about 1e-12, of the largest, as a power of two.

    Accuracies are multiples of 1 / (test rows), so two differences are often equal. In float64 they then differ in
    the last bit, and ranks must not depend on it.
    """
    seen = np.abs(values[np.isfinite(values)])
    largest = float(seen.max()) if seen.size else 0.0
    return 2.0 ** math.ceil(math.log2(largest)) * RELATIVE if largest > 0 else RELATIVE


def settled(values: Floats, step: float) -> Floats:
    """Values of which those whose sizes differ by rounding have equal sizes, and those of no size are 0.

    Sizes are sorted, 0 among them; a gap of at most ``step`` is none. Rounding to a grid would not do: two equal values
    can fall on either side of a grid's edge.

    Args:
        values: float64 [n], no NaN.
        step: What counts as rounding, see `quantum_of`.

    Returns:
        float64 [n]; each moved by rounding at most.

    Example:
        >>> import numpy as np
        >>> from fedskew.studies.scores import settled
        >>> settled(np.array([0.9 - 0.8, 0.7 - 0.8, 1e-17]), 1e-12).tolist()
        [0.09999999999999998, -0.09999999999999998, 0.0]
    """
    sizes = np.sort(np.concatenate([[0.0], np.abs(values)]))
    first = sizes[np.concatenate([[True], np.diff(sizes) > step])]  # of each run of equal sizes
    moved: Floats = np.sign(values) * first[np.searchsorted(first, np.abs(values), side="right") - 1]
    return moved + 0.0  # no negative zero


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
        >>> from fedskew.studies.scores import t_interval
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
        >>> from fedskew.studies.scores import summaries
        >>> from fedskew.studies.scores import Scores
        >>> summary = summaries(Scores("accuracy", ("fedavg",), ("alpha 0.1",), (0, 1, 2), [[[0.5, 0.6, 0.7]]]))[0]
        >>> round(summary.mean, 3), round(summary.low, 3), round(summary.high, 3)
        (0.6, 0.352, 0.848)
    """
    least, most = (0.0, 1.0) if scores.is_share else (-math.inf, math.inf)
    made = []
    for method in scores.methods:
        for setting, values in zip(scores.settings, scores.of_method(method), strict=True):
            mean, sd, low, high = described(values)
            ends = (None, None) if low is None or high is None else (max(low, least), min(high, most))
            runs = len(values), len(scores.seeds) - len(values)
            made.append(Summary(method, setting, *runs, mean, sd, *ends))
    return tuple(made)


TWO_TESTS = 0.90  # of the interval: each of its two tests is at 5 %


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
        seeds: n.
        spread: Standard deviation of one run of the target where it alone makes the interval wider than the margin, so
            that no number of values can agree; else None.
    """

    mean: float
    target: float
    apart: float
    low: float | None
    high: float | None
    margin: float
    seeds: int
    spread: float | None = None

    @property
    def verdict(self) -> str:
        """What `place` says, of `FEWEST` seeds or more; else "no verdict"."""
        return self.place if self.seeds >= FEWEST else NO_VERDICT

    @property
    def place(self) -> str:
        """ "agrees", "differs" or "not resolved": the interval inside of the margin, outside of it, or across an end.

        Where "agrees" cannot be reached, a mean no further from the target than its spread is "within the printed
        spread". Values of which none is finite and all have one sign differ: a run that never gets there is no near
        miss.
        """
        if self.low is None or self.high is None:
            return "differs" if math.isinf(self.apart) else "not resolved"
        if -self.margin <= self.low and self.high <= self.margin:
            return "agrees"
        if self.low > self.margin or self.high < -self.margin:
            return "differs"
        return WITHIN if self.spread is not None and abs(self.apart) <= self.spread else "not resolved"


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
        >>> from fedskew.studies.scores import equivalence
        >>> interval = equivalence([2.0, 2.3, 1.9, 2.1, 2.2], target=2.5, margin=1)
        >>> round(interval.low, 2), round(interval.high, 2), interval.verdict
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
        return Equivalence(mean, target, apart if alike else math.nan, None, None, margin, n)

    def half(terms: Sequence[tuple[float, int]]) -> float:
        """Of the interval, from squared standard errors with their degrees of freedom."""
        whole, below = sum(term for term, _ in terms), sum(term**2 / freedom for term, freedom in terms)
        return float(stdtrit(whole**2 / below, (1 + TWO_TESTS) / 2)) * math.sqrt(whole) if below else 0.0

    theirs = [(spread**2 / runs, runs - 1) for spread in spreads]
    wide = half([(deviation(held) ** 2 / n, n - 1), *theirs])
    of_one = math.sqrt(sum(spread**2 for spread in spreads)) if half(theirs) > margin else None
    return Equivalence(mean, target, apart, apart - wide, apart + wide, margin, n, of_one)


Row = Mapping[str, Any]


@dataclass(frozen=True)
class Reached:
    """What a run spent until it first reached a target, or in all where it did not.

    Attributes:
        target: The value to reach.
        reached: Whether an evaluation has it.
        rounds: Number of the first evaluated round with it; the last round of the run where none has.
        bytes: Bytes from and to all clients, up to this round and with it.
        samples: Training rows of one epoch, summed over clients and rounds, as in the record.
        seconds: Seconds of these rounds.
    """

    target: float
    reached: bool
    rounds: int
    bytes: float
    samples: float
    seconds: float


def reach(rows: Sequence[Row], target: float, metric: str = "accuracy") -> Reached:
    """The first evaluation of a run that reaches a target, and what the run spent until then.

    Args:
        rows: All rounds of a run, as rounds.jsonl holds them. A round without the metric was not evaluated.
        target: The value to reach; a metric that is equal reaches it.
        metric: A metric of which more is better.

    Returns:
        What was spent. A run that does not reach the target has what it spent in all.

    Raises:
        RecordError: A round is missing, or a cost of a round.

    Example:
        >>> from fedskew.studies.scores import reach
        >>> costs = {"upload_bytes": 8, "download_bytes": 8, "samples": 4, "wall_s": 0.5}
        >>> rows = [{"round": r, "accuracy": a, **costs} for r, a in ((1, 0.2), (2, 0.6), (3, 0.7))]
        >>> reached = reach(rows, 0.6)
        >>> reached.rounds, reached.bytes, reached.seconds
        (2, 32.0, 1.0)
    """
    return reach_all(rows, [target], metric)[0]


def reach_all(rows: Sequence[Row], targets: Sequence[float], metric: str = "accuracy") -> tuple[Reached, ...]:
    """`reach` of several targets; the record is read once.

    Args:
        rows: All rounds of a run, as rounds.jsonl holds them.
        targets: Values to reach, in any order.
        metric: A metric of which more is better.

    Returns:
        What was spent until each target.

    Raises:
        RecordError: As `reach`.

    Example:
        >>> from fedskew.studies.scores import reach_all
        >>> costs = {"upload_bytes": 8, "download_bytes": 8, "samples": 4, "wall_s": 0.5}
        >>> rows = [{"round": r, "accuracy": a, **costs} for r, a in ((1, 0.2), (2, 0.6), (3, 0.7))]
        >>> [(cost.reached, cost.rounds) for cost in reach_all(rows, [0.6, 0.9])]
        [(True, 2), (False, 3)]
    """
    before = 0
    for i, row in enumerate(rows, 1):  # one of an archive also stands for those before it that were left out
        if row["round"] != before + row.get("rounds", 1):
            raise RecordError(f"round must count 1, 2, 3 in the rows of a run; got {row['round']!r} in row {i}")
        before = row["round"]
    try:
        costs = [[row[name] for name in SUMMED] for row in rows]
    except KeyError as lacking:
        raise RecordError(f"each round must have {lacking}") from None
    spent = np.array(costs, dtype=np.float64).reshape(len(rows), len(SUMMED)).cumsum(axis=0)
    scored = [(i, row[metric]) for i, row in enumerate(rows) if row.get(metric) is not None]
    reached = []
    for target in targets:
        hit = next((i for i, value in scored if value >= target), None)
        last = len(rows) - 1 if hit is None else hit
        up, down, samples, seconds = spent[last].tolist() if rows else (0.0,) * 4
        number = int(rows[last]["round"]) if rows else 0
        reached.append(Reached(float(target), hit is not None, number, up + down, samples, seconds))
    return tuple(reached)
