"""The engine of a deployment: it plans, asks and adds up at the server; nodes train, and keep their clients' memory."""

import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from fedskew import tree
from fedskew.client import Shared
from fedskew.data.federation import Federation
from fedskew.engines.evaluation import Tested
from fedskew.engines.fitting import LIMIT, Fit
from fedskew.engines.guard import infinite
from fedskew.engines.outcomes import Fault, FiniteCheck, Outcome, Settle, chained, identity
from fedskew.engines.planning import ClientJob
from fedskew.engines.sequential import Sequential
from fedskew.errors import ConfigError, TrainingError, one_line
from fedskew.flower.contract import check_allowed
from fedskew.flower.exchange import MALFORMED, Bad, Exchange, Measuring, Receipts, of_receipt, written_to
from fedskew.flower.link import Link, Request
from fedskew.flower.standin import Counting, Hello, Keyless, Rehearsal, declared_counts, nowhere
from fedskew.flower.wire import Envelope, Packed, count, expect, pack, receipt, short, table, travelling
from fedskew.method import Component, Method
from fedskew.models.prepare import Model
from fedskew.server import Broadcast
from fedskew.settings import Settings
from fedskew.types import Answers, Params, Query, Report, Results, Task, Tree

LOG = logging.getLogger("flwr")
ENDLESS = ("nan", "inf", "-inf")  # as Python writes them


