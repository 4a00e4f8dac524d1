"""Entries sorted into methods, settings and seeds: what every table and picture of a report is made from."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from fedskew.config.recorded import Run
from fedskew.errors import ConfigError, RecordError, some, unknown
from fedskew.records.summary import Tail, more_is_better, prefix_of, span_words, tail_of
from fedskew.report.entries import LabelledRun
from fedskew.studies.differences import Difference, Ranks, average_ranks, differences
from fedskew.studies.scores import Scores, Summary, summaries

Floats = npt.NDArray[np.float64]
SPAN = "mean10"  # a single round swings under label skew
CACHED = 64  # numbers of comparisons that are computed once: a page asks for each in many places
PREFIXES = ("final_", "best_", "mean10_", "mean50_", "total_")


@dataclass(frozen=True, eq=False)  # a comparison is itself: what is computed of it is kept by it
class Compared:
    """M methods under S settings, K seeds."""

    entries: tuple[LabelledRun, ...]
    methods: tuple[str, ...]
    settings: tuple[str, ...]
    seeds: tuple[int | str, ...]
    metric: str  # of a round, such as "accuracy"
    key: str  # of a summary, such as "mean10_accuracy"
    baseline: str

    @cached_property
    def cells(self) -> dict[tuple[str, str], dict[int | str, Run]]:
        """Runs by seed, of each (method, setting)."""
        cells: dict[tuple[str, str], dict[int | str, Run]] = {}
        for method, setting, seed, run in self.entries:
            cells.setdefault((method, setting), {})[seed] = run
        return cells

    @property
    def whose(self) -> str:
        """Prefix of the metric, "personal_" of own models: what stands beside it has the same."""
        return prefix_of(self.metric)

    @property
    def served(self) -> bool:
        """Whether the metric is of what clients would use, not of the global model."""
        return self.whose.endswith(("personal_", "served_"))

    @cached_property
    def tails(self) -> dict[str, list[Tail]]:
        """Rounds and evaluations of each run that has the metric, by method; empty unless a mean is compared."""
        scored = [(e.method, e.run) for e in self.entries if math.isfinite(e.run.value(self.key))]
        tails: dict[str, list[Tail]] = {}
        for method, run in scored:
            if tail := tail_of(self.key, run.summary, run.rows):
                tails.setdefault(method, []).append(tail)
        return tails

    @property
    def span(self) -> str:
        """The rounds that are compared, in words."""
        return span_words(self.key, itertools.chain(*self.tails.values()))

    @property
    def higher(self) -> bool:
        """Whether more of the metric is better."""
        return more_is_better(self.key)

    @property
    def whole(self) -> str | None:
        """What stands for the comparison: its one setting, or None, all settings together."""
        return self.settings[0] if len(self.settings) == 1 else None

    def runs(self, method: str, setting: str) -> list[Run]:
        """The runs of a method under a setting, in the order of the seeds."""
        by_seed = self.cells.get((method, setting), {})
        return [by_seed[seed] for seed in self.seeds if seed in by_seed]

    def values(self, setting: str, key: str = "") -> Floats:
        """A number of the summaries, [M, K], NaN without a run."""
        out = np.full((len(self.methods), len(self.seeds)), np.nan)
        for m, method in enumerate(self.methods):
            by_seed = self.cells.get((method, setting), {})
            out[m] = [by_seed[s].value(key or self.key) if s in by_seed else math.nan for s in self.seeds]
        return out

    def has(self, setting: str, key: str) -> bool:
        """Whether a run under a setting has a number of the summaries."""
        return bool(np.isfinite(self.values(setting, key)).any())

    # Statistics, all of them those of `fedskew.studies`

    def scores_of(self, key: str) -> Scores:
        """A number of the summaries for the statistics of a study. The seeds are their places."""
        values = np.array([self.values(setting, key) for setting in self.settings]).swapaxes(0, 1)
        seeds = tuple(range(len(self.seeds)))
        return Scores(key, self.methods, self.settings, seeds, values, more_is_better(key))

    def summary(self, method: str, setting: str, key: str = "") -> Summary:
        """Mean, deviation and interval of a number of the summaries; of the metric where none is named."""
        return _summaries(self, key or self.key)[method, setting]

    def difference(self, method: str, setting: str | None) -> Difference | None:
        """The method less the baseline; None for the baseline itself. Without a setting: over all, of several."""
        return gaps(self, self.key).get((method, setting))

    @property
    def differences(self) -> list[Difference]:
        """Those of each setting that have a pair."""
        return [gap for gap in gaps(self, self.key).values() if gap.setting is not None and gap.pairs]

    def mean(self, method: str, setting: str) -> float:
        """The metric's mean; NaN without a value."""
        mean = self.summary(method, setting).mean
        return math.nan if mean is None else mean

    def present(self, setting: str) -> list[str]:
        """The methods with a value under a setting, the best mean first."""
        means = {m: self.mean(m, setting) for m in self.methods if self.summary(m, setting).runs}
        sign = -1 if self.higher else 1
        return sorted(means, key=lambda m: sign * means[m])

    @cached_property
    def ranks(self) -> Ranks | None:
        """Average ranks of the methods; None for a single one."""
        return average_ranks(self.scores_of(self.key)) if len(self.methods) > 1 else None

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The methods, the best average rank first; those without a value last."""
        places = [{method: place for place, method in enumerate(self.present(s))} for s in self.settings]
        total = {m: sum(place.get(m, math.inf) for place in places) for m in self.methods}
        return tuple(sorted(self.methods, key=lambda m: total[m]))

    def place(self, method: str) -> int:
        """Of a method among the sorted names: its look in every picture."""
        return sorted(self.methods).index(method)


@lru_cache(CACHED)
def _summaries(compared: Compared, key: str) -> dict[tuple[str, str], Summary]:
    places = itertools.product(compared.methods, compared.settings)
    return dict(zip(places, summaries(compared.scores_of(key)), strict=True))


@lru_cache(CACHED)
def gaps(compared: Compared, key: str) -> dict[tuple[str, str | None], Difference]:
    """Paired differences from the baseline in a number of the summaries, by method and setting; None: over all."""
    return {(gap.method, gap.setting): gap for gap in differences(compared.scores_of(key), compared.baseline)}


def compare(entries: Iterable[LabelledRun], metric: str | None = None, baseline: str | None = None) -> Compared:
    """Sort entries, and check what is asked of them.

    Args:
        entries: Runs with their labels.
        metric: A metric of the rounds; its mean over the last 10 rounds is compared. A number of a summary, such as
            "final_accuracy", is compared itself, and so is the final value of what the last model alone is scored by.
            None: the accuracy; of what each client would use where a method gives clients models of their own alone.
        baseline: The method that others are compared with; None: "fedavg" where it is there, else the first.

    Returns:
        What was compared.

    Raises:
        RecordError: There is no run, or no run was evaluated.
        ConfigError: Two runs have one method, setting and seed; no run has the metric; the baseline is none of them.
    """
    listed = tuple(entries)
    seen: set[tuple[str, str, int | str]] = set()
    for entry in listed:
        if entry[:3] in seen:
            labels = f"method {entry.method!r}, setting {entry.setting!r}, seed {entry.seed!r}"
            raise ConfigError(f"a report takes one run of each method, setting and seed; got two of {labels}")
        seen.add(entry[:3])
    if not any(entry.run.last for entry in listed):
        places = some([repr(str(e.run.folder)) for e in listed])
        raise RecordError(f"a report needs an evaluated round; there is none{f' in {places}' if places else ''}")
    bare, key = _keys(listed, metric or _fitting(listed))
    methods = tuple(dict.fromkeys(e.method for e in listed))
    if baseline is not None and baseline not in methods:
        raise unknown("baseline", baseline, methods)
    plain = "fedavg" if "fedavg" in methods else next((m for m in methods if m.startswith("fedavg")), methods[0])
    seeds = sorted({e.seed for e in listed}, key=lambda seed: (isinstance(seed, str), seed))
    settings = tuple(dict.fromkeys(e.setting for e in listed))
    return Compared(listed, methods, settings, tuple(seeds), bare, key, baseline or plain)


def _fitting(entries: Sequence[LabelledRun]) -> str:
    """The metric by which all of these methods can be judged, as far as it is on record."""
    serves_own = any(entry.run.serves == "own" for entry in entries)
    known = any(f"{SPAN}_served_accuracy" in entry.run.summary for entry in entries)
    return "served_accuracy" if serves_own and known else "accuracy"


def _keys(entries: Sequence[LabelledRun], metric: str) -> tuple[str, str]:
    """(metric of a round, number of a summary). Raises ConfigError where no run has them."""
    whole = {k for e in entries for k, v in e.run.summary.items()
             if k.startswith(PREFIXES) and (v is None or isinstance(v, int | float))}  # fmt: skip
    known = {k.removeprefix(p) for k in whole for p in PREFIXES if k.startswith(p)}
    if metric in known:  # what is measured of the last model alone has no mean over rounds
        return metric, next(k for p in (f"{SPAN}_", *PREFIXES) if (k := f"{p}{metric}") in whole)
    if metric in whole:
        return next(metric.removeprefix(p) for p in PREFIXES if metric.startswith(p)), metric
    raise unknown("metric", metric, known)
