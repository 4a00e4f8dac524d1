"""Evaluation of what held-out clients would use: they join after training, and nobody learns of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from fedskew import server, tree
from fedskew.engines.base import LocalEngine
from fedskew.engines.clients import Clients
from fedskew.engines.memory import ClientMemory
from fedskew.engines.personal import Tested, personal_model, pooled, shares_of, tested
from fedskew.errors import TrainingError
from fedskew.method import Component, Method
from fedskew.server import Broadcast, State
from fedskew.types import Answers, Assignment, Params, Query

Listed = Callable[[Iterator[Tested]], Iterator[Tested]]
GROUP = 64  # held-out clients whose memories are held at a time


def newcomers(
    engine: LocalEngine, method: Method, state: State, params: Params, drop: bool = False, listed: Listed | None = None
) -> tuple[Tensor, float]:
    """(confusion matrix [C, C], mean cross-entropy) of what the clients of `Federation.unseen` would use, pooled.

    Without models of clients' own this is the global model. Where the method keeps something on clients, each of them
    first answers the questions of a cohort and makes one local run, as it would in the round after this one. It starts
    without a past. Nothing of it reaches the server, and the memories go with the end of the evaluation.

    Args:
        engine: of a federation with ``unseen``.
        method: what personalises.
        state: of the server.
        params: that are evaluated and deployed.
        drop: leave clients out whose local run is not finite.
        listed: passes on what was tested of each client, with probabilities, and keeps a row of it.

    Raises:
        TrainingError: a local run is not finite, without ``drop``.
    """
    fed, own = engine.fed.unseen, method.personal
    assert fed is not None, "the caller knows that clients are held out"
    clients = replace(engine.clients, own=engine.rows_of(fed))
    given = engine.runtime.laid_out(server.broadcast(method, state, None)._replace(params=params))
    # after the last round, schedules are asked for the last round again
    begun = state._replace(round=min(state.round, engine.task.rounds - 1))
    matrix, total, rows = torch.zeros(engine.task.classes, engine.task.classes, dtype=torch.int64), 0.0, 0
    for ids in torch.split(torch.nonzero(fed.sizes).flatten(), GROUP):
        memory = ClientMemory(engine.memory.template)
        left = ids if memory.empty or not own else _joined(engine, method, begun, clients, memory, ids, drop)

        def model(k: int, memory: ClientMemory = memory) -> tuple[Params, Params]:
            return personal_model(clients, method, given, memory, k) if own else (given.params, given.buffers)

        shares = shares_of(clients.own, fed, left.tolist())
        each = tested(clients, engine.test_of(fed), model, shares)
        found, loss = pooled(listed(each) if listed else each, engine.task.classes)
        matrix, total, rows = matrix + found, total + loss * int(found.sum()), rows + int(found.sum())
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
        row_of = {k: i for i, k in enumerate(ids.tolist())}
        places = engine.jobs.places(method, [plan for (plan,) in plans], given, memory, row_of)
        try:
            for outcome in engine.probes(method, places):
                for i, at in enumerate(outcome.at):
                    memory.put(places[at].plan.client, tree.row(outcome.memories, i))
            break
        except TrainingError as error:
            gone = [fault.client for fault in error.faults]
            if not (gone and drop):
                raise TrainingError(f"evaluation of held-out clients: {error}") from None
            memory.pending.clear()
            ids = ids[~torch.isin(ids, ids.new_tensor(gone))]
    return ids
