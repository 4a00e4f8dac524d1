"""The engine of a deployment: it plans, asks and adds up at the server; nodes train, and keep their clients' memory."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedskew import tree
from fedskew.client import Shared
from fedskew.data.federation import Federation
from fedskew.engines.finite import Watch
from fedskew.engines.jobs import Place
from fedskew.engines.outcomes import Outcome, Settle, as_it_is, chained
from fedskew.engines.sequential import Sequential
from fedskew.errors import ConfigError
from fedskew.flower.contract import refused
from fedskew.flower.exchange import MALFORMED, Bad, Exchange
from fedskew.flower.link import Answer, Hello, Link
from fedskew.flower.memory import NONE
from fedskew.flower.options import ServerOptions
from fedskew.flower.receipts import RECEIPT, Receipts, of_receipt
from fedskew.flower.standin import nowhere, told_counts
from fedskew.flower.wire import Envelope, Packed, pack, travelling
from fedskew.method import Component, Method
from fedskew.models.prepare import Model
from fedskew.server import Broadcast
from fedskew.settings import Settings
from fedskew.tree import Tree
from fedskew.types import Answers, Params, Query, Report, Task

__all__ = ["Remote"]

LOG = logging.getLogger("flwr")


class Remote(Sequential):
    """Clients train at their nodes, each by the threaded engine, with the bits of `Sequential`.

    Updates come back singly and are added in the order of the cohort. Questions on the nodes' rows go to the nodes;
    the server's own rows (test, validation, auxiliary) stay here.
    """

    name = "flower"
    rows_of = staticmethod(nowhere)

    def __init__(
        self,
        model: Model,
        fed: Federation,
        task: Task,
        settings: Settings,
        *,
        link: Link,
        options: ServerOptions,
        local: bool = False,
    ) -> None:
        """As `LocalEngine`.

        Args:
            model: a prepared network.
            fed: of `stand_in`.
            task: facts of the run.
            settings: of the run.
            link: to the nodes, which have said hello.
            options: of the server.
            local: nodes have test rows of their own, on which the global model is evaluated.
        """
        self.link, self.options = link, options
        self.measured = local and bool(link.measuring)
        self.counted = all("histogram" in hello.facts["permits"] for hello in link.clients.values())
        super().__init__(model, fed, task, settings)
        self.method: Method | None = None

    def birth(
        self, method: Method, params: Params, buffers: Params, where: str = "device", folder: Path | None = None
    ) -> None:
        """The server keeps receipts; what components keep on a client lies at its node."""
        super().birth(method, params, buffers, "ram", None)
        self.method = method
        self.memory = receipts = Receipts()
        self.exchange = Exchange(self.link, self.options, receipts, self.accept)
        for hello in self.link.clients.values():
            self.accept(hello)

    def accept(self, hello: Hello) -> None:
        """Check a node that has come, for the first time or again. Raises ConfigError where it does not fit the run."""
        known = told_counts(hello.facts, self.task.classes)
        if not torch.equal(known, self.fed.counts[hello.client]):
            raise ConfigError(f"{hello.name} must hold the rows that it had when the run began: its counts are others")
        if self.method is not None and (error := refused(self.method, frozenset(hello.facts["permits"]), hello.name)):
            raise error

    # training

    def run_places(self, method: Method, places: list[Place], settle: Settle = as_it_is) -> Iterator[Outcome]:
        """One outcome a client, in order."""
        for at, outcome in enumerate(self._trained(places)):
            yield settle([at], outcome)

    def run_chains(self, method: Method, chains: list[list[Place]], settle: Settle = as_it_is) -> Iterator[Outcome]:
        """One outcome a chain, in order: the first members of all chains train, then the second ones, and so on."""
        last: dict[int, Outcome] = {}
        reports: list[list[Report]] = [[] for _ in chains]
        watches: list[list[Watch]] = [[] for _ in chains]
        for m in range(max(map(len, chains))):
            here = [g for g, group in enumerate(chains) if len(group) > m]
            places = [_after(chains[g][m], last.get(g)) for g in here]
            for g, outcome in zip(here, self._trained(places), strict=True):
                last[g] = outcome
                reports[g].append(outcome.reports)
                watches[g] += outcome.watches
        for g in range(len(chains)):
            yield settle([g], last[g]._replace(reports=chained(reports[g]), watches=tuple(watches[g])))

    def ready(self, method: Method, places: list[Place]) -> None:
        """Each node prepares for itself."""

    def probes(self, method: Method, places: list[Place]) -> Iterator[Outcome]:
        """Local runs on the server's own rows."""
        yield from Sequential.run_places(self, method, places)

    def _trained(self, places: list[Place]) -> Iterator[Outcome]:
        """Outcomes of clients that train at the same time, in order."""
        packed: dict[int, Packed] = {}  # one part of the messages for all that begin from the same model
        requests = []
        for place in places:
            plan, (shared, own), k = place.plan, place.job, place.plan.client
            mine: dict[str, Tree] = {"each": own.each, "written": _written(own.memory)}
            if "histogram" in self.link.clients[k].facts["permits"]:
                mine |= {"offered": plan.offered.clone(), "used": plan.used.clone()}
            if id(shared) not in packed:
                packed[id(shared)] = pack({"shared": {**shared._asdict(), **_sent(shared, self.stays)}})
            facts = {"kind": "train", "member": plan.member, "pace": list(plan.pace)}
            requests.append(self.exchange.request(k, facts, packed[id(shared)], mine))
        answers, wrong = self.exchange.asked(requests, "train", int(places[0].job.shared.round)), []
        for place, answer in zip(places, answers, strict=True):
            try:
                outcome = self._read(place, answer)
            except MALFORMED as error:
                said = " ".join(str(error).split()) or type(error).__name__
                wrong.append(Bad(place.plan.client, f"its update must fit what was asked: {said}"))
            if not wrong:  # else the other answers are taken, so that nobody is asked again
                yield outcome
        if wrong:
            raise self.exchange.failure(wrong, "bad")

    def _read(self, place: Place, answer: Envelope) -> Outcome:
        """The outcome, checked: steps and rows, names, shapes and types. Raises one of MALFORMED."""
        shared, plan, told = place.job.shared, place.plan, answer.facts
        sent, steps = answer.trees["sent"], len(plan.batches)
        if (told["steps"], told["samples"]) != (steps, plan.samples):
            got = f"{told['steps']} steps of {told['samples']} rows"
            raise ValueError(f"{steps} steps of {plan.samples} rows were to be trained; got {got}")
        params, buffers = (_fitting(sent[n], getattr(shared, n), n, self.stays) for n in ("params", "buffers"))
        uploads = _rows_of_one(sent["uploads"])
        report = Report(**{n: _number(sent["report"][n], n) for n in Report._fields})
        losses = torch.zeros(1, max(steps, 1), dtype=self.dtype)
        fault: Any = told.get("fault")
        tensor = str(fault["tensor"]) if fault is not None else ""
        if tensor == "loss":
            losses[0, min(max(int(fault["step"]), 1), len(losses[0])) - 1] = float(fault["value"])
        watch = self.watcher.watch([place], losses, params, buffers, uploads, {})
        if tensor and tensor != "loss":
            watch = watch._replace(names=[*watch.names, tensor], sums=[*watch.sums, torch.full((1,), math.nan)])
        memories = tree.map_tree(lambda leaf: leaf.unsqueeze(0), of_receipt(_receipt(told["receipt"])))
        return Outcome(params, buffers, uploads, memories, report, (watch,))

    # questions and evaluation

    def query(self, query: Query, part: Component, method: Method, broadcast: Broadcast) -> Answers:
        """Answer a component's question: from what the nodes told at first, from the server's rows, or by the nodes."""
        if query.rows != "own" or query.what == "counts":
            return super().query(query, part, method, broadcast)
        ids = torch.arange(len(self.clients.own.rows)) if isinstance(query.ids, str) else query.ids
        what = query.what if isinstance(query.what, str) else getattr(query.what, "__name__", "")
        if callable(query.what) and getattr(part, what, None) is None:
            raise ConfigError(f"the question of {part.name!r} must be a function of the component, to be sent by name")
        facts = {
            "kind": "ask", "part": part.name, "what": what, "keep": query.keep, "draws": query.draws,
            "augment": query.augment,
        }  # fmt: skip
        shared, requests = _common(broadcast, self.stays), []
        for k in ids.tolist():
            requests.append(self.exchange.request(k, facts, shared, {"written": _written(self.memory.get(k))}))
        values: list[Tree] = []
        for k, answer in zip(ids.tolist(), self.exchange.asked(requests, "query", broadcast.round), strict=True):
            try:
                if query.keep:
                    self.memory.put(k, of_receipt(_receipt(answer.facts["receipt"])))
                else:
                    values.append(_alike(answer.trees["values"], values))
            except MALFORMED as error:
                said = " ".join(str(error).split())
                bad = Bad(k, f"its answer to {part.name!r} must be of use: {said}")
                raise self.exchange.failure([bad], "bad") from None
        return Answers(ids, {} if query.keep else tree.concatenate(values))

    def personal(self, method: Method, broadcast: Broadcast) -> tuple[Tensor, float]:
        """Pooled (confusion matrix, mean cross-entropy) of the clients' own models, each tested at its node."""
        return self._pooled("personal", _common(broadcast), broadcast.round)

    def at_nodes(self, params: Params, buffers: Params, number: int) -> tuple[Tensor, float]:
        """Pooled (confusion matrix, mean cross-entropy) of one model on the nodes' own test rows."""
        given = Broadcast(number, params, buffers, {}, {})
        return self._pooled("evaluate", _common(given), number)

    def _pooled(self, kind: str, shared: Packed, number: int) -> tuple[Tensor, float]:
        """Sums over the nodes that have training rows and test rows, and permit metrics."""
        asked = self.link.measuring
        requests = []
        for k in asked:
            requests.append(self.exchange.request(k, {"kind": kind}, shared, {"written": _written(self.memory.get(k))}))
        matrix, total, rows = torch.zeros(self.task.classes, self.task.classes, dtype=torch.int64), 0.0, 0
        for answer in self.exchange.answers(requests, "evaluate", number):
            try:
                found, loss, n = _measured(answer, self.task.classes)
            except MALFORMED as error:
                said = answer.wrong or " ".join(str(error).split())
                failure = self.exchange.failure(
                    [Bad(answer.client, said, number)], "missing" if answer.missing else "bad"
                )
                if not failure.drop:
                    raise failure from None
                LOG.warning("fedskew: round %d is evaluated without it: %s", number, failure)
                continue
            matrix, total, rows = matrix + found, total + loss * n, rows + n
        return matrix, total / max(rows, 1)


