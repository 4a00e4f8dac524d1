"""What a study compares: methods, settings and seeds; and the runs that this comes to.

Tuning has an equal budget: one search space and one sequence of trials, points of a shifted Halton sequence, for every
method alike. Trials are scored on a part of the training set that is held out for them, never on the test set, and use
a seed that is not among the compared seeds.
"""

import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from fedskew import rng
from fedskew.config.experiment import Experiment
from fedskew.config.flags import Options, experiment_of
from fedskew.config.words import Pair, as_word, flags_of
from fedskew.errors import ConfigError, FedskewError, UnknownOption, closest, require, text_of, unknown
from fedskew.method import Method
from fedskew.methods import METHODS
from fedskew.records.summary import summary_names
from fedskew.records.typed import Row, entries, fault_of
from fedskew.studies.arguments import Entry, combinations, entry_of, full, options_of_table, seeds_of
from fedskew.studies.shipped import names, shipped

GROUP = entries("Group", {}, {"methods": list[str], "options": Row, "suffix": str})
STUDY = entries("Study", {}, {
    **dict.fromkeys(("title", "metric", "baseline", "notes"), str), "methods": list[str], "seeds": Any, "options": Any,
    "settings": list[Row] | str, "method": dict[str, Row], "controls": bool | str, "tune": Any, "tune_trials": Any,
    "tune_beyond": Any, "group": Row,
})  # fmt: skip
MOST_SETTINGS = 2_000  # a few values of a few options are millions of combinations
# By name. Weights: plain cross-entropy under both, as much of what a method gains may be its weights'. Local and
# centralised: what a client has without a federation, and what all could have in one place.
CONTROLS = {
    "weights": (
        Entry("fedavg", (("weighting", "uniform"),), "control: cross-entropy, uniform weights"),
        Entry("fedavg", (("weighting", "size"),), "control: cross-entropy, size weights"),
    ),
    "local": (Entry("localonly", (), "control: each client alone"),),
    "centralised": (
        Entry("fedavg", (("partition", "iid"), ("clients", "1"), ("cohort", "1")), "control: all rows in one place"),
    ),
}


LONGER = "rounds"  # the control of the baseline trained for more rounds, `Study.longer`
HELD_OUT = "0.1"  # of the training rows, where the study holds out none
MOST_TRIALS = 10_000
TRIAL_SEED = 1_000_003  # added to the first seed
NUMBER = r"([-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?)"
SPACE = re.compile(rf"\s*(?:(log|int):)?\s*{NUMBER}\s*\.\.\s*{NUMBER}\s*")


@dataclass(frozen=True)
class Range:
    """Values of one option: ``log:0.01..0.3``, ``0..0.9`` or ``int:1..5``."""

    option: str
    low: float
    high: float
    scale: str = ""

    def at(self, share: float) -> str:
        """The value at a point of [0, 1), as a word with four digits."""
        if self.scale == "log":
            return f"{math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low))):.4g}"
        if self.scale == "int":
            return str(int(self.low + math.floor(share * (self.high - self.low + 1))))
        return f"{self.low + share * (self.high - self.low):.4g}"


