"""A study: its runs planned, done or found in the store, and brought together."""

import json
import math
import os
import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from fedskew.config.experiment import Experiment
from fedskew.config.own import has_own, is_named, name_of
from fedskew.config.recorded import Run
from fedskew.errors import ConfigError, FedskewError, install, plural, require, unknown
from fedskew.method import Method
from fedskew.records.files import UnwritableError, write_atomic
from fedskew.records.sheets import csv_text
from fedskew.records.summary import more_is_better
from fedskew.records.typed import Row
from fedskew.studies.address import address, dataset_of
from fedskew.studies.arguments import keywords, options_of_table, seeds_of, shard_of
from fedskew.studies.pool import schedule
from fedskew.studies.scores import Scores
from fedskew.studies.spec import TRIAL_SEED, Cell, Spec, alike, made_of, spec_from, tuning_of, without
from fedskew.studies.store import Store
from fedskew.studies.work import RunJob, RunOutcome, Work, work_of
from fedskew.track import Named

if TYPE_CHECKING:
    from fedskew.config.keywords import StudyOptions

__all__ = ["Planned", "Study", "shard_of", "study"]

FIELDS = ("label", "setting", "seed", "address", "state", "reason")
Options = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Planned:
    """A run of a study and its address; "" where the run is refused."""

    cell: Cell
    address: str
    options: Options = ()  # of a trial
    before: tuple[str, ...] = ()  # addresses of the run without the fits that are asked for; none where none are
    earlier: str = ""  # address by the earlier digest of objects of the user's own; "" without any

    @property
    def job(self) -> Any:
        """The experiment as a file holds it; with objects that no file names, itself."""
        experiment = self.cell.experiment
        return {} if experiment is None else experiment.to_json() if is_named(experiment) else experiment

    def place(self, store: Store) -> str:
        """The address under which a store has the run, or will have it: the earlier one where it knows no other."""
        is_earlier = self.earlier and not store.knows(self.address) and store.knows(self.earlier)
        return self.earlier if is_earlier else self.address

    def entry(self, store: Store) -> Run | None:
        """What a store knows of the run, or None.

        Until a run with the fits that are asked for is done, the same run without them stands: its raw numbers are
        those of the same training. It stays missing.
        """
        entries = (store.entry(address) for address in (self.place(store), *self.before) if address)
        return next((entry for entry in entries if entry), None)


