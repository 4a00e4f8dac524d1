"""A consortium rehearsed: what its class counts, failures and links let expect, from stand-in datasets.

Everything is read from runs of two studies, kept in a store. Each site keeps `TEST` of its cases for its test.
"""

import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from fedskew._run import Result
from fedskew.config.words import Pair
from fedskew.data.counts import LEAST, Consortium, scaled
from fedskew.data.partitioners import Counts
from fedskew.engines.planning import length_of, paces_of
from fedskew.errors import ConfigError, DataError, require
from fedskew.fields import MOST
from fedskew.records.clients import last_clients, read_clients
from fedskew.records.typed import Row
from fedskew.studies.address import dataset_of
from fedskew.studies.arguments import Entry, entry_of, full
from fedskew.studies.scores import LEVEL, Floats
from fedskew.studies.spec import Spec, check_names, made_of
from fedskew.studies.study import Study

TEST = 0.2  # of the cases of a site
QUANTILE = (1 + LEVEL) / 2
SHARES = (0.25, 0.5)  # of the cases of a site, beside all of them, for its learning curve
PANELS = {
    2: ("adult", "fashion_mnist", "cifar10", "mnist", "heart_disease", "digits"),
    10: ("fashion_mnist", "cifar10", "mnist", "cifar100", "digits"),
    100: ("cifar100",),
}
USED = (
    5  # stand-ins of a panel, where nobody says how many: 2.8 = t(4) multiplies their spread, and t(2) = 4.3 of three
)
SET = ("partition", "clients", "local-test", "selector", "seed", "longtail", "heldout-clients")  # what is not free
LOCAL = "local training"
SMALLER = "stand-ins with fewer rows have smaller sites: models are worse there, and gains over local training larger"
ONE = "how far datasets differ: one stand-in gives no interval; name several with --data, or have more at hand"
UNKNOWN = (
    "stand-in data are not your data: yours may be easier or harder than all of them",
    "counts do not tell how sites differ in features, such as devices, protocols or patients of one class",
    "your network has another size than the stand-in's; --parameters sets its bytes, the column step_s its seconds",
    "failures are independent draws; a site that is away for days, or sites that fail together, cost more",
)
Values = Sequence[Sequence[float]]  # of each stand-in, those of its seeds
Bounds = tuple[float, float]
Runs = dict[tuple[str, str, int], tuple[dict[int, Row], list[list[int]]]]  # of each: rows by client; who took part
Side = tuple[str, str]  # method, and what a setting adds to the stand-in's name


@dataclass(frozen=True)
class Expected:
    """A number to expect, and its 95 % interval, if there is one."""

    mean: float
    low: float | None
    high: float | None

    @property
    def possible(self) -> Bounds:
        """Where the difference of another share and this one can be."""
        return (-1.0, 1.0) if self.low is None or self.high is None else (-self.high, 1 - self.low)


def half_width(means: Floats, within: Floats | float, seeds: Sequence[int], known: Floats | float = 0.0) -> Floats:
    r"""Half the prediction interval of what one run of a new federation measures.

    The value of seed k on stand-in s is y_sk = mu + a_s + e_sk, and that of the new run is mu + a + e. All a have one
    variance A, which dataset it is; all e have one variance E, seeds and the draw of the test rows. All are normal and
    independent. V is the sample variance of the S means of stand-ins, W the variance within stand-ins, pooled on F
    degrees of freedom, and h the mean of 1/n_s over the stand-ins with n_s seeds each.

        Var(new run - mean of means) = (1 + 1/S) (A + h E) + (1 - h) E,  E[V] = A + h E,  E[W] = E
        half^2 = t(S - 1)^2 (1 + 1/S) V + t(F)^2 (1 - h) W
        half^2 >= z^2 b (1 + 1/(n_1 + ... + n_S))     b is the variance that the draw of the test rows has at least

    No variance is subtracted, so none is cut at 0. t and z are quantiles at 0.975, of Student's distribution and of the
    normal. With one seed each, or with A far above E, the interval is the exact one of Student. Else it is an
    approximation by the sum of squared widths (Howe, Journal of the American Statistical Association 69, 1974). Its
    coverage is 94.5 to 99 % where 95 % is asked for; one t on Satterthwaite's degrees of freedom covers down to 89 %.

    Args:
        means: Of each stand-in, float64 [S, ...], S > 1.
        within: Pooled variance within stand-ins, [...]; not read where each has one seed.
        seeds: Values of each stand-in, [S].
        known: Variance b, [...].

    Returns:
        Half widths [...].

    Example:
        >>> import numpy as np
        >>> from fedskew.studies.rehearsal import half_width
        >>> round(float(half_width(np.array([0.7, 0.8, 0.9]), 0.001, [2, 2, 2])), 3)
        0.502
    """
    from scipy.special import ndtri, stdtrit

    count, free = len(seeds), sum(seeds) - len(seeds)
    squared = stdtrit(count - 1, QUANTILE) ** 2 * (1 + 1 / count) * means.var(axis=0, ddof=1)
    if free:
        squared = squared + stdtrit(free, QUANTILE) ** 2 * (1 - sum(1 / n for n in seeds) / count) * within
    return np.asarray(np.sqrt(np.maximum(squared, ndtri(QUANTILE) ** 2 * known * (1 + 1 / sum(seeds)))))


