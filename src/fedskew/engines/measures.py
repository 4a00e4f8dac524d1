"""What a run measures: rounds that were closed, its last model and its controls, and clients that join after training.

Nothing that is found here is read by training.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from fedskew import server, tree
from fedskew.averages import Kept
from fedskew.engines.base import LocalEngine
from fedskew.engines.clients import ClientMemory, Clients
from fedskew.engines.evaluation import Tested, pooled, shares_of, tested
from fedskew.engines.fitting import measured
from fedskew.errors import TrainingError
from fedskew.method import Component, Method
from fedskew.records import diagnostics
from fedskew.records.clients import client_row
from fedskew.records.diagnostics import RoundSnapshot
from fedskew.records.folder import Record
from fedskew.records.metrics import (
    EVALUATED,
    PERSONAL,
    RANKED,
    from_confusion,
    from_mixes,
    from_probabilities,
    groups_by_counts,
)
from fedskew.records.summary import AVERAGED, FITTED
from fedskew.records.typed import Row
from fedskew.server import Broadcast, Opened, Shown, State
from fedskew.settings import Evaluation, Settings
from fedskew.types import Answers, Assignment, Federation, Params, Query, Results, Task, Tree, Weights

GROUP = 64  # held-out clients whose memories are held at a time
LAST = (*RANKED, "per_class_recall")  # of the last model, fitted


@dataclass(frozen=True)
class Observer:
    """What is measured of a round that was closed. Nothing that it finds is read by training."""

    fed: Federation
    method: Method
    task: Task
    engine: LocalEngine
    settings: Settings
    evaluation: Evaluation
    record: Record | None
    measured: list[Row] = field(default_factory=list)  # of each client, in the round that was observed last

    def row(
        self,
        opened: Opened,
        results: Results,
        weights: Weights,
        state: State,
        shown: Shown,
        mean: Kept | None,
        traffic: Traffic,
        is_last: Callable[[Row], bool],
    ) -> Row:
        """The round's line of rounds.jsonl, without seconds.

        Args:
            opened: what clients were sent.
            results: what they sent back.
            weights: with which their updates were added.
            state: after the round.
            shown: the model that is evaluated and deployed.
            mean: of the models of the last rounds; None: it is not measured in this round.
            traffic: bytes.
            is_last: tells from what was evaluated whether this is the last round.
        """
        number = state.round
        self.measured.clear()
        row: Row = {"round": number}
        fits = False
        if self.evaluation.due("eval_every", number):
            row |= self._evaluate(shown)
            fits = self.evaluation.due("fit_logits", number)
            row |= self._averaged(mean, fits) if mean else {}
        last = is_last(row)
        served = "accuracy" in row and self.evaluation.due("served", number)
        personal = self.method.personal and (served or self.evaluation.due("personal_every", number, last))
        names = [*(["personal_"] if personal else []), *(["served_"] if served else [])]
        lists = self.evaluation.due("clients_every", number, last)
        joint = personal and lists  # one pass does for both
        used = self._evaluate_used(shown, names, joint) if names else {}
        if lists and not joint:
            self.list_clients(shown)
        # the fit comes last: nodes keep its logits until their next message, and the last round's is asked for again
        row |= (self._fitted(shown.params, shown.buffers) if fits else {}) | used
        cohort = results.recorded or results.cohort
        reports = cohort.reports
        row |= {
            "train_loss": float((reports.loss * reports.samples).sum() / reports.samples.sum().clamp(min=1)),
            "clients": [[int(k) for k in c if k >= 0] if len(c) > 1 else int(c[0]) for c in cohort.chains],
            "weights": [float(w) for w in weights.update],
            "samples": int(reports.samples.sum()),
            "steps": int(reports.steps.sum()),
        }
        row |= {"upload_bytes": traffic.up, "download_bytes": traffic.down, "contacts": traffic.contacts}
        components = {c.name: c.record(state.parts[c.name]) for c in self.method.having("record")}
        if components:
            row["components"] = components
        if self.evaluation.due("diagnose", number):
            row["diagnostics"] = self._diagnose(opened, results, weights, state, shown)
        return row

    def _metrics(self, matrix: Tensor, loss: float) -> Row:
        return {**from_confusion(matrix, groups_by_counts(self.fed.counts.sum(0))), "loss": loss}

    def finals(self, shown: Shown, row: Row, mean: Kept | None) -> Row:
        """What is measured once, beside the last row: scores, confusion matrix, fits, served metrics, the mean model.

        Args:
            shown: the model after the last round.
            row: of the last round.
            mean: of the models of the last rounds; None: it is not measured.
        """
        matrix, _, chances = self.engine.test.scored(shown.params, shown.buffers)
        metrics: Row = {**self._scores(matrix, chances), "confusion": matrix.tolist()}
        served, fits = (self.evaluation.due(what, shown.round, over=True) for what in ("served", "fit_logits"))
        if fits:
            metrics |= self._fitted_last(shown, served)
        if mean:
            metrics |= self._averaged(mean, fits, last=True)
        return metrics | self._served_once(shown, row) if served and "served_accuracy" not in row else metrics

    def _served_once(self, shown: Shown, row: Row) -> Row:
        """Metrics of what each client would use, of the last model, whose row has no such metrics."""
        if self.method.personal:
            return {n.replace("personal_", "served_"): v for n, v in row.items() if "personal_" in n}
        return self._evaluate_used(shown, ["served_"])

    def _scores(self, matrix: Tensor, chances: Tensor) -> Row:
        labels = self.fed.dataset.y_test
        ranked = from_probabilities(labels, chances, self.settings.recall_at)
        return {**ranked, **from_mixes(matrix, self.fed.counts)}

    def _evaluate(self, shown: Shown) -> Row:
        params, buffers = shown.params, shown.buffers
        if self.evaluation.due("scores", shown.round):
            matrix, loss, chances = self.engine.test.scored(params, buffers)
            row = self._metrics(matrix, float(loss))
            row |= self._scores(matrix, chances) if loss.isfinite() else {}  # which `check_losses` refuses
        else:
            row = self._metrics(*self.engine.evaluate(params, buffers))
        aside = {"val": self.fed.validation_rows, "local": self.fed.local_test_rows()}
        if self.fed.unseen is not None:
            aside["heldout"] = np.sort(self.fed.unseen.partition.rows)
        for which, rows in aside.items():
            if len(rows):
                metrics = self.engine.evaluate(params, buffers, rows, on="train")
                row |= {f"{which}_{name}": value for name, value in self._metrics(*metrics).items()}
        return row

    def _tested(self, shown: Shown, listed: bool) -> Iterator[Tested]:
        """What each client would use on its own test rows; ``listed`` says whether its row is kept."""
        each = self.engine.tested(self.method, given_of(self.method, shown))
        yield from self._listed(self.fed, shown.round, each) if listed else each

    def _listed(self, fed: Federation, number: int, each: Iterator[Tested]) -> Iterator[Tested]:
        """What was tested of clients of a federation, each with a row that is kept."""
        held, heldout = fed.held is not None, fed is self.fed.unseen
        labels, dealt = fed.dataset.y if held else fed.dataset.y_test, not held and fed.dealt
        for test in each:
            who, probabilities = (number, test.client, fed.name_of(test.client)), test.probabilities
            y, share = (labels[:0], False) if probabilities is None else (labels[test.rows], dealt)
            row = client_row(*who, test.confusion, test.loss, y, probabilities, dealt=share, heldout=heldout)
            self.measured.append(row)
            yield test

    def list_clients(self, shown: Shown) -> None:
        """Measure what each client would use: a row for each, those that never train last."""
        self.measured.clear()
        deque(self._tested(shown, True), 0)
        if self.fed.unseen is not None:
            self._newcomers(self.fed.unseen, shown, True)

    def _evaluate_used(self, shown: Shown, names: Sequence[str], listed: bool = False) -> Row:
        """Metrics of what each client would use: its own model where the method has one, else the global model."""
        personal, unseen, params = self.method.personal, self.fed.unseen, shown.params
        if personal:
            tests = {"": pooled(self._tested(shown, listed), self.task.classes)}
        else:
            tests = {"": self.engine.shared(params, shown.buffers, shown.round)}
        if unseen is not None and personal:
            tests["heldout_"] = self._newcomers(unseen, shown, listed)
        elif unseen is not None:
            tests["heldout_"] = self.engine.on_shares(params, shown.buffers, unseen)
        measured = {who: self._metrics(matrix, loss) for who, (matrix, loss) in tests.items() if matrix.any()}
        return {
            f"{who}{name}{n}": row[n] for name in names for who, row in measured.items() for n in row if n in PERSONAL
        }

    # controls: the fitted model, the mean of the last models

    def _fitted(self, params: Params, buffers: Params, last: bool = False, served: bool = False) -> Row:
        """Metrics of a fitted model on the test rows, ``fitted_...``; of the ``last`` one also scores and the fits.

        With ``served`` also ``fitted_served_...``, those on the clients' own test rows. Nothing where there are no test
        rows or no fits, or where a logit is not finite.
        """
        fed, engine = self.fed, self.engine
        if not len(fed.dataset.y_test):
            return {}
        logits, labels = engine.test.logits(params, buffers)
        fits = engine.fits(params, buffers) if bool(logits.isfinite().all()) else {}
        if not fits:
            return {}
        metrics = measured(labels, logits, fits, self.settings.recall_at if last else None)
        row: Row = {f"{FITTED}{name}": metrics[name] for name in (*EVALUATED, *(LAST if last else ()))}
        rows = engine.rows_of_shares(fed) if served else np.empty(0, np.int64)
        if len(rows):
            if fed.held is None:
                logits, labels = logits[rows], labels[rows]
            else:
                logits, labels = engine.train_set.logits(params, buffers, rows)
            metrics = measured(labels, logits, fits, None)
            row |= {f"{FITTED}served_{name}": metrics[name] for name in PERSONAL}
        return {**row, "fit": {name: fit.to_json() for name, fit in fits.items()}} if last else row

    def _fitted_last(self, shown: Shown, served: bool) -> Row:
        """`_fitted` of the last model, and clients' own models with biases of their own."""
        personal = self.method.personal
        row = self._fitted(shown.params, shown.buffers, True, served and not personal)
        if row and personal:
            each = self.engine.tested(self.method, given_of(self.method, shown), fitted=True)
            matrix, loss = pooled(each, self.task.classes)
            metrics = {**from_confusion(matrix), "loss": loss} if matrix.any() else {}
            for which in ("personal", *(["served"] if served else [])):
                row |= {f"{FITTED}{which}_{name}": metrics[name] for name in PERSONAL if metrics}
        return row

    def _averaged(self, mean: Kept, fitted: bool, last: bool = False) -> Row:
        """Metrics of the mean of the last models on the test rows, ``averaged_...``; nothing where there are none.

        Where it is ``fitted``, also ``averaged_fitted_...``.
        """
        labels = self.fed.dataset.y_test
        if not len(labels):
            return {}
        matrix, loss, chances = self.engine.test.scored(mean.params, mean.buffers)
        if not bool(loss.isfinite()):
            return {}
        scores = from_probabilities(labels, chances, self.settings.recall_at) if last else {}
        metrics = {**from_confusion(matrix), **scores, "loss": float(loss)}
        row = {name: metrics[name] for name in (*EVALUATED, *(RANKED if last else ()))}
        if fitted:
            fits = self._fitted(mean.params, mean.buffers, last)
            row |= {name: value for name, value in fits.items() if name not in ("fit", f"{FITTED}{LAST[-1]}")}
        return {f"{AVERAGED}{name}": value for name, value in row.items()}

    # held-out clients: they join after training, and nobody learns of it

    def _newcomers(self, fed: Federation, shown: Shown, listed: bool) -> tuple[Tensor, float]:
        """(confusion matrix [C, C], mean cross-entropy) of what the clients of `Federation.unseen` would use, pooled.

        Without models of clients' own this is the global model. Where the method keeps something on clients, each of
        them first answers the questions of a cohort and makes one local run, as it would in the round after this one.
        It starts without a past. Nothing of it reaches the server, and the memories go with the end of the evaluation.
        With ``nonfinite`` drop, clients whose local run is not finite are left out; else TrainingError is raised.
        """
        engine, method, classes = self.engine, self.method, self.task.classes
        clients = replace(engine.clients, source=engine.rows_of(fed))
        # after the last round, schedules are asked for the last round again
        begun = shown.state._replace(round=min(shown.round, self.task.rounds - 1))
        matrix, total, rows = torch.zeros(classes, classes, dtype=torch.int64), 0.0, 0
        for ids in torch.split(torch.nonzero(fed.sizes).flatten(), GROUP):
            memory = ClientMemory(engine.memory.template)
            left = ids if memory.empty or not method.personal else self._joined(begun, clients, memory, ids)
            models = engine.models(method, given_of(method, shown), clients, memory)
            each = tested(clients, engine.test_of(fed), models, shares_of(clients.source, fed, left.tolist()))
            confusion, loss = pooled(self._listed(fed, shown.round, each) if listed else each, classes)
            matrix, total, rows = matrix + confusion, total + loss * int(confusion.sum()), rows + int(confusion.sum())
        return matrix, total / max(rows, 1)

    def _joined(self, state: State, clients: Clients, memory: ClientMemory, ids: Tensor) -> Tensor:
        """Fill the memory by a local run of each of these clients; those whose run is finite."""
        engine, method = self.engine, self.method

        def ask(query: Query, part: Component, broadcast: Broadcast) -> Answers:
            return engine.answer(query, part, method, broadcast, memory, clients)

        while len(ids):
            broadcast = engine.runtime.laid_out(server.joined(method, state, ids, engine.planner.seed, ask))
            plans = engine.planner.plans(method, Assignment(ids.unsqueeze(1)), broadcast, clients.source)
            jobs = [job for (job,) in engine.jobs.chains(method, plans, broadcast, memory)]
            try:
                for outcome in engine.probes(method, jobs):
                    memory.put_all([jobs[at].plan.client for at in outcome.at], outcome.memories)
                break
            except TrainingError as error:
                gone = [fault.client for fault in error.faults]
                if not gone or self.settings.nonfinite != "drop":
                    raise TrainingError(f"evaluation of held-out clients: {error}") from None
                memory.pending.clear()
                ids = ids[~torch.isin(ids, ids.new_tensor(gone))]
        return ids

    def _diagnose(self, opened: Opened, results: Results, weights: Weights, state: State, shown: Shown) -> Row:
        broadcast = opened.broadcast
        moment = RoundSnapshot(
            round=state.round, cohort=results.recorded or results.cohort, weights=weights, before=broadcast.params,
            after=state.params, served=shown.params, buffers=broadcast.buffers, buffers_after=state.buffers,
            local_buffers=results.buffers, train_counts=self.fed.counts.sum(0),
            deltas=results.kept, labels=self.fed.dataset.y_test.cpu(),
            confusion=lambda params, buffers: self.engine.evaluate(params, buffers)[0],
            outputs=self.engine.test.outputs, write=self.record.tensors if self.record else _nowhere,
        )  # fmt: skip
        return diagnostics.measure(self.settings.diagnose, moment)


