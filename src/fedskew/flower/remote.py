"""The engine of a deployment: it plans, asks and adds up at the server; nodes train, and keep their clients' memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedskew import digests, tree
from fedskew.data.federation import Federation
from fedskew.engines.clients import Source
from fedskew.engines.finite import Watch
from fedskew.engines.jobs import Place
from fedskew.engines.memory import ClientMemory, Held
from fedskew.engines.outcomes import Outcome, Settle, as_it_is, chained
from fedskew.engines.sequential import Sequential
from fedskew.errors import ConfigError, TrainingError
from fedskew.flower.contract import refused
from fedskew.flower.link import Answer, Hello, Link, Request
from fedskew.flower.memory import NONE
from fedskew.flower.options import ServerOptions
from fedskew.flower.wire import Envelope, Packed, pack
from fedskew.method import Component, Method
from fedskew.models.prepare import Model
from fedskew.server import Broadcast
from fedskew.settings import Settings
from fedskew.tree import Tree
from fedskew.types import Answers, Params, Query, Report, Task

__all__ = ["Bad", "Receipts", "Remote", "stand_in"]

RECEIPT = "@receipt"  # beside the names of components: no component has it


class Bad(NamedTuple):
    """A client whose answer did not come, or is of no use, in place of `fedskew.engines.finite.Fault`."""

    client: int
    tensor: str  # what is wrong, in words; the name that a round's record gives to it
    round: int = 0
    step: int = 0

    def to_json(self) -> dict[str, int | str]:
        """What a round's record says of it."""
        return {"client": self.client, "step": self.step, "tensor": self.tensor}


class Kept(Held):
    """What the server keeps of clients' memories: receipts, and what it has yet to send them."""

    def __init__(self) -> None:
        super().__init__({})
        self.saved: list[dict[int, str]] = [{}, {}]  # receipts of the last two checkpoints

    def dump(self) -> Tree:
        """As `Held`; the receipts that are written here must stay at the nodes."""
        self.saved = [self.saved[1], {k: receipt_in(memory) for k, memory in self.kept.items()}]
        return super().dump()

    def load(self, dumped: Tree) -> None:
        """The inverse of `dump`."""
        self.write({int(client): memory for client, memory in dumped.items()})
        now = {k: receipt_in(memory) for k, memory in self.kept.items()}
        self.saved = [now, now]


class Receipts(ClientMemory):
    """Client memory as the server of a deployment knows it: a receipt for each client."""

    home: Kept

    def __init__(self) -> None:
        super().__init__({}, Kept())

    def get(self, client: int) -> dict[str, Tree]:
        """The receipt, and what components wrote since then."""
        return self.pending.get(client) or self.home.read(client) or {}

    def put(self, client: int, memory: Mapping[str, Tree]) -> None:
        """A new receipt replaces all; what a component writes is kept beside it until the node has it."""
        fresh = RECEIPT in memory
        merged = dict(memory) if fresh else {**self.get(client), **memory}
        own: Callable[[Tensor], Tensor] = lambda leaf: leaf.detach().cpu().clone(memory_format=torch.contiguous_format)
        self.pending[client] = {name: tree.map_tree(own, value) for name, value in merged.items()}


def receipt_in(memory: Mapping[str, Tree]) -> str:
    """The receipt among what the server keeps of a client."""
    found = memory.get(RECEIPT)
    return NONE if found is None or not len(found["digest"]) else bytes(found["digest"].tolist()).hex()


def of_receipt(receipt: str) -> dict[str, Tree]:
    """The inverse of `receipt_in`."""
    return {RECEIPT: {"digest": torch.tensor(list(bytes.fromhex(receipt)), dtype=torch.uint8)}}


