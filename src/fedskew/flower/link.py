"""Messages to the nodes over Flower's grid: who is which client, who has answered, and who is missing."""

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fedskew.errors import ConfigError, FedskewError, one_line, visible
from fedskew.flower import wire
from fedskew.flower.declared import Hello, absent, claimed_client, hello_of
from fedskew.flower.options import ServerOptions
from fedskew.flower.wire import EXACT, Envelope, Layout, Packed, Sealed, quoted, short

LOG = logging.getLogger("flwr")


FIRST_S = 0.02  # pause after the first look for answers
TRACE = 10_000  # characters of the details of a mistake
TYPES = {"train": "train", "evaluate": "evaluate", "personal": "evaluate"}  # of Flower's messages, by the kind of ours
WAKE_S = 0.5  # after which a signal is heeded
TRIES = 3  # messages to a node that answers with an error of Flower's


class Request(NamedTuple):
    """What one client is asked."""

    client: int
    facts: Mapping[str, Any]
    parts: Mapping[str, Packed]
    expected: Layout | None = None  # the leaves of an answer that is of use; None: any


class AnswerFault(NamedTuple):
    """A client whose answer did not come, or is of no use, in place of a `fedskew.deployment.Fault`."""

    client: int
    tensor: str  # what is wrong, in words; the name that a round's record gives to it
    missing: bool = False  # nothing came at all

    @property
    def words(self) -> str:
        """The client and what is wrong, in a sentence."""
        return f"client {self.client}: {self.tensor}"

    def to_json(self) -> dict[str, int | str]:
        """What a round's record says of it."""
        return {"client": self.client, "step": 0, "tensor": self.tensor}


class Pending(NamedTuple):
    """A message that is under way."""

    turn: int
    since: float
    node: int
    life: str  # the node's: one that was killed comes again with its number, and knows nothing of the message
    at: int = -1  # place of the request; -1: a hello


Lives = Mapping[int, str]  # the nodes that are there: since when
InFlight = dict[str, Pending]  # by the message's name