def given_of(method: Method, shown: Shown) -> Broadcast:
    """What clients' own models are made of: what is evaluated and deployed, and what the components send down."""
    return server.broadcast(method, shown.state, None)._replace(params=shown.params, buffers=shown.buffers)


def _nowhere(name: str, content: Params) -> str:
    raise AssertionError(f"{name} has no run folder")  # Diagnostics.check has refused this


@dataclass
class Traffic:
    """Bytes and contacts of one round, added up as the round goes on."""

    up: int = 0
    down: int = 0
    contacts: int = 0  # of clients: one for each that trains, and one for each that answers a question

    def add_query(self, question: Query, answers: Answers, broadcast_bytes: int) -> None:
        """Count a query: answers go up unless the client keeps them, the model goes down unless counts are asked for.

        Args:
            question: what was asked; the server's own rows cost nothing.
            answers: the replies, leaves [Q, ...].
            broadcast_bytes: bytes of the model and of what else every client is sent.
        """
        if question.rows != "own":
            return
        self.contacts += len(answers.ids)
        if not question.keep:
            self.up += tree.size_bytes(answers.values)
        if question.what != "counts":
            self.down += len(answers.ids) * broadcast_bytes

    def add_training(
        self, assignment: Assignment, each: Tree, uploads: Tree, *, update_bytes: int, broadcast_bytes: int
    ) -> None:
        """Count local training: the model down to every member, updates and uploads up.

        Args:
            assignment: the chains [G, M], and the quota that their members are told.
            each: what single clients are sent, leaves [K, ...].
            uploads: what clients send besides their update, leaves [K, ...].
            update_bytes: bytes of one client's parameters and BatchNorm statistics.
            broadcast_bytes: bytes of the model and of what else every client is sent.
        """
        members = int((assignment.chains >= 0).sum())
        self.contacts += members
        quota = 0 if assignment.quota is None else assignment.quota.numel() * 8
        self.down += members * broadcast_bytes + tree.size_bytes(each) + quota
        self.up += members * update_bytes + tree.size_bytes(uploads)

    def add_sums(self, up: int, down: int) -> None:
        """Count the messages of secure sums in the place of what went up without them."""
        self.up, self.down = up, self.down + down
