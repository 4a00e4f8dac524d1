"""The imperative shell: rounds, evaluation schedule, records, checkpoints."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fedskew import engines, rng, server, tree
from fedskew.engines.memory import HOMES
from fedskew.errors import ConfigError, RecordError, TrainingError, closest, require
from fedskew.method import Component, Method, check_method, method_spec, spec
from fedskew.models import architectures as models
from fedskew.models.architectures import Architecture
from fedskew.models.precision import arithmetic, check_precision
from fedskew.models.prepare import prepare
from fedskew.records import diagnostics
from fedskew.records.diagnostics import Diagnostics, Moment
from fedskew.records.folder import Record, summarise
from fedskew.records.metrics import from_confusion, groups_by_counts
from fedskew.server import Broadcast, Opened, State
from fedskew.types import Answers, Params, Query, Results, Task, Weights

if TYPE_CHECKING:
    from fedskew.data.federation import Federation

__all__ = ["Result", "check_device", "run"]

Row = dict[str, Any]
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
COUNTED = 100_000  # cells of a matrix of counts that a configuration still holds
MEMORIES = tuple(HOMES)  # where lives what clients keep between rounds


@dataclass(frozen=True, eq=False)
class Result:
    """What a run gives back."""

    rounds: list[Row]
    summary: dict[str, Any]
    params: Params  # of the served model
    buffers: Params
    state: State
    task: Task
    stopped: str = ""  # "" after the last round, "interrupted" after a KeyboardInterrupt
    folder: Path | None = None

    def __repr__(self) -> str:
        accuracy = self.summary.get("final_accuracy")
        return f"Result(rounds={len(self.rounds)}, accuracy={accuracy if accuracy is None else round(accuracy, 4)})"


@dataclass
class Traffic:
    """Bytes of a round, as they are counted."""

    up: int = 0
    down: int = 0


@dataclass
class Session:
    """One run in progress: the state, the engine, and where it is recorded."""

    fed: Federation
    method: Method
    task: Task
    engine: engines.LocalEngine
    state: State
    cohort: int
    seed: int
    eval_every: int
    personal_every: int
    checkpoint_every: int
    record: Record | None
    diagnose: Diagnostics
    rows: list[Row] = field(default_factory=list)
    record_s: float = 0.0

    def round(self) -> Row:
        """One round: open, train, close, evaluate, record."""
        clock = [time.perf_counter()]
        traffic = Traffic()
        opened = self._open(traffic)
        clock.append(time.perf_counter())
        results = self._train(opened)
        clock.append(time.perf_counter())
        before = self.state
        try:
            weights = self._close(opened, results)
            self._count(opened, results, traffic)
            clock.append(time.perf_counter())
            row = self._row(opened, results, weights, traffic)
            if self.diagnose.due(self.state.round, self.task.rounds):
                row["diagnostics"] = self._diagnose(opened, results, weights)
            self.engine.memory.commit()
        except BaseException:
            self.state = before  # a round without its row has not happened; the loop drops its memories too
            raise
        clock.append(time.perf_counter())
        stages = [b - a for a, b in pairwise(clock)]
        self._keep(row, dict(zip(("select_s", "train_s", "aggregate_s", "evaluate_s"), stages, strict=True)))
        return row

    def _open(self, traffic: Traffic) -> Opened:
        def query(question: Query, part: Component, broadcast: Broadcast) -> Answers:
            answers = self.engine.query(question, part, self.method, broadcast)
            if question.rows == "own":
                if not question.keep:
                    traffic.up += tree.size_bytes(answers.values)
                if question.what != "counts":
                    traffic.down += len(answers.ids) * self._model_bytes(broadcast)
            return answers

        return server.open_round(self.method, self.state, self.cohort, self.seed, query)

    def _model_bytes(self, broadcast: Broadcast) -> int:
        return (
            tree.size_bytes(broadcast.params) + tree.size_bytes(broadcast.buffers) + tree.size_bytes(broadcast.common)
        )

    def _train(self, opened: Opened) -> Results:
        weighting = self.method.weighting
        return self.engine.train(
            self.method,
            opened.assignment,
            opened.broadcast,
            None if self.method.stacks else lambda c: self.method.weigh(opened.state.parts[weighting.name], c),
            keep_deltas=self.diagnose.deltas and self.diagnose.due(opened.broadcast.round, self.task.rounds),
        )

    def _close(self, opened: Opened, results: Results) -> Weights:
        state, written, weights = server.close_round(self.method, opened.state, results, self.seed)
        finite = torch.stack([torch.isfinite(p).all() for p in state.params.values()]).cpu()  # a GPU is asked once
        if not bool(finite.all()):
            broken = list(state.params)[int(finite.int().argmin())]
            hint = "a smaller --lr or --server-lr, or a --clip, may help"
            raise TrainingError(f"the aggregated parameter {broken!r} is not finite after round {state.round}; {hint}")
        for name, memories in written.items():
            for i, k in enumerate(results.cohort.ids.tolist()):
                self.engine.memory.put(k, {name: tree.row(memories, i)})
        self.state = state
        return weights

    def _count(self, opened: Opened, results: Results, traffic: Traffic) -> None:
        members = int((opened.assignment.chains >= 0).sum())
        broadcast = opened.broadcast
        quota = 0 if opened.assignment.quota is None else opened.assignment.quota.numel() * 8
        traffic.down += members * self._model_bytes(broadcast) + tree.size_bytes(broadcast.each) + quota
        averaged = opened.assignment.averaged
        sending = members if averaged is None else int(averaged.sum())  # who is not averaged sends nothing
        traffic.up += sending * (tree.size_bytes(broadcast.params) + tree.size_bytes(broadcast.buffers))
        traffic.up += tree.size_bytes(results.cohort.uploads) * sending // members

    def _row(self, opened: Opened, results: Results, weights: Weights, traffic: Traffic) -> Row:
        cohort, number = results.cohort, self.state.round
        row: Row = {"round": number}
        if number % self.eval_every == 0 or number == self.task.rounds:
            row |= self._evaluate()
        if self.method.having("personalize") and (number == self.task.rounds or _due(number, self.personal_every)):
            broadcast = server.broadcast(self.method, self.state, None)._replace(params=self._served())
            matrix, loss = self.engine.personal(self.method, broadcast)
            row |= {
                f"personal_{n}": v
                for n, v in _metrics(self.fed, matrix, loss).items()
                if n in ("accuracy", "macro_f1", "balanced_accuracy", "loss")
            }
        reports = cohort.reports
        row["train_loss"] = float((reports.loss * reports.samples).sum() / reports.samples.sum().clamp(min=1))
        row["clients"] = [[int(k) for k in c if k >= 0] if len(c) > 1 else int(c[0]) for c in cohort.chains]
        row["weights"] = [float(w) for w in weights.update]
        row["samples"], row["steps"] = int(reports.samples.sum()), int(reports.steps.sum())
        row["upload_bytes"], row["download_bytes"] = traffic.up, traffic.down
        told = {c.name: c.record(self.state.parts[c.name]) for c in self.method.having("record")}
        if told:
            row["components"] = told
        return row

    def _diagnose(self, opened: Opened, results: Results, weights: Weights) -> Row:
        """What the diagnostics say of the round that was just closed; nothing of it is read by training."""
        given, after = opened.broadcast, self.state
        moment = Moment(
            round=after.round, cohort=results.cohort, weights=weights, before=given.params, after=after.params,
            served=self._served(), buffers=given.buffers, buffers_after=after.buffers, local_buffers=results.buffers,
            train_counts=self.fed.counts.sum(0), deltas=results.kept, labels=self.fed.dataset.y_test.cpu(),
            confusion=lambda params, buffers: self.engine.evaluate(params, buffers)[0],
            outputs=self.engine.outputs, write=self.record.tensors if self.record else _nowhere,
        )  # fmt: skip
        return diagnostics.measure(self.diagnose, moment)

    def _served(self) -> Params:
        return server.served(self.method, self.state, self.task)

    def _evaluate(self) -> Row:
        params, buffers = self._served(), self.state.buffers
        row = _metrics(self.fed, *self.engine.evaluate(params, buffers))
        if len(self.fed.validation_rows):
            held = self.engine.evaluate(params, buffers, self.fed.validation_rows, on="train")
            row |= {f"val_{n}": v for n, v in _metrics(self.fed, *held).items()}
        return row

    def _keep(self, row: Row, stages: Row) -> None:
        """Append the row, then checkpoint: a kill between them loses no row. record_s is the round before's."""
        row |= {"wall_s": sum(stages.values()) + self.record_s, **stages, "record_s": self.record_s}
        start = time.perf_counter()
        self.rows.append(row)
        if self.record:
            self.record.append(row)
            if row["round"] == self.task.rounds or _due(row["round"], self.checkpoint_every):
                self.checkpoint()
        self.record_s = time.perf_counter() - start

    def checkpoint(self) -> None:
        """Replace the checkpoint by the state after the last whole round."""
        assert self.record is not None
        s = self.state
        content = {"params": s.params, "buffers": s.buffers, "parts": s.parts, "memory": self.engine.memory.dump()}
        moved = [i for i, leaf in enumerate(tree.leaves(content)) if leaf.device.type != "cpu"]
        self.record.checkpoint(content, {"round": s.round, "on_device": moved})

    def restore(self) -> None:
        """Continue from the last checkpoint; without one, from the beginning."""
        assert self.record is not None
        found = self.record.restore()
        if found is not None:
            content, facts = found
            # label counts and such never leave the host
            moved, place = set(facts.get("on_device", range(sum(1 for _ in tree.leaves(content))))), count()
            content = tree.map_tree(lambda t: t.to(self.engine.device) if next(place) in moved else t, content)
            parts = {c.name: content.get("parts", {}).get(c.name, {}) for c in self.method.components}
            self.state = State(facts["round"], content["params"], content.get("buffers", {}), parts)
            self.engine.memory.load(content.get("memory", {}))
        self.rows = self.record.keep_rounds(self.state.round)


