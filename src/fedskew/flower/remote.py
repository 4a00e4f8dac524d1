"""The engine of a deployment: it plans, asks and adds up at the server; nodes train, and keep their clients' memory."""

import logging
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedskew import deployment as lib
from fedskew import tree
from fedskew.data import Federation
from fedskew.errors import TrainingError
from fedskew.flower.declared import client_without_rows
from fedskew.flower.exchange import Exchange, NodeMetrics, Receipts, of_receipt, written_to
from fedskew.flower.link import AnswerFault, Link
from fedskew.flower.summed import NodeAdder
from fedskew.flower.wire import Envelope, Packed, count, expect, layout_of, pack, receipt, short, table, travelling
from fedskew.method import Component, Method
from fedskew.types import Answers, Params, Query, Results, Task, Tree

LOG = logging.getLogger("flwr")
ENDLESS = ("nan", "inf", "-inf")  # as Python writes them


class Remote(lib.RemoteEngine):
    """Clients train at their nodes, each by a `ClientEngine`. Questions on the nodes' rows go to the nodes; the
    server's own rows (test, validation, auxiliary) stay here.
    """

    name = "flower"

    def __init__(
        self, model: lib.Model, fed: Federation, task: Task, settings: lib.Settings, *, link: Link, local: bool
    ) -> None:
        """As `LocalEngine`.

        Args:
            model: a prepared network.
            fed: of `federation_of_nodes`.
            task: facts of the run.
            settings: of the run.
            link: to the nodes, which have said hello.
            local: nodes have test rows of their own, on which the global model is evaluated.
        """
        self.link, self.sums = link, settings.secure == "sums"  # of what nodes train and answer, sums alone come here
        self.measured = local and bool(link.measuring)
        counted = all("histogram" in hello.facts["permits"] for hello in link.clients.values())
        self.counted = counted and not self.sums
        super().__init__(model, fed, task, settings)
        self.like = client_without_rows(model, fed, task, settings)
        self._silent: set[tuple[int, int]] = set()  # (round, client) whose answer to a question was of no use

    def init_clients(self, method: Method, params: Params, buffers: Params, where: str = "device") -> None:
        """The server keeps receipts; what components keep on a client lies at its node."""
        super().init_clients(method, params, buffers, "ram")
        self.like.init_clients(method, params, buffers, "ram")
        self.memory = receipts = Receipts()
        self.exchange = Exchange(self.link, receipts)
        self.metrics = NodeMetrics(self.exchange, self.fed.counts)

    def adder(self, share: float) -> NodeAdder:
        """What adds up what nodes keep."""
        return NodeAdder(share, self.exchange)

    # training

    def train(self, *args: Any, **options: Any) -> Results:
        """As `LocalEngine.train`. With ``flower.bad`` = drop, what is not finite costs its author alone, too."""
        try:
            return super().train(*args, **options)
        except TrainingError as error:
            error.drop = error.drop or self.link.options.bad == "drop"
            raise

    def trained(self, method: Method, jobs: list[lib.ClientJob]) -> Iterator[lib.Outcome]:
        """Outcomes of clients that train at the same time, in order."""
        packed: dict[int, Packed] = {}  # one part of the messages for all that begin from the same model
        like, requests = self.like.outcome_without_steps(method, jobs[0].job.shared), []
        report = tree.map_tree(lambda leaf: leaf.reshape(1), like.reports._asdict())
        sent = {**travelling(like, self.stays), "uploads": like.uploads, "report": report}
        layout = {} if self.sums else layout_of({"sent": sent})
        for plan, (shared, inputs) in ((job.plan, job.job) for job in jobs):
            client_inputs: dict[str, Tree] = {"each": inputs.each, "written": written_to(inputs.memory)}
            if not self.sums and "histogram" in self.link.clients[plan.client].facts["permits"]:
                client_inputs |= {"offered": plan.offered.clone(), "used": plan.used.clone()}
            if id(shared) not in packed:
                packed[id(shared)] = pack({"shared": {**shared._asdict(), **travelling(shared, self.stays)}})
            facts = {"kind": "train"} | ({} if self.sums else {"member": plan.member, "pace": list(plan.pace)})
            requests.append(self.exchange.request(plan.client, facts, packed[id(shared)], layout, client_inputs))
        bad: list[AnswerFault] = []
        reads = [partial(self._kept, job, like, bad) if self.sums else partial(self._read, job) for job in jobs]
        yield from self.exchange.asked(requests, int(jobs[0].job.shared.round), reads)
        if bad:
            raise TrainingError(f"{bad[0].words} is not finite", tuple(bad))

    def _kept(self, job: lib.ClientJob, like: lib.Outcome, bad: list[AnswerFault], answer: Envelope) -> lib.Outcome:
        """In the place of what a node has trained and keeps: the shapes of it. Raises one of MALFORMED."""
        fault = answer.facts.get("fault") is not None
        kept = self._receipt(answer, fault)
        if fault:
            bad.append(AnswerFault(job.plan.client, short(table(answer.facts, "fault"), "tensor")))
        params, buffers, uploads = map(tree.zeros_like, like[:3])
        return self.outcome(job, (params, buffers), uploads, kept, torch.zeros(1), None)

    def _receipt(self, answer: Envelope, fault: bool) -> dict[str, Tree]:
        """What the server keeps of a client's memory. Raises ConfigError where its receipt cannot be."""
        kept, keeps = receipt(answer.facts.get("receipt")), not self.like.memory.empty
        rule = "name what the client keeps" if keeps else "be empty, as the method keeps nothing on clients"
        expect(fault or bool(kept) == keeps, "its receipt", rule, kept)
        return of_receipt(kept)

    def _read(self, job: lib.ClientJob, answer: Envelope) -> lib.Outcome:
        """The outcome, checked: steps and rows, and that what is told is finite. Raises one of MALFORMED.

        Names, shapes and types were checked before. Of the report only the loss is the node's to tell.
        """
        shared = job.job.shared
        sent, facts, steps, samples = answer.trees["sent"], answer.facts, len(job.plan.batches), job.plan.samples
        trained = count(facts, "steps"), count(facts, "samples")
        expect(trained == (steps, samples), "what it trained", f"be {steps} steps of {samples} rows", trained)
        params, buffers = (_whole(sent[n], getattr(shared, n)) for n in ("params", "buffers"))
        fault, loss = _fault(job, facts), sent["report"]["loss"]
        expect(math.isfinite(loss) or bool(fault), "the report's loss", "be finite", float(loss))
        kept = self._receipt(answer, bool(fault))
        return self.outcome(job, (params, buffers), sent["uploads"], kept, loss, fault)

    # questions and evaluation

    def query(self, query: Query, part: Component, method: Method, broadcast: lib.Broadcast) -> Answers:
        """Answer a component's question: from what the nodes told at first, from the server's rows, or by the nodes."""
        if query.rows != "own" or (query.what == "counts" and not self.sums):
            return super().query(query, part, method, broadcast)
        ids = torch.arange(len(self.clients.source.rows)) if isinstance(query.ids, str) else query.ids
        what = query.what if isinstance(query.what, str) else getattr(query.what, "__name__", "")
        facts = {"kind": "ask", "part": part.name, "what": what}
        facts |= {name: getattr(query, name) for name in ("keep", "draws", "augment")}
        asked = [k for k in ids.tolist() if (broadcast.round, k) not in self._silent]
        if not asked:
            raise TrainingError(f"a client must answer {part.name!r}; got no answer of use in round {broadcast.round}")
        question = query._replace(ids=torch.zeros(1, dtype=torch.int64), draws=1)
        like: Tree = {} if query.keep else self.like.query(question, part, method, broadcast).values
        shared = _common(broadcast, self.stays)
        expected = layout_of({"values": {} if self.sums else like})
        requests = [self.exchange.request(k, facts, shared, expected) for k in asked]
        read: Callable[[Envelope], Tree] = _receipt_kept if query.keep else _finite
        try:
            answers = list(self.exchange.asked(requests, broadcast.round, [read] * len(asked)))
        except TrainingError as error:
            self._silent = {(broadcast.round, fault.client) for fault in error.faults} | self._silent
            raise
        for k, kept in zip(asked, answers if query.keep else (), strict=query.keep):
            self.memory.put(k, kept)
        values = {} if query.keep else tree.concatenate(answers)
        if self.sums and not query.keep:  # in the place of what nodes keep
            values = tree.map_tree(lambda leaf: leaf.expand(len(asked), *leaf.shape[1:]), like)
        return Answers(torch.tensor(asked), values)

    def own_models(self, method: Method, broadcast: lib.Broadcast) -> Iterator[tuple[int, Params]]:
        """None comes here: each node keeps that of its client, for its operator (``fedskew flower own``)."""
        shared, facts = _common(broadcast, self.stays), {"kind": "own"}
        clients = [k for k, hello in sorted(self.link.clients.items()) if hello.facts["rows"]]
        requests = [self.exchange.request(k, facts, shared, {}) for k in clients]
        for client, bad in self.exchange.answers(requests, broadcast.round, [lambda answer: None] * len(requests)):
            if bad is not None:
                LOG.warning("fedskew: client %d: its node keeps no own model: %s", client, bad.tensor)
        return iter(())

    def shared(self, params: Params, buffers: Params, number: int) -> tuple[Tensor, float]:
        """Pooled (confusion matrix, mean cross-entropy) of the global model after a round, tested at the nodes."""
        if not self.link.measuring:
            return torch.zeros(self.task.classes, self.task.classes, dtype=torch.int64), 0.0
        return self.at_nodes(params, buffers, number)

    def tested(self, method: Method, broadcast: lib.Broadcast, *, fitted: bool = False) -> Iterator[lib.Tested]:
        """What the nodes that permit metrics tell of their own test rows: matrices and losses, no probabilities."""
        number = broadcast.round - 1
        if self.link.measuring and method.personal:
            self.metrics.pooled(_common(broadcast), broadcast.round, kind="personal", fitted=fitted)
        elif self.link.measuring and self.metrics.number != number:
            self.at_nodes(broadcast.params, broadcast.buffers, number)
        yield from self.metrics.each

    def at_nodes(self, params: Params, buffers: Params, number: int) -> tuple[Tensor, float]:
        """Pooled (confusion matrix, mean cross-entropy) of one model on the nodes' own test rows."""
        return self.metrics.pooled(_common(lib.Broadcast(number, params, buffers, {}, {})), number, kind="evaluate")

    def fits(self, params: Params, buffers: Params) -> dict[str, lib.Fit]:
        """A model's fits by objective; none where a node with training rows does not allow it."""
        given = lib.Broadcast(self.exchange.number, params, buffers, {}, {})
        return {} if self.sums or self.task.classes > lib.FIT_CLASSES else self.metrics.fits(_common(given))


