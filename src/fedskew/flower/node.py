"""The client's half of a deployment: one node answers the server's messages by the hooks that every engine drives.

A server may be hostile, too. What it asks is held against what the node has, before anything is allocated or repeated
by a number of the server's.
"""

import logging
import math
import sys
import tomllib
import traceback
import types
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew import tree
from fedskew.client import Job, Own, Shared
from fedskew.data.arrays import Dataset
from fedskew.data.federation import Federation
from fedskew.data.inputs import Inputs
from fedskew.data.partitioners import Iid
from fedskew.engines.clients import ClientMemory
from fedskew.engines.fitting import ClientLogits, triangle_of
from fedskew.engines.guard import guarded, unguarded
from fedskew.engines.network import initial_params, prepared_model
from fedskew.engines.outcomes import Fault, require_finite
from fedskew.engines.planning import ClientJob, Member, Pace
from fedskew.engines.sequential import Threaded
from fedskew.engines.trained import Trained, described
from fedskew.errors import ConfigError, DataError, FedskewError, RecordError, TrainingError, one_line, text_of, visible
from fedskew.flower import wire
from fedskew.flower.contract import contract, disagreement, kind_of
from fedskew.flower.memory import NONE, NodeMemory
from fedskew.flower.options import NodeOptions
from fedskew.flower.standin import alone
from fedskew.flower.wire import count, expect, flag, receipt, session, table
from fedskew.functional.fitting import MOST
from fedskew.method import Component, Method
from fedskew.models.precision import arithmetic
from fedskew.records.summary import TAIL
from fedskew.server import Broadcast
from fedskew.settings import Settings
from fedskew.types import Params, Query, Task, Tree

MOST_TRAINED = 1 << 28  # rows times epochs of one message: 2 GiB of row numbers
MOST_DRAWS = 10_000  # of a question
MOST_FITTED = 2 * MOST  # exchanges of one model: a fit of the rows as they are, and a balanced one
# options of a run that name files, or what is to be downloaded
READ = ("data", "path", "partition.path", "from", "model.path", "model.revision")


def check_data(config: Mapping[str, Any], folder: Path) -> None:
    """A run's configuration names the data and the model of the app, which the operator has read, and no others."""
    files = [place / "pyproject.toml" for place in (folder, folder.parent) if (place / "pyproject.toml").is_file()]
    apps = [tomllib.loads(text_of(file)).get("tool", {}).get("flwr", {}).get("app") for file in files]
    for app in [app for app in apps if app][:1]:  # none in a simulation in one process; a bundle of Flower's has one
        held = app.get("config", {})
        for name in [n for n in {**held, **config} if n in READ or n.startswith("data.")]:
            ours, theirs = held.get(name), config.get(name)
            expect(ours == theirs, name, f"be {ours!r}, as in the app of this node", theirs)


def shared_of(trees: Mapping[str, Tree], *names: str) -> dict[str, Any]:
    """What all clients are sent: trees of these names, and "round" and "rounds" as numbers ()."""
    shared = trees.get("shared")
    found: dict[str, Any] = shared if isinstance(shared, dict) else {}
    expect(set(names) <= set(found), "a message", f"hold {', '.join(names)}", sorted(found))
    for what in names:
        if what in ("round", "rounds"):
            number_of(found, what)
        else:
            got = type(found[what]).__name__
            expect(got == "dict", f"{what} of a message", "be named tensors", got)
    return found


def number_of(found: Mapping[str, Any], what: str) -> int:
    """A round's number, from a tensor ()."""
    value = found[what]
    holds = isinstance(value, Tensor) and not value.dim() and value.dtype == torch.int64
    expect(holds, f"{what} of a message", "be a whole number", type(value).__name__)
    return count({what: int(value)}, what)


def check_model(found: Mapping[str, Tree], wanted: Mapping[str, Tensor]) -> None:
    """A model that the node is to keep has the tensors of its network, and no others."""
    told, known = wire.layout_of(found), wire.layout_of(wanted)
    odd = [".".join(path) for path in {**known, **told} if told.get(path) != known.get(path)]
    expect(not odd, "a model", "have the tensors of this node's network", odd[:1])


def own_of(trees: Mapping[str, Tree], template: Mapping[str, Tree]) -> dict[str, Any]:
    """What this client alone is sent; what was written to its memory has the shapes of the memory."""
    found = trees.get("own", {})
    found = found if isinstance(found, dict) else {"own": found}
    written, each = found.get("written", {}), found.get("each", {})
    known = wire.layout_of(template)
    told = wire.layout_of({"written": written, "each": each})
    wrong = [path for path, leaf in told.items() if leaf and path[0] == "written" and known.get(path[1:]) != leaf]
    holds = not wrong and set(found) <= {"written", "each", "offered", "used"} and isinstance(each, dict)
    expect(holds, "what is written to a client", "be of its memory", wrong[:1] or sorted(found))
    return {**found, "written": written, "each": each}