def stand_in(server: Federation, hellos: Sequence[Hello]) -> Federation:
    """The federation as the server knows it: its own rows, and of the nodes' rows what they tell.

    A node that tells only the number of its rows counts as if they were spread over the classes evenly.
    """
    classes = server.dataset.classes
    counts = torch.zeros(len(hellos), classes, dtype=torch.int64)
    for hello in hellos:
        counts[hello.client] = told_counts(hello.facts, classes)
    held = np.concatenate([server.validation_rows, server.auxiliary_rows]).astype(np.int64)
    at = torch.from_numpy(held)
    data = replace(server.dataset, x=server.dataset.x[at], y=server.dataset.y[at], columns={}, column_names={})
    n = len(server.validation_rows)
    nobody = type(server.partition)(np.empty(0, np.int64), np.zeros(len(hellos) + 1, np.int64))
    return replace(
        server, dataset=data, partition=nobody, clients=len(hellos), counts=counts, held=None, local_test=None,
        validation_rows=np.arange(n), auxiliary_rows=np.arange(n, len(held)),
    )  # fmt: skip


def told_counts(facts: Mapping[str, Any], classes: int) -> Tensor:
    """Rows of each class, as far as a node tells them, [C]. Raises ConfigError where they are no counts."""
    n, told, labels = facts.get("rows"), facts.get("counts"), facts.get("labels")
    whole = lambda v: isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 1 << 53
    if not whole(n):
        raise ConfigError(f"a node must tell the number of its rows; got {n!r}")
    if told is not None:
        if not isinstance(told, list) or len(told) != classes or not all(map(whole, told)) or sum(told) != n:
            raise ConfigError(f"a node must tell {classes} counts that add up to its {n} rows; got {str(told)[:80]}")
        return torch.tensor(told, dtype=torch.int64)
    present = list(range(classes)) if labels is None else labels
    if not isinstance(present, list) or not all(whole(c) and c < classes for c in present):
        raise ConfigError(f"a node must tell which of {classes} classes it has; got {str(present)[:80]}")
    counts = torch.zeros(classes, dtype=torch.int64)
    if n and present:
        each, rest = divmod(n, len(present))
        counts[torch.tensor(present)] = each
        counts[torch.tensor(present[:rest], dtype=torch.int64)] += 1
    return counts


@dataclass
class _Round:
    """What was answered in one round: a round that is run again without a client asks the others nothing twice."""

    number: int = 0
    answers: dict[tuple[int, str], Envelope] = field(default_factory=dict)


