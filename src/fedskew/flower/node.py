"""The client's half of a deployment: one node answers the server's messages by the hooks that every engine drives.

A server may be hostile, too. What it asks is held against what the node has, before anything is allocated or repeated
by a number of the server's.
"""

import logging
import sys
import tomllib
import types
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from fedskew import deployment as lib
from fedskew import tree
from fedskew.errors import ConfigError, DataError, RecordError, TrainingError, text_of
from fedskew.flower import wire
from fedskew.flower.contract import contract, disagreement, permit_of
from fedskew.flower.memory import NONE, OWN, NodeMemory
from fedskew.flower.options import NodeOptions
from fedskew.flower.rows import NodeRows
from fedskew.flower.wire import EXACT, Facts, count, expect, flag, numbers, receipt, session, table
from fedskew.method import Component, Method
from fedskew.privacy import PHASES, Client
from fedskew.types import Params, Query, Tree

MOST_TRAINED = 1 << 28  # rows times epochs of one message: 2 GiB of row numbers
MOST_DRAWS = 10_000  # of a question
MOST_FITTED = 2 * lib.FIT_EXCHANGES  # of one model: a fit of the rows as they are, and a balanced one
# options of a run that name files, or what is to be downloaded
READ = ("data", "path", "partition.path", "from", "model.path", "model.revision")
Trees = Mapping[str, Tree]
Reply = tuple[dict[str, Any], dict[str, Tree]]  # (facts, trees)


def check_data(config: Facts, folder: Path) -> None:
    """A run's configuration names the data and the model of the app, which the operator has read, and no others."""
    files = [place / "pyproject.toml" for place in (folder, folder.parent) if (place / "pyproject.toml").is_file()]
    apps = [tomllib.loads(text_of(file)).get("tool", {}).get("flwr", {}).get("app") for file in files]
    for app in [app for app in apps if app][:1]:  # none in a simulation in one process; a bundle of Flower's has one
        options = app.get("config", {})
        for name in [n for n in {**options, **config} if n in READ or n.startswith("data.")]:
            ours, theirs = options.get(name), config.get(name)
            expect(ours == theirs, name, f"be {ours!r}, as in the app of this node", theirs)


def branch(trees: Trees, name: str) -> dict[str, Any]:
    """A tree below others; {} where there is none, or a tensor."""
    sent = trees.get(name)
    return sent if isinstance(sent, dict) else {}


def shared_of(trees: Trees, *names: str) -> dict[str, Any]:
    """What all clients are sent: trees of these names, and "round" and "rounds" as tensors ()."""
    sent = branch(trees, "shared")
    expect(set(names) <= set(sent), "a message", f"hold {', '.join(names)}", sorted(sent))
    for what in names:
        value, where, rule = sent[what], f"{what} of a message", "be named tensors"
        holds = isinstance(value, dict)
        if what in ("round", "rounds"):
            rule, scalar = "be a whole number", isinstance(value, Tensor) and not value.dim()
            holds = scalar and value.dtype == torch.int64 and 0 <= int(value) <= EXACT
        expect(holds, where, rule, type(value).__name__)
    return sent


def check_model(sent: Trees, initial: Mapping[str, Tensor]) -> None:
    """A model that the node is to keep has the tensors of its network, and no others."""
    odd = wire.differing(wire.layout_of(sent), wire.layout_of(initial))
    expect(not odd, "a model", "have the tensors of this node's network", odd)


def own_of(trees: Trees, template: Trees) -> dict[str, Any]:
    """What this client alone is sent; what was written to its memory has the shapes of the memory."""
    sent = branch(trees, "own")
    written, each = sent.get("written", {}), sent.get("each", {})
    ours, theirs = wire.layout_of({"written": template}), wire.layout_of({"written": written})
    wrong = [path for path, leaf in theirs.items() if leaf and ours.get(path) != leaf]
    holds = not wrong and set(sent) <= {"written", "each", "offered", "used"} and isinstance(each, dict)
    expect(holds, "what is written to a client", "be of its memory", wrong[:1] or sorted(sent))
    return {**sent, "written": written, "each": each}