def _nowhere(name: str, content: Params) -> None:
    raise AssertionError(f"{name} has no run folder")  # Diagnostics.check has refused this


def _due(number: int, every: int) -> bool:
    return every > 0 and number % every == 0


def _metrics(fed: Federation, matrix: Tensor, loss: float) -> Row:
    groups = groups_by_counts(fed.counts.sum(0))
    found = from_confusion(matrix, groups)
    return {**found, "loss": loss}


def run(
    fed: Federation,
    method: Method,
    *,
    model: str | Architecture | nn.Module = "mlp",
    head: str | None = None,
    rounds: int = 100,
    cohort: int = 10,
    seed: int = 0,
    engine: str = "auto",
    threads: int = 0,
    device: str = "cpu",
    dtype: str = "float32",
    precision: str = "float32",
    memory: str = "device",
    eval_every: int = 1,
    personal_every: int = 0,
    checkpoint_every: int = 10,
    out: str | Path | None = None,
    resume: bool = False,
    config: Mapping[str, Any] | None = None,
    on_round: Callable[[Row], None] | None = None,
    diagnose: Sequence[str] = (),
    diagnose_clients: Sequence[int] = (),
    diagnose_every: int = 1,
) -> Result:
    """Train ``method`` on a federation for ``rounds`` rounds of at most ``cohort`` clients.

    ``model`` is a name of `fedskew.models.MODELS`, its options, or any nn.Module with its classifier named by ``head``.
    ``threads`` 0 takes every core; "sequential" trains on one and evaluates on all. ``precision`` is that of products
    inside the network, whose parameters have ``dtype``: "float32", "tf32" (CUDA) or "bfloat16". ``memory`` says where
    lives what clients keep between rounds: "device", "ram" or "disk" (`fedskew.engines.memory`). ``personal_every`` 0
    evaluates the clients' own models after the last round only (methods that have them). With ``out`` the run is
    recorded there; with ``resume`` it continues from the folder's checkpoint. ``diagnose`` names what is recorded of
    every ``diagnose_every``-th round beside the metrics (`fedskew.records.diagnostics`), without effect on
    the run. Raises
    ConfigError, RecordError before anything trains, TrainingError when a loss is not finite; the record is kept.
    """
    check_method(method)
    watch = Diagnostics(
        (diagnose,) if isinstance(diagnose, str) else tuple(diagnose), tuple(diagnose_clients), diagnose_every
    )
    watch.check(fed.clients, out is not None)
    _check(fed, rounds, cohort, eval_every, checkpoint_every, dtype, device)
    check_precision(precision, dtype, device)
    shape = tuple(fed.dataset.x.shape[1:])
    network = model if isinstance(model, nn.Module) else models.build(model, shape, fed.dataset.classes, seed)
    narrow = torch.bfloat16 if precision == "bfloat16" else None
    named = head or getattr(network, "head_name", None)
    prepared = prepare(network, named, shape, fed.dataset.classes, narrow=narrow).to(DTYPES[dtype], device)
    task = prepared.task(fed.clients, rounds)
    method.check(fed, task)
    kind, reason = engines.choose(engine, device, prepared, method)
    runner = kind(prepared, fed, task, seed=seed, device=device, threads=threads)
    params = _initial(method, prepared.params, task, seed)
    runner.birth(method, params, prepared.buffers, memory, None if out is None else Path(out))
    state = server.init(method, params, prepared.buffers, fed, task)
    facts = {
        **(
            config
            or _facts(
                fed,
                method,
                model,
                rounds=rounds,
                cohort=cohort,
                seed=seed,
                device=device,
                dtype=dtype,
                precision=precision,
            )
        ),
        "label_names": list(fed.dataset.label_names),
        "engine_used": kind.name,
        "engine_reason": reason,
        "threads_used": runner.workers.count,
        **({"diagnose": watch.to_json()} if watch.names else {}),
    }
    session = Session(
        fed=fed, method=method, task=task, engine=runner, state=state, cohort=cohort, seed=seed, eval_every=eval_every,
        personal_every=personal_every, checkpoint_every=checkpoint_every, record=_recorded(out, resume, facts),
        diagnose=watch,
    )  # fmt: skip
    if resume:
        session.restore()
    try:
        with arithmetic(precision):
            return _loop(session, on_round)
    finally:
        runner.close()


