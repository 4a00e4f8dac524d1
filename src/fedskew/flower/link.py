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
    life: str = ""  # since when the node is there

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


class Sent(NamedTuple):
    """A message that is under way."""

    turn: int
    since: float
    node: int
    life: str  # the node's: one that was killed comes again with its number, and knows nothing of the message
    at: int = -1  # place of the request; -1: a hello


Lives = Mapping[int, str]  # the nodes that are there: since when
Flying = dict[str, Sent]  # by the message's name


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
    _known: dict[int, str] = field(default_factory=dict)  # node: the life in which it has said hello
    _greeted: Flying = field(default_factory=dict)
    _rivals: dict[int, Hello] = field(default_factory=dict)  # client: a second node that says it is the client
    _warned: set[str] = field(default_factory=set)

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
        said, end, pause = -1, time.monotonic() + self.wait_s, FIRST_S
        while True:
            heard = self._greet(self._there(), accept)
            if len(self.clients) != said:
                said, end = len(self.clients), time.monotonic() + self.wait_s
                LOG.info("fedskew: %d of %d nodes are there", said, count)
            if len(self.clients) >= count:
                return
            if time.monotonic() > end and not self.forever:
                lacking = [k for k in range(count) if k not in self.clients][:10]
                raise ConfigError(f"nodes of all {count} clients must be there; those of {lacking} have not come")
            pause = FIRST_S if heard else min(2 * pause, self.poll_s)
            time.sleep(pause)

    def _there(self) -> Lives:
        """The nodes that are there. A node that was killed and comes again has its number, and another life."""
        told = getattr(self.grid, "get_nodes", None)
        if told is None:
            return dict.fromkeys(self.grid.get_node_ids(), "")
        return {info.node_id: info.last_activated_at for info in told()}

    def _greet(self, there: Lives, accept: Callable[[Hello], None]) -> bool:
        """Say hello to nodes that are new, and hear those that answer; whether one did. It does not wait for any."""
        for client, hello in self.clients.items():
            if hello.node in self._known and there.get(hello.node, hello.life) != hello.life:
                # it was killed and has begun again; with each message it compares the contract and its number anew
                self.clients[client] = hello._replace(life=there[hello.node])
                self._known[hello.node] = there[hello.node]
        for name, sent in list(self._greeted.items()):
            if there.get(sent.node) != sent.life or time.monotonic() - sent.since > self.wait_s:
                del self._greeted[name]  # it is said again, if the node comes
        asked = {sent.node for sent in self._greeted.values()}
        fresh = [node for node, life in there.items() if self._known.get(node) != life and node not in asked]
        if fresh:
            facts = {"kind": "hello", "contract": self.contract}
            messages = [self._message(node, -1, "query", facts, {}) for node in fresh]
            turns = range(self._turn - len(fresh) + 1, self._turn + 1)
            for node, turn, name in zip(fresh, turns, self.grid.push_messages(messages), strict=True):
                if name is not None:
                    self._greeted[name] = Sent(turn, time.monotonic(), node, there[node])
        found = self._pulled(list(self._greeted))
        for name, message in found:
            self._met(self._greeted.pop(name), message, there, accept)
        for client, rival in list(self._rivals.items()):
            if self.clients[client].node not in there:  # the old one has gone: this is the client's node now
                del self._rivals[client]
                self._take(rival, accept)
        return bool(found)

    def _met(self, sent: Sent, message: Any, there: Lives, accept: Callable[[Hello], None]) -> None:
        """Take the answer to a hello. A node that comes again takes its old place."""
        if message.has_error():
            reason = f"node {sent.node}: Flower's error {message.error.code}: {message.error.reason}"
            if reason not in self._warned:
                self._warned.add(reason)
                LOG.warning("fedskew: %s", reason)
            return  # it is asked again
        envelope, wrong = self._read(message, -1, sent.turn)
        told = envelope.facts if envelope else {}
        wrong = wrong or str(told.get("error") or "")
        if told.get("spare"):
            self._known[sent.node] = sent.life
            return
        if wrong or told.get("fatal"):
            known = told.get("client") not in (None, -1)  # a mistake before it knew its number comes with the hello's
            who = Hello(sent.node, told["client"], told).name if known else f"node {sent.node}"
            raise ConfigError(f"{who} must agree with the server: {wrong or told['differs']}")
        hello = _hello(sent.node, told)._replace(life=sent.life)
        self._known[sent.node] = sent.life
        before = self.clients.get(hello.client)
        rival = self._rivals.get(hello.client)
        if rival is not None and rival.node != hello.node:
            raise ConfigError(f"two nodes say that they are client {hello.client}; give each its own number")
        if before is not None and before.node != hello.node and before.node in there:
            # Flower lists a node that was killed for a minute: is this one in its place, or beside it?
            self._rivals[hello.client] = hello
            self._known.pop(before.node, None)
            return
        self._take(hello, accept)

    def _take(self, hello: Hello, accept: Callable[[Hello], None]) -> None:
        """This node is the client's from now on."""
        if told := hello.facts.get("differs"):
            LOG.warning("fedskew: %s: %s; last bits may differ", hello.name, told)
        accept(hello)
        self.clients[hello.client] = hello

    # questions

    def ask(self, requests: Sequence[Request], kind: str, accept: Callable[[Hello], None]) -> Iterator[Answer]:
        """Answers in the order of the requests. Each node is asked once at a time; a missing one as the link says."""
        waiting = dict(enumerate(requests))
        done: dict[int, Answer] = {}
        flying: Flying = {}
        tries: dict[int, int] = {}
        pause, given = FIRST_S, 0
        began = dict.fromkeys(waiting, time.monotonic())
        while given < len(requests):
            if given in done:
                yield done.pop(given)
                given += 1
                continue
            there = self._there()
            if waiting:
                self._greet(there, accept)
                self._send(there, waiting, flying, kind, tries, began)
            found = self._pulled(list(flying))
            for name, message in found:
                sent = flying.pop(name)
                self._heard(requests[sent.at], sent, message, waiting, done, tries)
            if not found:
                time.sleep(pause)
            pause = FIRST_S if found else min(2 * pause, self.poll_s)
            self._overdue(there, requests, waiting, flying, done, began)

    def _send(
        self,
        there: Lives,
        waiting: dict[int, Request],
        flying: Flying,
        kind: str,
        tries: dict[int, int],
        began: dict[int, float],
    ) -> None:
        """Push what waits for a node that is there."""
        nodes = {k: hello for k, hello in self.clients.items() if there.get(hello.node) == hello.life}
        ready = [at for at, request in waiting.items() if request.client in nodes]
        if not ready:
            return
        messages, under_way = [], []
        for at in ready:
            request, hello = waiting[at], nodes[waiting[at].client]
            messages.append(self._message(hello.node, request.client, kind, request.facts, request.parts))
            under_way.append(Sent(self._turn, time.monotonic(), hello.node, hello.life, at))
        for sent, name in zip(under_way, self.grid.push_messages(messages), strict=True):
            if name is None:
                continue
            del waiting[sent.at]
            tries[sent.at] = tries.get(sent.at, 0) + 1
            began[sent.at] = time.monotonic()
            flying[name] = sent

    def _heard(
        self,
        request: Request,
        sent: Sent,
        message: Any,
        waiting: dict[int, Request],
        done: dict[int, Answer],
        tries: dict[int, int],
    ) -> None:
        """Take one reply."""
        if message.has_error():
            reason = f"Flower's error {message.error.code}: {message.error.reason}"
            LOG.warning("fedskew: client %d: %s", request.client, reason)
            if self.forever or tries[sent.at] < TRIES:
                waiting[sent.at] = request
            else:
                done[sent.at] = Answer(request.client, None, reason, True)
            return
        envelope, wrong = self._read(message, request.client, sent.turn)
        if envelope is not None and envelope.facts.get("error"):
            wrong = str(envelope.facts["error"])
            if trace := envelope.facts.get("trace"):
                LOG.error("%s", trace)
        done[sent.at] = Answer(request.client, None if wrong else envelope, wrong)

    def _overdue(
        self,
        there: Lives,
        requests: Sequence[Request],
        waiting: dict[int, Request],
        flying: Flying,
        done: dict[int, Answer],
        began: dict[int, float],
    ) -> None:
        """Give up what was asked too long ago, or of a node that has gone or begun again since then."""
        now = time.monotonic()
        for name, sent in list(flying.items()):
            gone = there.get(sent.node) != sent.life
            if gone or now - sent.since > self.wait_s:
                del flying[name]  # an answer that comes now is not looked for
                if self.forever or gone:
                    waiting[sent.at] = requests[sent.at]
                else:
                    client = requests[sent.at].client
                    done[sent.at] = Answer(client, None, f"no answer in {self.wait_s:g} s", True)
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