def used_of(own: Mapping[str, Any], counts: Tensor) -> tuple[Tensor, Tensor]:
    """(offered, used) rows of each class, [C]; all rows where the server does not know their classes."""
    if "offered" not in own and "used" not in own:
        return counts, counts
    for what in ("offered", "used"):
        leaf = own.get(what)
        holds = isinstance(leaf, Tensor) and leaf.shape == counts.shape and leaf.dtype == torch.int64
        expect(holds, what, f"be a number of rows for each of {len(counts)} classes", type(leaf).__name__)
        rows = own[what].tolist()
        expect(all(0 <= n <= MOST_TRAINED for n in rows), what, f"be rows from 0 to {MOST_TRAINED}", rows)
    return own["offered"], own["used"]


def pace_of(facts: Mapping[str, Any], rows: int) -> Pace:
    """The server's pace: batch size, epochs, steps an epoch, rate, steps in all. ``rows`` are those of an epoch."""
    told: Any = facts.get("pace")
    expect(isinstance(told, list) and len(told) == 5, "a pace", "have 5 numbers", told)
    named = dict(zip(("batch size", "epochs", "steps an epoch", "rate", "steps"), told, strict=True))
    batch, most, total = (count(named, what) for what in ("batch size", "steps an epoch", "steps"))
    epochs = count(named, "epochs", 0, MOST_TRAINED // max(rows, 1))
    rate = named["rate"]
    holds = type(rate) in (int, float) and 0 <= rate <= sys.float_info.max  # nor NaN
    expect(holds, "the rate of a pace", "be a finite number of at least 0", rate)
    return batch, epochs, most, float(rate), total


def point_of(trees: Mapping[str, Tree], classes: int) -> tuple[Tensor, Tensor]:
    """(point [C + 1], weight of each class [C]) at which sums are asked for."""
    found = trees.get("own")
    own: dict[str, Any] = found if isinstance(found, dict) else {}
    for what, size, least in (("point", classes + 1, -math.inf), ("weights", classes, 0.0)):
        leaf = own.get(what)
        holds = isinstance(leaf, Tensor) and leaf.shape == (size,) and leaf.dtype == torch.float64
        expect(holds, f"{what} of a fit", f"be {size} numbers of 8 bytes", type(leaf).__name__)
        finite = bool(own[what].isfinite().all()) and float(own[what].min()) >= least
        expect(finite, f"{what} of a fit", f"be finite, and at least {least:g}", own[what].tolist())
    return own["point"], own["weights"]


def question_of(facts: Mapping[str, Any], method: Method, client: int) -> tuple[Query, Component]:
    """A component's question: "loss", "delta", or a function of the component that is no secret of Python's."""
    pairs = zip(method.components, unguarded(method).components, strict=True)
    found = [pair for pair in pairs if pair[0].name == facts.get("part")]
    expect(bool(found), method.name, "have the component that asks", facts.get("part"))
    part, plain = found[0]
    what: Any = facts.get("what")
    if what not in ("loss", "delta"):
        function = getattr(type(plain), what, None) if isinstance(what, str) and what[:1] != "_" else None
        expect(isinstance(function, types.FunctionType), "a question", f"name a function of {part.name!r}", what)
        what = getattr(part, what)
    draws = count(facts, "draws", 1, MOST_DRAWS)
    return Query(torch.tensor([client]), what, "own", flag(facts, "keep"), draws, flag(facts, "augment")), part


# The node


LOG = logging.getLogger("flwr")
TRACE = 10_000  # characters of the details of a mistake
HELD = 3  # memories that are kept beside that of the moment: two checkpoints', and the last whole round's


@dataclass(frozen=True, eq=False)
class Work:
    """What is trained, as server and node know it alike."""

    method: Method
    model: Any  # an architecture or a module
    settings: Settings
    clients: int


@dataclass(frozen=True, eq=False)
class Rows:
    """The data of one node.

    ``train`` and ``test`` are samples and class numbers, in the order in which the client owns them; the test rows are
    the client's own, and are empty where it keeps none.
    """

    inputs: Inputs
    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    augment: tuple[str, ...] = ()

    def federation(self, client: int, clients: int) -> Federation:
        """A federation in which this client alone has rows; row i of the client is row i of the data."""
        inputs, n = self.inputs, len(self.y)
        x, y = torch.cat([self.x, self.x_test]), torch.cat([self.y, self.y_test])
        data = Dataset(
            "node", x, y, x[:0], y[:0], len(inputs.label_names), inputs.label_names, inputs.mean, inputs.std,
            self.augment, encoding=inputs.encoding,
        )  # fmt: skip
        counts = torch.zeros(clients, data.classes, dtype=torch.int64)
        counts[client] = torch.bincount(self.y, minlength=data.classes)
        own, held = (alone(np.arange(a, b), client, clients) for a, b in ((0, n), (n, len(y))))
        return Federation(data, own, Iid(), clients, 0, counts, held=held, local_test=0.0)


def _whole(told: Tree, kind: str, engine: Threaded) -> Params:
    """Parameters or buffers with those that are not sent, which have their initial value at the server."""
    initial, sent = engine.initial[kind], told[kind] or {}
    return {n: sent[n] if n in sent else initial[n] for n in (*initial, *(n for n in sent if n not in initial))}


def error_text(error: Exception, whole: bool) -> str:
    """What the server is told of a mistake: ``whole``, or without what may quote the node's data, which its log has."""
    said = one_line(error) or "no message"
    text = said if isinstance(error, FedskewError | OSError) else f"{type(error).__name__}: {said}"
    if whole or (isinstance(error, FedskewError | OSError) and not isinstance(error, DataError)):
        return text
    LOG.error("fedskew: %s", text)
    what = "its data do not fit" if isinstance(error, DataError) else f"{type(error).__name__} was raised"
    return f"{what}; the node's own log says more, and tells it here with trace=true"


class Node:
    """Answers the messages for one client. It keeps nothing between them but what `NodeMemory` holds."""

    def __init__(self, work: Work, rows: Rows, client: int, options: NodeOptions) -> None:
        self.work, self.rows, self.client, self.options = work, rows, client, options

    @cached_property
    def engine(self) -> Threaded:
        """The engine, with the memories' template."""
        work = self.work
        fed = self.rows.federation(self.client, work.clients)
        settings = replace(work.settings, engine="threaded", threads=self.options.threads, memory="ram")
        model = prepared_model(fed, work.model, None, settings, work.method.projection)
        task: Task = model.task(work.clients, settings.rounds)
        engine = Threaded(model, fed, task, settings)
        params = initial_params(work.method, model.params, task, settings.seed_of("model"))
        engine.init_clients(work.method, params, model.buffers, "ram")
        return engine

    @cached_property
    def memory(self) -> NodeMemory:
        """What this client keeps between rounds."""
        return NodeMemory(self.options.folder(self.client), self.engine.memory.template)

    @cached_property
    def contract(self) -> dict[str, Any]:
        """This node's side of the handshake."""
        return contract(self.work.method, self.engine.network, self.rows.inputs, self.work.settings)

    @cached_property
    def method(self) -> Method:
        """The method, whose hooks say where a mistake is."""
        return guarded(self.work.method, self.engine.guard)

    # messages

    def answer(self, message: wire.Envelope) -> tuple[dict[str, Any], wire.Packed]:
        """(facts, tensors) of the reply. A mistake comes back in the facts, as ``error``."""
        echo = wire.echoed(message.facts)
        try:
            with torch.no_grad(), arithmetic(self.work.settings.precision):
                more, trees = self._answered(message)
            return {**echo, **more}, wire.pack(trees)
        except (FedskewError, OSError) as error:
            return {**echo, "error": error_text(error, self.options.trace)}, wire.pack({})
        except Exception as error:  # a component of the user's own may raise anything
            noted, trace = self.engine.guard.noted, traceback.format_exc()
            for line in trace[-TRACE:].splitlines():
                LOG.error("fedskew: %s", visible(line))
            said = error_text(error, self.options.trace) + (f"; {noted}" if noted else "")
            return {**echo, "error": said, "trace": trace if self.options.trace else ""}, wire.pack({})

    def _answered(self, message: wire.Envelope) -> tuple[dict[str, Any], dict[str, Tree]]:
        torch.set_num_threads(1)
        facts, kind = message.facts, message.facts.get("kind")
        if kind == "hello":
            return self._hello(facts)
        wrong, fatal = disagreement(self.contract, table(facts, "contract"))
        if fatal:
            raise ConfigError(f"this node must agree with the server: {wrong}")
        ours = count(facts, "client") == self.client
        expect(ours, "this node", f"be asked as client {self.client}", facts["client"])
        known = {"train": self._train, "ask": self._ask, "personal": self._personal, "evaluate": self._evaluate,
                 "fit": self._fit, "own": self._own}  # fmt: skip
        holds = isinstance(kind, str) and kind in known
        expect(holds, "the kind of a message", f"be one of {', '.join(known)}", kind)
        held: Any = facts.get("held")
        expect(isinstance(held, list) and len(held) <= HELD, "held", f"be a list of at most {HELD} receipts", held)
        kept = [receipt(facts.get("receipt")), *map(receipt, held)]
        if not self.memory.newer(session(facts), count(facts, "turn")):
            raise RecordError(f"message {facts['turn']} was answered before: it is late, or was sent again by another")
        self.memory.keep(*kept, logits=receipt(facts.get("logits", NONE)))
        return known[str(kind)](facts, message.trees)

    def _hello(self, facts: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Tree]]:
        """Who this node is, and of its rows what it permits."""
        self.memory.newer(session(facts))
        wrong, fatal = disagreement(self.contract, table(facts, "contract"))
        counts = torch.bincount(self.rows.y, minlength=len(self.rows.inputs.label_names))
        permits = self.options.permits
        shown: dict[str, Any] = {"rows": len(self.rows.y), "test_rows": len(self.rows.y_test)}
        if "histogram" in permits:
            shown["counts"] = counts.tolist()
        elif "labels" in permits:
            shown["labels"] = (counts > 0).nonzero().flatten().tolist()
        who = {"client": self.client, "name": self.options.name, "permits": sorted(permits)}
        return {**who, **shown, "differs": wrong, "fatal": fatal}, {}

    def _train(self, facts: Mapping[str, Any], trees: Mapping[str, Tree]) -> tuple[dict[str, Any], dict[str, Tree]]:
        """One local run."""
        engine, method = self.engine, self.method
        given, layout = shared_of(trees, "params", "buffers", "common", "round", "rounds"), engine.runtime.layout
        params, buffers = (layout(_whole(given, n, engine)) for n in ("params", "buffers"))
        shared = Shared(params, buffers, layout(given["common"]), given["round"], given["rounds"])
        place = self._place(facts, shared, own_of(trees, engine.memory.template))
        engine.guard.begin(int(shared.round))
        engine.ready(method, [place])
        outcome = engine.run_client(method, place)
        fault: Fault | None = None
        try:
            require_finite([outcome.checks])
        except TrainingError as error:
            fault = error.faults[0]
        receipt = self.memory.save({n: tree.row(m, 0) for n, m in outcome.memories.items()}) if fault is None else ""
        told: dict[str, Any] = {"receipt": receipt, "steps": len(place.plan.batches), "samples": place.plan.samples}
        if fault is not None:
            told["fault"] = {"step": fault.step, "tensor": fault.tensor, "value": repr(fault.value)}
        report = outcome.reports._asdict()
        params, buffers = (wire.travelling(getattr(outcome, n), engine.stays) for n in ("params", "buffers"))
        sent = {"params": params, "buffers": buffers, "uploads": outcome.uploads, "report": report}
        return told, {"sent": sent}

    def _place(self, facts: Mapping[str, Any], shared: Shared, own: Mapping[str, Tree]) -> ClientJob:
        """This client's place in the round, planned from its own rows by the server's pace."""
        engine, method, k = self.engine, self.method, self.client
        source, member = engine.clients.own, count(facts, "member", most=1 << 31)
        offered, used = used_of(own, source.counts[k])
        pace = pace_of(facts, int(torch.maximum(offered, used).sum()))
        at = Member(k, member, offered, used)
        said = shared.common.get(method.sampler.name, {})
        plan = engine.planner.plan(method, source, at, pace, said, int(shared.round))
        memory = self._memory(facts, own)
        each = tree.map_tree(lambda leaf: leaf.unsqueeze(0), own["each"])
        given = Broadcast(int(shared.round), shared.params, shared.buffers, shared.common, each)
        (place,) = engine.jobs.of(method, [plan], given, memory, {k: 0}, member)
        job = Job(shared, Own(**{**place.job.own._asdict(), "each": own["each"]}))
        return place._replace(job=job)

    def _memory(self, facts: Mapping[str, Any], own: Mapping[str, Tree]) -> ClientMemory:
        """This client's memory in the moment of a message, with what the server has written to it since."""
        memory = ClientMemory(self.engine.memory.template)
        memory.put(self.client, {**self.memory.load(facts["receipt"]), **own["written"]})
        return memory

    def _given(self, facts: Mapping[str, Any], trees: Mapping[str, Tree]) -> Broadcast:
        """What the server broadcasts outside of training; this client's memory is loaded into the engine."""
        told = shared_of(trees, "params", "buffers", "common", "round")
        self.engine.memory = self._memory(facts, own_of(trees, self.engine.memory.template))
        params, buffers = (_whole(told, n, self.engine) for n in ("params", "buffers"))
        return Broadcast(number_of(told, "round"), params, buffers, told["common"], {}, self.engine.stays)

    def _ask(self, facts: Mapping[str, Any], trees: Mapping[str, Tree]) -> tuple[dict[str, Any], dict[str, Tree]]:
        """A component's question."""
        method = self.method
        query, part = question_of(facts, method, self.client)
        self.options.check_permit(kind_of(query))
        answers = self.engine.query(query, part, method, self._given(facts, trees))
        if not query.keep:
            return {"receipt": None}, {"values": answers.values}
        return {"receipt": self.memory.save(self.engine.memory.get(self.client))}, {"values": {}}

    def _personal(self, facts: Mapping[str, Any], trees: Mapping[str, Tree]) -> tuple[dict[str, Any], dict[str, Tree]]:
        """The client's own model on its own test rows."""
        self.options.check_permit("metrics")
        matrix, loss = self.engine.personal(self.method, self._given(facts, trees), fitted=flag(facts, "fitted"))
        return {"loss": loss.hex(), "rows": len(self.rows.y_test)}, {"matrix": matrix}

    def _evaluate(self, facts: Mapping[str, Any], trees: Mapping[str, Tree]) -> tuple[dict[str, Any], dict[str, Tree]]:
        """The global model on the client's own test rows."""
        self.options.check_permit("metrics")
        told = shared_of(trees, "params", "buffers")
        rows = self.engine.fed.local_test_rows(self.client)
        params: Params = told["params"]
        matrix, loss = self.engine.evaluate(params, told["buffers"], rows, on="train")
        return {"loss": float(loss).hex(), "rows": len(rows)}, {"matrix": matrix}

    def _own(self, facts: Mapping[str, Any], trees: Mapping[str, Tree]) -> tuple[dict[str, Any], dict[str, Tree]]:
        """Keep the client's own model beside its memory, for its operator. Nothing of it is told."""
        given, engine, work = self._given(facts, trees), self.engine, self.work
        check_model({**given.params, **given.buffers}, {**engine.initial["params"], **engine.initial["buffers"]})
        ((_, own),) = engine.own_models(self.method, given)
        params, buffers = ({n: own.get(n, v) for n, v in kind.items()} for kind in (given.params, given.buffers))
        trained = Trained(engine.network, params, buffers, self.rows.inputs, work.settings.precision)
        data, number = engine.fed.dataset, given.round - 1
        about = described(trained, work.model, data, number, work.settings.dtype, work.method.projection)
        told = {"client": self.client, "method": work.method.name}
        config = {"started_by": "flower", "own_data": True, "label_names": list(data.class_names), "own_model": told}
        self.memory.save_own({**params, **buffers}, {"model": about, "config": config})
        where = self.memory.folder.resolve()
        LOG.info("fedskew: own model after round %d: `fedskew flower own %s --out FOLDER` takes it out", number, where)
        return {}, {}

    def _fit(self, facts: Mapping[str, Any], trees: Mapping[str, Tree]) -> tuple[dict[str, Any], dict[str, Tree]]:
        """Sums of loss, gradient and Hessian over the client's rows; their logits are kept for the next exchange."""
        self.options.check_permit("fit")
        settings = self.work.settings
        models = 2 * {"none": 0, "last": 1, "tail": TAIL, "every": settings.rounds}[settings.fit_logits]
        if self.memory.fit_exchanges(session(facts)) > (most := models * MOST_FITTED):
            raise ConfigError(f"a fit may take {most} exchanges of this run; the server asks for more")
        point, weights = point_of(trees, len(self.rows.inputs.label_names))
        if kept := receipt(facts.get("logits", NONE)):
            logits = self.memory.load_logits(kept)
        else:
            told, engine = shared_of(trees, "params", "buffers"), self.engine
            logits, _ = engine.train_set.logits(told["params"], told["buffers"], engine.clients.own.rows[self.client])
            if not bool(logits.isfinite().all()):
                raise TrainingError("a logit of the node's rows is not finite")
            kept = self.memory.save_logits(logits)
        loss, gradient, hessian = ClientLogits(logits, self.rows.y)(point, weights)
        return {"logits": kept}, {"sums": {"loss": loss, "gradient": gradient, "triangle": triangle_of(hessian)}}