def _recorded(out: str | Path | None, resume: bool, facts: Mapping[str, Any]) -> Record | None:
    """The run folder, made or found again; None where nothing is recorded."""
    if out is None:
        require(not resume, "out", "name the run folder to resume", out)
        return None
    if not resume:
        return Record.create(out, facts)
    record = Record.open(out)
    _same_run(record, facts)
    return record


@contextmanager
def _one_thread() -> Iterator[None]:
    """One intra-op thread: sums then do not depend on the number of cores, and small models run faster."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _loop(session: Session, on_round: Callable[[Row], None] | None) -> Result:
    stopped = ""
    try:
        with torch.no_grad(), _one_thread():
            while session.state.round < session.task.rounds:
                row = session.round()
                if on_round:
                    on_round(row)
    except KeyboardInterrupt:
        stopped = "interrupted"
    except BaseException as error:
        session.engine.memory.rollback()
        _end(session, f"{type(error).__name__}: {error}")
        raise
    session.engine.memory.rollback()
    return _end(session, stopped)


def _end(session: Session, stopped: str) -> Result:
    params, buffers = session._served(), session.state.buffers
    summary = summarise(session.rows, stopped)
    if session.record:
        if stopped:
            session.record.write_rows(session.rows)  # the last one may have been interrupted halfway
            session.checkpoint()
        session.record.finish(summary, params, buffers)
    folder = session.record.folder if session.record else None
    return Result(session.rows, summary, params, buffers, session.state, session.task, stopped, folder)


def _same_run(record: Record, facts: Mapping[str, Any]) -> None:
    """Raise RecordError where the folder holds another run. More rounds of the same are welcome."""
    before = record.config()
    ignored = ("engine", "engine_reason", "threads", "threads_used", "memory", "checkpoint_every", "rounds", "diagnose")
    other = [n for n, v in facts.items() if n not in ignored and before.get(n, v) != json.loads(json.dumps(v))]
    if other:
        was, now = (json.dumps(c[other[0]])[:80] for c in (before, facts))
        raise RecordError(f"--resume must continue the same run; {other[0]} was {was} and is {now}")


def _facts(fed: Federation, method: Method, model: str | Architecture | nn.Module, **plain: Any) -> dict[str, Any]:
    """What is known of a run that was started from Python; its data and network cannot be named, so not for --from."""
    network = model if isinstance(model, str) else getattr(model, "name", type(model).__name__)
    names = {"data": {"name": fed.dataset.name}, "partition": spec(fed.partitioner), "model": {"name": network}}
    facts: dict[str, Any] = {"clients": fed.clients, "longtail": fed.longtail, "fingerprint": fed.dataset.fingerprint}
    if fed.counts.numel() <= COUNTED:  # its split cannot be made again from names, so advice reads it here
        facts["counts"] = fed.counts.tolist()
    return {"method": method_spec(method), **names, **facts, **plain}


def _initial(method: Method, params: Params, task: Task, seed: int) -> Params:
    """The model's parameters, and those that components add to it."""
    for part in method.having("init_params"):
        params = {**params, **part.init_params(params, task, rng.key(seed, "init", part.name))}
    return params


