"""Secure sums over messages, at the server.

A node keeps what it has trained or answered, and adds it to a sum in four exchanges, `fedskew.privacy.PHASES`. The
server goes on without a node that does not answer, or answers with a mistake, as its options say. A sum that was
begun by a server that has gone is begun anew, with new keys.
"""

import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any

from fedskew import deployment as lib
from fedskew.errors import ConfigError, TrainingError
from fedskew.flower.exchange import Exchange
from fedskew.flower.link import AnswerFault
from fedskew.flower.wire import Envelope, leaves_of, message_of, pack
from fedskew.privacy import PHASES, Message, Server, size
from fedskew.tree import Tree


class NodeAdder(lib.sums.Adder):
    """Adds up what nodes keep: an exchange for each phase."""

    def __init__(self, share: float, exchange: Exchange) -> None:
        """``exchange`` is that of the run."""
        super().__init__(share)
        self.exchange = exchange

    def added(
        self, addend: lib.sums.Addend, given: Tree, clients: Sequence[int], least: int, *place: int | str
    ) -> lib.sums.Sum:
        """As `Adder.added`. Of an addend the shapes are taken; the nodes have the values."""
        shapes = [tuple(leaf.shape) for leaf in lib.sums.listed(addend(clients[0]))]
        server = Server(clients, least, lib.sums.encoding_of(len(clients)), shapes)
        facts = {"kind": "sum", "sum": uuid.uuid4().hex, "place": list(place), "least": least, "of": len(clients)}
        lost = self.exchange.lost if place[0] == self.exchange.number else ()
        number, up, down, inbox = int(place[0]), 0, 0, {k: Message() for k in clients if k not in lost}
        total: Any = None
        for phase in PHASES:
            shared, asked = pack({"shared": given} if phase == "masked" else {}), {**facts, "phase": phase}
            requests = [
                self.exchange.request(k, asked, shared, None, {"message": leaves_of(message)})
                for k, message in inbox.items()
            ]
            left_out: list[AnswerFault] = []
            what = f"the sum {' '.join(map(str, place[1:]))!r} of round {number}"
            reads = [partial(self._read, server, k) for k in inbox]
            replies = dict(self.exchange.usable(requests, number, reads, left_out, what))
            up, down = up + sum(map(size, replies.values())), down + sum(map(size, inbox.values()))
            try:
                total = inbox = getattr(server, phase)(replies)
            except TrainingError as error:
                why = f": {left_out[0].words}" if left_out else ""
                raise TrainingError(f"{error}, in round {number}{why}") from error
        return total, tuple(server.received["masked"]), (up, down)

    @staticmethod
    def _read(server: Server, client: int, answer: Envelope) -> Message:
        """A node's message, which has the form that the phase asks for. Raises ConfigError."""
        message = message_of(answer.trees)
        try:
            server.check(client, message)
        except TrainingError as error:
            raise ConfigError(str(error)) from None
        return message
