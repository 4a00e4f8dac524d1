"""A run: a federation, a method and settings in, a trained model and its record out."""

from __future__ import annotations

import json
import time
import uuid
import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, fields
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedskew import engines, models, server, tree
from fedskew.data.arrays import check_unchanged
from fedskew.data.inputs import Inputs
from fedskew.engines.fitting import fits_of
from fedskew.engines.guard import guarded, tensors_of
from fedskew.engines.measures import Observer, given_of
from fedskew.engines.network import digest_of, frozen, head_alone, initial_params, prepared_model
from fedskew.engines.runtime import one_thread
from fedskew.engines.trained import Trained, described
from fedskew.errors import FieldError, RecordError, of_interrupt, require
from fedskew.fields import OMITTED, deciding, resumed
from fedskew.method import Method, check_method, former, method_spec, spec
from fedskew.models import Architecture
from fedskew.models.precision import arithmetic
from fedskew.models.prepare import Model
from fedskew.protection import protection_of
from fedskew.records.folder import Record
from fedskew.records.summary import Collapse, best_of, summarise
from fedskew.records.typed import Row
from fedskew.server import State
from fedskew.session import Session
from fedskew.settings import Division, Settings, check_device
from fedskew.types import Federation, Params, Task

Made = Callable[[Model, Federation, Task, Settings], engines.LocalEngine]

MOST_OWN = 4 << 30  # bytes of all clients' own models, which one file holds
COUNTED = 100_000  # cells of a matrix of counts that a configuration still holds
# What may differ between the run that a folder holds and the one that resumes it
FREE = ("engine_reason", "threads_used", *resumed(Settings, "free", "new"))
# what a record holds only where it is set, and what it means where it is not
UNSET = {f.name: f.default for f in (*fields(Settings), *fields(Division)) if OMITTED in f.metadata}


@dataclass(frozen=True, eq=False)
class Result:
    """What a run gives back."""

    rounds: list[Row]  # as in rounds.jsonl
    summary: dict[str, Any]  # as in summary.json
    params: Params  # of the evaluated model, by the network's own names
    buffers: Params
    state: State  # of the server after the last round
    task: Task
    trained: Trained  # the evaluated model with all that prediction needs
    client_rows: list[Row]  # as in clients.jsonl
    stopped: str = ""  # "" at the end; "interrupted" after a KeyboardInterrupt, "time limit" after ``max_minutes``
    folder: Path | None = None

    def predict(self, x: Any, *, encoded: bool = False, fitted: bool | str = False) -> Tensor:
        """The most probable class of each row, int64 [n]. Arguments and errors are those of `Trained.predict`."""
        return self.trained.predict(x, encoded=encoded, fitted=fitted)

    def probabilities(self, x: Any, *, encoded: bool = False, fitted: bool | str = False) -> Tensor:
        """Predicted probabilities, float64 [n, C]. Arguments and errors are those of `Trained.probabilities`."""
        return self.trained.probabilities(x, encoded=encoded, fitted=fitted)

    def load_into(self, module: nn.Module) -> None:
        """Put the trained values into a network. Arguments and errors are those of `Trained.load_into`."""
        self.trained.load_into(module)

    def clients(self) -> Any:
        """What each client would use on its own test rows, as `fedskew.read_clients` has it of a run folder.

        Returns:
            A pandas data frame, one row for each evaluation and client; a list of dicts where pandas is not installed.
        """
        try:
            import pandas  # type: ignore[import-untyped]
        except ImportError:
            return list(self.client_rows)
        return pandas.DataFrame(self.client_rows)

    def plot(self, kind: str = "curves") -> Any:
        """A picture of the run, a matplotlib figure.

        Args:
            kind: "curves" of the accuracy over rounds, "recalls" of each class, "clients", the accuracy of what each
                would use, or "confusion".

        Raises:
            ConfigError: There is no such kind, or matplotlib is not installed.
            RecordError: The run did not measure what the picture shows.
        """
        return import_module("fedskew.report.draw").of_result(self, kind)  # it lies above, and is found by its name

    def __repr__(self) -> str:
        accuracy = self.summary.get("final_accuracy")
        numbers = f"rounds={len(self.rounds)}, accuracy={accuracy if accuracy is None else round(accuracy, 4)}"
        return f"Result({'; '.join([numbers, *(f'COLLAPSED: {collapse.words}' for collapse in self.collapsed)])})"

    @property
    def confusion(self) -> Tensor | None:
        """Confusion matrix of the test rows, int64 [C, C], rows are true classes; None of a run that was stopped."""
        matrix = self.summary.get("final_confusion")
        return None if matrix is None else torch.tensor(matrix)

    @property
    def collapsed(self) -> list[Collapse]:
        """Signs that training collapsed, see `fedskew.records.summary.collapses`; an empty list of a healthy run."""
        return [Collapse(**entries) for entries in self.summary["collapsed"]]