@dataclass
class Link:
    """The nodes of one run.

    Args:
        grid: Flower's.
        contract: the server's side of the handshake.
        options: of the server: how long it waits, and what a node costs that is missing or refused.
        accept: called with each node that has come; it raises ConfigError for one that does not fit the run.
    """

    grid: Any
    contract: Mapping[str, Any]
    options: ServerOptions
    accept: Callable[[Hello], None]
    count: int = EXACT  # clients of the run
    clients: dict[int, Hello] = field(default_factory=dict)
    left_out: list[int] = field(default_factory=list)  # clients whose nodes were refused before the run began
    _known: dict[int, str] = field(default_factory=dict)  # node: the life in which it has said hello
    _greeted: InFlight = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)  # client: why its node was refused
    session: str = field(default_factory=lambda: uuid.uuid4().hex)
    turn: int = 0  # messages so far, each with a number of its own
    _warned: set[tuple[int, str]] = field(default_factory=set)  # (node, code of an error of Flower's)

    @property
    def forever(self) -> bool:
        """A node that is missing is asked again, without an end."""
        return self.options.missing == "wait"

    @property
    def measuring(self) -> list[int]:
        """Clients whose nodes have test rows and permit metrics, in ascending order."""
        facts = {k: hello.facts for k, hello in sorted(self.clients.items())}
        return [k for k, f in facts.items() if f["rows"] and f["test_rows"] and "metrics" in f["permits"]]

    # who is there

    def meet(self, count: int) -> None:
        """Wait until the nodes of clients 0..count-1 have said hello.

        Under ``flower.bad`` = drop a client whose node was refused is left out, unless another node comes in its place.

        Raises:
            ConfigError: a node does not agree with the server, or two nodes are one client; or nobody came in time.
        """
        self.count = count
        known, end, pause = -1, time.monotonic() + self.options.wait_s, FIRST_S
        while True:
            heard = self._greet(self._there())
            if len(self.clients) != known:
                known, end = len(self.clients), time.monotonic() + self.options.wait_s
                LOG.info("fedskew: %d of %d nodes are there", known, count)
            if len(self.clients) >= count:
                return
            if time.monotonic() > end:
                lacking = [k for k in range(count) if k not in self.clients]
                if all(k in self.refused for k in lacking):
                    return self._leave_out(lacking)
                if not self.forever:
                    who = f"those of {lacking[:10]} have not come"
                    raise ConfigError(f"nodes of all {count} clients must be there; {who}")
            pause = FIRST_S if heard else min(2 * pause, self.options.poll_s)
            time.sleep(pause)

    def _leave_out(self, clients: list[int]) -> None:
        """Go on without clients whose nodes were refused."""
        if len(clients) == self.count:
            raise ConfigError(f"at least one node must be usable; got none: {self.refused[clients[0]]}")
        LOG.warning("fedskew: the run begins without clients %s, whose nodes were refused", clients[:10])
        self.clients |= {k: absent(k) for k in clients}
        self.left_out = clients

    def _there(self) -> Lives:
        """The nodes that are there. A node that was killed and comes again has its number, and another life."""
        return {info.node_id: info.last_activated_at for info in self.grid.get_nodes()}

    def _greet(self, there: Lives) -> bool:
        """Say hello to nodes that are new, and hear those that answer; whether one did. It does not wait for any."""
        for client, hello in self.clients.items():
            if hello.node in self._known and there.get(hello.node, hello.life) != hello.life:
                # it was killed and has begun again; with each message it compares the contract and its number anew
                self.clients[client] = hello._replace(life=there[hello.node])
                self._known[hello.node] = there[hello.node]
        for name, sent in list(self._greeted.items()):
            if there.get(sent.node) != sent.life or time.monotonic() - sent.since > self.options.wait_s:
                del self._greeted[name]  # it is said again, if the node comes
        asked = {sent.node for sent in self._greeted.values()}
        fresh = [node for node, life in there.items() if self._known.get(node) != life and node not in asked]
        request = Request(-1, {"kind": "hello"}, {})
        self._greeted |= self.push([self.message(node, there[node], request) for node in fresh])
        answers = self.pulled(list(self._greeted))
        for name, message in answers:
            self._met(self._greeted.pop(name), message, there)
        return bool(answers)

    def _met(self, sent: Pending, message: Any, there: Lives) -> None:
        """Take the answer to a hello. A node that comes again takes its old place."""
        if message.has_error():
            self.failed(f"node {sent.node}", sent.node, message)
            return  # it is asked again
        sealed, wrong = self.opened(message, -1, sent.turn)
        facts = sealed.facts if sealed else {}
        try:
            self._introduced(sent, facts, wrong, there)
        except ConfigError as error:
            if self.options.bad == "stop":
                raise
            # the place of a client whose node's mistake may pass stays its own: no run begins without it
            self._refuse(sent.node, sent.life, {} if facts.get("passing") else facts, one_line(error))

    def _refuse(self, node: int, life: str, facts: Mapping[str, Any], why: str) -> None:
        """Go on without a node, and without a client that no other node has."""
        LOG.warning("fedskew: node %d is refused: %s", node, why)
        self._known[node] = life
        whose = next((k for k, hello in self.clients.items() if hello.node == node), claimed_client(facts, self.count))
        if whose is not None and (whose not in self.clients or self.clients[whose].node == node):
            self.refused[whose] = why

    def _introduced(self, sent: Pending, facts: Mapping[str, Any], wrong: str, there: Lives) -> None:
        """Hear who a node is. Raises ConfigError where it does not fit the run, or another is the client."""
        wrong = wrong or one_line(facts.get("error") or "")
        if wrong or facts.get("fatal"):
            whose = claimed_client(facts, self.count)
            who = f"node {sent.node}" if whose is None else Hello(sent.node, whose, {"name": short(facts, "name")}).name
            raise ConfigError(f"{who} must agree with the server: {wrong or one_line(facts.get('differs'))}")
        hello = hello_of(sent.node, facts, self.count, self.options.most_rows)._replace(life=sent.life)
        before = self.clients.get(hello.client)
        # with its key a node that was killed comes again under its own number, and is no second one
        if before is not None and before.node != hello.node and before.node in there:
            raise ConfigError(f"two nodes say that they are client {hello.client}; give each its own number")
        if difference := hello.facts.get("differs"):
            LOG.warning("fedskew: %s: %s; last bits may differ", hello.name, difference)
        self.accept(hello)
        self._known[sent.node] = sent.life
        self.clients[hello.client] = hello
        self.refused.pop(hello.client, None)

    # messages

    def message(self, node: int, life: str, request: Request, at: int = -1) -> tuple[Pending, Any]:
        """A message of Flower's with what is known of it, counted."""
        from flwr.app import Message

        self.turn += 1
        stamp = {"session": self.session, "turn": self.turn, "client": request.client, "contract": self.contract}
        content = wire.record({**request.facts, **stamp}, **request.parts)
        pending = Pending(self.turn, time.monotonic(), node, life, at)
        return pending, Message(content, dst_node_id=node, message_type=TYPES.get(request.facts["kind"], "query"))

    def push(self, messages: Sequence[tuple[Pending, Any]]) -> InFlight:
        """Send messages; those that Flower took."""
        names = heeding(lambda: self.grid.push_messages([message for _, message in messages])) if messages else ()
        return {name: pending for name, (pending, _) in zip(names, messages, strict=True) if name is not None}

    def pulled(self, names: Sequence[str]) -> list[tuple[str, Any]]:
        """(name of the message that it answers, answer) of those that have come."""
        if not names:
            return []
        pulled = heeding(lambda: list(self.grid.pull_messages(names)))
        return [(m.metadata.reply_to_message_id, m) for m in pulled]

    def opened(self, message: Any, client: int, turn: int) -> tuple[Sealed | None, str]:
        """(the message, what is wrong with it); tensors are not looked at."""
        try:
            sealed = wire.opened(message.content)
        except FedskewError as error:
            return None, one_line(error)
        facts = sealed.facts
        if facts.get("session") != self.session or facts.get("turn") != turn:
            return None, "the answer is to another message: it is late, or was sent before"
        if client >= 0 and facts.get("client") != client:
            return None, f"the answer is of client {quoted(facts.get('client'))}"
        return sealed, ""

    def failed(self, who: str, node: int, message: Any) -> str:
        """What an error of Flower's says, which is logged once."""
        reason = f"Flower's error {quoted(message.error.code)}: {one_line(message.error.reason)}"
        known = (node, quoted(message.error.code))
        if known not in self._warned:
            self._warned.add(known)
            LOG.warning("fedskew: %s: %s", who, reason)
        return reason

    # questions

    def ask(self, requests: Sequence[Request]) -> Iterator[Envelope | AnswerFault]:
        """Answers in the order of the requests. Each node is asked once at a time; a missing one as the link says."""
        batch, pause = _Batch(self, requests), FIRST_S
        for at in range(len(requests)):
            while at not in batch.done:
                there = self._there()
                if batch.waiting:
                    self._greet(there)
                    batch.send(there)
                heard = batch.hear()
                if not heard:
                    time.sleep(pause)
                pause = FIRST_S if heard else min(2 * pause, self.options.poll_s)
                batch.give_up(there)
            yield batch.done.pop(at)