def expected(values: Values, rows: float, possible: Bounds = (0.0, 1.0)) -> Expected | None:
    r"""The prediction interval of a share, or of a difference of shares, that one run measures on ``rows`` test rows.

    The run is of a new federation, with one seed. The interval is mean -+ `half_width`, cut to what is possible, with

        b = p (1 - p) / rows,  p = (rows |m| + 2) / (rows + 4)

    for the mean m: the variance of a share, and the least that a difference of two shares on the same rows can have.
    One stand-in has no interval: it does not tell how far datasets differ.

    Args:
        values: Of each stand-in, the value of each seed.
        rows: Test rows.
        possible: Least and largest value that there can be; of a difference, `Expected.possible` of what is subtracted.

    Returns:
        Mean over the stand-ins and interval; None without values, no interval of one stand-in.

    Example:
        >>> from fedskew.studies.rehearsal import expected
        >>> interval = expected([[0.80, 0.82], [0.76, 0.80], [0.84, 0.82]], rows=100)
        >>> round(interval.mean, 2), round(interval.low, 2), round(interval.high, 2)
        (0.81, 0.67, 0.94)
        >>> expected([[0.75, 0.25]], rows=100)
        Expected(mean=0.5, low=None, high=None)
    """
    arrays = [np.array(each) for each in values if len(each)]
    if not arrays or rows <= 0:
        return None
    means, seeds = np.array([each.mean() for each in arrays]), [len(each) for each in arrays]
    mean = float(means.mean())
    if len(arrays) < 2:
        return Expected(mean, None, None)
    within = sum(float(((each - each.mean()) ** 2).sum()) for each in arrays) / max(sum(seeds) - len(seeds), 1)
    p = (rows * abs(mean) + 2) / (rows + 4)
    half = float(half_width(means, within, seeds, p * (1 - p) / rows))
    return Expected(mean, max(mean - half, possible[0]), min(mean + half, possible[1]))