def used_of(sent: Mapping[str, Any], counts: Tensor) -> tuple[Tensor, Tensor]:
    """(offered, used) rows of each class, [C]; all rows where the server does not know their classes."""
    if "offered" not in sent and "used" not in sent:
        return counts, counts
    offered, used = (numbers(sent, n, torch.int64, len(counts), 0, MOST_TRAINED) for n in ("offered", "used"))
    return offered, used


def pace_of(facts: Facts, rows: int) -> lib.Pace:
    """The server's pace: batch size, epochs, steps an epoch, rate, steps in all. ``rows`` are those of an epoch."""
    pace: Any = facts.get("pace")
    expect(isinstance(pace, list) and len(pace) == 5, "a pace", "have 5 numbers", pace)
    named = dict(zip(("batch size", "epochs", "steps an epoch", "rate", "steps"), pace, strict=True))
    batch, most, total = (count(named, what) for what in ("batch size", "steps an epoch", "steps"))
    epochs = count(named, "epochs", 0, MOST_TRAINED // max(rows, 1))
    rate = named["rate"]
    holds = type(rate) in (int, float) and 0 <= rate <= sys.float_info.max  # nor NaN
    expect(holds, "the rate of a pace", "be a finite number of at least 0", rate)
    return batch, epochs, most, float(rate), total


def point_of(trees: Trees, classes: int) -> tuple[Tensor, Tensor]:
    """(point [C + 1], weight of each class [C]) at which sums are asked for; both are finite."""
    sent, most = branch(trees, "own"), sys.float_info.max
    point = numbers(sent, "point", torch.float64, classes + 1, -most, most)
    return point, numbers(sent, "weights", torch.float64, classes, 0, most)


def question_of(facts: Facts, method: Method, client: int, *, counts: bool = False) -> tuple[Query, Component]:
    """A component's question: "loss", "delta", or a function of the component that is no secret of Python's.

    With ``counts`` it may be "counts", too, which is told in a hello else.
    """
    pairs = zip(method.components, lib.unguarded(method).components, strict=True)
    named = [pair for pair in pairs if pair[0].name == facts.get("part")]
    expect(bool(named), method.name, "have the component that asks", facts.get("part"))
    part, plain = named[0]
    what: Any = facts.get("what")
    if what not in ("loss", "delta", *["counts"] * counts):
        function = getattr(type(plain), what, None) if isinstance(what, str) and what[:1] != "_" else None
        expect(isinstance(function, types.FunctionType), "a question", f"name a function of {part.name!r}", what)
        what = getattr(part, what)
    draws = count(facts, "draws", 1, MOST_DRAWS)
    return Query(torch.tensor([client]), what, "own", flag(facts, "keep"), draws, flag(facts, "augment")), part


# The node


LOG = logging.getLogger("flwr")
KINDS = ("train", "ask", "personal", "evaluate", "fit", "own")  # of messages beside hello, each answered by a method
SUMMED = ("train", "ask", "sum")  # of a node that sends sums alone
MOST_SUMMED = 1 << 20  # clients of a sum
STATIC = ("counts", "sizes")  # sums of what stays the same
HELD = 3  # memories that are kept beside that of the moment: two checkpoints', and the last whole round's


class Node:
    """Answers the messages for one client. It keeps nothing between them but what `NodeMemory` holds."""

    def __init__(self, experiment: lib.Experiment, rows: NodeRows, client: int, options: NodeOptions) -> None:
        """``experiment`` says how many clients there are, and its model is an architecture."""
        self.experiment, self.rows, self.client, self.options = experiment, rows, client, options

    @cached_property
    def engine(self) -> lib.ClientEngine:
        """The engine, with the memories' template."""
        fed = self.rows.federation(self.client, self.experiment.clients or 1)
        return lib.ClientEngine.of(self.experiment, fed, self.options.threads)

    @cached_property
    def memory(self) -> NodeMemory:
        """What this client keeps between rounds."""
        return NodeMemory(self.options.folder(self.client), self.engine.memory.template, self.sums)

    @property
    def sums(self) -> bool:
        """Whether nothing of this client's own is sent, but what secure sums add up."""
        return self.options.secure > 0

    @cached_property
    def contract(self) -> dict[str, Any]:
        """This node's side of the handshake."""
        return contract(self.experiment.method, self.engine.network, self.rows.inputs, self.experiment.settings)

    @cached_property
    def method(self) -> Method:
        """The method, whose hooks say where a mistake is."""
        return lib.guarded(self.experiment.method, self.engine.guard)

    # messages

    def answer(self, message: wire.Envelope) -> Reply:
        """What is new in the reply. Raises what a mistake raises; a component of the user's own may raise anything."""
        torch.set_num_threads(1)
        with torch.no_grad(), lib.arithmetic(self.experiment.precision, self.experiment.deterministic):
            facts, kind = message.facts, message.facts.get("kind")
            if kind == "hello":
                return self._hello(facts)
            wrong, fatal = disagreement(self.contract, table(facts, "contract"))
            if fatal:
                raise ConfigError(f"this node must agree with the server: {wrong}")
            ours = count(facts, "client") == self.client
            expect(ours, "this node", f"be asked as client {self.client}", facts["client"])
            kinds = SUMMED if self.sums else KINDS
            holds = isinstance(kind, str) and kind in kinds
            expect(holds, "the kind of a message", f"be one of {', '.join(kinds)}", kind)
            held: Any = facts.get("held")
            expect(isinstance(held, list) and len(held) <= HELD, "held", f"be a list of at most {HELD} receipts", held)
            kept = [receipt(facts.get("receipt")), *map(receipt, held)]
            if not self.memory.newer(session(facts), count(facts, "turn")):
                raise RecordError(f"message {facts['turn']} was answered before: it is late, or was sent again")
            self.memory.keep(*kept, logits=receipt(facts.get("logits", NONE)))
            return cast(Reply, getattr(self, str(kind))(facts, message.trees))

    def _hello(self, facts: Facts) -> Reply:
        """Who this node is, and of its rows what it permits."""
        self.memory.newer(session(facts))
        wrong, fatal = disagreement(self.contract, table(facts, "contract"))
        counts = torch.bincount(self.rows.y, minlength=len(self.rows.inputs.label_names))
        permits = self.options.permits
        shown = self.options.hello(self.client, len(self.rows.y), len(self.rows.y_test))
        if self.sums:
            shown |= {"rows": min(shown["rows"], 1), "test_rows": 0}
        elif "histogram" in permits:
            shown["counts"] = counts.tolist()
        elif "labels" in permits:
            shown["labels"] = (counts > 0).nonzero().flatten().tolist()
        return {**shown, "differs": wrong, "fatal": fatal}, {}

    def train(self, facts: Facts, trees: Trees) -> Reply:
        """One local run, planned from the node's own rows by the server's pace."""
        engine, method, k = self.engine, self.method, self.client
        sent = shared_of(trees, "params", "buffers", "common", "round", "rounds")
        inputs = own_of(trees, engine.memory.template)
        shared = lib.RoundInputs(*self._model(sent), sent["common"], sent["round"], sent["rounds"])
        if self.sums:
            member, pace = engine.own_pace(method, k, shared)
        else:
            offered, used = used_of(inputs, engine.clients.source.counts[k])
            member = lib.Member(k, count(facts, "member", most=1 << 31), offered, used)
            pace = pace_of(facts, int(torch.maximum(offered, used).sum()))
        job = engine.job(method, shared, inputs["each"], member, pace, self._memory(facts, inputs))
        outcome, fault = engine.run(method, job)
        memories = {name: tree.row(memory, 0) for name, memory in outcome.memories.items()}
        receipt = "" if fault else self.memory.save(memories)
        if self.sums:
            self.memory.hold("update", engine.summand(method, job, outcome), round=int(shared.round))
            return {"receipt": receipt, "fault": fault and {"tensor": fault.tensor}}, {}
        done: dict[str, Any] = {"steps": len(job.plan.batches), "samples": job.plan.samples, "receipt": receipt}
        if fault is not None:
            done["fault"] = {"step": fault.step, "tensor": fault.tensor, "value": repr(fault.value)}
        more = {"uploads": outcome.uploads, "report": outcome.reports._asdict()}
        return done, {"sent": {**wire.travelling(outcome, engine.stays), **more}}

    def _model(self, sent: Mapping[str, Any]) -> tuple[Params, Params]:
        """Parameters and buffers with those that are not sent, which have their initial value at the server."""
        initial = self.engine.initial
        params, buffers = ({**initial[kind], **(sent[kind] or {})} for kind in ("params", "buffers"))
        return params, buffers

    def _memory(self, facts: Facts, inputs: Mapping[str, Any]) -> lib.ClientMemory:
        """This client's memory in the moment of a message, with what the server has written to it since."""
        memory = lib.ClientMemory(self.engine.memory.template)
        memory.put(self.client, {**self.memory.load(facts["receipt"]), **inputs["written"]})
        return memory

    def _given(self, facts: Facts, trees: Trees) -> lib.Broadcast:
        """What the server broadcasts outside of training; this client's memory is loaded into the engine."""
        sent = shared_of(trees, "params", "buffers", "common", "round")
        self.engine.memory = self._memory(facts, own_of(trees, self.engine.memory.template))
        return lib.Broadcast(int(sent["round"]), *self._model(sent), sent["common"], {}, self.engine.stays)

    def ask(self, facts: Facts, trees: Trees) -> Reply:
        """A component's question."""
        query, part = question_of(facts, self.method, self.client, counts=self.sums)
        if not self.sums:
            self.options.check_permit(permit_of(query))
        given = self._given(facts, trees)
        answers = self.engine.query(query, part, self.method, given)
        if self.sums and not query.keep:
            self.memory.hold("answer", {"values": tree.row(answers.values, 0)}, round=given.round, part=part.name)
            return {"receipt": None}, {"values": {}}
        if not query.keep:
            return {"receipt": None}, {"values": answers.values}
        return {"receipt": self.memory.save(self.engine.memory.get(self.client))}, {"values": {}}

    def sum(self, facts: Facts, trees: Trees) -> Reply:
        """One phase of a secure sum. Whatever is raised in it, this node is in the sum no longer."""
        name, phase, incoming = receipt(facts.get("sum")), facts.get("phase"), wire.message_of(branch(trees, "own"))
        expect(phase in PHASES, "the phase of a sum", f"be one of {', '.join(PHASES)}", phase)
        if phase == "advertise":
            place, of = wire.place_of(facts), count(facts, "of", most=MOST_SUMMED)
            least = count(facts, "least", max(lib.sums.LEAST, self.options.secure), of)
            expect(self.memory.first(place), "a sum", "be taken once in a run of the server", place)
            client = Client(self.client, least, lib.sums.encoding_of(of))
            message = client.advertise()
        else:
            place, client = self.memory.take_sum(name)
            if phase == "masked":
                message = client.masked(incoming, self._addend(place, branch(trees, "shared"), client.encoding.range))
            else:  # two halves of the clients that hear of different survivors would each reach a smaller threshold
                rule = f"be of fewer than {2 * client.threshold} clients, twice its threshold"
                expect(len(incoming) < 2 * client.threshold, "a sum", rule, len(incoming))
                if phase == "unmask" and place[-1] in STATIC:  # two sums differ in who is in one of them alone
                    apart = self.memory.summed_over(str(place[-1]), incoming) ^ incoming.keys()
                    rule = f"be over the clients of the first one, or differ from it by {client.threshold} or more"
                    expect(not apart or len(apart) >= client.threshold, f"a sum of {place[-1]}", rule, sorted(apart))
                message = client.share(incoming) if phase == "share" else client.unmask(incoming)
        if phase != "unmask":  # after it nobody needs the keys
            self.memory.save_sum(name, place, client)
        return {"phase": phase, "place": place}, {"message": wire.leaves_of(message)}

    def _addend(self, place: list[int | str], given: Trees, range: float) -> list[Tensor]:
        """What this client adds to a sum. An error stays in the node's log: it may quote a number of the client's."""
        engine, (number, *what) = self.engine, place
        parts = {part.name: part for part in self.method.components}
        state, sums = given.get("state", {}), tuple(branch(given, "sums").values())
        summand: Tree = engine.clients.source.counts[self.client]
        if what == ["sizes"]:
            summand = summand.sum()
        elif what[-1] == "answer":
            values = self.memory.held("answer", round=number, part=what[0])["values"]
            summand = lib.sums.of_answer(parts[str(what[0])], values)
        elif what != ["counts"]:
            held, last = self.memory.held("update", round=number), what == ["update"]
            stage = self.method.weighting.stages if last else what[-1]
            expect(len(sums) == stage, "what is given for a sum", "be of the sums before it", len(sums))
            known = self.method, state, engine.own_cohort(self.client, int(number), held.pop("own")), sums
            summand = lib.sums.of_update(*known, held) if last else lib.sums.of_weights(*known)
        try:
            lib.sums.demand_room(summand, range, self.client, *place)
        except TrainingError as error:
            raise DataError(str(error)) from None
        return lib.sums.listed(summand)

    def personal(self, facts: Facts, trees: Trees) -> Reply:
        """The client's own model on its own test rows."""
        self.options.check_permit("metrics")
        tests = self.engine.tested(self.method, self._given(facts, trees), fitted=flag(facts, "fitted"))
        matrix, loss = lib.pooled(tests, self.engine.task.classes)
        return {"loss": loss.hex()}, {"matrix": matrix}

    def evaluate(self, facts: Facts, trees: Trees) -> Reply:
        """The global model on the client's own test rows."""
        self.options.check_permit("metrics")
        sent, rows = shared_of(trees, "params", "buffers"), self.engine.fed.local_test_rows(self.client)
        matrix, loss = self.engine.evaluate(sent["params"], sent["buffers"], rows, on="train")
        return {"loss": loss.hex()}, {"matrix": matrix}

    def own(self, facts: Facts, trees: Trees) -> Reply:
        """Keep the client's own model beside its memory, for its operator. Nothing of it is told."""
        given, engine = self._given(facts, trees), self.engine
        check_model({**given.params, **given.buffers}, {**engine.initial["params"], **engine.initial["buffers"]})
        model, about = engine.own_model(self.method, given, self.experiment, self.rows.inputs)
        whose = {"client": self.client, "method": self.experiment.method.name}
        names = list(engine.fed.dataset.class_names)
        config = {"started_by": "flower", "own_data": True, "label_names": names, "own_model": whose}
        where = self.memory.folder.resolve()
        lib.save_tree(where / OWN, {"model": model}, {"model": about, "config": config})
        take = "fedskew: own model after round %d: `fedskew flower own %s --out FOLDER` takes it out"
        LOG.info(take, about["round"], where)
        return {}, {}

    def fit(self, facts: Facts, trees: Trees) -> Reply:
        """Sums of loss, gradient and Hessian over the client's rows; their logits are kept for the next exchange."""
        self.options.check_permit("fit")
        experiment = self.experiment
        models = 2 * {"none": 0, "last": 1, "tail": lib.TAIL, "every": experiment.rounds}[experiment.fit_logits]
        if self.memory.fit_exchanges() > (most := models * MOST_FITTED):
            raise ConfigError(f"a fit may take {most} exchanges of this run; the server asks for more")
        point, weights = point_of(trees, len(self.rows.inputs.label_names))
        if kept := receipt(facts.get("logits", NONE)):
            logits = self.memory.load_logits(kept)
        else:
            sent, rows = shared_of(trees, "params", "buffers"), self.engine.clients.source.rows[self.client]
            logits, _ = self.engine.train_set.logits(sent["params"], sent["buffers"], rows)
            if not bool(logits.isfinite().all()):
                raise TrainingError("a logit of the node's rows is not finite")
            kept = self.memory.save_logits(logits)
        loss, gradient, hessian = lib.ClientLogits(logits, self.rows.y)(point, weights)
        return {"logits": kept}, {"sums": {"loss": loss, "gradient": gradient, "triangle": lib.triangle_of(hessian)}}