@dataclass(frozen=True)
class Tuning:
    """What is tuned, and how often."""

    space: tuple[Range, ...]
    trials: int = 8
    beyond: int = 0
    """most trials outside of the range, one at a time while the best value is the smallest or the largest"""

    def points(self) -> list[tuple[Pair, ...]]:
        """The options of each trial, the same for every method.

        Example:
            >>> [pairs[0][1] for pairs in Tuning((Range("lr", 0.01, 0.3, "log"),), 3).points()]
            ['0.241', '0.04399', '0.0188']
        """
        from scipy.stats import qmc

        shift = rng.generator(0, "tuning").random(len(self.space))  # the sequence itself begins at 0
        drawn = (qmc.Halton(len(self.space), scramble=False).random(self.trials) + shift) % 1
        return [tuple((r.option, r.at(float(x))) for r, x in zip(self.space, row, strict=True)) for row in drawn]

    def next_point(self, scores: Mapping[tuple[Pair, ...], float]) -> tuple[Pair, ...] | None:
        """The trial beyond an edge of what was tried, if the best value is there; None if it lies inside.

        The step is that of evenly spaced trials: the range's ratio to the power of 1 / trials.

        Args:
            scores: the score of each point that was tried; NaN where the run failed.

        Example:
            >>> tuning = Tuning((Range("lr", 0.01, 1, "log"),), 2, beyond=1)
            >>> tuning.next_point({(("lr", "0.1"),): 0.8, (("lr", "0.5"),): 0.9})
            (('lr', '5'),)
        """
        if len(scores) >= self.trials + self.beyond or all(map(math.isnan, scores.values())):
            return None
        (axis,) = self.space
        values = [float(point[0][1]) for point in scores]
        best = float(max((p for p in scores if not math.isnan(scores[p])), key=scores.__getitem__)[0][1])
        step = (axis.high / axis.low) ** (1 / self.trials)
        if min(values) < best < max(values):
            return None
        return ((axis.option, f"{best * step if best == max(values) else best / step:.4g}"),)


def tuning_of(space: Any, trials: Any = 8, beyond: Any = 0) -> Tuning:
    """A search space from words.

    Args:
        space: "lr=log:0.01..0.3,momentum=0..0.9", or a mapping of the same.
        trials: runs of each method and setting.
        beyond: most trials outside of the range while the best value is at its edge; for one log range.

    Raises:
        ConfigError: a range is none, the number of trials is below 2 or above 10 000, or ``beyond`` is no whole number
            from 0 to 10 000 or has a space of another kind.
    """
    if isinstance(space, str):
        pieces = [piece.partition("=") for piece in space.split(",")]
        space = {key.strip(): value for key, _, value in pieces}
    rule = "be OPTION=LOW..HIGH, OPTION=log:LOW..HIGH or OPTION=int:LOW..HIGH"
    require(isinstance(space, Mapping) and bool(space), "tune", rule, space)
    for name, value, least in (("tune_trials", trials, 2), ("tune_beyond", beyond, 0)):
        require(type(value) is int and value >= least, name, f"be at least {least}", value)
        require(value <= MOST_TRIALS, name, f"be at most {MOST_TRIALS}", value)
    ranges = []
    for key, text in space.items():
        match = SPACE.fullmatch(str(text))
        scale, low, high = ("", 1.0, 0.0) if match is None else (match[1] or "", float(match[2]), float(match[3]))
        if not (key and low < high and math.isfinite(high - low) and (scale != "log" or low > 0)):
            raise ConfigError(f"tune must {rule}, with LOW < HIGH, both positive for log; got {f'{key}={text}'!r}")
        ranges.append(Range(key.removeprefix("--"), low, high, scale))
    log_range = not beyond or (len(ranges) == 1 and ranges[0].scale == "log")
    require(log_range, "tune_beyond", "be used with one log range, such as lr=log:0.01..0.3", beyond)
    return Tuning(tuple(ranges), trials, beyond=beyond)


@dataclass(frozen=True)
class Cell:
    """One run of a study: a method under a setting with a seed. ``refused`` says why it cannot be one."""

    label: str
    setting: str
    seed: int
    experiment: Experiment | None
    refused: str = ""
    trial: int = -1  # of the tuning; -1 for a run that is compared

    @property
    def name(self) -> str:
        """As in "fedavg, partition.alpha 0.1, seed 0"."""
        setting = "" if self.setting == "all" else f"{self.setting}, "
        return f"{self.label}, {setting}seed {self.seed}" + (f", trial {self.trial}" if self.trial >= 0 else "")


