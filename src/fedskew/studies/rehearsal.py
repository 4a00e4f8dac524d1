"""A consortium rehearsed: what its class counts, failures and links let expect, from stand-in datasets.

Everything is read from runs of two studies, kept in a store. Each site keeps `TEST` of its cases for its test.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from fedskew.config.words import Pair
from fedskew.data.consortium import LEAST, Consortium, scaled
from fedskew.data.partitioners import Counts
from fedskew.engines.planning import length_of, paces_of
from fedskew.errors import ConfigError, DataError, require, unknown
from fedskew.fields import MOST
from fedskew.records.clients import last_clients, read_clients
from fedskew.records.typed import Row
from fedskew.studies.address import dataset_of
from fedskew.studies.arguments import Entry, entry_of, full
from fedskew.studies.scores import LEVEL, deviation, t_interval
from fedskew.studies.spec import Spec, made_of
from fedskew.studies.store import Store
from fedskew.studies.study import Study

TEST = 0.2  # of the cases of a site
QUANTILE = (1 + LEVEL) / 2
SHARES = (0.25, 0.5)  # of the cases of a site, beside all of them, for its learning curve
PANELS = {2: ("adult", "fashion_mnist", "cifar10"), 10: ("fashion_mnist", "cifar10", "mnist"), 100: ("cifar100",)}
VARIED = 10  # sites of which each leaves once and has fewer cases, where nobody says which
SET = ("partition", "clients", "local-test", "selector", "seed", "longtail", "heldout-clients")  # what is not free
LOCAL = "local training"
SMALLER = "stand-ins with fewer rows have smaller sites: models are worse there, and gains over local training larger"
UNKNOWN = (
    "stand-in data are not your data: they may be easier or harder, which an interval of one stand-in ignores",
    "counts do not tell how sites differ in features, such as devices, protocols or patients of one class",
    "your network has another size than the stand-in's; --parameters sets its bytes, the column step_s its seconds",
    "failures are independent draws; a site that is away for days, or sites that fail together, cost more",
)
Values = Sequence[Sequence[float]]  # of each stand-in, those of its seeds
Runs = dict[tuple[str, str, int], tuple[dict[int, Row], list[list[int]]]]  # of each: rows by client; who took part
Side = tuple[str, str]  # method, and what a setting adds to the stand-in's name


@dataclass(frozen=True)
class Expected:
    """A number to expect, and its 95 % interval."""

    mean: float
    low: float | None
    high: float | None


def expected(values: Values, rows: float, least: float = 0.0) -> Expected | None:
    r"""The prediction interval of a share that one run will measure on ``rows`` test rows.

    S stand-ins of n seeds each have means m_s, with mean m, and variances over their seeds with mean v.

        b = p (1 - p) / rows,  p = (rows |m| + 2) / (rows + 4)     the draw of the test rows, whose variance is known
        e = max(v - b, 0)                                          what seeds add to it
        S = 1:  m -+ sqrt((1 + 1/n) (z^2 b + t(n - 1)^2 e))
        S > 1:  m -+ sqrt(z^2 b + t(S (n - 1))^2 e + t(S - 1)^2 (1 + 1/S) var_s(m_s))      the last: which dataset it is

    z and t are quantiles at 0.975, of the normal and of Student's distribution. Seeds draw other rows for training and
    test, so v holds both.
    Of a difference of two shares b is the least that the difference allows. Ends are cut where no share, or no
    difference of shares, can be.

    Args:
        values: Of each stand-in, the value of each seed.
        rows: Test rows.
        least: The least value that there can be: 0, or -1 of a difference.

    Returns:
        Mean and interval; None without values, no interval below two values.

    Example:
        >>> from fedskew.studies.rehearsal import expected
        >>> found = expected([[0.8, 0.82, 0.78]], rows=100)
        >>> round(found.mean, 2), round(found.low, 2), round(found.high, 2)
        (0.8, 0.71, 0.89)
    """
    from scipy.special import ndtri, stdtrit

    arrays = [np.array(each) for each in values if len(each)]
    if not arrays or rows <= 0:
        return None
    count, means = len(arrays), np.array([float(each.mean()) for each in arrays])
    mean, free = float(means.mean()), sum(len(each) - 1 for each in arrays)
    if not free:
        return Expected(mean, None, None)
    p = (rows * abs(mean) + 2) / (rows + 4)
    known = p * (1 - p) / rows
    seeds = sum(float(((each - each.mean()) ** 2).sum()) for each in arrays) / free
    z, t, between = ndtri(QUANTILE), stdtrit(free, QUANTILE), stdtrit(max(count - 1, 1), QUANTILE)
    one_run = z**2 * known + t**2 * max(seeds - known, 0.0)
    which = between**2 * deviation(means) ** 2 * (1 + 1 / count) if count > 1 else one_run / len(arrays[0])
    half = math.sqrt(one_run + which)
    return Expected(mean, max(mean - half, least), min(mean + half, 1.0))


def difference(values: Values) -> Expected | None:
    """The t interval of a mean difference: over the seeds of one stand-in, else over the means of several."""
    means = [statistics.fmean(each) for each in values if len(each)]
    if not means:
        return None
    found = t_interval(np.array(means if len(means) > 1 else next(each for each in values if len(each))))
    return Expected(statistics.fmean(means), *(found or (None, None)))


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
            for the number of classes, as far as they are at hand.
        seeds: Seeds.
        varied: Sites of which each leaves once and has fewer cases, "all" or "none"; None: all of up to `VARIED`.
        deadline: Seconds after which a round goes on without a site; None: it waits for the slowest.
        parameters: Parameters of your network; None: those of the stand-in's.

    Raises:
        ConfigError: An option breaks a rule, or no stand-in fits.
    """

    consortium: Consortium
    method: str
    options: tuple[Pair, ...]
    seeds: tuple[int, ...]
    varied: str | None = None
    deadline: float | None = None
    parameters: int | None = None

    @cached_property
    def common(self) -> tuple[Pair, ...]:
        """The options of all runs but those of the stand-in."""
        own = {full(option) for option, _ in (*self.options, *entry_of(self.method).options)}
        for name in SET:
            require(name not in own, name, "be left out: rehearse sets it", dict(self.options).get(name, "it"))
        cohort = () if "cohort" in own else (("cohort", str(len(self.consortium.sites))),)
        return (*(pair for pair in self.options if pair[0] != "data"), ("local-test", str(TEST)), *cohort)

    @cached_property
    def standins(self) -> tuple[StandIn, ...]:
        """The stand-ins; of those that nobody named, the ones at hand."""
        named, classes = dict(self.options).get("data"), len(self.consortium.classes)
        panel = next((names for most, names in PANELS.items() if classes <= most), ())
        require(bool(named or panel), "data", f"name datasets of at least {classes} classes", "none")
        found: list[StandIn] = []
        for name in str(named).split(",") if named else panel:
            try:
                found.append(self._standin(name.strip()))
            except DataError:
                if named or (name == panel[-1] and not found):
                    raise
        return tuple(found)

    def _standin(self, name: str) -> StandIn:
        classes, options = len(self.consortium.classes), [("data", name)]
        loaded = self._data(options)
        if loaded.classes < classes:
            rule = f"name datasets of at least {classes} classes"
            raise ConfigError(f"data must {rule}; got {name!r}, which has {loaded.classes}")
        if loaded.classes > classes:
            options.append(("data.classes", ",".join(map(str, range(classes)))))
            loaded = self._data(options)
        return StandIn(name, tuple(options), *scaled(self.consortium.counts, loaded.counts.tolist()))

    def _data(self, options: Sequence[Pair]) -> Any:
        made = made_of(entry_of(self.method), (*self.common, *options))
        return dataset_of(made.data, made.path)

    @cached_property
    def sites(self) -> list[int]:
        """The sites that are varied."""
        known = self.consortium.sites
        if self.varied in (None, "all", "none"):
            few = self.varied == "all" or (self.varied is None and len(known) <= VARIED)
            return [*range(len(known))] if few else []
        names = [name.strip() for name in str(self.varied).split(",")]
        if lost := [name for name in names if name not in known]:
            raise unknown("site", lost[0], known)
        return [known.index(name) for name in names]

    # Costs

    @cached_property
    def costs(self) -> list[Row]:
        """Of each site and round: seconds, and bytes up and down, of a second round of a stand-in."""
        of, facts, size = self.consortium, self.consortium.facts, len(self.consortium.sites)
        made = made_of(entry_of(self.method), (*self.common, *_divided(self.standins[0])))
        done = replace(made, rounds=2, cohort=size, served="none", threads=1).run()
        row = done.rounds[-1]
        kept = torch.from_numpy(np.maximum(np.rint((1 - TEST) * of.counts.sum(1)), 1)).long()
        paces = paces_of(made.method.pace.of(kept, 1, 1))
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
        for one in self.standins:
            base[one.name] = _divided(one)
            for k, share in ((k, share) for k in self.sites for share in SHARES):
                base[one.name + self._fewer(k, share)] = _divided(one, k, share)
            for k in self._leaving:
                gone = _failing([1.0 if j == k else rate for j, rate in enumerate(self.rates)])
                without[one.name + self._without(k)] = (*_divided(one), *gone)
        plain = made_of(entry, self.common).method.selector.name == "random"
        rule = "choose clients at random where sites fail or leave"
        require(plain or not (any(self.rates) or without), "METHOD", rule, self.method, "see --vary none")
        return self._spec((failing, alone), base), self._spec((entry,), without) if without else None

    def _spec(self, methods: tuple[Entry, ...], settings: Mapping[str, tuple[Pair, ...]]) -> Spec:
        """A study whose runs can be. Raises ConfigError."""
        common = (*self.common, ("eval-every", str(MOST)))  # the last model counts
        made = Spec(methods, common, tuple(settings.values()), tuple(settings), self.seeds, "final_accuracy")
        for cell in made.cells():
            if cell.refused:
                raise ConfigError(f"{cell.label} cannot be rehearsed: {cell.refused}")
        return made

    @cached_property
    def _leaving(self) -> list[int]:
        """The varied sites without which there is still one that takes part."""
        there = [k for k, rate in enumerate(self.rates) if rate < 1]
        return [k for k in self.sites if k in there and len(there) > 1]

    def _without(self, k: int) -> str:
        return f", without {self.consortium.sites[k]}"

    def _fewer(self, k: int, share: float) -> str:
        return "" if share == 1 else f", {share:g} of {self.consortium.sites[k]}"

    def done(self, store: Store | str, work: Callable[[Study], bool]) -> Row | None:
        """Do the studies, and say what their runs let expect.

        Args:
            store: Where runs are kept.
            work: Does what is missing of a study; False where somebody interrupts.

        Returns:
            Plain values for JSON; None after an interruption.

        Raises:
            ConfigError: A run was refused or failed.
        """
        runs: Runs = {}
        for spec in filter(None, self.studies):
            study = Study(spec, store)
            if not work(study):
                return None
            for planned, run in study.entries():
                cell = planned.cell
                if run is None or run.state != "finished":
                    told = f"{run.state}: {run.reason}" if run else "missing"
                    raise ConfigError(f"the run {cell.name} is {told}")
                clients = {row["client"]: row for row in last_clients(read_clients(run.folder))}
                runs[cell.label, cell.setting, cell.seed] = clients, [row["clients"] for row in run.rows]
        return self._told(runs)

    # What the runs say

    def _told(self, runs: Runs) -> Row:
        of, method = self.consortium, entry_of(self.method).name
        everybody, tests = [*range(len(of.sites))], TEST * of.counts
        ours, local = (method, ""), (LOCAL, "")

        def values(run: Side, other: Side | None, sites: Sequence[int], c: int | None = None) -> Values:
            """A share at sites, or its difference of two runs, of each stand-in and seed that has test rows."""
            sides, found = (run, other or run), []
            for name, seeds in [(one.name, self.seeds) for one in self.standins]:
                pairs = [[_share(runs[who, name + what, n][0], sites, c) for who, what in sides] for n in seeds]
                found.append([a - b if other else a for a, b in pairs if a is not None and b is not None])
            return found

        took = [runs[method, self.standins[0].name, seed][1] for seed in self.seeds]
        rows = []
        for k, site in enumerate(of.sites):
            rounds = statistics.fmean(sum(k in who for who in each) for each in took)
            row: Row = {
                "site": site, "cases": int(of.counts[k].sum()), "failure": self.rates[k], "rounds": rounds,
                **self.costs[k],
                "accuracy": expected(values(ours, None, [k]), float(tests[k].sum())),
                "rare_recall": expected(values(ours, None, [k], of.rare), float(tests[k, of.rare])),
                "gain": expected(values(ours, local, [k]), float(tests[k].sum()), -1.0),
            }  # fmt: skip
            if k in self._leaving:
                gone, left = (method, self._without(k)), [j for j in everybody if j != k]
                row["lost"] = difference(values(ours, gone, left))
                row["rare_lost"] = difference(values(ours, gone, left, of.rare))
            if k in self.sites:
                curve = {}
                for share in (*SHARES, 1.0):
                    fewer = self._fewer(k, share)
                    curve[round(share * row["cases"])] = difference(values((method, fewer), (LOCAL, fewer), [k]))
                row["curve"] = [{"cases": cases, "gain": gain} for cases, gain in curve.items()]
                row["needs"] = next((n for n, gain in curve.items() if gain and (gain.low or 0) > 0), None)
            rows.append(row)
        return {
            "method": method, "seeds": list(self.seeds), "rounds": len(took[0]), "rare": of.classes[of.rare],
            "standins": [{"name": one.name, "factor": one.factor} for one in self.standins],
            "accuracy": expected(values(ours, None, everybody), float(tests.sum())),
            "rare_recall": expected(values(ours, None, everybody, of.rare), float(tests[:, of.rare].sum())),
            "gain": expected(values(ours, local, everybody), float(tests.sum()), -1.0),
            "wall_s": [sum(map(self._seconds, each)) for each in took], "sites": rows,
            "unknown": [SMALLER] * any(one.factor < 1 for one in self.standins) + [*UNKNOWN],
        }  # fmt: skip

    def _seconds(self, who: Sequence[int]) -> float:
        """Seconds of a round: of the slowest that took part; the deadline where somebody missed it."""
        cohort = int(dict(self.common).get("cohort", len(self.consortium.sites)))
        if self.deadline is not None and len(who) < cohort:
            return self.deadline
        return float(max(self.costs[k]["round_s"] for k in who))


def _divided(one: StandIn, k: int = 0, share: float = 1.0) -> tuple[Pair, ...]:
    """The options that give each site its rows of a stand-in, site k only a share of them, `LEAST` at least."""
    counts = one.counts.copy()
    counts[k] = np.rint(share * counts[k])
    if (lacking := LEAST - int(counts[k].sum())) > 0:
        counts[k, one.counts[k].argmax()] += lacking
    return (*one.options, ("partition", Counts(matrix=tuple(map(tuple, counts.tolist())))))


def _failing(rates: Sequence[float]) -> tuple[Pair, ...]:
    """The options of sites that miss rounds; none where no site does."""
    return (("selector", "failing"), ("selector.rates", ",".join(map(str, rates)))) if any(rates) else ()


def _share(clients: Mapping[int, Row], sites: Sequence[int], c: int | None) -> float | None:
    """The share of right test rows, of class c or of all, at sites together; None without such rows."""
    known = [clients[k] for k in sites if k in clients]
    rows = [row["rows"] if c is None else row["support"][c] for row in known]
    right = [row["accuracy"] if c is None else row["per_class_recall"][c] or 0.0 for row in known]
    return sum(n * p for n, p in zip(rows, right, strict=True)) / sum(rows) if sum(rows) else None