class Study:
    """A study over a store.

    Args:
        spec: what is compared.
        store: where runs are kept.

    Example:
        >>> from fedskew.studies.spec import spec_from
        >>> spec = spec_from(["fedavg", "fedla"], [("clients", "5"), ("rounds", "2")], seeds=(0, 1))
        >>> study = Study(spec, "store")
        >>> len(study.plan()), len(study.missing())
        (4, 4)
    """

    def __init__(self, spec: Spec, store: Store | str | Path) -> None:
        self.spec = spec
        self.store = store if isinstance(store, Store) else Store(store)
        self._chosen: dict[tuple[str, str], Options] = {}  # (method, setting) -> tuned options
        self._plan: list[Planned] | None = None
        self._more: list[Planned] = []
        self._trials: list[Planned] = []

    def __repr__(self) -> str:
        methods, plan = [entry.name for entry in self.spec.methods], self.plan()
        done = len(plan) - len(self.missing(plan))
        return f"Study({', '.join(methods)}; {plural(len(self.spec.seeds), 'seed')}; {done} of {len(plan)} runs done)"

    def __str__(self) -> str:
        """The results of the finished runs as a table."""
        finished = any(run and run.state == "finished" for _, run in self.entries())
        return str(_report().text_of(self)) if finished else repr(self)

    # Planning

    @property
    def chosen(self) -> dict[tuple[str, str], dict[str, float]]:
        """By method and setting, the values that the tuning chose; empty before its trials are done."""
        return {key: {option: number_of(text) for option, text in pairs} for key, pairs in self._chosen.items()}

    def trials(self) -> list[Planned]:
        """The runs of the tuning; none where nothing is tuned. They divide the rows as the compared runs do.

        A method without any of the tuned options has none, and keeps its options.
        """
        tuning, trials = self.spec.tuning, list[Planned]()
        if tuning is None or (self._trials and (self._plan or not tuning.beyond)):
            return self._trials
        seed = TRIAL_SEED + self.spec.seeds[0]
        for setting, options in self.spec.axes:
            given = (*without([self.spec.trial[0]], options), *options, ("seed", str(seed)))
            wanted = self.spec.auxiliary(options)
            for entry in self.spec.methods:
                names = self.spec.tunable[entry.name, setting]
                points, scores = list(tuning.points()) if names else [], dict[Options, float]()
                for number, point in enumerate(points):  # grows while the best is at an edge
                    chosen = tuple(pair for pair in point if pair[0] in names)
                    cell = Cell(entry.name, setting, seed, None, trial=number)
                    try:
                        experiment = _unfitted(alike(made_of(entry, given, chosen), wanted))
                        experiment = replace(experiment, served="tail") if self.spec.own_models else experiment
                        cell = replace(cell, experiment=experiment)
                    except FedskewError as error:
                        cell = replace(cell, refused=str(error))
                    trials.append(_located(cell, chosen))
                    if tuning.beyond and (not trials[-1].cell.experiment or self.is_done(trials[-1])):
                        scores[point] = math.nan if (score := self._score(trials[-1])) is None else score
                        further = tuning.next_point(scores) if len(scores) == len(points) else None
                        points += [further] if further else []
        self._trials = trials
        return trials

    def choose(self) -> bool:
        """Take the best trial of each method and setting, once all are done; whether they are."""
        tuning, trials = self.spec.tuning, self.trials()
        if tuning is None or self.missing(trials):
            return tuning is None
        best: dict[tuple[str, str], tuple[float, Options]] = {}
        for planned in trials:
            score = self._score(planned)
            key = planned.cell.label, planned.cell.setting
            if score is not None and score > best.get(key, (float("-inf"), ()))[0]:
                best[key] = score, planned.options
        untuned: dict[tuple[str, str], Options] = {key: () for key, names in self.spec.tunable.items() if not names}
        self._chosen = untuned | {key: options for key, (_, options) in best.items()}
        return True

    def _score(self, trial: Planned) -> float | None:
        """The score of a trial that is finished, or None."""
        entry = self.store.entry(trial.place(self.store)) if trial.address else None
        score = entry.summary.get(self.spec.trial[1]) if entry else None
        return None if score is None or (entry and entry.state != "finished") else float(score)

    def plan(self) -> list[Planned]:
        """The runs that are compared, refused ones among them. Before the trials are done they have no address.

        With the control of more rounds, its runs follow once the others are done, whose work says how many rounds.
        """
        if self._plan is None:
            ready = self.choose()
            planned = [self._tuned(cell) if ready else Planned(cell, "") for cell in self.spec.cells()]
            if not ready:
                return planned
            self._plan = planned
        if self.spec.longer and not self._more and not self.missing(self._plan):
            self._more = list(self._longer())
        return [*self._plan, *self._more]

    def _longer(self) -> Iterator[Planned]:
        """The baseline trained for more rounds: twice as many, or the work of the dearest method of the setting.

        Its mean model is measured in every evaluation, of which there are 200 at most, and fitted unless nothing is.
        """
        works = self.works()
        for planned in self._plan or ():
            cell = planned.cell
            if cell.label != self.spec.reference or cell.experiment is None:
                continue
            ratios = [work.most for (_, at), work in works.items() if at == cell.setting and math.isfinite(work.most)]
            rounds = math.ceil(cell.experiment.rounds * max([2.0, *(round(ratio, 6) for ratio in ratios)]))
            every = cell.experiment.eval_every * math.ceil(rounds / (200 * cell.experiment.eval_every))
            fit: Literal["none", "every"] = "none" if cell.experiment.fit_logits == "none" else "every"
            longer = replace(cell.experiment, rounds=rounds, average_models="every", fit_logits=fit, eval_every=every)
            yield _located(replace(cell, label=f"{cell.label}, {rounds} rounds", experiment=longer))

    def untuned(self) -> list[str]:
        """A sentence for each method that has none of the tuned options, once the trials are done."""
        labels = [f"{m}{f', {at}' * (at != 'all')}" for (m, at), options in self._chosen.items() if not options]
        return [f"not tuned: {label}, which has none of these options" for label in labels]

    def _tuned(self, cell: Cell) -> Planned:
        """A compared run with the options that its trials chose."""
        if self.spec.tuning is None or cell.experiment is None:
            return _located(cell)
        chosen = self._chosen.get((cell.label, cell.setting))
        if chosen is None:
            trials = (t.cell for t in self._trials if (t.cell.label, t.cell.setting) == (cell.label, cell.setting))
            why = next((f": {trial.refused}" for trial in trials if trial.refused), "")
            return Planned(replace(cell, experiment=None, refused=f"no tuning trial finished{why}"), "")
        entry = next(m for m in self.spec.methods if m.name == cell.label)
        options = dict(self.spec.axes)[cell.setting]
        experiment = made_of(entry, (*options, ("seed", str(cell.seed))), chosen)
        experiment = replace(alike(experiment, cell.experiment.auxiliary), served=cell.experiment.served)
        return _located(replace(cell, experiment=experiment))

    def is_done(self, planned: Planned) -> bool:
        """Whether nothing is left to do for a run that can be."""
        run = planned.cell.experiment
        return bool(planned.address and run and self.store.done(planned.place(self.store), run.rounds, run.patience))

    def missing(self, planned: Sequence[Planned] | None = None) -> list[Planned]:
        """The runs that are neither done nor refused, each once."""
        missing: dict[Any, Planned] = {}
        for run in self.plan() if planned is None else planned:
            if run.cell.experiment and not self.is_done(run):
                missing.setdefault(run.address or (run.cell.label, run.cell.setting, run.cell.seed), run)
        return list(missing.values())

    # Doing

    def run(
        self, processes: int = 0, shard: tuple[int, int] = (1, 1), *,
        on_end: Callable[[RunOutcome, Planned], None] | None = None, track: Named | None = None,
    ) -> None:  # fmt: skip
        """Do what is missing: the trials first, then, once all are done, what is compared.

        Args:
            processes: worker processes; 0 takes one a core, and on a GPU 4.
            shard: (i, n): only the i-th of n equal parts, for an array of jobs.
            on_end: called with the end of each run; unless given, a terminal shows a moving line.
            track: trackers that are told of every round, from `fedskew.track.named`.

        Raises:
            ConfigError: the shard is none.
            RecordError: the store cannot be written; what it has is kept.
            KeyboardInterrupt: as it came; runs keep their whole rounds.
        """
        if on_end is None:
            from fedskew.studies.progress import StudyProgress

            with StudyProgress(self) as line:
                return self.run(processes, shard, on_end=line.ended, track=track)
        while True:  # trials at an edge ask for more trials
            compared = self.plan()  # which asks for the trials
            last = self._plan is not None
            planned = compared if last else self._trials
            mine = self.missing(planned)[shard[0] - 1 :: shard[1]]
            by = {run.place(self.store): run for run in mine}
            shown = self.spec.metric if last else self.spec.trial[1]
            store = str(self.store.folder)
            jobs = [RunJob(address, run.job, store, run.cell.name, track, shown) for address, run in by.items()]
            if jobs:
                end = lambda outcome, by=by: _ended(outcome, by[outcome.address], on_end)
                schedule(jobs, processes, end)
            if self.missing(planned) or (last and len(self.plan()) == len(planned)):
                return  # other shards have the rest, or some of them broke, or nothing came to it

    def retry(self) -> None:
        """Forget that runs were refused or failed, so that they are missing again."""
        for planned in [*self.trials(), *self.plan()]:
            if planned.address:
                self.store.forgive(planned.place(self.store))
        self._plan, self._more = None, []

    # Reading

    def entries(self) -> Iterator[tuple[Planned, Run | None]]:
        """Every run that is compared, with what is known of it; None where it is missing."""
        for planned in self.plan():
            if planned.cell.experiment is None:
                yield planned, Run(Path(), state="refused", reason=planned.cell.refused)
            else:
                yield planned, planned.entry(self.store)

    def table(self) -> list[Row]:
        """One row a run: label of the method, setting, seed, address, state, and every number of its summary."""
        rows = []
        for planned, entry in self.entries():
            row: Row = {"label": planned.cell.label, "setting": planned.cell.setting, "seed": planned.cell.seed}
            row["address"] = (entry and entry.address) or planned.address
            row |= {"state": entry.state if entry else "missing", "reason": entry.reason if entry else ""}
            numbers = entry.summary if entry else {}
            rows.append({**row, **_numbers(numbers)})
        return rows

    def scores(self, metric: str = "") -> Scores:
        """A metric of every run, for the statistics of a study; NaN where a run is missing or failed.

        Args:
            metric: entry of the summaries; that of the study unless given.

        Raises:
            ConfigError: no finished run has the metric.
        """
        name, rows = metric or self.spec.metric, self.table()
        known = {key for row in rows if row["state"] == "finished" for key in row if key not in FIELDS}
        if known and name not in known:
            raise unknown("metric", name, sorted(known))
        runs = [(r["label"], r["setting"], r["seed"], r.get(name) if r["state"] == "finished" else None) for r in rows]
        return Scores.of(runs, metric=name, higher_is_better=more_is_better(name))

    def works(self) -> dict[tuple[str, str], Work]:
        """By method and setting: the work of whole runs, as a multiple of the baseline's with the same seeds."""
        held: dict[tuple[str, str], dict[int, Work]] = {}
        for planned in self._plan or ():
            entry = planned.entry(self.store) if planned.cell.experiment else None
            if entry and entry.state == "finished" and (work := work_of(entry.summary)):
                held.setdefault((planned.cell.label, planned.cell.setting), {})[planned.cell.seed] = work
        works = {}
        for (label, setting), by_seed in held.items():
            base = held.get((self.spec.reference, setting), {})
            if pairs := [(by_seed[seed], base[seed]) for seed in by_seed if seed in base]:
                works[label, setting] = Work.ratio(pairs)
        return works

    def rounds(self) -> list[Row]:
        """One row a recorded round: method, setting and seed beside its numbers."""
        return [
            {"label": planned.cell.label, "setting": planned.cell.setting, "seed": planned.cell.seed, **_numbers(row)}
            for planned, entry in self.entries() if entry for row in entry.rows
        ]  # fmt: skip

    def frame(self, by: str = "run") -> Any:
        """A pandas data frame, one row a "run" or a "round".

        Raises:
            ConfigError: pandas is not installed, or ``by`` is something else.
        """
        require(by in ("run", "round"), "by", "be 'run' or 'round'", by)
        try:
            import pandas  # type: ignore[import-untyped]
        except ImportError:
            raise ConfigError(f"a data frame needs pandas: {install('study')}") from None
        return pandas.DataFrame(self.table() if by == "run" else self.rounds())

    def plot(self, kind: str = "gains", setting: str = "") -> Any:
        """A picture of the finished runs, a matplotlib figure.

        Args:
            kind: "gains" over the baseline, raw, averaged and fitted, with intervals; "curves" of the metric over
                rounds; "recalls" of each class; "clients", the accuracy at each; or "confusion".
            setting: which setting, of several; the gains are of all together.

        Raises:
            ConfigError: there is no such kind or setting, or matplotlib is not installed.
            RecordError: no run is finished, or none has what the picture shows.

        Example:
            >>> import fedskew as fs
            >>> study = fs.study(["fedavg", "fedla"], seeds="0-1", rounds=2, clients=5, cohort=3, store="store")
            >>> study.run()
            >>> study.plot("curves").savefig("curves.png")
        """
        return _report().of_study(self, kind, setting)

    def save(self, folder: str | Path, command: str = "") -> Path:
        """Write ``study.json``, the runs by address, and ``runs.csv``, one line a run without its times.

        Returns:
            The path of ``study.json``.
        """
        place, rows = Path(folder), self.table()
        place.mkdir(parents=True, exist_ok=True)
        content = {
            "layout": 1,
            **{name: getattr(self.spec, name) for name in ("title", "notes", "metric")},
            "baseline": self.spec.reference,
            "command": command,
            "store": os.path.relpath(self.store.folder, place),
            "trials": _tried(self),
            "untuned": self.untuned(),
            "runs": [{name: row[name] for name in FIELDS} for row in rows],
        }
        write_atomic(place / "study.json", json.dumps(content, indent=1).encode())
        write_atomic(place / "runs.csv", _csv(rows).encode())
        return place / "study.json"