@dataclass(frozen=True)
class Spec:
    """A study.

    Raises:
        ConfigError: no method, a method twice, or a baseline that is none of the methods.
    """

    methods: tuple[Entry, ...]
    options: tuple[Pair, ...] = ()
    """options of all runs; several values between commas are a setting each"""
    settings: tuple[tuple[Pair, ...], ...] = ()
    """sets of options that each are a setting, where not every combination is meant"""
    names: tuple[str, ...] = ()
    """what each of these settings is called; "" or none: by the options that differ"""
    seeds: tuple[int, ...] = (0,)
    metric: str = ""
    """entry of the summary that is compared; unset: the mean accuracy over the last 10 rounds, of what each client
    would use where a method gives clients models of their own alone, else of the global model"""
    baseline: str = ""
    """the method that others are compared with; unset: the first"""
    tuning: Tuning | None = None
    longer: bool = False
    """whether the baseline is also trained for more rounds: twice as many, or as many as the dearest method's work"""
    title: str = ""
    notes: str = ""

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        names = [m.name for m in self.methods]
        require(bool(names), "methods", "name at least one method", list(names))
        repeated = next((n for n in names if names.count(n) > 1), "")
        require(not repeated, "methods", "be different; use labels for two of one name", repeated)
        check_names("baseline", filter(None, [self.baseline]), names)
        if not self.metric:
            serves_own = any(served == "own" for served in self.serves.values())
            object.__setattr__(self, "metric", f"mean10_{'served_' * serves_own}accuracy")
        held = any(full(option) == "local-test" for each in (self.options, *self.settings) for option, _ in each)
        if self.tuning and self.own_models and held:
            raise ConfigError("tune must stand without local_test where clients' own models are compared: it chooses "
                              "by rows that clients hold out for it")  # fmt: skip
        if self.tuning and any(full(option) == "dp" and as_word(value) != "none" for option, value in self._pairs):
            raise ConfigError("tune must stand without dp: its trials read the same rows, and no epsilon counts them")
        if self.metric not in summary_names():  # before runs are made, not after
            spans = {name.partition("_")[0] for name in summary_names()}
            whole = self.metric if self.metric.partition("_")[0] in spans else f"mean10_{self.metric}"
            raise ConfigError(f"unknown metric {self.metric!r}{closest(whole, summary_names())}")

    @property
    def _pairs(self) -> Iterator[Pair]:
        """The options of all runs, settings and methods."""
        for each in (self.options, *self.settings, *(entry.options for entry in self.methods)):
            yield from each

    @cached_property
    def serves(self) -> dict[str, str]:
        """What clients use under each method, `fedskew.method.Method.serves`."""
        try:
            options = self.axes[0][1]
        except FedskewError:
            options = ()  # whoever makes the runs says what is wrong
        return {entry.name: _serves(entry, options) for entry in self.methods}

    @property
    def own_models(self) -> bool:
        """Whether what is compared are models that clients would use, of their own where a method has them."""
        return self.metric.partition("_")[2].startswith(("served_", "personal_", "fitted_served_", "heldout_served_"))

    @property
    def trial(self) -> tuple[Pair, str]:
        """(option that holds rows out for the trials of the tuning, number of a summary that is best on them).

        Where clients use their own models, each client holds out rows of its own: a validation set of the server says
        nothing of them.
        """
        if self.own_models:
            return ("local-test", HELD_OUT), "mean10_served_accuracy"
        return ("validation", HELD_OUT), "mean10_val_accuracy"

    @property
    def reference(self) -> str:
        """The baseline, or the first method."""
        return self.baseline or self.methods[0].name

    @cached_property
    def axes(self) -> list[tuple[str, tuple[Pair, ...]]]:
        """(name, options) of each setting; the name says what differs between settings.

        Raises:
            ConfigError: an option that no run has, a value twice, or more than 2,000 settings.
        """
        first = self.methods[0].method
        every: list[tuple[Pair, ...]] = []
        called: list[str] = []
        for at, chosen in enumerate(self.settings or ((),)):
            name, each = "".join(self.names[at : at + 1]), [*without(self.options, chosen), *chosen]
            inside = list(islice(combinations(first, each), MOST_SETTINGS + 1))
            every += inside
            require(len(every) <= MOST_SETTINGS, "settings", f"be at most {MOST_SETTINGS}", "more", "name fewer values")
            called += [", ".join(filter(None, (name, _differing(pairs, inside)))) if name else "" for pairs in inside]
        names = [name or _differing(pairs, every) or "all" for name, pairs in zip(called, every, strict=True)]
        repeated = next((n for n in names if names.count(n) > 1), "")
        require(not repeated, "settings", "have different names", repeated)
        return list(zip(names, every, strict=True))

    def cells(self) -> Iterator[Cell]:
        """Every run that is compared, with the seed changing fastest.

        All methods of a setting hold out the same rows, take part in the same number and draw from the same seeds.

        Raises:
            ConfigError: an option that the first method refuses under the first setting, a method that there is not, or
                an option of its own that it does not have: a mistake of the study.
        """
        for at, (setting, options) in enumerate(self.axes):
            experiments, refused = self._made(options, strict=at == 0)
            wanted = max((experiment.rows_at_server for experiment in experiments.values()), default=None)
            served = self.own_models
            for entry in self.methods:
                first = experiments.get(entry.name)
                fixed = any(full(option) == "seed" for option, _ in entry.options)
                for seed in self.seeds:
                    if first is None:
                        yield Cell(entry.name, setting, seed, None, refused[entry.name])
                        continue
                    experiment = alike(first if fixed else replace(first, seed=seed), wanted)
                    asked = any(full(option) == "served" for option, _ in (*options, *entry.options))
                    if served and not asked:
                        experiment = replace(experiment, served="tail")
                    yield Cell(entry.name, setting, seed, experiment)

    def _made(self, options: Sequence[Pair], strict: bool) -> tuple[dict[str, Experiment], dict[str, str]]:
        """The experiment of each method with the first seed, and why there is none of others."""
        experiments, refused = dict[str, Experiment](), dict[str, str]()
        for number, entry in enumerate(self.methods):
            try:
                experiments[entry.name] = made_of(entry, (*options, ("seed", self.seeds[0])))
            except FedskewError as error:
                mistyped = isinstance(error, UnknownOption) and error.option in dict(entry.options)
                if as_word(entry.method) not in METHODS or (strict and (number == 0 or mistyped)):
                    raise  # a mistake of the study, not of a setting
                refused[entry.name] = str(error)
        return experiments, refused

    @cached_property
    def tunable(self) -> dict[tuple[str, str], list[str]]:
        """By method and setting, the options of the search that the method has.

        Raises:
            UnknownOption: no method has one of them.
        """
        by_run: dict[tuple[str, str], list[str]] = {}
        space, known = self.tuning.space if self.tuning else (), set[str]()
        next(self.cells(), None)  # other mistakes of the study come first
        for setting, options in self.axes if space else ():
            for entry in self.methods:
                named = by_run[entry.name, setting] = list[str]()
                try:
                    known |= {flag[2:] for flag in Options(made_of(entry, options))}
                except FedskewError:
                    continue  # its runs are refused, and say why
                for axis in space:
                    try:
                        made_of(entry, options, [(axis.option, axis.at(0.5))])
                    except UnknownOption:
                        continue
                    except FedskewError:
                        pass  # its trials say why
                    named.append(axis.option)
        for axis in space:
            if not any(axis.option in named for named in by_run.values()):
                near = closest(axis.option, known, listed=False)
                raise UnknownOption(f"unknown option {axis.option!r} to tune{near}")
        return by_run

    def auxiliary(self, options: Sequence[Pair]) -> int | None:
        """Rows of a class at the server: as many for all methods as any of them wants, so that all divide one set."""
        experiments, _ = self._made(options, strict=False)
        return max((experiment.rows_at_server for experiment in experiments.values()), default=None)