def heeding(work: Callable[[], Any]) -> Any:
    """What ``work`` gives, which another thread does, so that this one wakes up to heed signals.

    Flower sends objects again and again, and waits for them in a lock without end. Where its SuperLink dies, it raises
    SIGINT in a thread of its own, of which a main thread in a lock learns nothing: the run folder would stay in use.
    """
    pool = ThreadPoolExecutor(1)
    try:
        done = pool.submit(work)
        while not wait([done], WAKE_S).done:
            pass
        return done.result()
    finally:
        pool.shutdown(wait=False)


class _Batch:
    """Requests of one kind by their places: those that wait to be sent, those under way, and answers."""

    def __init__(self, link: Link, requests: Sequence[Request]) -> None:
        self.link, self.requests = link, requests
        self.waiting = list(range(len(requests)))
        self.in_flight: InFlight = {}
        self.done: dict[int, Envelope | AnswerFault] = {}
        self.tries = [0] * len(requests)
        self.began = [time.monotonic()] * len(requests)

    def _end(self, at: int, wrong: str, missing: bool = True) -> None:
        self.done[at] = AnswerFault(self.requests[at].client, wrong, missing)

    def send(self, there: Lives) -> None:
        """Push what waits for a node that is there; what is asked of a refused node ends."""
        link = self.link
        for at in [at for at in self.waiting if self.requests[at].client in link.refused]:
            self.waiting.remove(at)
            self._end(at, link.refused[self.requests[at].client], missing=False)
        nodes = {k: hello for k, hello in link.clients.items() if there.get(hello.node) == hello.life}
        ready = [(at, nodes[self.requests[at].client]) for at in self.waiting if self.requests[at].client in nodes]
        messages = [link.message(hello.node, hello.life, self.requests[at], at) for at, hello in ready]
        for name, sent in link.push(messages).items():
            self.waiting.remove(sent.at)
            self.tries[sent.at] += 1
            self.began[sent.at] = time.monotonic()
            self.in_flight[name] = sent

    def hear(self) -> bool:
        """Take the replies that have come; whether there was one."""
        pulled = self.link.pulled(list(self.in_flight))
        for name, message in pulled:
            self._heard(self.in_flight.pop(name), message)
        return bool(pulled)

    def _heard(self, sent: Pending, message: Any) -> None:
        """Take one reply."""
        link, request = self.link, self.requests[sent.at]
        if message.has_error():
            reason = link.failed(f"client {request.client}", sent.node, message)
            if link.forever or self.tries[sent.at] < TRIES:
                self.waiting.append(sent.at)
            else:
                self._end(sent.at, reason)
            return
        sealed, wrong = link.opened(message, request.client, sent.turn)
        if sealed is not None and (error := sealed.facts.get("error")):
            wrong = one_line(error)
            for line in str(sealed.facts.get("trace") or "")[:TRACE].splitlines():
                LOG.error("fedskew: client %d: %s", request.client, visible(line))
        elif sealed is not None:
            try:
                self.done[sent.at] = sealed.unsealed(request.expected)
                return
            except ConfigError as damage:
                wrong = f"its answer must fit what was asked: {one_line(damage)}"
        self._end(sent.at, wrong, missing=False)

    def give_up(self, there: Lives) -> None:
        """End what was asked too long ago; ask again where a node has gone or begun again since then."""
        link, now = self.link, time.monotonic()
        for name, sent in list(self.in_flight.items()):
            gone = there.get(sent.node) != sent.life
            if gone or now - sent.since > link.options.wait_s:
                del self.in_flight[name]  # an answer that comes now is not looked for
                if link.forever or gone:
                    self.waiting.append(sent.at)
                else:
                    self._end(sent.at, f"no answer in {link.options.wait_s:g} s")
        if link.forever:
            return
        for at in [at for at in self.waiting if now - self.began[at] > link.options.wait_s]:
            self.waiting.remove(at)
            self._end(at, f"no node for {link.options.wait_s:g} s")