def _report() -> Any:
    """What draws and prints: it lies above the studies, and is found by its name where it is asked for."""
    return import_module("fedskew.report.draw")


def number_of(text: str) -> float:
    """An option's value as a number: "3" is 3, and "0.1" is 0.1."""
    return int(text) if text.lstrip("-").isdecimal() else float(text)


def _ended(outcome: RunOutcome, planned: Planned, on_end: Callable[[RunOutcome, Planned], None] | None) -> None:
    """Tell of a run that ended. Raises UnwritableError where the store takes no more: no other run could be kept."""
    if outcome.state == "unsaved":
        raise UnwritableError(f"{planned.cell.name} cannot be stored: {outcome.reason}; the same command continues")
    for note in outcome.notes:
        warnings.warn(f"{planned.cell.name}: {note}", RuntimeWarning, stacklevel=2)
    if on_end:
        on_end(outcome, planned)


def _located(cell: Cell, options: Options = ()) -> Planned:
    """A run with its address; refused where its data cannot be had or its network cannot be built."""
    if cell.experiment is None:
        return Planned(cell, "", options)
    experiment = cell.experiment
    try:
        data, kinds = dataset_of(experiment.data, experiment.path), (False, True) if has_own(experiment) else (False,)
        runs = experiment, _unfitted(experiment)
        (where, *earlier), plain = ([address(run, data, kind) for kind in kinds] for run in runs)
    except FedskewError as error:
        return Planned(replace(cell, experiment=None, refused=str(error)), "", options)
    return Planned(cell, where, options, tuple(plain) if plain[0] != where else (), *earlier)