def _differing(pairs: Sequence[Pair], every: Sequence[tuple[Pair, ...]]) -> str:
    """The options of a setting in which some settings differ: "partition.alpha 0.1, rounds 30"."""
    options = dict.fromkeys(option for each in every for option, _ in each)
    differing = [o for o in options if len({dict(each).get(o) for each in every}) > 1]
    return ", ".join(f"{option} {as_word(dict(pairs).get(option, 'unset'))}" for option in differing)


def _serves(entry: Entry, options: Sequence[Pair]) -> str:
    """What clients use under a method of a study; "global" where it cannot be made."""
    try:
        return made_of(entry, options).method.serves
    except FedskewError:
        return METHODS[name]().serves if (name := as_word(entry.method)) in METHODS else "global"


def made_of(entry: Entry, options: Sequence[Pair], tuned: Sequence[Pair] = ()) -> Experiment:
    """The experiment of a method: tuned options win over its own, and these over the study's. Raises ConfigError."""
    fixed = without(entry.options, tuned)
    rest = without(options, [*fixed, *tuned])
    if any(option == "partition" for option, _ in fixed):  # the study's options are those of another one
        rest = [pair for pair in rest if not pair[0].startswith("partition.")]
    return experiment_of([entry.method], flags_of([*fixed, *rest, *tuned]))


