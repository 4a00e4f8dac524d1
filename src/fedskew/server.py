"""The server's half of a round, pure: state in, state out. What it needs of clients it asks through `query`."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedskew import rng, tree
from fedskew.errors import ConfigError, TrainingError
from fedskew.method import Component, Method
from fedskew.types import (
    Answers,
    Assignment,
    Cohort,
    Federation,
    Params,
    Query,
    Report,
    Results,
    Task,
    Tree,
    Weights,
)


class State(NamedTuple):
    """All that the server carries from round to round."""

    round: int  # rounds done
    params: Params
    buffers: Params
    parts: dict[str, Tree]  # one namespace a component
    stays: frozenset[str] = frozenset()  # parameters and buffers that are not sent, and keep their initial value here


class Shown(NamedTuple):
    """The model that is evaluated and deployed after a round, beside the state that training goes on with."""

    state: State
    params: Params
    buffers: Params

    @property
    def round(self) -> int:
        """Rounds done."""
        return self.state.round


class Broadcast(NamedTuple):
    """What goes down to clients."""

    round: int  # one-based
    params: Params
    buffers: Params
    common: dict[str, Tree]
    each: dict[str, Tree]  # leaves [K, ...], rows in the order of the ids it was made for
    stays: frozenset[str] = frozenset()  # of ``params`` and ``buffers``: everybody has them already

    @property
    def update_bytes(self) -> int:
        """Bytes of the model that travels: parameters and BatchNorm statistics, which is what an update weighs too."""
        return sum(tree.size_bytes(v) for n, v in (*self.params.items(), *self.buffers.items()) if n not in self.stays)

    @property
    def common_bytes(self) -> int:
        """Bytes that every client is sent."""
        return self.update_bytes + tree.size_bytes(self.common)


class Opened(NamedTuple):
    """A round ready for training."""

    state: State
    assignment: Assignment
    broadcast: Broadcast


Ask = Callable[[Query, Component, Broadcast], Answers]


def init(method: Method, params: Params, buffers: Params, fed: Federation, task: Task) -> State:
    """State before the first round."""
    names = (*params, *buffers)
    stays = method.named("private", names, task) | method.named("frozen", names, task)
    return State(0, params, buffers, {c.name: c.init_server(params, fed, task) for c in method.components}, stays)


def broadcast(method: Method, state: State, ids: Tensor | None) -> Broadcast:
    """What the clients ``ids`` would be sent now; None before they are known."""
    common, each = {}, {}
    for part in method.having("broadcast"):
        shared, per_client = part.broadcast(state.parts[part.name], ids)
        if shared:
            common[part.name] = shared
        if per_client:
            each[part.name] = per_client
    return Broadcast(state.round + 1, state.params, state.buffers, common, each, state.stays)


def open_round(
    method: Method,
    state: State,
    k: int,
    seed: int,
    seed_clients: int,
    query: Ask,
    dropped: Sequence[int] = (),
) -> Opened:
    """Ask, select, ask the cohort, broadcast.

    Args:
        method: its components ask and select.
        state: before the round.
        k: clients of the cohort.
        seed: of the run.
        seed_clients: of the selector's draws.
        query: asks the clients.
        dropped: clients that are left out of the cohort after they were selected.

    Raises:
        ConfigError: the selector chose nobody.
        TrainingError: nobody is left.
    """
    round = state.round + 1

    def key(part: Component) -> Tensor:
        return rng.key(seed_clients if part is method.selector else seed, round, part.name, "ask")

    asked = [(part, part.ask(state.parts[part.name], round, key(part))) for part in method.having("ask")]
    for part, question in asked:
        if question is not None and not _of_cohort(question):
            state = _receive(method, state, part, question, None, seed, query)
    assignment = method.selector.select(state.parts[method.selector.name], k, rng.key(seed_clients, round, "select"))
    ids = assignment.ids
    if len(ids) == 0 and not method.selector.varies:
        raise ConfigError(f"selector {method.selector.name!r} chose no client in round {round}")
    if dropped:
        left = assignment.without(dropped)
        if left is None:
            raise TrainingError(f"every client of round {round} was dropped")
        assignment, ids = left, left.ids
    for part, question in asked:
        if question is not None and _of_cohort(question) and len(ids):
            state = _receive(method, state, part, question, ids, seed, query)
    return Opened(state, assignment, broadcast(method, state, ids))


def joined(method: Method, state: State, ids: Tensor, seed: int, query: Ask) -> Broadcast:
    """What clients would be sent that join now: they answer the questions of a cohort, and the server forgets it."""
    for part in method.having("ask"):
        key = rng.key(seed, state.round + 1, part.name, "join")
        question = part.ask(state.parts[part.name], state.round + 1, key)
        if question is not None and _of_cohort(question):
            state = _receive(method, state, part, question, ids, seed, query)
    return broadcast(method, state, ids)


def _of_cohort(question: Query) -> bool:
    return isinstance(question.ids, str) and question.ids == "cohort"


def _receive(
    method: Method, state: State, part: Component, question: Query, ids: Tensor | None, seed: int, query: Ask
) -> State:
    if ids is not None:
        question = question._replace(ids=ids)
    answers = query(question, part, broadcast(method, state, None))
    if question.keep:
        return state
    after = part.receive(state.parts[part.name], answers, rng.key(seed, state.round + 1, part.name, "receive"))
    return state._replace(parts={**state.parts, part.name: after})


def nobody(opened: Opened, task: Task) -> Results:
    """The results of a round without clients: the update is 0."""
    given, ids, none = opened.broadcast, opened.assignment.ids, torch.zeros(0, dtype=torch.float64)
    rows = torch.zeros(0, task.classes, dtype=torch.int64)
    cohort = Cohort(
        task, ids, rows, rows, rows, Report(*[none] * len(Report._fields)), given.params, given.round,
        opened.assignment.chains, {}, weights=Weights(none, none),
    )  # fmt: skip
    return Results(cohort, tree.zeros_like(given.params), {})


def close_round(method: Method, state: State, results: Results, seed: int) -> tuple[State, dict[str, Tree], Weights]:
    """(next state, memories written back, the weights used): weigh, combine, aggregate, update, absorb."""
    parts, cohort = dict(state.parts), results.cohort
    weights, delta = cohort.weights, results.delta
    cohort = cohort._replace(trained=cohort.deltas)
    if weights is None:
        weights = method.weighting.weigh(parts[method.weighting.name], cohort)
        cohort = cohort._replace(weights=weights)
    if delta is None:
        for part in method.having("combine"):
            cohort = cohort._replace(deltas=part.combine(parts[part.name], cohort))
        delta = tree.aggregate(cohort.deltas, weights.update)
    delta = {n: torch.zeros_like(d) if n in state.stays else d for n, d in delta.items()}  # `combine` may have moved it
    params, parts[method.server.name] = method.server.update(state.params, delta, parts[method.server.name], cohort)
    params = {n: state.params[n] if n in state.stays else p for n, p in params.items()}
    cohort = cohort._replace(delta=delta, after=params)
    written: dict[str, Tree] = {}
    for part in method.having("absorb") if len(cohort.ids) else ():
        key = rng.key(seed, state.round + 1, part.name, "absorb")
        parts[part.name], memories = part.absorb(parts[part.name], cohort, key)
        if memories is not None:
            written[part.name] = memories
    buffers = tree.aggregate(results.buffers, weights.average) if len(cohort.ids) else state.buffers
    buffers = {n: state.buffers[n] if n in state.stays else b for n, b in buffers.items()}
    after = State(state.round + 1, _contiguous(params), _contiguous(buffers), _contiguous(parts), state.stays)
    return after, written, weights


def _contiguous(state: Tree) -> Tree:
    """Contiguous leaves: sums over another layout round differently, and a checkpoint keeps no layout."""
    return tree.map_tree(torch.Tensor.contiguous, state)


def served(method: Method, state: State, task: Task) -> Params:
    """The parameters that are evaluated: those broadcast, unless a component says otherwise."""
    params = state.params
    for part in method.having("serve"):
        params = part.serve(params, state.parts[part.name], task)
    return params
