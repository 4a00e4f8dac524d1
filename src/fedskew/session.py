"""One run in progress, round by round."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from itertools import count

import torch

from fedskew import server, tree
from fedskew.averages import Averages, Kept
from fedskew.engines import LocalEngine
from fedskew.engines.guard import unguarded
from fedskew.engines.measures import Observer, Traffic
from fedskew.engines.outcomes import Fault, not_finite
from fedskew.errors import TrainingError
from fedskew.method import Component, Method
from fedskew.method.component import in_halves, weights_of
from fedskew.protection import Protection
from fedskew.records.folder import Record
from fedskew.records.summary import MetricMonitor
from fedskew.records.typed import Row
from fedskew.server import Ask, Broadcast, Opened, Shown, State
from fedskew.settings import Evaluation, Settings
from fedskew.types import Answers, Cohort, Query, Results, Task, Weights

RATES = "try a smaller learning rate of the clients or the server, or clipping"


@dataclass
class Session:
    """The state of a run, round by round."""

    method: Method
    task: Task
    engine: LocalEngine
    settings: Settings
    evaluation: Evaluation
    cohort: int
    state: State
    observer: Observer
    record: Record | None
    protection: Protection
    rows: list[Row] = field(default_factory=list)
    record_s: float = 0.0
    best: Kept | None = None  # the model of the best round by the monitored metric
    averages: Averages = field(init=False)
    client_rows: list[Row] = field(default_factory=list)  # as in clients.jsonl
    _client_rows_kept: int = 0  # of them, in the file
    _monitor: MetricMonitor | None = None  # after ``_rounds_monitored`` rounds
    _rounds_monitored: int = 0

    def __post_init__(self) -> None:
        self.averages = Averages(self.settings, self.evaluation)

    @property
    def done(self) -> list[Row]:
        """The rows of the rounds that are done."""
        return self.rows[: self.state.round]

    def monitored(self) -> MetricMonitor | None:
        """What is known of the monitored metric after the rounds that are done; None where none is monitored.

        It is made from the rows, so an interruption cannot part the two.
        """
        if self.settings.monitor is None:
            return None
        now = self._monitor or MetricMonitor(self.settings.monitor)
        for row in self.rows[self._rounds_monitored : self.state.round]:
            now = now.after(row)
        self._monitor, self._rounds_monitored = now, self.state.round
        return now

    def keep_best(self) -> None:
        """Keep the model after the last round, if that round is the best so far. Safe to repeat."""
        monitored, number = self.monitored(), self.state.round
        best = monitored and monitored.best
        if best and best.round == number and not (self.best and self.best.round == number):
            self.best = Kept(number, *self.shown(self.state)[1:])

    def shown(self, state: State) -> Shown:
        """The model that is evaluated and deployed after a state's round."""
        model = self.averages.shown(self._served(state))
        return Shown(state, model.params, model.buffers)

    def _served(self, state: State) -> Kept:
        return Kept(state.round, server.served(self.method, state, self.task), state.buffers)

    def is_over(self, row: Row | None = None) -> bool:
        """Whether no round is left: all are done, or the monitored metric has not improved for too long.

        With the row of the next round, which is not done yet: whether none is left after it.
        """
        monitored, patience = self.monitored(), self.settings.patience
        number, monitor = (row["round"], monitored and monitored.after(row)) if row else (self.state.round, monitored)
        return number >= self.task.rounds or bool(monitor and patience and monitor.idle >= patience)

    def finals(self) -> Row:
        """What is measured once, of the model of the last round; nothing where this round was not evaluated."""
        if not self.done or "accuracy" not in self.done[-1]:
            return {}
        number = self.state.round
        listed = any(row["round"] == number for row in self.client_rows)
        lists = self.evaluation.due("clients_every", number, over=True)
        if self.record and lists and not listed:  # an interruption has lost them
            self.observer.list_clients(self.shown(self.state))
            self.client_rows += self.observer.measured
            self._keep_clients()
        mean = self.averages.measured(self._served(self.state), over=True)
        return self.observer.finals(self.shown(self.state), self.done[-1], mean)

    def round(self) -> Row:
        """Run one round: open, train, close, observe, keep.

        The round ends with the assignment of ``state``, whose number says which rows and memories count. Whatever is
        raised before it, the round has not been; whatever is raised after it, it is done.
        """
        stopwatch = Stopwatch()
        opened, results, traffic, dropped = self._trained(stopwatch)
        after, weights = self._close(opened, results)
        given = opened.broadcast
        sizes = {"update_bytes": given.update_bytes, "broadcast_bytes": given.common_bytes}
        traffic.add_training(opened.assignment, given.each, results.cohort.uploads, **sizes)
        noise, adder = self.protection.noise, self.protection.adder
        if adder:
            traffic.add_sums(*adder.bytes_of(after.round))
        stopwatch.lap("aggregate_s")
        mean = self.averages.measured(self._served(after))
        row = self.observer.row(opened, results, weights, after, self.shown(after), mean, traffic, self.is_over)
        check_losses(row)
        # steps of a client come of its rows
        faults = [{"client": f.client, "tensor": f.tensor} if adder else f.to_json() for f in dropped]
        row |= {"dropped": faults + row.get("dropped", [])} if faults else {}
        row |= {"epsilon": noise.epsilon([*self.done, row])} if noise else {}
        stopwatch.lap("evaluate_s")
        stages = stopwatch.stages
        row |= {"wall_s": sum(stages.values()) + self.record_s, **stages, "record_s": self.record_s}
        self.rows[self.state.round :] = [row]
        self.state = after
        self._keep(row)
        return row

    def _trained(self, stopwatch: Stopwatch) -> tuple[Opened, Results, Traffic, list[Fault]]:
        """The round up to the server's half, and whom it dropped.

        A round that drops clients is run again as if they had not been chosen: selection, questions, broadcast and
        training. All draws belong to a client, so the others train as they did. The sums that weights rest on stay
        those of the first attempt.

        Raises:
            TrainingError: under ``stop``, for the first client; under ``drop``, where nobody is left.
        """
        dropped: list[Fault] = []
        method, weighting, protection = self.method, self.method.weighting, self.protection
        number = self.state.round + 1
        seeds = self.settings.seed, self.settings.seed_of("clients")
        kept = self.settings.diagnose.deltas and self.evaluation.due("diagnose", number)
        entered: list[Cohort] = []  # the clients of each attempt; sums are those of the first

        def weigh(cohort: Cohort) -> Weights:
            """The weights of who is left."""
            server_state, plain = opened.state.parts[weighting.name] if opened else {}, unguarded(method).weighting
            if cohort is entered[0] or not in_halves(plain):
                return weighting.weigh(server_state, cohort)
            return weights_of(plain, server_state, cohort, entered[0])

        def known(cohort: Cohort) -> Weights | None:
            """Weights that do not read updates are known before training, so that updates come back as a sum."""
            assert opened is not None, "clients train in a round that is open"
            cohort = protection.as_known(cohort, method, opened)
            entered.append(cohort)
            return None if method.stacks or protection.needs_each else weigh(cohort)

        while True:
            traffic = Traffic()
            self.engine.memory.begin(number)
            self.engine.guard.begin(number)
            gone, opened = [fault.client for fault in dropped], None
            try:
                opened = server.open_round(method, self.state, self.cohort, *seeds, self._query(traffic), gone)
                stopwatch.lap("select_s")
                if len(opened.assignment.ids):
                    results = self.engine.train(method, opened.assignment, opened.broadcast, known, keep_deltas=kept)
                else:
                    results = server.nobody(opened, self.task)
                true_cohort, cohort = results.cohort, protection.as_known(results.cohort, method, opened)
                if method.stacks and dropped and not weighting.reads_deltas and not protection.adder:
                    cohort = cohort._replace(weights=weigh(cohort))
                results = results._replace(cohort=cohort, recorded=true_cohort if protection.declared else None)
                return opened, protection.closed(results, method, opened, entered), traffic, dropped
            except TrainingError as error:
                if not error.faults or (self.settings.nonfinite == "stop" and not error.drop):
                    raise
                dropped += error.faults
                if opened and opened.assignment.without([fault.client for fault in error.faults]) is None:
                    raise not_finite(dropped, "every client of the round was dropped: ") from error
            finally:
                stopwatch.lap("train_s")

    def _query(self, traffic: Traffic) -> Ask:
        def query(question: Query, part: Component, broadcast: Broadcast) -> Answers:
            name, guard = f"the question of component {part.name!r}", self.engine.guard
            with guard.located(name), guard.unwritten(name, (self.state.parts, *broadcast) if guard.looks else ()):
                answers = self.engine.query(question, part, self.method, broadcast)
            traffic.add_query(question, answers, broadcast.common_bytes)
            adder = self.protection.adder
            if adder and question.rows == "own" and not question.keep:
                answers = adder.answered(part, answers, self.observer.fed.has_rows, broadcast.round)
            return answers

        return query

    def _close(self, opened: Opened, results: Results) -> tuple[State, Weights]:
        """The server's half: the next state, and the weights used. Memories written back wait for the round's end."""
        state, written, weights = server.close_round(self.method, opened.state, results, self.settings.seed)
        check_finite(state)
        for name, memories in written.items():
            for i, k in enumerate(results.cohort.ids.tolist()):
                self.engine.memory.put(k, {name: tree.row(memories, i)})
        return state, weights

    def _keep(self, row: Row) -> None:
        """Append the row, then write the checkpoint: a kill between them loses no row. record_s is the last round's."""
        start = time.perf_counter()
        self.engine.memory.settle(self.state.round)
        self.keep_best()
        self.averages.keep(self._served(self.state))
        self.client_rows += self.observer.measured
        if self.record:
            self.record.append(row)
            self._keep_clients()
            if self.evaluation.due("checkpoint_every", row["round"], self.is_over()):
                self.checkpoint()
        self.record_s = time.perf_counter() - start

    def _keep_clients(self) -> None:
        """Write the rows of clients, where there are new ones: no checkpoint may be without those of its rounds."""
        assert self.record is not None
        if len(self.client_rows) > self._client_rows_kept:
            self.record.keep_clients(self.client_rows)
            self._client_rows_kept = len(self.client_rows)

    def checkpoint(self) -> None:
        """Replace the checkpoint by the state after the last whole round."""
        assert self.record is not None
        self._keep_clients()  # again where a disk was full for a moment
        s = self.state
        self.engine.memory.settle(s.round)
        content = {"params": s.params, "buffers": s.buffers, "parts": s.parts, "memory": self.engine.memory.dump()}
        self.keep_best()
        self.averages.keep(self._served(self.state))
        facts: Row = {"round": s.round}
        if self.best:
            content["best"] = self.best.model
            facts["best"] = self.best.round
        if self.averages.window:
            content["window"] = {str(kept.round): kept.model for kept in self.averages.window}
        moved = [i for i, leaf in enumerate(tree.leaves(content)) if leaf.device.type != "cpu"]
        self.record.checkpoint(content, {**facts, "on_device": moved})

    def restore(self) -> None:
        """Continue from the last checkpoint; without one, from the beginning."""
        assert self.record is not None
        checkpoint = self.record.restore()
        if checkpoint is not None:
            content, facts, self.rows = checkpoint
            # label counts and the like never leave the host
            moved, place = set(facts.get("on_device", range(sum(1 for _ in tree.leaves(content))))), count()
            content = tree.map_tree(lambda t: t.to(self.engine.device) if next(place) in moved else t, content)
            parts = {c.name: content.get("parts", {}).get(c.name, {}) for c in self.method.components}
            self.state = State(facts["round"], content["params"], content.get("buffers", {}), parts, self.state.stays)
            self.engine.memory.load(content.get("memory", {}))
            if "best" in facts:
                self.best = Kept.of(facts["best"], content["best"])
            self.averages.restore(content.get("window", {}))
        self.client_rows = self.record.clients(self.state.round)
        self._client_rows_kept = len(self.client_rows)