def _unfitted(run: Experiment) -> Experiment:
    """The run as one that measures neither fits nor what clients would use between rounds."""
    usual: dict[str, Any] = {"fit_logits": "last", "average_models": "auto", "served": "last"}
    return replace(run, **{n: when for n, when in usual.items() if run.evaluation().due(n, run.rounds)})


def _tried(study: Study) -> list[Row]:
    """Each trial of the tuning with its score, and whether it was the best."""
    rows = []
    for trial in study.trials():
        key = trial.cell.label, trial.cell.setting
        row = {"label": key[0], "setting": key[1], "options": dict(trial.options), "score": study._score(trial)}
        rows.append({**row, "chosen": study._chosen.get(key) == trial.options})
    return rows


def _csv(rows: Sequence[Row]) -> str:
    """Rows as text; times, in which two equal runs differ, are left out."""
    names = list(dict.fromkeys(name for row in rows for name in row if not name.endswith("wall_s")))
    return csv_text([names, *([row.get(name, "") for name in names] for row in rows)])


def _numbers(row: Row) -> Row:
    return {k: v for k, v in row.items() if isinstance(v, int | float)}


def study(
    methods: Sequence[str | Method], *, seeds: str | int | Sequence[int] = 0, options: Mapping[str, Any] | None = None,
    store: str | Path = "runs/store", controls: bool | str = False, tune: Any = None, tune_trials: int = 8,
    tune_beyond: int = 0, metric: str = "", baseline: str = "", title: str = "",
    **more: "Unpack[StudyOptions]",
) -> Study:  # fmt: skip
    """A study, as ``fedskew compare`` makes it; ``run`` does what is missing.

    Args:
        methods: names of the table, with options of their own in brackets: "fedbal(weighting=uniform)"; or methods,
            also with ingredients of your own.
        seeds: "0-4", a number or a list of numbers.
        options: options of all runs by their names, as in a study file; a list of values is a setting each.
        store: where runs are kept and found.
        controls: add plain cross-entropy under uniform and under size weights; or names between commas: "weights",
            which are these, "local", each client alone, "centralised", all rows in one place, and "rounds", the
            baseline trained for as many steps and contacts as the dearest method.
        tune: a search space, "lr=log:0.01..0.3" or {"lr": "log:0.01..0.3"}.
        tune_trials: trials of each method and setting.
        tune_beyond: most trials outside of the range, one at a time while the best value is at its edge.
        metric: entry of the summary that is compared, a number; unless given the mean accuracy over the last 10 rounds,
            of what each client would use where a method gives clients models of their own alone.
        baseline: the method that others are compared with; the first unless given.
        title: what the study is called.
        **more: single options by names without dots, such as ``rounds=30, data="digits"``. ``data`` takes a `Dataset`,
            too, ``model`` a network, and ``partition`` a partitioner.

    A run is stored under what decides its numbers: of a class of your own the source of its functions and of what they
    read, of a network its source and its weights, of a dataset its rows. Runs with such objects are done in this
    process, one after another.

    Returns:
        The study. Nothing has run.

    Raises:
        ConfigError: a method, an option or a seed that there is not; an object whose source cannot be told, such as a
            lambda, or a class that reads a list which may change.
        RecordError: the store cannot be written, or is of another version.

    Example:
        >>> import fedskew as fs
        >>> study = fs.study(["fedavg", "fedla"], seeds="0-1", rounds=2, clients=5,
        ...                  options={"partition.alpha": [0.1, 1]}, store="store")
        >>> len(study.plan())
        8
    """
    facts: dict[str, Any] = {n: v for n, v in (("metric", metric), ("baseline", baseline), ("title", title)) if v}
    if tune is not None:
        facts["tuning"] = tuning_of(tune, tune_trials, beyond=tune_beyond)
    given = options_of_table(keywords(options or {}, more), "options")
    require(not isinstance(methods, str | Method), "methods", "be a list of names or methods", methods)
    new_study = Study(spec_from(list(methods), given, seeds=seeds_of(seeds), controls=controls, **facts), store)
    _ = new_study.spec.tunable  # mistakes are told now
    return new_study