def _sent(given: Shared | Broadcast, stays: frozenset[str]) -> dict[str, Params]:
    """The parameters and buffers of a message; nodes have the others."""
    return {n: travelling(getattr(given, n), stays) for n in ("params", "buffers")}


def _common(broadcast: Broadcast, stays: frozenset[str] = frozenset()) -> Packed:
    """A broadcast outside of training."""
    number = torch.tensor(broadcast.round)
    common = {**_sent(broadcast, stays), "common": broadcast.common, "round": number}
    return pack({"shared": common})


def _written(memory: Mapping[str, Tree]) -> dict[str, Tree]:
    return {name: value for name, value in memory.items() if name != RECEIPT}


def _after(place: Place, before: Outcome | None) -> Place:
    """A member of a chain, which begins from what the one before it has trained."""
    if before is None:
        return place
    shared, own = place.job
    shared = shared._replace(params=tree.row(before.params, 0), buffers=tree.row(before.buffers, 0))
    return place._replace(job=place.job._replace(shared=shared, own=own))


def _fitting(found: Any, model: Params, what: str, stays: frozenset[str]) -> Params:
    """Leaves [1, ...] with the names, shapes and types of the model's; what stays as it was. Raises ValueError."""
    found, asked = {} if found is None else found, travelling(model, stays)
    if set(found) != set(asked):
        raise ValueError(f"{what} must be {len(asked)} tensors by the model's names; got {sorted(found)[:5]}")
    for name, leaf in asked.items():
        got = found[name]
        if tuple(got.shape) != (1, *leaf.shape) or got.dtype != leaf.dtype:
            raise ValueError(f"{name} must be {leaf.dtype} {tuple(leaf.shape)}; got {got.dtype} {tuple(got.shape[1:])}")
    return {name: found.get(name, leaf.unsqueeze(0)) for name, leaf in model.items()}