def alike(experiment: Experiment, auxiliary: int | None) -> Experiment:
    """On one thread, with the study's rows at the server where the method's own options name none."""
    return replace(experiment, threads=1, auxiliary=auxiliary if experiment.auxiliary is None else experiment.auxiliary)


def without(options: Sequence[Pair], others: Sequence[Pair]) -> list[Pair]:
    """The options that ``others`` do not set, under whichever of its names: "lr" is "pace.lr"."""
    set_ = {full(option) for option, _ in others}
    return [pair for pair in options if full(pair[0]) not in set_]


def instead(spec: Spec, options: Sequence[Pair]) -> Spec:
    """The study with these options in the place of its own, for all methods and settings."""
    return replace(
        spec,
        methods=tuple(replace(m, options=tuple(without(m.options, options)), label=m.name) for m in spec.methods),
        options=(*without(spec.options, options), *options),
        settings=tuple(tuple(without(setting, options)) for setting in spec.settings),
    )


def spec_from(methods: Sequence[str | Method], options: Sequence[Pair], **facts: Any) -> Spec:
    """A study as a command line names it. Raises ConfigError."""
    names = controls_of(facts.pop("controls", False))
    return Spec(_controlled([*map(entry_of, methods)], names), tuple(options), longer=LONGER in names, **facts)


def controls_of(wanted: bool | str) -> list[str]:
    """The controls that are asked for, each once: "local,centralised"; True: "weights". Raises ConfigError."""
    names = wanted.split(",") if isinstance(wanted, str) else ["weights"] * wanted
    check_names("control", names, (*CONTROLS, LONGER))
    return list(dict.fromkeys(names))


def _controlled(listed: Sequence[Entry], names: Sequence[str]) -> tuple[Entry, ...]:
    """The methods and the controls that are not among them."""
    known = {(e.method, e.options) for e in listed}
    added = [control for name in names for control in CONTROLS.get(name, ())]
    return (*listed, *(c for c in added if (c.method, c.options) not in known))


def read_spec(path: str | Path) -> Spec:
    """A study file, TOML.

    Raises:
        ConfigError: the file cannot be read, is no TOML, or holds an entry that is unknown or of another kind.

    Example of a file:
        methods = ["fedavg", "fedla", "fedbal(weighting=uniform)"]
        seeds = "0-4"
        [options]
        data = "fashion_mnist"
        partition = "dirichlet"
        "partition.alpha" = [0.05, 0.1]
        [method.plain]
        method = "fedavg"
        weighting = "uniform"
        [group.local]
        methods = ["fedprox", "scaffold(server.lr=0.5)"]
        options = {epochs = 2, lr = 0.05}
        suffix = " (2 epochs)"

    ``settings`` is a list of tables, or the name of a shipped study whose settings are taken: "federations". For every
    method that has no table of its own, write ``methods = ["all"]``.
    """
    content = table_from(path)
    try:
        return spec_of(content)
    except FedskewError as error:
        raise ConfigError(f"{path}: {error}") from None