class Remote(Sequential):
    """Clients train at their nodes, each by the threaded engine, with the bits of `Sequential`.

    Updates come back singly and are added in the order of the cohort. Questions on the nodes' rows go to the nodes;
    the server's own rows (test, validation, auxiliary) stay here.
    """

    name = "flower"

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
        self.round = _Round()
        self.method: Method | None = None

    def rows_of(self, fed: Federation) -> Source:
        """Rows that are nowhere: as many of each class as the nodes tell, from which steps are counted."""
        labels = [np.repeat(np.arange(fed.counts.shape[1]), row) for row in fed.counts.tolist()]
        ends = np.cumsum([0, *map(len, labels)])
        rows = [np.arange(a, b) for a, b in zip(ends[:-1], ends[1:], strict=True)]
        return Source(rows, np.concatenate(labels) if labels else np.empty(0, np.int64), fed.counts)

    def birth(
        self, method: Method, params: Params, buffers: Params, where: str = "device", folder: Path | None = None
    ) -> None:
        """The server keeps receipts; what components keep on a client lies at its node."""
        super().birth(method, params, buffers, "ram", None)
        self.method = method
        self.memory = Receipts()
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
            yield settle(at, outcome)

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
            yield settle(g, last[g]._replace(reports=chained(reports[g]), watches=tuple(watches[g])))

    def ready(self, method: Method, places: list[Place]) -> None:
        """Each node prepares for itself."""

    def _probes(self, method: Method, places: list[Place]) -> Iterator[Outcome]:
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
                mine |= {"offered": plan.offered, "used": plan.used}
            if id(shared) not in packed:
                packed[id(shared)] = pack({"shared": shared._asdict()})
            facts = {"kind": "train", "member": plan.member, "pace": list(plan.pace)}
            requests.append(self._request(k, facts, packed[id(shared)], mine))
        answers = self._asked(requests, "train", int(places[0].job.shared.round))
        for place, answer in zip(places, answers, strict=True):
            yield self._outcome(place, answer)

    def _outcome(self, place: Place, answer: Envelope) -> Outcome:
        """The outcome that a node tells, checked: shapes and types, steps and rows. Raises TrainingError."""
        shared, plan, told = place.job.shared, place.plan, answer.facts
        sent = answer.trees.get("sent", {})
        steps = len(plan.batches)
        if (told.get("steps"), told.get("samples")) != (steps, plan.samples):
            got = f"{told.get('steps')} steps of {told.get('samples')} rows"
            self._fail([Bad(plan.client, f"it must train {steps} steps of {plan.samples} rows; got {got}")])
        try:
            params, buffers = (_fitting(sent[n], getattr(shared, n), n) for n in ("params", "buffers"))
            uploads = _rows_of_one(sent["uploads"])
            report = Report(**{n: _number(sent["report"][n], n) for n in Report._fields})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self._fail([Bad(plan.client, f"its update must fit the model: {' '.join(str(error).split())}")])
        losses = torch.zeros(1, max(steps, 1), dtype=self.dtype)
        fault = told.get("fault")
        if fault and fault["tensor"] == "loss":
            losses[0, min(max(int(fault["step"]), 1), len(losses[0])) - 1] = float(fault["value"])
        watch = self.watcher.watch([place], losses, params, buffers, uploads, {})
        if fault and fault["tensor"] != "loss":
            nan = torch.full((1,), math.nan)
            watch = watch._replace(names=[*watch.names, str(fault["tensor"])], sums=[*watch.sums, nan])
        receipt = self._receipt(plan.client, told.get("receipt"))
        memories = tree.map_tree(lambda leaf: leaf.unsqueeze(0), of_receipt(receipt))
        return Outcome(params, buffers, uploads, memories, report, (watch,))

    # messages

    def _request(self, k: int, facts: Mapping[str, Any], shared: Packed, own: Mapping[str, Tree]) -> Request:
        """A message for one client; it says which memory belongs to this moment."""
        kept = receipt_in(self.memory.get(k))
        held = [saved.get(k, NONE) for saved in self.memory.home.saved]
        return Request(k, {**facts, "receipt": kept, "held": held}, {"shared": shared, "own": pack({"own": dict(own)})})

    def _asked(self, requests: list[Request], kind: str, number: int) -> Iterator[Envelope]:
        """Answers in order. Raises TrainingError, once all have come, where some are missing or of no use."""
        if self.round.number != number:
            self.round = _Round(number)
        known = self.round.answers
        keys = [(r.client, _key(r)) for r in requests]
        fresh = [i for i, key in enumerate(keys) if key not in known]
        wrong: list[Bad] = []
        answers = self.link.ask([requests[i] for i in fresh], kind, self.accept)
        found: dict[int, Answer] = {}
        for i, key in enumerate(keys):
            if key in known:
                if not wrong:
                    yield known[key]
                continue
            found[i] = next(answers)
            envelope = found[i].envelope
            if envelope is None:
                wrong.append(Bad(found[i].client, found[i].wrong, number))
                continue
            known[key] = envelope
            if not wrong:
                yield envelope
        if wrong:
            gone = {a.client for a in found.values() if a.missing}
            self._fail(wrong, self.options.missing if {b.client for b in wrong} <= gone else self.options.bad)

    def _fail(self, wrong: Sequence[Bad], policy: str = "") -> None:
        """Raise for clients whose answers are missing or of no use: dropped from the round, or the end of the run."""
        policy = policy or self.options.bad
        first = wrong[0]
        hello = self.link.clients.get(first.client)
        who = hello.name if hello else f"the node of client {first.client}"
        key = "bad" if policy == self.options.bad else "missing"
        hint = f"; flower.{key} = \"drop\" leaves such a client out of the round" if policy != "drop" else ""
        faults = tuple(wrong) if policy == "drop" else ()
        raise TrainingError(f"{who}: {first.tensor}{hint}", faults, drop=policy == "drop")

    def _receipt(self, client: int, told: Any) -> str:
        """A receipt that a node gave. Raises TrainingError where it is none."""
        if told == NONE or (isinstance(told, str) and len(told) == 32 and set(told) <= set("0123456789abcdef")):
            return str(told)
        self._fail([Bad(client, f"its receipt must be 32 hex digits; got {str(told)[:40]!r}")])
        raise AssertionError

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
        shared, requests = _common(broadcast), []
        for k in ids.tolist():
            requests.append(self._request(k, facts, shared, {"written": _written(self.memory.get(k))}))
        values = []
        for k, answer in zip(ids.tolist(), self._asked(requests, "query", broadcast.round), strict=True):
            if query.keep:
                self.memory.put(k, of_receipt(self._receipt(k, answer.facts.get("receipt"))))
            else:
                values.append(_finite(answer.trees.get("values"), part.name, k))
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
            requests.append(self._request(k, {"kind": kind}, shared, {"written": _written(self.memory.get(k))}))
        matrix, total, rows = torch.zeros(self.task.classes, self.task.classes, dtype=torch.int64), 0.0, 0
        for k, answer in zip(asked, self._asked(requests, "evaluate", number), strict=True):
            found, n = answer.trees.get("matrix"), answer.facts.get("rows")
            if not isinstance(found, Tensor) or found.shape != matrix.shape or found.dtype != torch.int64:
                self._fail([Bad(k, "its confusion matrix must have a row and a column for each class")])
            matrix = matrix + found
            total, rows = total + float.fromhex(answer.facts["loss"]) * int(n), rows + int(n)
        return matrix, total / max(rows, 1)


