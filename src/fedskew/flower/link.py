"""Messages to the nodes over Flower's grid: who is which client, who has answered, and who is missing."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fedskew.errors import ConfigError, FedskewError
from fedskew.flower.wire import Envelope, Packed, packed_bytes, read, record

__all__ = ["Answer", "Hello", "Link", "Request"]

LOG = logging.getLogger("flwr")
FIRST_S = 0.02  # pause after the first look for answers
TRIES = 3  # messages to a node that answers with an error of Flower's


class Hello(NamedTuple):
    """What a node told of itself."""

    node: int
    client: int
    facts: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The node in messages."""
        given = self.facts.get("name")
        return f"node {given!r} (client {self.client})" if given else f"the node of client {self.client}"


def _hello(node: int, told: Mapping[str, Any]) -> Hello:
    """A node's hello. Raises ConfigError where it is none."""
    client, permits = told.get("client"), told.get("permits")
    numbers = [client, told.get("rows"), told.get("test_rows")]
    whole = all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 53 for n in numbers)
    if not whole or not isinstance(permits, list) or not all(isinstance(p, str) for p in permits):
        raise ConfigError(f"node {node} must say who it is; got {str(dict(told))[:80]}")
    return Hello(node, int(str(client)), told)


class Request(NamedTuple):
    """What one client is asked."""

    client: int
    facts: Mapping[str, Any]
    parts: Mapping[str, Packed]


class Answer(NamedTuple):
    """What came back: an envelope, or what is wrong."""

    client: int
    envelope: Envelope | None
    wrong: str = ""  # in words
    missing: bool = False  # nothing came at all


@dataclass
class Sizes:
    """Bytes of the messages so far, without Flower's own."""

    down: int = 0
    up: int = 0
    messages: int = 0


