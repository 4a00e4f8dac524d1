"""A deployment in one process: Flower's grid, the server's machine, the nodes and a clock, and what befalls them.

The server and the nodes are those of fedskew. Time is virtual: where the server waits, the messages that are due travel
and nodes answer them. Each fault is one of `support.chance`.
"""

from __future__ import annotations

import errno
import heapq
import random
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from fedskew.flower import serve
from fedskew.flower.wire import Packed, opened, record
from support.chance import Chance
from support.disk import Disk
from support.flower_standin import Error, Message, context
from support.lies import alteration, implausible
from support.platter import Platter

__all__ = ["Died", "Machine", "World"]

NODES = 1000  # ids of nodes begin here, so that none is a client's number
LISTED_S = 60.0  # for which Flower lists a node that was killed
DAY = 86_400.0
WRITES = 12  # of a node in one answer, about
BACKED_UP = 0.3  # how often a backup of a node is made with a message
RESTORED = 0.4  # how often a node that died is put on one of them


Answer = Callable[[Any, Any, Any], Any]


def _as_fedskew(message: Any, context: Any, build: Any) -> Any:
    return serve._answer(message, context, build, Path("."))


class Died(BaseException):
    """A process was killed, or its machine lost power. No handler of errors catches it."""


class Stuck(BaseException):
    """The deployment does not come to an end."""


@dataclass(eq=False)
class Machine:
    """A folder and the process that writes it.

    Args:
        folder: What the process writes.
        power: Each death of the process is a loss of power: what was not synced is lost or torn.
    """

    folder: Path
    power: bool = False
    dead: bool = False
    next: Callable[[], str] = lambda: ""  # the fate of its next write
    platter: Platter | None = None

    def begin(self, patch: pytest.MonkeyPatch) -> None:
        self.folder.mkdir(parents=True)
        if self.power:
            self.platter = Platter(self.folder).attach(patch)

    def fate(self) -> str:
        """What the next write meets. Nothing is written by a process that is dead."""
        fate = "kill" if self.dead else self.next()
        self.dead = self.dead or fate.startswith("kill")
        return fate

    def die(self, draw: random.Random) -> None:
        """The process has ended; its next life finds what the disk has."""
        self.dead, strikes, self.next = False, self.next, lambda: ""
        if self.platter is not None:
            state = self.platter.failed(draw)
            files = {name: state.contents.get(file, b"") for name, file in state.names.items() if file}
            self.restore(files, [name for name, file in state.names.items() if not file])
        for lock in self.folder.rglob(".lock"):
            lock.unlink()  # it ends with its process
        self.next = strikes

    def restore(self, files: Mapping[str, bytes], folders: Iterable[str] = ()) -> None:
        """Replace the content of the folder, down to the disk."""
        shutil.rmtree(self.folder)
        for name in (".", *folders):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(data)
        if self.platter is not None:
            self.platter.__init__(self.folder)  # type: ignore[misc]


class Machines(Disk):
    """The disks of all machines: each write asks its own one."""

    def __init__(self, folder: Path, machines: Mapping[str, Machine]) -> None:
        def die() -> None:
            raise Died

        super().__init__(folder, code=errno.ENOSPC, die=die)
        self.machines = machines

    def fated(self, path: Any) -> str:
        name = str(path)[len(self.folder) + 1 :].partition("/")[0]
        self.calls.clear()
        if name not in self.machines or str(path).endswith("/.lock"):  # which is the system's, whoever let go of it
            return ""
        return self.machines[name].fate()


class Ghost(NamedTuple):
    """What Flower lists of a node that was killed and came back under another number."""

    number: int
    life: str
    until: float


@dataclass(eq=False)
class Node:
    """The node of a client."""

    client: int
    machine: Machine
    number: int
    life: str = ""
    up: bool = False
    listed: float = -1.0  # until when Flower lists it, where it is not up
    build: Any = None  # of one life: fedskew keeps a node by it
    sent: list[Any] = field(default_factory=list)  # contents that it has sent
    backups: list[dict[str, bytes]] = field(default_factory=list)
    taken: dict[str, bytes] | None = None  # what it had, while it runs on a backup


