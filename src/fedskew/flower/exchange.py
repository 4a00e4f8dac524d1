"""What the server of a deployment asks its nodes within a round, and what it does about answers of no use.

Of a client's memory it keeps a receipt, and what it has yet to send. What nodes measure is pooled, and held against
what they have told before.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedskew import tree
from fedskew.engines.clients import ClientMemory
from fedskew.engines.evaluation import Tested, pooled
from fedskew.errors import ConfigError, TrainingError, one_line
from fedskew.flower.facts import count, real
from fedskew.flower.link import Answer, Link, Request
from fedskew.flower.memory import NONE
from fedskew.flower.options import ServerOptions
from fedskew.flower.standin import Hello
from fedskew.flower.wire import Envelope, Layout, Packed, pack
from fedskew.records import digests
from fedskew.tree import Tree

# What the server keeps of the clients' memory


RECEIPT = "@receipt"  # beside the names of components: no component has it


class Receipts(ClientMemory):
    """Client memory as the server of a deployment knows it: a receipt for each client, and what it has yet to send."""

    def __init__(self) -> None:
        super().__init__({})
        self.saved: list[dict[int, str]] = [{}, {}]  # receipts of the last two checkpoints

    def dump(self) -> Tree:
        """As `ClientMemory`; the receipts that are written here must stay at the nodes."""
        self.saved = [self.saved[1], self._receipts()]
        return super().dump()

    def load(self, dumped: Tree) -> None:
        """The inverse of `dump`."""
        self.kept.update({int(client): memory for client, memory in dumped.items()})
        self.pending, self.saved = {}, [self._receipts()] * 2

    def _receipts(self) -> dict[int, str]:
        return {k: receipt_in(memory) for k, memory in self.kept.items()}

    @property
    def empty(self) -> bool:
        """Never: what a client keeps is at its node."""
        return False

    def get(self, client: int) -> dict[str, Tree]:
        """The receipt, and what components wrote since then."""
        return self.pending.get(client) or self.kept.get(client) or {}

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


def written_to(memory: Mapping[str, Tree]) -> dict[str, Tree]:
    """What the server has yet to send of what it keeps of a client."""
    return {name: value for name, value in memory.items() if name != RECEIPT}


def of_receipt(receipt: str) -> dict[str, Tree]:
    """The inverse of `receipt_in`."""
    return {RECEIPT: {"digest": torch.tensor(list(bytes.fromhex(receipt)), dtype=torch.uint8)}}


# Requests and answers


# what reading an answer that somebody else made up may raise
MALFORMED = (ConfigError, KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, OverflowError)


class Bad(NamedTuple):
    """A client whose answer did not come, or is of no use, in place of `fedskew.engines.outcomes.Fault`."""

    client: int
    tensor: str  # what is wrong, in words; the name that a round's record gives to it
    round: int = 0
    step: int = 0

    @property
    def words(self) -> str:
        """The client and what is wrong, in a sentence."""
        return f"client {self.client}: {self.tensor}"

    def to_json(self) -> dict[str, int | str]:
        """What a round's record says of it."""
        return {"client": self.client, "step": self.step, "tensor": self.tensor}


@dataclass
class Exchange:
    """Asks clients, each in the moment of its memory."""

    link: Link
    options: ServerOptions
    receipts: Receipts
    accept: Callable[[Hello], None]
    number: int = 0  # of the round
    answered: dict[tuple[int, str], Envelope] = field(default_factory=dict)  # in it: nobody is asked the same twice

    def request(
        self,
        k: int,
        facts: Mapping[str, Any],
        shared: Packed,
        own: Mapping[str, Tree],
        expected: Layout | None = None,
    ) -> Request:
        """A message for one client; it says which memory belongs to this moment, and what an answer must hold."""
        kept = receipt_in(self.receipts.get(k))
        held = [saved.get(k, NONE) for saved in self.receipts.saved]
        held.append(receipt_in(self.receipts.kept.get(k, {})))  # of the last whole round: a run that ends writes it
        parts = {"shared": shared, "own": pack({"own": dict(own)})}
        return Request(k, {**facts, "receipt": kept, "held": held}, parts, expected)

    def question(self, k: int, facts: Mapping[str, Any], shared: Packed, expected: Layout | None = None) -> Request:
        """A message outside of training, with what the server has yet to write to the client's memory."""
        return self.request(k, facts, shared, {"written": written_to(self.receipts.get(k))}, expected)

    def asked(self, requests: list[Request], kind: str, number: int) -> Iterator[Envelope]:
        """Answers in order. Raises TrainingError, once all have come, where some are missing or of no use."""
        wrong: list[Answer] = []
        for answer in self.answers(requests, kind, number):
            if answer.envelope is None:
                wrong.append(answer)
            elif not wrong:
                yield answer.envelope
        if wrong:
            bad = [Bad(a.client, a.wrong, number) for a in wrong]
            raise self.failure(bad, "missing" if all(a.missing for a in wrong) else "bad")

    def answers(self, requests: list[Request], kind: str, number: int) -> Iterator[Answer]:
        """Answers in order, good or bad. What was answered in this round before is not asked again."""
        if self.number != number:
            self.number, self.answered = number, {}
        known = self.answered
        keys = [(r.client, _key(r)) for r in requests]
        fresh = self.link.ask([r for r, key in zip(requests, keys, strict=True) if key not in known], kind, self.accept)
        for client, key in keys:
            if (client, key) in known:
                yield Answer(client, known[client, key])
                continue
            answer = next(fresh)
            if answer.envelope is not None:
                known[client, key] = answer.envelope
            yield answer

    def failure(self, wrong: Sequence[Bad], option: str) -> TrainingError:
        """The error for clients whose answers are of no use: they are dropped from the round, or the run ends.

        ``option`` is "missing" or "bad", the option that says which.
        """
        drops, first = getattr(self.options, option) == "drop", wrong[0]
        hello = self.link.clients.get(first.client)
        who = hello.name if hello else f"the node of client {first.client}"
        hint = "" if drops else f'; flower.{option} = "drop" leaves such a client out of the round'
        return TrainingError(f"{who}: {first.tensor}{hint}", tuple(wrong) if drops else (), drop=drops)