class StandIn(NamedTuple):
    """A dataset in the place of yours."""

    name: str
    options: tuple[Pair, ...]
    counts: npt.NDArray[np.int64]  # of the sites, as far as its rows go
    factor: float


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """What is rehearsed.

    Args:
        consortium: The sites.
        method: A method of the table, with options of its own in brackets or without.
        options: Options of all runs, one value each; ``data`` names stand-ins between commas. Unset: of `PANELS` those
            for the number of classes, the first ``used`` that are at hand.
        seeds: Seeds.
        varied: Names of the sites of which each leaves once and has fewer cases, "all" or "none".
        deadline: Seconds after which a round goes on without a site; None: it waits for the slowest.
        parameters: Parameters of your network; None: those of the stand-in's.
        used: Stand-ins of the panel; None: `USED`, and those named where ``data`` names them.

    Raises:
        ConfigError: An option breaks a rule, or no stand-in fits.
    """

    consortium: Consortium
    method: str
    options: tuple[Pair, ...]
    seeds: tuple[int, ...]
    varied: str = "none"
    deadline: float | None = None
    parameters: int | None = None
    used: int | None = None

    @cached_property
    def common(self) -> tuple[Pair, ...]:
        """The options of all runs but those of the stand-in."""
        asked = {full(option) for option, _ in (*self.options, *entry_of(self.method).options)}
        for name in SET:
            require(name not in asked, name, "be left out: rehearse sets it", dict(self.options).get(name, "it"))
        cohort = () if "cohort" in asked else (("cohort", str(len(self.consortium.sites))),)
        return (*(pair for pair in self.options if pair[0] != "data"), ("local-test", str(TEST)), *cohort)

    @cached_property
    def standins(self) -> tuple[StandIn, ...]:
        """The stand-ins; of those that nobody named, the first that are at hand."""
        named, classes = dict(self.options).get("data"), len(self.consortium.classes)
        require(not (named and self.used), "stand-ins", "be left out where --data names stand-ins", self.used)
        panel = next((names for most, names in PANELS.items() if classes <= most), ())
        require(bool(named or panel), "data", f"name datasets of at least {classes} classes", "none")
        if named:
            names = [name.strip() for name in named.split(",")]
            require(len(set(names)) == len(names), "data", "name each stand-in once", named)
            return tuple(self._standin(name) for name in names)
        standins: list[StandIn] = []
        for name in panel:
            try:
                standins.append(self._standin(name))
            except DataError:
                if name == panel[-1] and not standins:
                    raise
            if len(standins) == (self.used or USED):
                break
        return tuple(standins)

    def _standin(self, name: str) -> StandIn:
        classes, options = len(self.consortium.classes), [("data", name)]
        loaded = self._data(options)
        if loaded.classes < classes:
            rule = f"name datasets of at least {classes} classes"
            raise ConfigError(f"data must {rule}; got {name!r}, which has {loaded.classes}")
        if loaded.classes > classes:
            options.append(("data.classes", ",".join(map(str, range(classes)))))
            loaded = self._data(options)
        try:
            return StandIn(name, tuple(options), *scaled(self.consortium.counts, loaded.counts.tolist()))
        except DataError as error:
            raise DataError(f"{name}: {error}") from error

    def _data(self, options: Sequence[Pair]) -> Any:
        experiment = made_of(entry_of(self.method), (*self.common, *options))
        return dataset_of(experiment.data, experiment.path)

    @cached_property
    def sites(self) -> list[int]:
        """The sites that are varied."""
        known = self.consortium.sites
        if self.varied in ("all", "none"):
            return [*range(len(known))] if self.varied == "all" else []
        names = [name.strip() for name in self.varied.split(",")]
        check_names("site", names, known)
        return [known.index(name) for name in names]

    # Costs

    def _two_rounds(self, standin: StandIn) -> tuple[Result, float]:
        """What two rounds of all sites give on a stand-in, and the seconds that all rounds take on one core, about."""
        began, experiment = time.perf_counter(), made_of(entry_of(self.method), (*self.common, *_divided(standin)))
        done = replace(experiment, rounds=2, cohort=len(self.consortium.sites), served="none", threads=1).run()
        rest = max(experiment.rounds - 2, 0) * done.rounds[-1]["train_s"]
        return done, time.perf_counter() - began + rest

    def seconds(self, studies: Iterable[Study]) -> float:
        """Seconds of one core that the missing runs take, about: each as long as the method's run with all cases."""
        waiting = Counter(planned.cell.setting.split(",")[0] for study in studies for planned in study.missing())
        each = ((waiting[standin.name], self._first if standin is self.standins[0] else self._two_rounds(standin))
                for standin in self.standins if waiting[standin.name])  # fmt: skip
        return sum(runs * seconds for runs, (_, seconds) in each)

    @cached_property
    def _first(self) -> tuple[Result, float]:
        """Two rounds of the first stand-in."""
        return self._two_rounds(self.standins[0])

    @cached_property
    def costs(self) -> list[Row]:
        """Of each site and round: seconds, and bytes up and down, of a second round of a stand-in."""
        consortium, facts, size = self.consortium, self.consortium.facts, len(self.consortium.sites)
        done, _ = self._first
        row = done.rounds[-1]
        kept = torch.from_numpy(np.maximum(np.rint((1 - TEST) * consortium.counts.sum(1)), 1)).long()
        paces = paces_of(made_of(entry_of(self.method), self.common).method.pace.of(kept, 1, 1))
        steps = [length_of(rows, pace) for rows, pace in zip(kept.tolist(), paces, strict=True)]
        here = row["train_s"] / row["steps"]
        ratio = (self.parameters or 0) / sum(t.numel() for t in done.params.values()) or 1.0
        up, down = (round(ratio * row[f"{way}_bytes"] / size) for way in ("upload", "download"))
        step = facts.get("step_s") or [here / speed for speed in facts.get("speed", [1.0] * size)]
        links = zip(*(facts.get(way, [math.inf] * size) for way in ("up", "down")), strict=True)
        link = [8e-6 * (up / a + down / b) for a, b in links]
        each = zip(steps, step, link, strict=True)
        return [{"round_s": n * s + wire, "upload_bytes": up, "download_bytes": down} for n, s, wire in each]

    @cached_property
    def rates(self) -> tuple[float, ...]:
        """How often each site misses a round; always where it is slower than the deadline. Raises ConfigError."""
        rates = self.consortium.facts.get("failure") or [0.0] * len(self.consortium.sites)
        if self.deadline is not None:
            fastest = min(cost["round_s"] for cost in self.costs)
            hint = f"the fastest needs {fastest:.3g} s"
            require(fastest <= self.deadline, "deadline", "leave a site in time", self.deadline, hint)
            rates = [1.0 if c["round_s"] > self.deadline else r for r, c in zip(rates, self.costs, strict=True)]
        return tuple(rates)

    # Studies

    @cached_property
    def studies(self) -> tuple[Spec, Spec | None]:
        """(the method and local training, with all cases and with fewer at a site; the method without a site)."""
        entry, size = entry_of(self.method), len(self.consortium.sites)
        failing = replace(entry, options=(*entry.options, *_failing(self.rates)), label=entry.name)
        alone = Entry("localonly", (("cohort", str(size)),), LOCAL)
        base, without = dict[str, tuple[Pair, ...]](), dict[str, tuple[Pair, ...]]()
        for standin in self.standins:
            base[standin.name] = _divided(standin)
            for k, share in ((k, share) for k in self.sites for share in SHARES):
                base[standin.name + self._fewer(k, share)] = _divided(standin, k, share)
            for k in self._leaving:
                gone = _failing([1.0 if j == k else rate for j, rate in enumerate(self.rates)])
                without[standin.name + self._without(k)] = (*_divided(standin), *gone)
        plain = made_of(entry, self.common).method.selector.name == "random"
        rule = "choose clients at random where sites fail or leave"
        require(plain or not (any(self.rates) or without), "METHOD", rule, self.method, "see --vary none")
        return self._spec((failing, alone), base), self._spec((entry,), without) if without else None

    def _spec(self, methods: tuple[Entry, ...], settings: Mapping[str, tuple[Pair, ...]]) -> Spec:
        """A study whose runs can be. Raises ConfigError."""
        common = (*self.common, ("eval-every", str(MOST)))  # the last model counts
        spec = Spec(methods, common, tuple(settings.values()), tuple(settings), self.seeds, "final_accuracy")
        for cell in spec.cells():
            if cell.refused:
                raise ConfigError(f"{cell.label} cannot be rehearsed: {cell.refused}")
        return spec

    @cached_property
    def _leaving(self) -> list[int]:
        """The varied sites without which there is still one that takes part."""
        there = [k for k, rate in enumerate(self.rates) if rate < 1]
        return [k for k in self.sites if k in there and len(there) > 1]

    def _without(self, k: int) -> str:
        return f", without {self.consortium.sites[k]}"

    def _fewer(self, k: int, share: float) -> str:
        return "" if share == 1 else f", {share:g} of {self.consortium.sites[k]}"

    def done(self, studies: Iterable[Study], work: Callable[[Study], bool]) -> Row | None:
        """Do the studies, and say what their runs let expect.

        Args:
            studies: Those of `studies`, each with its store.
            work: Does what is missing of a study; False where somebody interrupts.

        Returns:
            Plain values for JSON; None after an interruption.

        Raises:
            ConfigError: A run was refused or failed.
        """
        runs: Runs = {}
        for study in studies:
            if not work(study):
                return None
            for planned, run in study.entries():
                cell = planned.cell
                if run is None or run.state != "finished":
                    state = f"{run.state}: {run.reason}" if run else "missing"
                    raise ConfigError(f"the run {cell.name} is {state}")
                clients = {row["client"]: row for row in last_clients(read_clients(run.folder))}
                runs[cell.label, cell.setting, cell.seed] = clients, [row["clients"] for row in run.rows]
        return self._expectations(runs)

    # What the runs say

    def _expectations(self, runs: Runs) -> Row:
        consortium, method = self.consortium, entry_of(self.method).name
        everybody, tests = [*range(len(consortium.sites))], TEST * consortium.counts
        ours, local = (method, ""), (LOCAL, "")

        def predicted(run: Side, other: Side | None, sites: Sequence[int], rows: float, c: int | None = None) -> Any:
            """What one run is expected to measure at sites, or how far it is above another."""
            beside = expected(values(other, None, sites, c), rows) if other else None
            return expected(values(run, other, sites, c), rows, beside.possible if beside else (0.0, 1.0))

        def values(run: Side, other: Side | None, sites: Sequence[int], c: int | None = None) -> Values:
            """A share at sites, or its difference of two runs, of each stand-in and seed that has test rows."""
            sides, per_site = (run, other or run), []
            for name in (standin.name for standin in self.standins):
                pairs = [[_share(runs[who, name + what, n][0], sites, c) for who, what in sides] for n in self.seeds]
                per_site.append([a - b if other else a for a, b in pairs if a is not None and b is not None])
            return per_site

        def at_sites(sites: Sequence[int]) -> Row:
            """What sites together can expect of the method, of local training, and of the one over the other."""
            rows = tests[sites].sum()
            return {
                "accuracy": predicted(ours, None, sites, rows),
                "local": predicted(local, None, sites, rows),
                "rare_recall": predicted(ours, None, sites, tests[sites, consortium.rare].sum(), consortium.rare),
                "gain": predicted(ours, local, sites, rows),
            }

        took = [runs[method, self.standins[0].name, seed][1] for seed in self.seeds]
        rows = []
        for k, site in enumerate(consortium.sites):
            rounds = statistics.fmean(sum(k in who for who in each) for each in took)
            row: Row = {
                "site": site, "cases": int(consortium.counts[k].sum()), "failure": self.rates[k], "rounds": rounds,
                **self.costs[k], **at_sites([k]),
            }  # fmt: skip
            if k in self._leaving:
                gone, left = (method, self._without(k)), [j for j in everybody if j != k]
                row["lost"] = predicted(ours, gone, left, tests[left].sum())
                row["rare_lost"] = predicted(ours, gone, left, tests[left, consortium.rare].sum(), consortium.rare)
            if k in self.sites:
                curve = {}
                for share in (*SHARES, 1.0):
                    sides = (method, self._fewer(k, share)), (LOCAL, self._fewer(k, share))
                    curve[round(share * row["cases"])] = predicted(*sides, [k], share * tests[k].sum())
                row["curve"] = [{"cases": cases, "gain": gain} for cases, gain in curve.items()]
                row["needs"] = next((n for n, gain in curve.items() if gain and (gain.low or 0) > 0), None)
            rows.append(row)
        smaller = any(standin.factor < 1 for standin in self.standins)
        return {
            "method": method, "seeds": list(self.seeds), "rounds": len(took[0]),
            "rare": consortium.classes[consortium.rare],
            "standins": [{"name": standin.name, "factor": standin.factor} for standin in self.standins],
            **at_sites(everybody),
            "wall_s": [sum(map(self._seconds, each)) for each in took], "sites": rows,
            "unknown": [ONE] * (len(self.standins) == 1) + [SMALLER] * smaller + [*UNKNOWN],
        }  # fmt: skip

    def _seconds(self, who: Sequence[int]) -> float:
        """Seconds of a round: of the slowest that took part; the deadline where somebody missed it."""
        cohort = int(dict(self.common).get("cohort", len(self.consortium.sites)))
        if self.deadline is not None and len(who) < cohort:
            return self.deadline
        return float(max(self.costs[k]["round_s"] for k in who))


def _divided(standin: StandIn, k: int = 0, share: float = 1.0) -> tuple[Pair, ...]:
    """The options that give each site its rows of a stand-in, site k only a share of them, `LEAST` at least."""
    counts = standin.counts.copy()
    counts[k] = np.rint(share * counts[k])
    if (lacking := LEAST - int(counts[k].sum())) > 0:
        counts[k, standin.counts[k].argmax()] += lacking
    return (*standin.options, ("partition", Counts(matrix=tuple(map(tuple, counts.tolist())))))


def _failing(rates: Sequence[float]) -> tuple[Pair, ...]:
    """The options of sites that miss rounds; none where no site does."""
    return (("selector", "failing"), ("selector.rates", ",".join(map(str, rates)))) if any(rates) else ()


def _share(clients: Mapping[int, Row], sites: Sequence[int], c: int | None) -> float | None:
    """The share of right test rows, of class c or of all, at sites together; None without such rows."""
    known = [clients[k] for k in sites if k in clients]
    rows = [row["rows"] if c is None else row["support"][c] for row in known]
    right = [row["accuracy"] if c is None else row["per_class_recall"][c] or 0.0 for row in known]
    return sum(n * p for n, p in zip(rows, right, strict=True)) / sum(rows) if sum(rows) else None