def check_finite(state: State) -> None:
    """Raise TrainingError, naming the tensor, where the aggregated model is not finite or the server holds a NaN.

    A component may keep infinities at the server: "not asked yet", "no bound".
    """
    leaves = tree.flatten({"parameter": state.params, "buffer": state.buffers, "state": state.parts})
    known = [(path, leaf) for path, leaf in leaves if leaf is not None and leaf.is_floating_point() and leaf.numel()]
    for device in {leaf.device for _, leaf in known}:  # each is read once
        here = [(path, leaf) for path, leaf in known if leaf.device == device]
        bounds = torch.stack([bound.double() for _, leaf in here for bound in torch.aminmax(leaf)]).cpu().view(-1, 2)
        for ((kind, *path), _), (low, high) in zip(here, bounds.tolist(), strict=True):
            if math.isnan(low) or (kind != "state" and math.inf in (-low, high)):
                whole = f"the aggregated {kind} {'.'.join(path)!r} is not finite"
                fault = f"the server's state {'.'.join(path)!r} has a NaN" if kind == "state" else whole
                raise TrainingError(f"{fault} after round {state.round}; {RATES}")


def check_losses(row: Row) -> None:
    """Raise TrainingError where a loss of the evaluation is not finite although every parameter and buffer is."""
    for name, value in row.items():
        if name.endswith("loss") and not math.isfinite(value):
            fault = f"the evaluation's {name!r} is {value} after round {row['round']}"
            raise TrainingError(f"{fault}, although the model is finite: its outputs are not; {RATES}")


class Stopwatch:
    """Seconds of the stages of a round."""

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """End a stage."""
        now = time.perf_counter()
        self.stages[stage] = self.stages.get(stage, 0.0) + now - self._last
        self._last = now
