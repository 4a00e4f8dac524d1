"""What a run measures of its fitted model, and of what clients would use that join after training."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedskew import server
from fedskew.averages import Kept
from fedskew.engines.base import LocalEngine
from fedskew.engines.clients import ClientMemory, Clients
from fedskew.engines.evaluation import Tested, personal_model, pooled, shares_of, tested
from fedskew.engines.fitting import measured
from fedskew.errors import TrainingError
from fedskew.method import Component, Method
from fedskew.records.metrics import EVALUATED, PERSONAL, RANKED, from_confusion, from_probabilities
from fedskew.records.summary import AVERAGED, FITTED
from fedskew.records.typed import Row
from fedskew.server import Broadcast, Shown, State
from fedskew.types import Answers, Assignment, Params, Query


def fitted_row(
    engine: LocalEngine, params: Params, buffers: Params, recall_at: float | None = None, served: bool = False
) -> Row:
    """Metrics of a run's fitted model on the test rows, ``fitted_...``; with ``recall_at`` also scores and the fits.

    With ``served`` also ``fitted_served_...``, those on the clients' own test rows.

    Nothing where there are no test rows or no fits, or where a logit is not finite.
    """
    if not len(engine.fed.dataset.y_test):
        return {}
    logits, labels = engine.test.logits(params, buffers)
    fits = engine.fits(params, buffers) if bool(logits.isfinite().all()) else {}
    if not fits:
        return {}
    metrics = measured(labels, logits, fits, recall_at)
    row: Row = {f"{FITTED}{name}": metrics[name] for name in _names(recall_at)}
    rows = engine.rows_of_shares(engine.fed) if served else np.empty(0, np.int64)
    if len(rows):
        if engine.fed.held is None:
            logits, labels = logits[rows], labels[rows]
        else:
            logits, labels = engine.train_set.logits(params, buffers, rows)
        metrics = measured(labels, logits, fits, None)
        row |= {f"{FITTED}served_{name}": metrics[name] for name in PERSONAL}
    return row if recall_at is None else {**row, "fit": {name: one.to_json() for name, one in fits.items()}}


def _names(recall_at: float | None) -> Sequence[str]:
    return EVALUATED if recall_at is None else (*EVALUATED, *RANKED)


def fitted_last(engine: LocalEngine, method: Method, shown: Shown, recall_at: float, served: bool) -> Row:
    """What is measured of the last model: `fitted_row` with scores, and clients' own models with biases of their own.

    Args:
        engine: that trained it.
        method: by which.
        shown: the model that is evaluated and deployed.
        recall_at: precision at which the recall of each class is measured.
        served: whether what each client would use is measured, too.
    """
    shared = served and not method.personal
    row = fitted_row(engine, shown.params, shown.buffers, recall_at, shared)
    if row and method.personal:
        matrix, loss = pooled(engine.tested(method, given_of(method, shown), fitted=True), engine.task.classes)
        metrics = {**from_confusion(matrix), "loss": loss} if matrix.any() else {}
        for which in ("personal", *(["served"] if served else [])):
            row |= {f"{FITTED}{which}_{name}": metrics[name] for name in PERSONAL if metrics}
    return row


def given_of(method: Method, shown: Shown) -> Broadcast:
    """What clients' own models are made of: what is evaluated and deployed, and what the components send down."""
    return server.broadcast(method, shown.state, None)._replace(params=shown.params, buffers=shown.buffers)


def averaged_row(engine: LocalEngine, mean: Kept, fitted: bool, recall_at: float | None = None) -> Row:
    """Metrics of the mean of the last models on the test rows, ``averaged_...``; nothing where there are none.

    Args:
        engine: that trained them.
        mean: the model.
        fitted: whether it is also fitted, ``averaged_fitted_...``.
        recall_at: precision at which the recall of each class is measured; None: no scores are.
    """
    labels = engine.fed.dataset.y_test
    if not len(labels):
        return {}
    matrix, loss, chances = engine.test.scored(mean.params, mean.buffers)
    if not bool(loss.isfinite()):
        return {}
    scores = {} if recall_at is None else from_probabilities(labels, chances, recall_at)
    metrics = {**from_confusion(matrix), **scores, "loss": float(loss)}
    row = {name: metrics[name] for name in _names(recall_at)}
    if fitted:
        fits = fitted_row(engine, mean.params, mean.buffers, recall_at)
        row |= {name: value for name, value in fits.items() if name != "fit"}
    return {f"{AVERAGED}{name}": value for name, value in row.items()}