def _receipt_kept(answer: Envelope) -> Tree:
    """What the server keeps of a client that has answered a question for itself."""
    return of_receipt(receipt(answer.facts.get("receipt")))


def _finite(answer: Envelope) -> Tree:
    """The values of an answer. Raises ValueError where one is not finite."""
    if lib.first_infinite(values := answer.trees["values"]) is not None:
        raise ValueError("it is not finite")
    return values


def _common(broadcast: lib.Broadcast, stays: frozenset[str] = frozenset()) -> Packed:
    """A broadcast outside of training."""
    number = torch.tensor(broadcast.round)
    return pack({"shared": {**travelling(broadcast, stays), "common": broadcast.common, "round": number}})


def _whole(sent: Tree, model: Params) -> Params:
    """Leaves [1, ...] of the whole model; what stays is as it was."""
    return {name: (sent or {}).get(name, leaf.unsqueeze(0)) for name, leaf in model.items()}


def _fault(job: lib.ClientJob, facts: dict[str, Any]) -> lib.Fault | None:
    """What a node found not finite in its local run. Raises ConfigError where it tells no such thing."""
    if facts.get("fault") is None:
        return None
    fault, steps = table(facts, "fault"), max(len(job.plan.batches), 1)
    tensor, step, value = short(fault, "tensor"), count(fault, "step", 1, steps), fault.get("value")
    expect(value in ENDLESS, "the value of a fault", "be not finite", value)
    return lib.Fault(job.plan.client, int(job.job.shared.round), step, steps, tensor, float(str(value)))
