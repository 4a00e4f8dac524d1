"""What the server of a deployment asks its nodes within a round, and what it does about answers of no use.

Of a client's memory it keeps a receipt, and what it has yet to send. What nodes measure is pooled, and held against
what they have told before. Biases and a temperature of a served model are fitted on sums that nodes give of their rows,
where all of them allow it: a node gets the model once, keeps the logits of its rows, and answers each further point.
"""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedskew import deployment as lib
from fedskew import tree
from fedskew.errors import ConfigError, TrainingError, one_line
from fedskew.flower.link import AnswerFault, Link, Request
from fedskew.flower.memory import NONE, copied
from fedskew.flower.node import MOST_FITTED
from fedskew.flower.wire import Envelope, Facts, Layout, Packed, expect, pack, real, receipt
from fedskew.tree import Tree

LOG = logging.getLogger("flwr")
T = TypeVar("T")

# What the server keeps of the clients' memory


RECEIPT = "@receipt"  # beside the names of components: no component has it


class Receipts(lib.ClientMemory):
    """Client memory as the server of a deployment knows it: a receipt for each client, and what it has yet to send."""

    def __init__(self) -> None:
        super().__init__(of_receipt(NONE))
        self.saved: list[dict[int, str]] = [{}, {}]  # receipts of the last two checkpoints

    def dump(self) -> Tree:
        """As `ClientMemory`; the receipts that are written here must stay at the nodes."""
        self.saved = [self.saved[1], {k: receipt_in(memory) for k, memory in self.kept.items()}]
        return super().dump()

    def load(self, dumped: Tree) -> None:
        """The inverse of `dump`."""
        self.kept.update({int(client): {**self.template, **memory} for client, memory in dumped.items()})
        self.pending, self.saved = {}, [{k: receipt_in(memory) for k, memory in self.kept.items()}] * 2

    def put(self, client: int, memory: Mapping[str, Tree]) -> None:
        """A new receipt replaces all; what a component writes is kept beside it until the node has it."""
        merged = memory if RECEIPT in memory else {**self.get(client), **memory}
        self.pending[client] = {name: tree.map_tree(copied, value) for name, value in merged.items()}


def receipt_in(memory: Mapping[str, Tree]) -> str:
    """The receipt among what the server keeps of a client."""
    return bytes(memory[RECEIPT]["digest"].tolist()).hex()


def written_to(memory: Mapping[str, Tree]) -> dict[str, Tree]:
    """What the server has yet to send of what it keeps of a client."""
    return {name: value for name, value in memory.items() if name != RECEIPT}


def of_receipt(receipt: str) -> dict[str, Tree]:
    """The inverse of `receipt_in`."""
    return {RECEIPT: {"digest": torch.tensor(list(bytes.fromhex(receipt)), dtype=torch.uint8)}}


# Requests and answers


# what reading an answer that somebody else made up may raise
MALFORMED = (ConfigError, KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, OverflowError)