def table_from(path: str | Path) -> dict[str, Any]:
    """The content of a TOML file. Raises ConfigError."""
    file = Path(path)
    try:
        return tomllib.loads(text_of(file))
    except OSError as error:
        raise ConfigError(f"cannot read the study {str(file)!r}: {error.strerror}") from None
    except RecursionError:
        raise ConfigError(f"{str(file)!r} is not a study: it is nested too deep") from None
    except ValueError as error:  # no TOML, or no UTF-8
        raise ConfigError(f"{str(file)!r} is not a study: {error}") from None


def spec_of(content: Mapping[str, Any]) -> Spec:
    """A study as a TOML file holds it. Raises ConfigError."""
    _check(content, STUDY, "a study")
    listed = [*_entries(content.get("methods", [])), *_grouped(content.get("group", {}))]
    for label, options in content.get("method", {}).items():
        rest = {k: v for k, v in options.items() if k != "method"}
        entry = Entry(str(options.get("method", label)), options_of_table(rest, f"method.{label}"), label)
        labels = [e.name for e in listed]
        at = labels.index(label) if label in labels else len(listed)
        listed[at : at + 1] = [entry]
    settings = content.get("settings", [])
    if isinstance(settings, str):  # those of a study that ships with the package, under its options
        require(shipped(settings) is not None, "settings", f"be tables, or one of {', '.join(names())}", settings)
        other = table_from(shipped(settings) or "")
        settings = [{**other.get("options", {}), **setting} for setting in other.get("settings", [])]
    require("settings" not in content or bool(settings), "settings", "be [[settings]] tables", settings)
    texts = {key: content[key] for key in ("title", "metric", "baseline", "notes") if key in content}
    counts = content.get("tune_trials", 8), content.get("tune_beyond", 0)
    tuned = tuning_of(content["tune"], *counts) if "tune" in content else None
    shared = options_of_table(content.get("options", {}), "options")
    each = [options_of_table({k: v for k, v in s.items() if k != "name"}, "settings") for s in settings]
    called = tuple(s.get("name", "") for s in settings)
    require(all(isinstance(n, str) for n in called), "settings.name", "be a word", called)
    wanted, seeds = controls_of(content.get("controls", False)), seeds_of(content.get("seeds", 0))
    facts = {"tuning": tuned, "longer": LONGER in wanted, **texts}
    return Spec(_controlled(listed, wanted), shared, tuple(each), called, seeds, **facts)


def _entries(methods: Sequence[str]) -> Iterator[Entry]:
    """The methods that a list names; ["all"] names every method of the table."""
    return map(entry_of, sorted(METHODS) if methods == ["all"] else methods)


def _grouped(groups: Mapping[str, Any]) -> Iterator[Entry]:
    """Methods that share options: those of a method's own brackets win."""
    for name, group in groups.items():
        where = f"group.{name}"
        _check(group, GROUP, where)
        shared = options_of_table(group.get("options", {}), f"{where}.options")
        for entry in _entries(group.get("methods", [])):
            options = (*without(shared, entry.options), *entry.options)
            yield Entry(entry.method, options, f"{entry.name}{group.get('suffix', '')}")


def check_names(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ConfigError, with a suggestion, for a name that is not among those that are known."""
    listed = list(known)
    for name in given:
        if name not in listed:
            raise unknown(what, name, listed)


def _check(content: Mapping[str, Any], kind: Any, what: str) -> None:
    """Raise ConfigError for an entry that is unknown, or of another type."""
    fault = fault_of(content, kind)
    check_names(f"entry of {what}", content if isinstance(content, Mapping) else (), kind.__annotations__)
    if fault:
        raise ConfigError(f"{f'{what}: ' if kind is GROUP else ''}{fault.replace('an object', 'a table')}")
