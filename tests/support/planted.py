"""Faults that a deployment could have, planted one at a time, of which the simulation alone can tell.

What other tests find, such as a message that is answered twice or a file that is not synced, is not planted here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fedskew import tree
from fedskew.flower import exchange, link, memory
from fedskew.flower.exchange import Receipts
from fedskew.flower.memory import NodeMemory

__all__ = ["PLANTED"]

Plant = Callable[[pytest.MonkeyPatch], None]
PLANTED: dict[str, Plant] = {}


def planted(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Let a function stand in for one of fedskew's, which it is given before the arguments."""

    def add(fault: Callable[..., Any]) -> None:
        plain = getattr(owner, name)

        def faulty(*args: Any, **named: Any) -> Any:
            return fault(plain, *args, **named)

        PLANTED[fault.__name__.replace("_", "-")] = lambda patch: patch.setattr(owner, name, faulty)

    return add


@planted(link._Batch, "_heard")
def counted_twice(plain: Any, self: Any, sent: Any, message: Any) -> None:
    """The update of an answer that is lost and asked for again counts twice."""
    plain(self, sent, message)
    answer = self.done.get(sent.at)
    if self.tries[sent.at] > 1 and hasattr(answer, "trees") and "sent" in answer.trees:
        update = answer.trees["sent"]
        update["params"] = tree.map_tree(lambda leaf: 2 * leaf, update["params"])


@planted(link._Batch, "_heard")
def order_of_arrival(plain: Any, self: Any, sent: Any, message: Any) -> None:
    """Answers are added in the order in which they come."""
    taken = {*self.done, sent.at}
    plain(self, sent, message)
    if sent.at in self.done and self.requests[sent.at].facts["kind"] == "train":
        free = min({*range(len(self.requests))} - taken | {sent.at})
        self.done[free] = self.done.pop(sent.at)


@planted(link._Batch, "send")
def refused_is_sent(plain: Any, self: Any, there: Any) -> None:
    """A message that Flower did not take counts as sent."""
    grid = self.link.grid

    class Taking:
        def push_messages(self, messages: Any) -> Any:
            return [name or f"none {id(name)}" for name in grid.push_messages(messages)]

    self.link.grid = Taking()
    try:
        plain(self, there)
    finally:
        self.link.grid = grid
    for name in [name for name in self.in_flight if name.startswith("none")]:
        self.in_flight[name] = self.in_flight[name]._replace(since=float("inf"))


@planted(exchange, "_key")
def answered_before(plain: Any, request: Any) -> str:
    """What was answered in another round is taken from the server's own memory."""
    return str(request.facts["kind"])


@planted(link, "one_line")
def forged_line(plain: Any, text: Any) -> str:
    """A line of the log is written as it came."""
    return str(text)


@planted(Receipts, "begin")
def abandoned_try(plain: Any, self: Receipts, number: int) -> None:
    """What an abandoned try of a round has left counts in the next."""


def _written_later(patch: pytest.MonkeyPatch) -> None:
    """A node acknowledges a memory that it writes later."""
    plain, load, waiting = NodeMemory.save, NodeMemory.load, dict[int, Any]()

    def flush(self: NodeMemory) -> None:
        if (held := waiting.pop(id(self), None)) is not None:
            plain(self, held)

    def save(self: NodeMemory, held: Any) -> str:
        waiting[id(self)] = held
        return "" if self.empty else memory.receipt_of({n: memory.tree.map_tree(memory.copied, held[n]) for n in held})

    patch.setattr(NodeMemory, "save", save)
    patch.setattr(NodeMemory, "load", lambda self, receipt: (flush(self), load(self, receipt))[1])


PLANTED["written-later"] = _written_later