@dataclass
class Exchange:
    """Asks clients, each in the moment of its memory."""

    link: Link
    receipts: Receipts
    number: int = 0  # of the round
    answered: dict[tuple[int, str], Envelope] = field(default_factory=dict)  # in it: nobody is asked the same twice
    lost: set[int] = field(default_factory=set)  # in it: clients of no use, which have nothing to add to a secure sum

    def request(
        self, k: int, facts: Facts, shared: Packed, expected: Layout | None, client_inputs: Facts | None = None
    ) -> Request:
        """A message for one client; it says which memory belongs to this moment, and what an answer must hold.

        ``client_inputs`` are for this client alone; None: what the server has yet to write to the client's memory.
        """
        kept = receipt_in(self.receipts.get(k))
        client_inputs = {"written": written_to(self.receipts.get(k))} if client_inputs is None else client_inputs
        last = receipt_in(self.receipts.kept.get(k, self.receipts.template))  # a run that ends writes it
        held = [*(saved.get(k, NONE) for saved in self.receipts.saved), last]
        parts = {"shared": shared, "own": pack({"own": dict(client_inputs)})}
        return Request(k, {**facts, "receipt": kept, "held": held}, parts, expected)

    def asked(self, requests: list[Request], number: int, reads: Iterable[Callable[[Envelope], T]]) -> Iterator[T]:
        """As `answers`. Raises TrainingError, once all have come, where some are missing or of no use."""
        wrong: list[AnswerFault] = []
        for _, content in self.answers(requests, number, reads):
            if isinstance(content, AnswerFault):
                wrong.append(content)
            elif not wrong:
                yield content
        if wrong:
            self.lost |= {bad.client for bad in wrong}
            raise self.failure(wrong)

    def answers(
        self, requests: list[Request], number: int, reads: Iterable[Callable[[Envelope], T]]
    ) -> Iterator[tuple[int, T | AnswerFault]]:
        """(client, what one of ``reads`` makes of its answer, or what is wrong with it), in order.

        What was answered in this round before is not asked again, and a client that stands in a cohort twice is asked
        once.
        """
        if self.number != number:
            self.number, self.answered, self.lost = number, {}, set()
        keys = [(r.client, _key(r)) for r in requests]
        heard: dict[tuple[int, str], Envelope | AnswerFault] = {**self.answered}
        asked = {key: request for key, request in zip(keys, requests, strict=True) if key not in heard}
        fresh = self.link.ask(list(asked.values()))
        for key, read in zip(keys, reads, strict=True):
            if key not in heard:
                heard[key] = answer = next(fresh)
                self.answered |= {} if isinstance(answer, AnswerFault) else {key: answer}
            answer = heard[key]
            try:
                content = answer if isinstance(answer, AnswerFault) else read(answer)
            except MALFORMED as error:  # it counts nowhere, and the record names its author
                why = one_line(error) or type(error).__name__
                content = AnswerFault(key[0], f"its answer must fit what was asked: {why}")
            yield key[0], content

    def usable(
        self, requests: list[Request], number: int, reads: Iterable[Callable[[Envelope], T]],
        left_out: list[AnswerFault], what: str,
    ) -> Iterator[tuple[int, T]]:  # fmt: skip
        """As `answers`, of those that are of use; what is wrong with others is added to ``left_out``.

        Raises TrainingError for them under stop. ``what`` goes on without them, in words.
        """
        for client, content in self.answers(requests, number, reads):
            if not isinstance(content, AnswerFault):
                yield client, content
                continue
            failure = self.failure([content])
            if not failure.drop:
                raise failure
            LOG.warning("fedskew: %s goes on without it: %s", what, failure)
            left_out.append(content)

    def failure(self, wrong: Sequence[AnswerFault]) -> TrainingError:
        """The error for clients whose answers are of no use: they are dropped from the round, or the run ends."""
        option = "missing" if all(bad.missing for bad in wrong) else "bad"
        drops, first = getattr(self.link.options, option) == "drop", wrong[0]
        who = self.link.clients[first.client].name
        hint = "" if drops else f'; flower.{option} = "drop" leaves such a client out of the round'
        return TrainingError(f"{who}: {first.tensor}{hint}", tuple(wrong) if drops else (), drop=drops)


def _key(request: Request) -> str:
    """Digest of what is asked; how the node's folder is kept does not belong to it."""
    facts = {name: value for name, value in request.facts.items() if name != "held"}
    return lib.digests.of_parts(repr(sorted(facts.items())), *(x for part in request.parts.values() for x in part))


# What is measured at the nodes


LARGEST = 1e100  # mean loss of a node: its sum over rows and nodes is finite
ROUNDING = 1e-6  # of the size of what is compared
INDEFINITE = 1e-9  # of the diagonal