def _rows_of_one(uploads: Tree) -> dict[str, Tree]:
    """Uploads with leaves [1, ...]. Raises ValueError."""
    if not isinstance(uploads, dict) or any(leaf.dim() == 0 or len(leaf) != 1 for leaf in tree.leaves(uploads)):
        raise ValueError("uploads must be of one client")
    return uploads


def _number(value: Tensor, name: str) -> Tensor:
    if value.numel() != 1:
        raise ValueError(f"the report's {name} must be one number")
    return value.reshape(1)


def _alike(values: Tree, others: Sequence[Tree]) -> Tree:
    """A node's answer. Raises ValueError where it is not finite, or not of the shape of the others."""
    told = [(path, tuple(leaf.shape), leaf.dtype) for path, leaf in tree.flatten(values) if leaf is not None]
    if others:
        known = [(path, tuple(leaf.shape), leaf.dtype) for path, leaf in tree.flatten(others[0]) if leaf is not None]
        if told != known:
            raise ValueError(f"it has {len(told)} tensors of other names, shapes or types than those of other nodes")
    for leaf in tree.leaves(values):
        if leaf.is_floating_point() and not bool(torch.isfinite(leaf).all()):
            raise ValueError("it is not finite")
    return values


def _receipt(told: Any) -> str:
    """A receipt that a node gave. Raises ValueError where it is none."""
    if told == NONE or (isinstance(told, str) and len(told) == 32 and set(told) <= set("0123456789abcdef")):
        return str(told)
    raise ValueError(f"a receipt has 32 hex digits; got {str(told)[:40]!r}")


def _measured(answer: Answer, classes: int) -> tuple[Tensor, float, int]:
    """(confusion matrix, mean loss, rows) that a node tells. Raises one of MALFORMED."""
    if answer.envelope is None:
        raise ValueError(answer.wrong)
    matrix, n = answer.envelope.trees["matrix"], answer.envelope.facts["rows"]
    loss = float.fromhex(answer.envelope.facts["loss"])
    if not isinstance(matrix, Tensor) or tuple(matrix.shape) != (classes, classes) or matrix.dtype != torch.int64:
        raise ValueError("its confusion matrix must have a row and a column for each class")
    if int(matrix.sum()) != n or bool((matrix < 0).any()):
        raise ValueError(f"its confusion matrix must count its {n} test rows")
    return matrix, loss, int(n)