class Remote(Sequential):
    """Clients train at their nodes, each by the threaded engine, with the bits of `Sequential`.

    Updates come back singly and are added in the order of the cohort. Questions on the nodes' rows go to the nodes;
    the server's own rows (test, validation, auxiliary) stay here.
    """

    name = "flower"
    rows_of = staticmethod(nowhere)
    method: Method

    def __init__(
        self, model: Model, fed: Federation, task: Task, settings: Settings, *, link: Link, local: bool
    ) -> None:
        """As `LocalEngine`.

        Args:
            model: a prepared network.
            fed: of `stand_in`.
            task: facts of the run.
            settings: of the run.
            link: to the nodes, which have said hello.
            local: nodes have test rows of their own, on which the global model is evaluated.
        """
        self.link = link
        self.measured = local and bool(link.measuring)
        self.counted = all("histogram" in hello.facts["permits"] for hello in link.clients.values())
        super().__init__(model, fed, task, settings)
        self.planner, self.jobs = Counting(task, settings.seed), Keyless(self.runtime, task, settings.seed)
        self.rehearsal = Rehearsal(model, fed, task, settings)
        self._silent: set[tuple[int, int]] = set()  # (round, client) whose answer to a question was of no use

    def init_clients(self, method: Method, params: Params, buffers: Params, where: str = "device") -> None:
        """The server keeps receipts; what components keep on a client lies at its node."""
        super().init_clients(method, params, buffers, "ram")
        self.method = method
        self.rehearsal.engine.init_clients(method, params, buffers, "ram")
        self.memory = receipts = Receipts()
        self.exchange = Exchange(self.link, receipts)
        self.measuring = Measuring(self.exchange, self.fed.counts)
        self.link.accept = self.accept
        for hello in self.link.clients.values():
            self.accept(hello)

    def accept(self, hello: Hello) -> None:
        """Check a node that has come, for the first time or again. Raises ConfigError where it does not fit the run."""
        known, before = declared_counts(hello.facts, self.task.classes), self.link.clients[hello.client].facts
        if not torch.equal(known, self.fed.counts[hello.client]) or hello.facts["test_rows"] != before["test_rows"]:
            raise ConfigError(f"{hello.name} must hold the rows that it had when the run began: its counts are others")
        check_allowed(self.method, hello.facts["permits"], hello.name)

    # training

    def train(self, *args: Any, **options: Any) -> Results:
        """As `LocalEngine.train`. With ``flower.bad`` = drop, what is not finite costs its author alone, too."""
        try:
            return super().train(*args, **options)
        except TrainingError as error:
            error.drop = error.drop or self.link.options.bad == "drop"
            raise

    def run_clients(self, method: Method, places: list[ClientJob], settle: Settle = identity) -> Iterator[Outcome]:
        """One outcome a client, in order."""
        for at, outcome in enumerate(self._trained(method, places)):
            yield settle([at], outcome)

    def run_chains(self, method: Method, chains: list[list[ClientJob]], settle: Settle = identity) -> Iterator[Outcome]:
        """One outcome a chain, in order: the first members of all chains train, then the second ones, and so on."""
        last: dict[int, Outcome] = {}
        reports: list[list[Report]] = [[] for _ in chains]
        checks: list[list[FiniteCheck]] = [[] for _ in chains]
        for m in range(max(map(len, chains))):
            here = [g for g, group in enumerate(chains) if len(group) > m]
            places = [chains[g][m].after(last[g].params, last[g].buffers) if m else chains[g][m] for g in here]
            for g, outcome in zip(here, self._trained(method, places), strict=True):
                last[g] = outcome
                reports[g].append(outcome.reports)
                checks[g] += outcome.checks
        for g in range(len(chains)):
            yield settle([g], last[g]._replace(reports=chained(reports[g]), checks=tuple(checks[g])))

    def ready(self, method: Method, places: list[ClientJob]) -> None:
        """Each node prepares for itself."""

    def probes(self, method: Method, places: list[ClientJob]) -> Iterator[Outcome]:
        """Local runs on the server's own rows."""
        yield from Sequential.run_clients(self, method, places)

    def _trained(self, method: Method, places: list[ClientJob]) -> Iterator[Outcome]:
        """Outcomes of clients that train at the same time, in order."""
        packed: dict[int, Packed] = {}  # one part of the messages for all that begin from the same model
        requests = []
        for place in places:
            plan, (shared, own), k = place.plan, place.job, place.plan.client
            mine: dict[str, Tree] = {"each": own.each, "written": written_to(own.memory)}
            if "histogram" in self.link.clients[k].facts["permits"]:
                mine |= {"offered": plan.offered.clone(), "used": plan.used.clone()}
            if id(shared) not in packed:
                packed[id(shared)] = pack({"shared": {**shared._asdict(), **_sent(shared, self.stays)}})
            facts = {"kind": "train", "member": plan.member, "pace": list(plan.pace)}
            expected = self.rehearsal.trained(method, shared)
            requests.append(self.exchange.request(k, facts, packed[id(shared)], mine, expected))
        answers, wrong = self.exchange.asked(requests, "train", int(places[0].job.shared.round)), []
        for place, answer in zip(places, answers, strict=True):
            try:
                outcome = self._read(place, answer)
            except MALFORMED as error:
                said = one_line(error) or type(error).__name__
                wrong.append(Bad(place.plan.client, f"its update must fit what was asked: {said}"))
            if not wrong:  # else the other answers are taken, so that nobody is asked again
                yield outcome
        if wrong:
            raise self.exchange.failure(wrong, "bad")

    def _read(self, place: ClientJob, answer: Envelope) -> Outcome:
        """The outcome, checked: steps and rows, and that what is told is finite. Raises one of MALFORMED.

        Names, shapes and types were checked before. Of the report only the loss is the node's to tell.
        """
        shared, own = place.job
        sent, told, steps, samples = answer.trees["sent"], answer.facts, len(place.plan.batches), place.plan.samples
        trained = count(told, "steps"), count(told, "samples")
        expect(trained == (steps, samples), "what it trained", f"be {steps} steps of {samples} rows", trained)
        params, buffers = (_whole(sent[n], getattr(shared, n)) for n in ("params", "buffers"))
        fault = _fault(place, told)
        for name in Report._fields:
            value = float(sent["report"][name])
            holds = (math.isfinite(value) or bool(fault)) and (name == "loss" or not value < 0)
            expect(holds, f"the report's {name}", "be finite and plausible", value)
        ours = {n: getattr(own, n).reshape(1) for n in Report._fields if n != "loss"}
        report = Report(**ours, loss=sent["report"]["loss"])
        check = self.finite_checks.of(
            [place], torch.zeros(1, 1, dtype=self.dtype), params, buffers, sent["uploads"], {}
        )
        memories = tree.map_tree(lambda leaf: leaf.unsqueeze(0), of_receipt(receipt(told.get("receipt"))))
        return Outcome(params, buffers, sent["uploads"], memories, report, (check._replace(reported=fault),))

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
        asked = [k for k in ids.tolist() if (broadcast.round, k) not in self._silent]
        if not asked:
            raise TrainingError(f"a client must answer {part.name!r}; got no answer of use in round {broadcast.round}")
        expected = self.rehearsal.asked(query, part, method, broadcast)
        shared = _common(broadcast, self.stays)
        requests = [self.exchange.question(k, facts, shared, expected) for k in asked]
        try:
            return Answers(torch.tensor(asked), self._told(query, part, requests, broadcast.round))
        except TrainingError as error:
            self._silent = {(broadcast.round, fault.client) for fault in error.faults} | self._silent
            raise

    def _told(self, query: Query, part: Component, requests: list[Request], number: int) -> Tree:
        """Answers to a question, leaves [Q, ...]. Raises TrainingError for the first that is of no use."""
        values: list[Tree] = []
        for request, answer in zip(requests, self.exchange.asked(requests, "query", number), strict=True):
            try:
                if query.keep:
                    self.memory.put(request.client, of_receipt(receipt(answer.facts.get("receipt"))))
                else:
                    values.append(answer.trees["values"])
                    if infinite(values[-1]) is not None:
                        raise ValueError("it is not finite")
            except MALFORMED as error:
                bad = Bad(request.client, f"its answer to {part.name!r} must be of use: {one_line(error)}")
                raise self.exchange.failure([bad], "bad") from None
        return {} if query.keep else tree.concatenate(values)

    def personal(self, method: Method, broadcast: Broadcast, *, fitted: bool = False) -> tuple[Tensor, float]:
        """Pooled (confusion matrix, mean cross-entropy) of the clients' own models, each tested at its node."""
        if not self.link.measuring:
            return torch.zeros(self.task.classes, self.task.classes, dtype=torch.int64), 0.0
        return self.measuring.pooled("personal", _common(broadcast), broadcast.round, fitted=fitted)

    def own_models(self, method: Method, broadcast: Broadcast) -> Iterator[tuple[int, Params]]:
        """None comes here: each node keeps that of its client, for its operator (``fedskew flower own``)."""
        shared, facts = _common(broadcast, self.stays), {"kind": "own"}
        clients = [k for k, hello in sorted(self.link.clients.items()) if hello.facts["rows"]]
        requests = [self.exchange.question(k, facts, shared, {}) for k in clients]
        for answer in self.exchange.answers(requests, "query", broadcast.round):
            if answer.envelope is None:
                LOG.warning("fedskew: client %d: its node keeps no own model: %s", answer.client, answer.wrong)
        return iter(())

    def shared(self, params: Params, buffers: Params, number: int) -> tuple[Tensor, float]:
        """As `personal`, of the global model after a round."""
        if not self.link.measuring:
            return torch.zeros(self.task.classes, self.task.classes, dtype=torch.int64), 0.0
        return self.at_nodes(params, buffers, number)

    def tested(
        self, method: Method, broadcast: Broadcast, *, fitted: bool = False, probabilities: bool = False
    ) -> Iterator[Tested]:
        """What the nodes that permit metrics tell of their own test rows: matrices and losses, no probabilities."""
        number = broadcast.round - 1
        if method.personal:
            self.personal(method, broadcast, fitted=fitted)
        elif self.link.measuring and self.measuring.number != number:
            self.at_nodes(broadcast.params, broadcast.buffers, number)
        yield from self.measuring.each

    def at_nodes(self, params: Params, buffers: Params, number: int) -> tuple[Tensor, float]:
        """Pooled (confusion matrix, mean cross-entropy) of one model on the nodes' own test rows."""
        return self.measuring.pooled("evaluate", _common(Broadcast(number, params, buffers, {}, {})), number)

    def fits(self, params: Params, buffers: Params) -> dict[str, Fit]:
        """A model's fits by objective; none where a node with training rows does not allow it."""
        given = Broadcast(self.exchange.number, params, buffers, {}, {})
        return {} if self.task.classes > LIMIT else self.measuring.fits(_common(given))