class World:
    """Flower's grid, and the clock.

    Args:
        config: Of the app.
        folder: An empty folder for the machines.
        chance: What strikes.
        liar: The client whose node lies, -1 for none, and what it does to messages of which kind.
        power: Name of the machine whose deaths are losses of power.
        patch: Undone by the caller.
        build: Makes the experiment of a configuration.
        answer: What a node does with (message, context, what makes its experiment); None: as fedskew.
    """

    def __init__(
        self, config: Mapping[str, Any], folder: Path, chance: Chance, patch: pytest.MonkeyPatch, *,
        build: serve.Build, liar: int = -1, power: str = "", answer: Answer | None = None,
    ) -> None:  # fmt: skip
        self.answer, self.build = answer or _as_fedskew, build
        self.config, self.chance, self.liar = dict(config), chance, liar
        self.wait_s, self.now, self.limit = float(config["flower.wait-s"]), 0.0, DAY
        self.hello_lie = alteration(random.Random(f"{chance.seed} hello"))[1]
        self.server = Machine(folder / "server", power == "server")
        self.nodes = [
            Node(k, Machine(folder / f"node-{k}", power == f"node-{k}"), NODES + k) for k in range(config["clients"])
        ]
        machines = {m.folder.name: m for m in (self.server, *(node.machine for node in self.nodes))}
        for machine in machines.values():
            machine.begin(patch)
        Machines(folder, machines).attach(patch)
        self.server.next = lambda: _FATES.get(chance.at("write")[0], "")
        self.forever = config["flower.missing"] == "wait"
        self.progress()
        self.ghosts: list[Ghost] = []
        self.messages = 0
        self.touched: set[int] = set()  # clients that a fault may have cost an answer
        self.refused: set[int] = set()  # nodes that the server's log has named so
        self._odd: set[str] = set()  # messages of which an answer was replaced
        self._known: set[str] = set()  # sessions of the server in which the liar has told how it measures
        self._replies: dict[str, Any] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._events = self._fresh = 0
        for node in self.nodes:
            kind, draw = chance.at(f"join {node.client}")
            self._later(draw.uniform(0, 3 * self.wait_s) if kind else 0.0, partial(self._up, node))

    # the clock

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Time passes; it is here that things happen, and that the server may die."""
        kind, draw = self.chance.at("wait")
        if kind == "die":
            self.server.dead = True
            raise Died
        if kind == "jump":
            self.touched |= set(range(len(self.nodes)))
            seconds += draw.choice([self.wait_s * 1.5, 3600.0])
            self.patience += seconds
        if self.now > self.patience:
            self._nudge()
        self.pass_by(seconds)

    def pass_by(self, seconds: float) -> None:
        end = self.now + seconds
        while self._due and self._due[0][0] <= end:
            self.now, _, happen = heapq.heappop(self._due)
            happen()
        self.now = end
        if end > self.limit and self.chance.calm:
            raise Stuck("it does not end though nothing strikes any more")
        if end > self.limit:
            self.quiet()

    def progress(self) -> None:
        """A round has ended, or a server has begun."""
        self._hope()
        if not self.chance.calm:
            self.limit = self.now + DAY

    def _hope(self) -> None:
        """From now on it takes a while until nobody may wait any more: a node is away for less, and listed for less."""
        # a round's model is measured and fitted in a dozen questions, each of which may wait for a node that is gone
        self.patience = self.now + 40 * self.wait_s + (5 * LISTED_S if self.forever else 0)

    def _later(self, seconds: float, happen: Callable[[], None]) -> None:
        self._events += 1
        heapq.heappush(self._due, (self.now + seconds, self._events, happen))

    # Flower's grid

    def get_nodes(self) -> list[Any]:
        """The nodes that Flower lists."""
        there = [(node.number, node.life) for node in self.nodes if node.up or node.listed > self.now]
        there += [(ghost.number, ghost.life) for ghost in self.ghosts if ghost.until > self.now]
        return [SimpleNamespace(node_id=number, last_activated_at=life) for number, life in there]

    def push_messages(self, messages: Iterable[Any]) -> list[str | None]:
        """Send messages on their way."""
        names: list[str | None] = []
        for message in messages:
            self.messages += 1
            name = message.metadata.message_id = f"message {self.messages}"
            node = next((n for n in self.nodes if n.number == message.metadata.dst_node_id), None)
            kind, draw = self.chance.at("push")
            if kind and node:
                self.touched.add(node.client)
            names.append(None if kind == "refused" else name)
            if node is None:
                continue
            if kind == "error":
                self._replies[name] = Message(error=Error(draw.choice([5, 7]), _ODD_LINE), reply_to=message)
            elif kind not in ("refused", "lost"):
                delay = draw.uniform(0.01, 0.5)
                if kind == "late":
                    delay = self.wait_s * draw.uniform(0.5, 3)
                for again in [0.0, *({"twice": [0.0], "again": [self.wait_s * draw.uniform(0, 5)]}.get(kind, []))]:
                    at = delay + again + draw.uniform(0, 0.5)
                    self._later(at, partial(self._deliver, node, node.number, message))
        return names

    def pull_messages(self, names: Iterable[str]) -> list[Any]:
        """The replies that are there."""
        replies = [self._replies.pop(name) for name in list(names) if name in self._replies]
        if replies and self.forever:
            self._hope()
        for reply in replies if self.liar >= 0 else ():
            facts = {} if reply.has_error() else opened(reply.content).facts
            if self._measures(facts) and reply.metadata.reply_to_message_id not in self._odd:
                self._known.add(facts["session"])
        return replies

    def _measures(self, facts: Mapping[str, Any]) -> bool:
        """Whether these are the facts of what the liar has measured."""
        measured = facts.get("kind") in ("evaluate", "personal") and "error" not in facts
        return measured and facts.get("client") == self.liar

    # nodes

    def _up(self, node: Node) -> None:
        """A node begins a life."""
        if node.up:
            return
        self._fresh += 1
        node.up, node.life, node.build = True, f"life {self._fresh}", partial(self.build)

    def _down(self, node: Node, draw: random.Random) -> None:
        """A node dies, and comes back."""
        self.touched.add(node.client)
        node.machine.next = lambda: ""
        node.machine.die(draw)
        node.up, node.listed = False, self.now + LISTED_S
        away = draw.choice([0.5, 20.0, 90.0, 2 * self.wait_s])
        if draw.random() < 0.3:  # under another number: the old one is listed for a while
            self.ghosts.append(Ghost(node.number, node.life, node.listed))
            node.listed = -1.0
            self._fresh += 1
            node.number = NODES + 100 * self._fresh + node.client
        if draw.random() < RESTORED and node.taken is None and node.backups:
            node.taken = _content(node.machine.folder)
            node.machine.restore(draw.choice(node.backups))
        self._later(away, partial(self._up, node))

    def _deliver(self, node: Node, number: int, message: Any) -> None:
        """A node gets a message and answers it, unless it dies."""
        if not node.up or node.number != number:
            return
        kind, draw = self.chance.at(f"node {node.client}")
        left = count(draw.randrange(WRITES), -1)
        if kind:
            self.touched.add(node.client)
        if draw.random() < BACKED_UP:
            node.backups.append(_content(node.machine.folder))
        node.machine.next = lambda: _FATES.get(kind, "") if next(left) == 0 else ""
        node_config = {"client": node.client, "allow": "all", "state": str(node.machine.folder)}
        if kind == "before":
            return self._down(node, draw)
        try:
            content = self.answer(message, context(node_config, self.config), node.build)
        except Died:
            return self._down(node, draw)
        node.machine.next = lambda: ""
        if kind == "after":
            return self._down(node, draw)
        self._answered(node, message, content, draw.uniform(0.05, 1.0))

    def _answered(self, node: Node, message: Any, content: Any, work: float) -> None:
        """An answer goes back."""
        kind, draw = self.chance.at("reply")
        hello = opened(content).facts.get("kind") == "hello"
        if node.client == self.liar and hello:
            content = _lie(self.hello_lie, content)
        if kind == "lie":
            content = self._lied(draw, content) if node.client == self.liar and not hello else content
        if kind == "stale" and node.sent and not hello:
            content = draw.choice(node.sent)
        node.sent = [*node.sent[-20:], content]
        if kind:
            self.touched.add(node.client)
            self._odd.add(message.metadata.message_id)
        if kind == "lost":
            return
        reply = Message(content, reply_to=message)
        if kind == "error":
            reply = Message(error=Error(8, _ODD_LINE), reply_to=message)
        delay = work + (self.wait_s * draw.uniform(0.5, 3) if kind == "late" else draw.uniform(0.01, 0.3))
        self._later(delay, lambda: self._replies.__setitem__(message.metadata.message_id, reply))

    def _lied(self, draw: random.Random, content: Any) -> Any:
        """What the liar says instead. A server detects a matrix with other classes once it knows those of the rows."""
        facts = opened(content).facts
        known = self._measures(facts) and facts["session"] in self._known
        if (known or (facts.get("kind") == "fit" and "error" not in facts)) and draw.random() < 0.5:
            return implausible(content)
        return _lie(alteration(draw)[1], content)

    # operators

    def _nudge(self) -> None:
        """Nothing has come for long. Operators begin nodes again that the log says were refused, and no others."""
        refused = [node for node in self.nodes if node.number in self.refused]
        if not (self.forever and refused):
            raise Stuck(f"a server that {'waits' if self.forever else 'does not wait'} for ever has waited for long")
        self.refused.clear()
        for node in refused:
            node.up = False
            self._up(node)
        self._hope()

    def reboot(self, draw: random.Random) -> None:
        """The server's process has ended; somebody begins it again."""
        self.server.die(draw)
        self.pass_by(draw.choice([0.5, 30.0, 3 * self.wait_s]))

    def mended(self) -> None:
        """Operators have read the log: folders are put back where they were."""
        for node in self.nodes:
            if node.taken is not None:
                node.machine.restore({**node.taken, **_content(node.machine.folder)})
                node.taken, node.up = None, False
                self._up(node)

    def quiet(self) -> None:
        """From now on nothing strikes, and each node has been begun again."""
        self.chance.calm = True
        self.limit = self.now + DAY
        self.mended()
        for node in self.nodes:
            node.up = False
            self._up(node)


_FATES = {"die": "kill", "torn": "kill halfway", "late": "kill after", "full": "fail", "short": "short"}
_ODD_LINE = "it broke\nfedskew: round 9 {} \x1b[2J"


def _lie(alter: Any, content: Any) -> Any:
    sealed = opened(content)
    facts, packed = alter(dict(sealed.facts), sealed.parts.get("sent", Packed("[]", b"")))
    return record(facts, sent=packed)


def _content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