def launch(
    fed: Federation | Callable[[], Federation],
    method: Method,
    settings: Settings,
    *,
    model: str | Architecture | nn.Module,
    head: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    on_round: Callable[[Row], None] | None = None,
    config: Mapping[str, Any] | Callable[[Federation, int], Mapping[str, Any]] | None = None,
    made: Made | None = None,
    observer: type[Observer] = Observer,
) -> Result:
    """Train a method on a federation, with all that `fedskew.run` takes as values.

    This is the loop of a run. `_prepared` refuses what cannot be trained; a round is `Session.round`, and its local
    training `fedskew.engines.LocalEngine.train`.

    Args:
        fed: as in `fedskew.run`, like those that are not named here; or what loads it, once device and engine are known
            to be there.
        method: what is trained.
        settings: how.
        model: the network.
        head: name of its classifier layer.
        out: run folder.
        resume: whether the folder is gone on with.
        on_round: called after each round.
        config: configuration to record, or what gives it for the federation and the clients of a round.
        made: makes the engine of model, federation, task and settings; None: that of ``settings.engine``.
        observer: what measures rounds.

    Raises:
        FedskewError: as `fedskew.run`.
    """
    check_method(method)
    require(not resume or out is not None, "out", "name the run folder to resume", out)
    check_device(settings.device)
    if made is None:
        engines.check_engine(settings.engine)
    if callable(fed):
        fed = fed()
    began, longest, limit = time.monotonic(), 0.0, 60 * (settings.max_minutes or float("inf"))
    stopped, finals = "", Row()
    session, end = _prepared(fed, method, settings, model, head, out, resume, on_round, config, made, observer)
    try:
        with arithmetic(settings.precision, settings.deterministic):
            try:
                with torch.no_grad(), one_thread():
                    while not (stopped or session.is_over()):
                        start = time.monotonic()
                        row = session.round()
                        if on_round:
                            with session.engine.guard.unwritten("on_round", tensors_of(session.observer.fed)):
                                on_round(deepcopy(row))
                        now = time.monotonic()
                        longest = max(longest, now - start)
                        if now - began + longest > limit and not session.is_over():
                            stopped = "time limit"
                    if not stopped:
                        check_unchanged(session.observer.fed.dataset)
                        finals = session.finals()
            except BaseException as error:
                if not of_interrupt(error):
                    end(f"{type(error).__name__}: {error}", {})
                    raise
                stopped = "interrupted"
            return end(stopped, finals)
    finally:
        _close(session.engine, session.record)


def _close(engine: engines.LocalEngine, record: Record | None) -> None:
    engine.close()
    if record:
        record.close()


def _prepared(
    fed: Federation, method: Method, settings: Settings, model: str | Architecture | nn.Module, head: str | None,
    out: str | Path | None, resume: bool, on_round: Callable[[Row], None] | None,
    config: Mapping[str, Any] | Callable[[Federation, int], Mapping[str, Any]] | None,
    made: Made | None, observer: type[Observer],
) -> tuple[Session, Callable[[str, Row], Result]]:  # fmt: skip
    """The session before its first round, or after its last whole one, and what makes its result."""
    outside = made is not None
    _check(settings, fed, out is not None)
    if not outside:
        check_unchanged(fed.dataset)
    held_out = 0 if fed.unseen is None else int((fed.unseen.sizes > 0).sum())
    cohort = settings.cohort_of(fed.clients, fed.clients - len(fed.empty), method.share, held_out)
    asked = model if isinstance(model, nn.Module) else models.architecture(model, method.projection)
    model = asked if isinstance(asked, nn.Module) else asked.settled()
    prepared = prepared_model(fed, model, head, settings, method.projection)
    task = prepared.task(fed.clients, settings.rounds, held_out)
    method.check(fed, task)
    protection = protection_of(method, fed, settings, cohort, prepared, task, outside=outside)
    plain, method = method, protection.of_method(method)  # an address knows the former
    if not outside:
        _warn_of_one_class(fed, method)
        _check_room(settings, fed, prepared)
    engine, reason = _engine(made, prepared, fed, task, settings, plain, method)
    watched = guarded(method, engine.guard)
    params = initial_params(watched, prepared.params, task, settings.seed_of("model"))
    engine.init_clients(watched, params, prepared.buffers, settings.memory)
    known = protection.begin(engine, fed, settings, cohort, outside=outside)
    state = server.init(watched, params, prepared.buffers, known, task)
    used = {"engine_used": engine.name, "engine_reason": reason, "threads_used": engine.workers.count}
    used |= {"init_digest": digest_of(settings)} if settings.init_from else {}
    used |= {"histogram_noise": protection.histograms.mechanism} if protection.histograms else {}
    private = sorted(watched.named("private", (*params, *prepared.buffers), task))
    used |= {**frozen(prepared), **({"on_clients": private} if private else {})}
    used |= {"model": spec(model)} if model != asked else {}
    recorded = config(fed, cohort) if callable(config) else config or _facts(fed, plain, model, settings, cohort)
    facts = {**recorded, "label_names": list(fed.dataset.label_names), **used}
    record: Record | None = None
    try:
        if out is not None:
            record = Record.open(out) if resume else Record.create(out, facts)
        if record and resume:
            _check_continues(record, facts, method, settings)
        size = tree.size_bytes({"params": state.params, "buffers": state.buffers})
        evaluation = settings.evaluation(fed.clients, size)
        observing = observer(fed, watched, task, engine, settings, evaluation, record)
        session = Session(watched, task, engine, settings, evaluation, cohort, state, observing, record, protection)
        if record and resume:
            session.restore()
            _extend(record, session, settings)
        _tell_begin(on_round, record, facts, session.done)
    except BaseException:
        _close(engine, record)
        raise
    return session, partial(_end, session, model, prepared, getattr(on_round, "end", None))