@dataclass
class NodeMetrics:
    """Asks nodes about a model, outside of training."""

    exchange: Exchange
    counts: Tensor  # training rows of each client and class, as the nodes have declared them
    unmeasured: list[AnswerFault] = field(default_factory=list)  # answers of no use, until somebody clears them
    number: int = -1  # of the round, when they were asked last
    each: list[lib.Tested] = field(default_factory=list)  # what they told then
    _tested: dict[int, Tensor] = field(default_factory=dict)  # client: its test rows of each class
    _refusal: str = ""  # why there is no fit, which the log says once

    def pooled(self, shared: Packed, number: int, **facts: Any) -> tuple[Tensor, float]:
        """Pooled (confusion matrix, mean cross-entropy) of the nodes that have training and test rows, and permit it.

        Raises TrainingError where none of them tells a metric of use.
        """
        link, classes = self.exchange.link, self.counts.shape[1]
        expected: Layout = {("matrix",): (torch.int64, (classes, classes))}
        requests = [self.exchange.request(k, facts, shared, expected) for k in link.measuring]
        reads, what = [partial(self._measured, k) for k in link.measuring], f"the test of the model of round {number}"
        measured = self.exchange.usable(requests, number, reads, self.unmeasured, what)
        at = {k: np.arange(link.clients[k].facts["test_rows"]) for k in link.measuring}
        self.number, self.each = number, [lib.Tested(k, *metrics, at[k], None) for k, metrics in measured]
        if not self.each:
            got = f"none of {len(requests)} in round {number}"
            raise TrainingError(f"at least one node must send a usable metric; got {got}")
        return lib.pooled(self.each, classes)

    def _measured(self, client: int, answer: Envelope) -> tuple[Tensor, float]:
        """(confusion matrix, mean loss) that a node tells of its test rows. Raises one of MALFORMED."""
        facts, matrix = answer.facts, answer.trees["matrix"]
        rows = self.exchange.link.clients[client].facts["test_rows"]
        cells = matrix.flatten().tolist()  # whole numbers without an end: a sum of int64 may come round again
        holds = min(cells) >= 0 and max(cells) <= rows == sum(cells)
        expect(holds, "its confusion matrix", f"count its {rows} test rows", cells)
        loss, tests = real(facts, "loss"), matrix.sum(1)
        expect(0 <= loss <= LARGEST, "its mean loss", f"be a number from 0 to {LARGEST:g}", loss)
        same = torch.equal(self._tested.setdefault(client, tests), tests)
        expect(same, "its confusion matrix", "count the test rows of each class that it had before", tests.tolist())
        return matrix, loss

    # fits of a served model

    def fits(self, model: Packed) -> dict[str, lib.Fit]:
        """The fits of a model by objective; none where a node does not allow it.

        A node whose answer is of no use is left out, where its option says drop, and the fit begins again without it.
        Under stop it raises TrainingError.
        """
        counts = self.counts.clone()
        asked, clients = counts.sum(1).nonzero().flatten().tolist(), self.exchange.link.clients
        if refusing := [k for k in asked if not {"fit", "histogram"} <= set(clients[k].facts["permits"])]:
            if (why := f"{clients[refusing[0]].name} does not allow fit") != self._refusal:
                LOG.info("fedskew: the model is not fitted, which takes all %d nodes: %s", len(asked), why)
            self._refusal = why
            return {}
        left = iter(range(MOST_FITTED))
        while True:
            gone = len(self.unmeasured)
            try:
                if not counts.any():
                    raise _NoFit("no node gave sums of use")
                return lib.fits_by(partial(self._sums, model, counts, left, {}), counts)
            except _NodeLeftOut:
                counts[[bad.client for bad in self.unmeasured[gone:]]] = 0
            except (_NoFit, torch.linalg.LinAlgError) as error:  # type: ignore[attr-defined]
                LOG.warning("fedskew: the model is not fitted: %s", one_line(error))
                return {}

    def _sums(
        self, model: Packed, counts: Tensor, left: Iterator[int], kept: dict[int, str], point: Tensor, weights: Tensor
    ) -> lib.Sums:
        """One exchange with all clients of a fit: a point and weights of the classes go out, sums come back, added.

        Args:
            model: what is fitted; a node that keeps its logits does not get it again.
            counts: rows of each class, [K, C]; 0 of clients that do not take part.
            left: exchanges that are left for the model, whoever takes part.
            kept: client: receipt of the logits that its node keeps.
            point: where the sums are asked for.
            weights: of each class.
        """
        if not bool(point.isfinite().all()):
            raise _NoFit("the sums lead to no finite point")
        if next(left, None) is None:
            raise _NoFit(f"{MOST_FITTED} exchanges have not led to its end")
        size, left_out, requests = len(point), len(self.unmeasured), []
        shapes = {"loss": (), "gradient": (size,), "triangle": (size * (size + 1) // 2,)}
        expected: Layout = {("sums", name): (torch.float64, shape) for name, shape in shapes.items()}
        asked = counts.sum(1).nonzero().flatten().tolist()
        for k in asked:
            facts, shared = {"kind": "fit", "logits": kept.get(k, NONE)}, pack({}) if k in kept else model
            requests.append(self.exchange.request(k, facts, shared, expected, {"point": point, "weights": weights}))

        def read(client: int, answer: Envelope) -> tuple[str, lib.Sums]:
            logits, sent = receipt(answer.facts.get("logits")), answer.trees["sums"]
            expect(bool(logits), "it", "say which logits it keeps", logits)
            sums = sent["loss"], sent["gradient"], lib.whole_of(sent["triangle"], size)
            check_sums(sums, point, weights, counts[client])
            return logits, sums

        total = torch.zeros((), dtype=torch.float64), torch.zeros_like(point), torch.zeros(size, size).double()
        reads, what = [partial(read, k) for k in asked], "the fit of the model"
        answers = self.exchange.usable(requests, self.exchange.number, reads, self.unmeasured, what)
        for client, (logits, sums) in answers:
            kept[client] = logits
            total = total[0] + sums[0], total[1] + sums[1], total[2] + sums[2]
        if len(self.unmeasured) > left_out:
            raise _NodeLeftOut
        return total


class _NodeLeftOut(Exception):
    """A node of the fit was left out: the others' sums are of another sample from here on."""


class _NoFit(Exception):
    """There is no fit, in words."""


def check_sums(sums: lib.Sums, point: Tensor, weights: Tensor, counts: Tensor) -> None:
    """Hold a node's sums against the rows that it has declared: they are those of some logits of so many rows.

    With x = (b, a) the point, n_c rows of class c, W = sum w_c n_c, g and H the gradient and the Hessian:

        g_c + w_c n_c = sum w p_c >= 0, and these sum to W
        H of the biases is a Laplacian: its rows sum to 0, and beside the diagonal it is at most 0;  H is semidefinite
        L - x . g = sum w (entropy of p), from 0 to W log C
        x . H x = sum w (variance of log p) <= W (log^2(C - 1) / 4 + 1)

    So a node can move the fit as its rows could, and no further.

    Args:
        sums: loss, gradient and Hessian of the node.
        point: x, at which it was asked.
        weights: w of each class.
        counts: n of each class.

    Raises:
        ConfigError: they cannot be; the message says why.

    References:
        Reeb and Wolf 2015, Tight Bound on Relative Entropy by Entropy Difference (IEEE Transactions on Information
        Theory 61(3)), for the variance of log p. https://arxiv.org/abs/1304.0036
    """
    loss, gradient, hessian = sums
    whole, weighted, classes = float((weights * counts).sum()), weights * counts, len(weights)
    near = ROUNDING * whole
    expect(all(bool(part.isfinite().all()) for part in sums), "its sums", "be finite", "a value that is not")
    expect(0 <= float(loss) <= LARGEST * whole, "its loss", f"be from 0 to {LARGEST:g} a row", float(loss))
    chances = gradient[:-1] + weighted  # sum w p of each class
    holds = float(chances.min()) >= -near and abs(float(chances.sum()) - whole) <= near
    expect(holds, "its gradient", "be of the rows of each class that it has declared", float(chances.sum()))
    block, temperature = hessian[:-1, :-1], float(hessian[-1, -1])
    beside = block - torch.diag(block.diagonal())
    holds = float(beside.max()) <= near and float(block.sum(1).abs().max()) <= near * classes and temperature >= 0
    holds &= bool((block.diagonal() <= chances + near).all())
    expect(holds, "its Hessian", "be of the rows that it has declared", temperature)
    scale = torch.full_like(point, whole**-0.5)
    scale[-1] = max(temperature, near) ** -0.5
    least = float(torch.linalg.eigvalsh(scale[:, None] * hessian * scale).min())
    expect(least >= -INDEFINITE * classes, "its Hessian", "be positive semidefinite", least)
    parts = point * gradient
    entropy, error = float(loss - parts.sum()), ROUNDING * float(whole + loss + parts.abs().sum())
    holds = -error <= entropy <= whole * math.log(classes) + error
    expect(holds, "its loss and its gradient", "be of the same rows", entropy)
    bent = point[:, None] * hessian * point
    most = whole * (math.log(max(classes - 1, 1)) ** 2 / 4 + 1) + ROUNDING * float(whole + bent.abs().sum())
    expect(float(bent.sum()) <= most, "its curvature", "be that of probabilities", float(bent.sum()))