def _key(request: Request) -> str:
    """Digest of what is asked; how the node's folder is kept does not belong to it."""
    facts = {name: value for name, value in request.facts.items() if name != "held"}
    return digests.of_parts(repr(sorted(facts.items())), *(x for part in request.parts.values() for x in part))


# What is measured at the nodes


LOG = logging.getLogger("flwr")
T = TypeVar("T")
LARGEST = 1e100  # mean loss of a node: its sum over rows and nodes is finite


@dataclass
class Measuring:
    """Asks nodes about a model, outside of training."""

    exchange: Exchange
    classes: int
    unmeasured: list[Bad] = field(default_factory=list)  # whose answers were of no use, until somebody clears them
    number: int = -1  # of the round, when they were asked last
    each: list[Tested] = field(default_factory=list)  # what they told then
    _tested: dict[int, Tensor] = field(default_factory=dict)  # client: its test rows of each class

    def pooled(self, kind: str, shared: Packed, number: int, **facts: Any) -> tuple[Tensor, float]:
        """Pooled (confusion matrix, mean cross-entropy) of the nodes that have training and test rows, and permit it.

        Raises TrainingError where none of them tells a metric of use.
        """
        link, classes, requests = self.exchange.link, self.classes, []
        expected: Layout = {("matrix",): (torch.int64, (classes, classes))}
        for k in link.measuring:
            requests.append(self.exchange.question(k, {"kind": kind, **facts}, shared, expected))
        found = self.of_use(requests, "evaluate", number, self._measured)
        sizes = {k: link.clients[k].facts["test_rows"] for k in link.measuring}
        self.number, self.each = number, [Tested(k, *told, np.arange(sizes[k]), None) for k, told in found]
        if not self.each:
            raise TrainingError(
                f"at least one node must send a usable metric; got none of {len(requests)} in round {number}"
            )
        return pooled(self.each, classes)

    def of_use(
        self, requests: list[Request], kind: str, number: int, read: Callable[[int, Envelope], T]
    ) -> Iterator[tuple[int, T]]:
        """(client, what ``read`` makes of its answer), in order. Answers for which it raises are left out."""
        for answer in self.exchange.answers(requests, kind, number):
            try:
                if answer.envelope is None:
                    raise ValueError(answer.wrong)
                found = read(answer.client, answer.envelope)
            except MALFORMED as error:
                self._leave_out(answer, one_line(error) or type(error).__name__, number)
                continue
            yield answer.client, found

    def _leave_out(self, answer: Answer, wrong: str, number: int) -> None:
        """An answer of no use counts nowhere, and the record names its author. Raises TrainingError under stop."""
        bad = Bad(answer.client, wrong, number)
        failure = self.exchange.failure([bad], "missing" if answer.missing else "bad")
        if not failure.drop:
            raise failure from None
        LOG.warning("fedskew: the model of round %d is measured without it: %s", number, failure)
        self.unmeasured.append(bad)

    def _measured(self, client: int, answer: Envelope) -> tuple[Tensor, float]:
        """(confusion matrix, mean loss) that a node tells of its test rows. Raises one of MALFORMED."""
        told, matrix = answer.facts, answer.trees["matrix"]
        rows = self.exchange.link.clients[client].facts["test_rows"]
        if count(told, "rows") != rows:
            raise ValueError(f"its confusion matrix must be of its {rows} test rows; it counts {told['rows']}")
        cells = matrix.flatten().tolist()  # whole numbers without an end: a sum of int64 may come round again
        if min(cells) < 0 or max(cells) > rows or sum(cells) != rows:
            raise ValueError(f"its confusion matrix must count its {rows} test rows")
        loss = real(told, "loss")
        if not 0 <= loss <= LARGEST:
            raise ValueError(f"its mean loss must be a number from 0 to {LARGEST:g}; got {loss:g}")
        if not torch.equal(self._tested.setdefault(client, matrix.sum(1)), matrix.sum(1)):
            raise ValueError("its confusion matrix must count the test rows of each class that it had before")
        return matrix, loss
