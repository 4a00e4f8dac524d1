"""What the server of a deployment asks its nodes within a round, and what it does about answers of no use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fedskew import digests
from fedskew.errors import ConfigError, TrainingError
from fedskew.flower.hello import Hello
from fedskew.flower.link import Answer, Link, Request
from fedskew.flower.memory import NONE
from fedskew.flower.options import ServerOptions
from fedskew.flower.receipts import Receipts, receipt_in
from fedskew.flower.wire import Envelope, Layout, Packed, pack
from fedskew.tree import Tree

__all__ = ["MALFORMED", "Bad", "Exchange"]

# what reading an answer that somebody else made up may raise
MALFORMED = (ConfigError, KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, OverflowError)


class Bad(NamedTuple):
    """A client whose answer did not come, or is of no use, in place of `fedskew.engines.finite.Fault`."""

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
        held = [saved.get(k, NONE) for saved in self.receipts.home.saved]
        parts = {"shared": shared, "own": pack({"own": dict(own)})}
        return Request(k, {**facts, "receipt": kept, "held": held}, parts, expected)

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