def _engine(
    made: Made | None, prepared: Model, fed: Federation, task: Task, settings: Settings, plain: Method, method: Method
) -> tuple[engines.LocalEngine, str]:
    """The engine, and why it is taken."""
    if made is not None:
        return made(prepared, fed, task, settings), "started from outside"
    augmented = bool(fed.dataset.augment)
    trains = head_alone(prepared, augmented) or prepared
    chosen, reason = engines.choose(settings.engine, settings.device, trains, plain, augmented, method)
    return chosen(prepared, fed, task, settings), reason


def _check(settings: Settings, fed: Federation, recorded: bool) -> None:
    """Raise ConfigError for settings that the federation cannot have."""
    settings.diagnose.check(fed.clients, recorded)
    measured = settings.monitor is None or len(fed.validation_rows) > 0
    settings.demand("monitor", measured, "have validation rows", "validation=0.1 holds some out")


def _warn_of_one_class(fed: Federation, method: Method) -> None:
    """Warn where most clients have rows of one class, of which the method's loss is next to 0."""
    held = (fed.counts > 0).sum(1)
    single, clients = int((held == 1).sum()), int((held > 0).sum())
    idle = next((part.name for part in method.parts if part.needs_two_classes), "")
    if idle and 2 * single > clients:
        counted = f"{single} of {clients} clients have rows of one class, where the loss of {idle} is next to 0"
        warnings.warn(f"{method.name} hardly trains here: {counted}; try fedavg", RuntimeWarning, stacklevel=4)


def _check_room(settings: Settings, fed: Federation, prepared: Model) -> None:
    """Raise FieldError where the clients' own models are too large for a file of them."""
    most = int((fed.sizes > 0).sum()) * sum(t.nbytes for t in (*prepared.params.values(), *prepared.buffers.values()))
    holds = not settings.keep_own or most <= MOST_OWN  # what they share with the global model is not written
    settings.demand("keep_own", holds, f"go with models of at most {MOST_OWN >> 30} GiB for all clients together")


# What is recorded


def _facts(
    fed: Federation, method: Method, model: Architecture | nn.Module, settings: Settings, cohort: int
) -> dict[str, Any]:
    """What config.json holds of a run that Python started; its data and network have no name, so `load` refuses it."""
    is_module = isinstance(model, nn.Module)
    width = method.projection if is_module else model.projection
    net = {"name": type(model).__name__ if is_module else model.name, **({"projection": width} if width else {})}
    names = {"data": {"name": fed.dataset.name}, "partition": spec(fed.partitioner), "model": net}
    facts: dict[str, Any] = {"clients": fed.clients, "longtail": fed.longtail, "fingerprint": fed.dataset.fingerprint}
    facts |= {name: value for name in deciding(Division, "split") if name in UNSET and (value := getattr(fed, name))}
    hidden = settings.secure != "none" or settings.histogram_epsilon is not None
    if fed.counts.numel() <= COUNTED and not hidden:  # `advise` reads it here: names do not give it
        facts["counts"] = fed.counts.tolist()
    return {
        "started_by": "python", "method": method_spec(method), **names, **facts, **settings.to_json(), "cohort": cohort,
    }  # fmt: skip