@dataclass
class Link:
    """The nodes of one run.

    Args:
        grid: Flower's.
        contract: the server's side of the handshake.
        wait_s: seconds for an answer.
        poll_s: longest pause between two looks.
        forever: ask a node that is missing again, without an end.
    """

    grid: Any
    contract: Mapping[str, Any]
    wait_s: float
    poll_s: float
    forever: bool
    session: str = field(default_factory=lambda: uuid.uuid4().hex)
    clients: dict[int, Hello] = field(default_factory=dict)
    sizes: Sizes = field(default_factory=Sizes)
    _turn: int = 0
    _known: dict[int, str] = field(default_factory=dict)  # node: why it is not used, or ""

    @property
    def measuring(self) -> list[int]:
        """Clients whose nodes have test rows and permit metrics, in ascending order."""
        told = {k: hello.facts for k, hello in sorted(self.clients.items())}
        return [k for k, f in told.items() if f["rows"] and f["test_rows"] and "metrics" in f["permits"]]

    # who is there

    def meet(self, count: int, accept: Callable[[Hello], None]) -> None:
        """Wait until the nodes of clients 0..count-1 have said hello.

        Raises:
            ConfigError: a node does not agree with the server, or two nodes are one client; or nobody came in time.
        """
        said, end = -1, time.monotonic() + self.wait_s
        while len(self.clients) < count:
            self._greet(accept)
            if len(self.clients) >= count:
                return
            if len(self.clients) != said:
                said, end = len(self.clients), time.monotonic() + self.wait_s
                LOG.info("fedskew: %d of %d nodes are there", said, count)
            if time.monotonic() > end and not self.forever:
                lacking = [k for k in range(count) if k not in self.clients][:10]
                raise ConfigError(f"nodes of all {count} clients must be there; those of {lacking} have not come")
            time.sleep(min(self.poll_s, 0.5))

    def _greet(self, accept: Callable[[Hello], None]) -> None:
        """Say hello to nodes that are new. A node that comes again takes its old place."""
        nodes = list(self.grid.get_node_ids())
        fresh = [node for node in nodes if node not in self._known]
        if not fresh:
            return
        facts = {"kind": "hello", "contract": self.contract}
        asked = {node: self._message(node, -1, "query", facts, {}) for node in fresh}
        for node, (envelope, wrong) in self._gathered(asked, time.monotonic() + self.wait_s).items():
            if envelope is None:
                continue  # it is asked again
            told = envelope.facts
            if told.get("spare"):
                self._known[node] = "spare"
                continue
            if wrong or told.get("fatal"):
                raise ConfigError(
                    f"node {told.get('name') or node} must agree with the server: {wrong or told['differs']}"
                )
            hello = _hello(node, told)
            before = self.clients.get(hello.client)
            if before is not None and before.node in nodes:
                raise ConfigError(f"two nodes say that they are client {hello.client}; give each its own number")
            if told.get("differs"):
                LOG.warning("fedskew: %s: %s; last bits may differ", hello.name, told["differs"])
            accept(hello)
            self.clients[hello.client], self._known[node] = hello, ""

    # questions

    def ask(self, requests: Sequence[Request], kind: str, accept: Callable[[Hello], None]) -> Iterator[Answer]:
        """Answers in the order of the requests. Each node is asked once at a time; a missing one as the link says."""
        waiting = dict(enumerate(requests))
        done: dict[int, Answer] = {}
        flying: dict[str, tuple[int, int, float, int]] = {}  # message: place, turn, when, node
        tries: dict[int, int] = {}
        pause, given = FIRST_S, 0
        began = dict.fromkeys(waiting, time.monotonic())
        while given < len(requests):
            if given in done:
                yield done.pop(given)
                given += 1
                continue
            if waiting:
                self._greet(accept)
                self._send(waiting, flying, kind, tries, began)
            found = self._pulled(list(flying))
            for name, message in found:
                at, turn, _, node = flying.pop(name)
                self._heard(requests[at], at, turn, node, message, waiting, done, tries)
            if not found:
                time.sleep(pause)
            pause = FIRST_S if found else min(2 * pause, self.poll_s)
            self._overdue(requests, waiting, flying, done, began)

    def _send(
        self,
        waiting: dict[int, Request],
        flying: dict[str, tuple[int, int, float, int]],
        kind: str,
        tries: dict[int, int],
        began: dict[int, float],
    ) -> None:
        """Push what waits for a node that is there."""
        there = set(self.grid.get_node_ids())
        ready = [at for at, r in waiting.items() if r.client in self.clients and self.clients[r.client].node in there]
        if not ready:
            return
        messages, turns = [], []
        for at in ready:
            request, node = waiting[at], self.clients[waiting[at].client].node
            messages.append(self._message(node, request.client, kind, request.facts, request.parts))
            turns.append((at, self._turn, node))
        for (at, turn, node), name in zip(turns, self.grid.push_messages(messages), strict=True):
            if name is None:
                continue
            del waiting[at]
            tries[at] = tries.get(at, 0) + 1
            began[at] = time.monotonic()
            flying[name] = (at, turn, time.monotonic(), node)

    def _heard(
        self,
        request: Request,
        at: int,
        turn: int,
        node: int,
        message: Any,
        waiting: dict[int, Request],
        done: dict[int, Answer],
        tries: dict[int, int],
    ) -> None:
        """Take one reply."""
        if message.has_error():
            reason = f"Flower's error {message.error.code}: {message.error.reason}"
            LOG.warning("fedskew: client %d: %s", request.client, reason)
            if self.forever or tries[at] < TRIES:
                waiting[at] = request
            else:
                done[at] = Answer(request.client, None, reason, True)
            return
        envelope, wrong = self._read(message, request.client, turn)
        if envelope is not None and envelope.facts.get("error"):
            wrong = str(envelope.facts["error"])
            if trace := envelope.facts.get("trace"):
                LOG.error("%s", trace)
        done[at] = Answer(request.client, None if wrong else envelope, wrong)

    def _overdue(
        self,
        requests: Sequence[Request],
        waiting: dict[int, Request],
        flying: dict[str, tuple[int, int, float, int]],
        done: dict[int, Answer],
        began: dict[int, float],
    ) -> None:
        """Give up what was asked too long ago, or is at a node that has gone."""
        now, there = time.monotonic(), set(self.grid.get_node_ids()) if flying else set()
        for name, (at, _, since, node) in list(flying.items()):
            gone = node not in there and now - since > 1.0
            if gone or now - since > self.wait_s:
                del flying[name]  # an answer that comes now is not looked for
                if self.forever or gone:
                    waiting[at] = requests[at]
                else:
                    done[at] = Answer(requests[at].client, None, f"no answer in {self.wait_s:g} s", True)
        if self.forever:
            return
        for at in [at for at in waiting if now - began[at] > self.wait_s]:
            done[at] = Answer(waiting.pop(at).client, None, f"no node for {self.wait_s:g} s", True)

    # one message

    def _message(self, node: int, client: int, kind: str, facts: Mapping[str, Any], parts: Mapping[str, Packed]) -> Any:
        from flwr.app import Message

        self._turn += 1
        told = {**facts, "session": self.session, "turn": self._turn, "client": client, "contract": self.contract}
        self.sizes.down += packed_bytes(*parts.values())
        self.sizes.messages += 1
        return Message(record(told, **parts), dst_node_id=node, message_type=kind)

    def _gathered(self, asked: Mapping[int, Any], end: float) -> dict[int, tuple[Envelope | None, str]]:
        """Replies to messages, by node: an envelope and what is wrong; nothing from those that do not answer."""
        turns = {node: self._turn - len(asked) + 1 + i for i, node in enumerate(asked)}
        names = dict(zip(self.grid.push_messages(list(asked.values())), asked, strict=True))
        found: dict[int, tuple[Envelope | None, str]] = {}
        pause = FIRST_S
        while len(found) < len(names) and time.monotonic() < end:
            there = set(self.grid.get_node_ids())
            left = [name for name, node in names.items() if node not in found and name is not None]
            if not any(names[name] in there for name in left):
                break
            for name, message in self._pulled(left):
                node = names[name]
                if message.has_error():
                    LOG.warning("fedskew: node %d: %s", node, message.error.reason)
                    found[node] = (None, message.error.reason)
                    continue
                envelope, wrong = self._read(message, -1, turns[node])
                told = str(envelope.facts.get("error") or "") if envelope else ""
                found[node] = (envelope or Envelope({}, {}), wrong or told)
            time.sleep(pause)
            pause = min(2 * pause, self.poll_s)
        return found

    def _pulled(self, names: Sequence[str]) -> list[tuple[str, Any]]:
        if not names:
            return []
        return [(m.metadata.reply_to_message_id, m) for m in self.grid.pull_messages(names)]

    def _read(self, message: Any, client: int, turn: int) -> tuple[Envelope | None, str]:
        """(the envelope, what is wrong with it)."""
        try:
            envelope = read(message.content)
        except FedskewError as error:
            return None, str(error)
        told = envelope.facts
        self.sizes.up += envelope.size
        if told.get("session") != self.session or told.get("turn") != turn:
            return None, "the answer is to another message: it is late, or was sent before"
        if client >= 0 and told.get("client") != client:
            return None, f"the answer is of client {told.get('client')}"
        return envelope, ""