# Held-out clients: they join after training, and nobody learns of it


Listed = Callable[[Iterator[Tested]], Iterator[Tested]]
GROUP = 64  # held-out clients whose memories are held at a time


def newcomers(
    engine: LocalEngine, method: Method, shown: Shown, drop: bool = False, listed: Listed | None = None
) -> tuple[Tensor, float]:
    """(confusion matrix [C, C], mean cross-entropy) of what the clients of `Federation.unseen` would use, pooled.

    Without models of clients' own this is the global model. Where the method keeps something on clients, each of them
    first answers the questions of a cohort and makes one local run, as it would in the round after this one. It starts
    without a past. Nothing of it reaches the server, and the memories go with the end of the evaluation.

    Args:
        engine: of a federation with ``unseen``.
        method: what personalises.
        shown: the model that is evaluated and deployed.
        drop: leave clients out whose local run is not finite.
        listed: passes on what was tested of each client, with probabilities, and keeps a row of it.

    Raises:
        TrainingError: a local run is not finite, without ``drop``.
    """
    fed, personal = engine.fed.unseen, method.personal
    assert fed is not None, "the caller knows that clients are held out"
    clients = replace(engine.clients, own=engine.rows_of(fed))
    given = engine.runtime.laid_out(given_of(method, shown))
    # after the last round, schedules are asked for the last round again
    begun = shown.state._replace(round=min(shown.round, engine.task.rounds - 1))
    matrix, total, rows = torch.zeros(engine.task.classes, engine.task.classes, dtype=torch.int64), 0.0, 0
    for ids in torch.split(torch.nonzero(fed.sizes).flatten(), GROUP):
        memory = ClientMemory(engine.memory.template)
        left = ids if memory.empty or not personal else _joined(engine, method, begun, clients, memory, ids, drop)

        def model(k: int, memory: ClientMemory = memory) -> tuple[Params, Params]:
            return personal_model(clients, method, given, memory, k) if personal else (given.params, given.buffers)

        shares = shares_of(clients.own, fed, left.tolist())
        each = tested(clients, engine.test_of(fed), model, shares)
        confusion, loss = pooled(listed(each) if listed else each, engine.task.classes)
        matrix, total, rows = matrix + confusion, total + loss * int(confusion.sum()), rows + int(confusion.sum())
    return matrix, total / max(rows, 1)


def _joined(
    engine: LocalEngine, method: Method, state: State, clients: Clients, memory: ClientMemory, ids: Tensor, drop: bool
) -> Tensor:
    """Fill the memory by a local run of each of these clients; those whose run is finite."""
    queries = replace(engine.queries, clients=clients)

    def ask(query: Query, part: Component, given: Broadcast) -> Answers:
        return queries.answer(query, part, method, given, memory)

    while len(ids):
        given = engine.runtime.laid_out(server.joined(method, state, ids, engine.planner.seed, ask))
        plans = engine.planner.plans(method, Assignment(ids.unsqueeze(1)), given, clients.own)
        jobs = [job for (job,) in engine.jobs.chains(method, plans, given, memory)]
        try:
            for outcome in engine.probes(method, jobs):
                memory.put_all([jobs[at].plan.client for at in outcome.at], outcome.memories)
            break
        except TrainingError as error:
            gone = [fault.client for fault in error.faults]
            if not (gone and drop):
                raise TrainingError(f"evaluation of held-out clients: {error}") from None
            memory.pending.clear()
            ids = ids[~torch.isin(ids, ids.new_tensor(gone))]
    return ids
