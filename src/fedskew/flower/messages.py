"""One message to a node, and one answer: what is counted, and what is looked at before anything else."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedskew.errors import FedskewError, one_line
from fedskew.flower.facts import quoted
from fedskew.flower.wire import Packed, Sealed, opened, packed_bytes, record

__all__ = ["Post", "Sizes"]

LOG = logging.getLogger("flwr")


@dataclass
class Sizes:
    """Bytes of the messages so far, without Flower's own."""

    down: int = 0
    up: int = 0
    messages: int = 0


@dataclass
class Post:
    """Messages over Flower's grid, each with the session and a number of its own."""

    grid: Any
    contract: Mapping[str, Any]
    session: str = field(default_factory=lambda: uuid.uuid4().hex)
    sizes: Sizes = field(default_factory=Sizes)
    turn: int = 0
    warned: set[tuple[int, str]] = field(default_factory=set)  # (node, code of an error of Flower's)

    def message(self, node: int, client: int, kind: str, facts: Mapping[str, Any], parts: Mapping[str, Packed]) -> Any:
        """A message of Flower's, counted."""
        from flwr.app import Message

        self.turn += 1
        told = {**facts, "session": self.session, "turn": self.turn, "client": client, "contract": self.contract}
        self.sizes.down += packed_bytes(*parts.values())
        self.sizes.messages += 1
        return Message(record(told, **parts), dst_node_id=node, message_type=kind)

    def pulled(self, names: Sequence[str]) -> list[tuple[str, Any]]:
        """(name of the message that it answers, answer) of those that have come."""
        if not names:
            return []
        return [(m.metadata.reply_to_message_id, m) for m in self.grid.pull_messages(names)]

    def opened(self, message: Any, client: int, turn: int) -> tuple[Sealed | None, str]:
        """(the message, what is wrong with it); tensors are not looked at."""
        try:
            sealed = opened(message.content)
        except FedskewError as error:
            return None, one_line(error)
        told = sealed.facts
        self.sizes.up += sealed.size
        if told.get("session") != self.session or told.get("turn") != turn:
            return None, "the answer is to another message: it is late, or was sent before"
        if client >= 0 and told.get("client") != client:
            return None, f"the answer is of client {quoted(told.get('client'))}"
        return sealed, ""

    def failed(self, who: str, node: int, message: Any) -> str:
        """What an error of Flower's says, which is logged once."""
        reason = f"Flower's error {quoted(message.error.code)}: {one_line(message.error.reason)}"
        known = (node, quoted(message.error.code))
        if known not in self.warned:
            self.warned.add(known)
            LOG.warning("fedskew: %s: %s", who, reason)
        return reason