def _check_continues(record: Record, facts: Mapping[str, Any], method: Method, settings: Settings) -> None:
    """Raise where the folder holds another run, or one that cannot have another number of rounds."""
    before = record.config()
    if change := former(before, facts):
        raise RecordError(f"{record.folder} has {change}; begin it again in another folder, with its options")
    asked, held = {**UNSET, **json.loads(json.dumps(dict(facts)))}, {**UNSET, **before}
    if other := [n for n, v in asked.items() if n not in FREE and held.get(n, v) != v]:
        was, now = (json.dumps(c.get(other[0]))[:80] for c in (held, asked))
        raise RecordError(f"resume must continue the same run; {other[0]} was {was} and is {now}")
    readers = [f"{slot} runs a schedule over" for slot, ingredient in method.ingredients() if ingredient.reads_rounds]
    readers += ["the noise was found for"] * (settings.dp_epsilon is not None)
    if readers and before.get("rounds", settings.rounds) != settings.rounds:
        rule = f"stay {before['rounds']}, since {readers[0]} all rounds of the run"
        raise FieldError("Settings", "rounds", rule, settings.rounds, "begin a new run with the larger number")


def _extend(record: Record, session: Session, settings: Settings) -> None:
    """Let the record say how many rounds the run has now, and where, and no longer how it ended before."""
    done = session.state.round
    settings.demand("rounds", settings.rounds >= done, f"be at least {done}, the completed rounds")
    now = {name: getattr(settings, name) for name in resumed(Settings, "new")}
    # an entry that is at its default is dropped: the record is that of a run that began so
    record.go_on({name: None if name in UNSET and value == UNSET[name] else value for name, value in now.items()})


def _tell_begin(
    on_round: Callable[[Row], None] | None, record: Record | None, facts: Mapping[str, Any], done: list[Row]
) -> None:
    """Tell a tracker what begins, and the rounds that were done before: it may have lost the last of them."""
    begin = getattr(on_round, "begin", None)
    if on_round is None or begin is None:
        return
    named = {"run": record.run, "folder": str(record.folder)} if record else {"run": uuid.uuid4().hex, "folder": ""}
    begin(deepcopy({**(record.config() if record else facts), **named}))
    tell = getattr(on_round, "again", on_round)
    for row in done:
        tell(deepcopy(row))


# The end


def _end(
    session: Session, network: Architecture | nn.Module, prepared: Model, on_end: Callable[[Row], None] | None,
    stopped: str, finals: Row,
) -> Result:  # fmt: skip
    """Make and write what a run ends with, whatever ended it. A tracker learns of the end by ``on_end``."""
    settings, fed = session.settings, session.observer.fed
    data = fed.dataset
    session.keep_best()  # an interruption may have come before it
    shown = session.shown(session.state)
    params, buffers = shown.params, shown.buffers
    of_data = fits_of(finals), data.fingerprint, fed.split
    trained = Trained(prepared, params, buffers, Inputs.of(data), settings.precision, *of_data)
    summary = summarise(session.done, stopped, data.label_names, finals, session.method.serves)
    if session.protection.noise:
        summary["privacy"] = session.protection.noise.summary(session.done)
    monitor, models = session.monitored(), {"final": {**params, **buffers}}
    if monitor and monitor.best and session.best:
        early = not stopped and session.state.round < session.task.rounds
        summary["best"] = {**best_of(session.done, monitor), "stopped_early": early}
        models["best"] = {**session.best.params, **session.best.buffers}
    owners: dict[str, str] = {}
    if settings.keep_own and session.record and session.method.personal and not stopped:
        with torch.no_grad(), one_thread():
            each = dict(session.engine.own_models(session.method, given_of(session.method, shown)))
        own_tensors = {f"{k}/{name}": value for k, model in each.items() for name, value in model.items()}
        models |= {"own": own_tensors} if each else {}  # nodes of Flower keep theirs
        owners = {str(k): fed.name_of(k) for k in each}
    if session.record:
        if stopped:
            session.record.settle(session.done)  # the last one may have been interrupted halfway
            session.checkpoint()
        width = session.method.projection
        facts = described(trained, network, data, session.state.round, settings.dtype, width)
        facts |= {"own": owners} if owners else {}
        session.record.finish(summary, models, {"model": facts})
    if on_end:
        on_end(deepcopy(summary))
    folder = session.record.folder if session.record else None
    model, rows = (params, buffers, session.state, session.task, trained), session.client_rows
    return Result(session.done, summary, *model, rows, stopped, folder)