@dataclass(frozen=True)
class Cost:
    """What the missing runs of a study cost.

    Attributes:
        seconds: Of one process, for all of them.
        runs: How many are missing.
        unknown: How many of them no finished run is like.
    """

    seconds: float = 0.0
    runs: int = 0
    unknown: int = 0


def cost_of(study: Study) -> Cost:
    """The cost of a study's missing runs.

    A run takes as long a round as the median of finished runs of the same method, data and network; else of the same
    data and network.
    """
    known: dict[str, list[float]] = {}
    everything = [*study.trials(), *study.plan()]
    for planned in everything:
        entry = planned.entry(study.store)
        if entry and entry.state == "finished" and entry.summary.get("rounds"):
            rate = entry.summary["total_wall_s"] / entry.summary["rounds"]
            for key in _alike(planned):
                known.setdefault(key, []).append(rate)
    seconds, unknown, missing = 0.0, 0, study.missing(everything)
    for planned in missing:
        experiment = planned.cell.experiment
        rates = next((known[key] for key in _alike(planned) if key in known), None)
        if experiment is not None and rates is not None:
            seconds += statistics.median(rates) * experiment.rounds
        else:
            unknown += 1
    return Cost(seconds, len(missing), unknown)


def _alike(planned: Planned) -> list[str]:
    """What tells the time of a run: runs of the same method, data and network; then of the same data and network."""
    experiment = planned.cell.experiment
    if experiment is None:
        return []
    work = f"{experiment.data.name} {name_of(experiment.model)} {experiment.device} {experiment.cohort}"
    return [f"{planned.cell.label} {planned.cell.setting} {work}", f"{planned.cell.label} {work}", work]