def _key(request: Request) -> str:
    """Digest of what is asked; how the node's folder is kept does not belong to it."""
    facts = {name: value for name, value in request.facts.items() if name != "held"}
    return digests.of_parts(repr(sorted(facts.items())), *(x for part in request.parts.values() for x in part))


def _common(broadcast: Broadcast) -> Packed:
    """A broadcast outside of training."""
    number = torch.tensor(broadcast.round)
    common = {"params": broadcast.params, "buffers": broadcast.buffers, "common": broadcast.common, "round": number}
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


def _fitting(found: Any, model: Params, what: str) -> Params:
    """Leaves [1, ...] with the names, shapes and types of the model's. Raises ValueError."""
    found = {} if found is None else found
    if set(found) != set(model):
        raise ValueError(f"{what} must be {len(model)} tensors by the model's names; got {sorted(found)[:5]}")
    for name, leaf in model.items():
        got = found[name]
        if tuple(got.shape) != (1, *leaf.shape) or got.dtype != leaf.dtype:
            raise ValueError(f"{name} must be {leaf.dtype} {tuple(leaf.shape)}; got {got.dtype} {tuple(got.shape[1:])}")
    return {name: found[name] for name in model}


def _rows_of_one(uploads: Tree) -> dict[str, Tree]:
    """Uploads with leaves [1, ...]. Raises ValueError."""
    if not isinstance(uploads, dict) or any(leaf.dim() == 0 or len(leaf) != 1 for leaf in tree.leaves(uploads)):
        raise ValueError("uploads must be of one client")
    return uploads


def _number(value: Tensor, name: str) -> Tensor:
    if value.numel() != 1:
        raise ValueError(f"the report's {name} must be one number")
    return value.reshape(1)


def _finite(values: Tree, part: str, k: int) -> Tree:
    """A node's answer. Raises TrainingError where it is not finite."""
    for leaf in tree.leaves(values):
        if leaf.is_floating_point() and not bool(torch.isfinite(leaf).all()):
            raise TrainingError(f"the answer of client {k} to the question of {part!r} is not finite", (Bad(k, "answer"),))
    return values