def _sent(given: Shared | Broadcast, stays: frozenset[str]) -> dict[str, Params]:
    """The parameters and buffers of a message; nodes have the others."""
    return {n: travelling(getattr(given, n), stays) for n in ("params", "buffers")}


def _common(broadcast: Broadcast, stays: frozenset[str] = frozenset()) -> Packed:
    """A broadcast outside of training."""
    number = torch.tensor(broadcast.round)
    common = {**_sent(broadcast, stays), "common": broadcast.common, "round": number}
    return pack({"shared": common})


def _whole(found: Tree, model: Params) -> Params:
    """Leaves [1, ...] of the whole model; what stays is as it was."""
    sent = found or {}
    return {name: sent.get(name, leaf.unsqueeze(0)) for name, leaf in model.items()}


def _fault(place: ClientJob, told: Mapping[str, Any]) -> Fault | None:
    """What a node found not finite in its local run. Raises ConfigError where it tells no such thing."""
    if told.get("fault") is None:
        return None
    found, steps = table(told, "fault"), max(len(place.plan.batches), 1)
    tensor, step = short(found, "tensor"), count(found, "step", 1, steps)
    expect(found.get("value") in ENDLESS, "the value of a fault", "be not finite", found.get("value"))
    return Fault(place.plan.client, int(place.job.shared.round), step, steps, tensor, float(found["value"]))