def _check(
    fed: Federation, rounds: int, cohort: int, eval_every: int, checkpoint_every: int, dtype: str, device: str
) -> None:
    require(rounds >= 1, "--rounds", "be at least 1", rounds)
    require(cohort >= 1, "--cohort", "be at least 1", cohort)
    require(eval_every >= 1, "--eval.every", "be at least 1", eval_every)
    require(checkpoint_every >= 0, "--checkpoint.every", "be at least 0", checkpoint_every)
    require(cohort <= fed.clients, "--cohort", f"be at most the number of clients, {fed.clients}", cohort)
    real = int((fed.counts.sum(1) > 0).sum())
    require(
        cohort <= real,
        "--cohort",
        f"be at most the number of clients that have rows, {real} of {fed.clients}",
        cohort,
        "a larger alpha, fewer clients or another --seed leaves fewer of them empty",
    )
    if dtype not in DTYPES:
        raise ConfigError(f"unknown dtype {dtype!r}{closest(dtype, DTYPES)}")
    check_device(device)


def check_device(name: str) -> None:
    """Raise ConfigError unless the device is cpu, or a GPU that is there: cuda, cuda:0, cuda:1, ..."""
    found = re.fullmatch(r"cpu|cuda(?::(\d+))?", name)
    require(found is not None, "--device", "be cpu, cuda or cuda:NUMBER", name)
    if name == "cpu":
        return
    require(torch.cuda.is_available(), "--device", "be 'cpu' where no GPU is at hand", name)
    last = torch.cuda.device_count() - 1
    require(int(found[1] or 0) <= last, "--device", f"be one of the GPUs, at most cuda:{last}", name)  # type: ignore[index]
