"""Faults that a deployment could have, planted one at a time: what the simulation must find."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedskew import tree
from fedskew.flower import exchange, link, memory, serve, wire
from fedskew.flower.exchange import NodeMetrics, Receipts
from fedskew.flower.link import Link
from fedskew.flower.memory import NodeMemory
from fedskew.records import files, rounds
from fedskew.records.folder import Record
from fedskew.session import Session

__all__ = ["PLANTED"]

Plant = Callable[[pytest.MonkeyPatch], None]
PLANTED: dict[str, tuple[str, Plant]] = {}  # what is wrong, and how it is planted


def planted(words: str, owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Let a function stand in for one of fedskew's, which it is given before the arguments."""

    def add(fault: Callable[..., Any]) -> None:
        plain = getattr(owner, name)

        def faulty(*args: Any, **named: Any) -> Any:
            return fault(plain, *args, **named)

        PLANTED[fault.__name__.replace("_", "-")] = words, lambda patch: patch.setattr(owner, name, faulty)

    return add


# messages


@planted("an answer to an earlier message is taken", Link, "opened")
def stale_reply(plain: Any, self: Link, message: Any, client: int, turn: int) -> Any:
    told = wire.opened(message.content).facts.get("turn")
    return plain(self, message, client, told if type(told) is int else turn)


@planted("an answer of another session or round is taken", Link, "opened")
def other_round(plain: Any, self: Link, message: Any, client: int, turn: int) -> Any:
    return wire.opened(message.content), ""


@planted("the update of an answer that is lost and asked for again counts twice", link._Batch, "_end")
def counted_twice(plain: Any, self: Any, at: int, envelope: Any, wrong: str, missing: bool = False) -> None:
    if envelope is not None and self.kind == "train" and self.tries[at] > 1:
        sent = dict(envelope.trees["sent"])  # type: ignore[arg-type]
        sent["params"] = tree.map_tree(lambda leaf: 2 * leaf, sent["params"])
        envelope = envelope._replace(trees={**envelope.trees, "sent": sent})
    plain(self, at, envelope, wrong, missing)


@planted("a question has no time-out", link._Batch, "give_up")
def no_time_out(plain: Any, self: Any, there: Any) -> None:
    self.in_flight = {name: sent._replace(since=float("inf")) for name, sent in self.in_flight.items()}
    plain(self, there)


@planted("a hello that is lost is never said again", Link, "_greet")
def lost_hello(plain: Any, self: Link, there: Any) -> Any:
    self._greeted = {name: sent._replace(since=float("inf")) for name, sent in self._greeted.items()}
    return plain(self, there)


PLANTED["gives-up"] = "a server that waits for ever gives up", lambda patch: patch.setattr(Link, "forever", False)


@planted("a message that Flower did not take counts as sent", link._Batch, "send")
def refused_is_sent(plain: Any, self: Any, there: Any) -> None:
    grid = self.link.grid

    class Taking:
        def push_messages(self, messages: Any) -> Any:
            return [name or f"none {id(name)}" for name in grid.push_messages(messages)]

    self.link.grid = Taking()
    try:
        plain(self, there)
    finally:
        self.link.grid = grid
    self.in_flight = {
        n: s._replace(since=float("inf")) if n.startswith("none") else s for n, s in self.in_flight.items()
    }


@planted("answers are added in the order in which they come", link._Batch, "_end")
def order_of_arrival(plain: Any, self: Any, at: int, envelope: Any, wrong: str, missing: bool = False) -> None:
    free = min(set(range(len(self.requests))) - set(self.done)) if self.kind == "train" else at
    plain(self, free, envelope, wrong, missing)


@planted("what was answered in another round is taken from the server's own memory", exchange, "_key")
def answered_before(plain: Any, request: Any) -> str:
    return str(request.facts["kind"])


@planted("a line of the log is written as it came", link, "one_line")
def forged_line(plain: Any, text: Any) -> str:
    return str(text)


# lies


@planted("names, shapes and types of tensors are not checked", wire.Sealed, "unsealed")
def tensors_unchecked(plain: Any, self: Any, expected: Any = None) -> Any:
    return plain(self)


@planted("classes of test rows are not held against earlier ones", NodeMetrics, "_measured")
def classes_unchecked(plain: Any, self: Any, *told: Any) -> Any:
    self._tested.clear()
    return plain(self, *told)


@planted("sums of a fit are not held against the rows", exchange, "check_sums")
def sums_unchecked(plain: Any, *_: Any) -> None:
    return None


@planted("a confusion matrix is not held against the rows", NodeMetrics, "_measured")
def matrix_unchecked(plain: Any, self: Any, k: int, answer: Any) -> Any:
    return answer.trees["matrix"], float.fromhex(answer.facts["loss"])


# the node


@planted("a node answers a message again", NodeMemory, "newer")
def nonce_unchecked(plain: Any, *_: Any) -> bool:
    return True


@planted("a node answers messages of a session that is over", NodeMemory, "newer")
def old_sessions(plain: Any, self: NodeMemory, session: str, turn: int) -> Any:
    notes = self._notes()
    notes.over.clear()
    self._write(notes)
    return plain(self, session, turn)


@planted("a node keeps the memory of the last message alone", NodeMemory, "keep")
def one_memory(plain: Any, self: NodeMemory, *receipts: str, logits: str = "") -> Any:
    return plain(self, receipts[0], logits=logits)


@planted("a node's memory has one file, which the next one replaces", NodeMemory, "save")
def one_file(plain: Any, self: NodeMemory, held: Any) -> Any:
    for old in self.folder.glob("memory-*"):
        old.unlink()
    return plain(self, held)


def _written_later(patch: pytest.MonkeyPatch) -> None:
    plain, load, waiting = NodeMemory.save, NodeMemory.load, dict[int, Any]()

    def flush(self: NodeMemory) -> None:
        if (held := waiting.pop(id(self), None)) is not None:
            plain(self, held)

    def save(self: NodeMemory, held: Any) -> str:
        waiting[id(self)] = held
        return "" if self.empty else memory.receipt_of({n: memory.tree.map_tree(memory.copied, held[n]) for n in held})

    patch.setattr(NodeMemory, "save", save)
    patch.setattr(NodeMemory, "load", lambda self, receipt: (flush(self), load(self, receipt))[1])


PLANTED["written-later"] = "a node acknowledges a memory that it writes later", _written_later


@planted("a node goes on from what memory it has", NodeMemory, "load")
def any_memory(plain: Any, self: NodeMemory, receipt: str) -> Any:
    held = sorted(self.folder.glob("memory-*"))
    if receipt and held and not self._path(memory.FILE, receipt).exists():
        receipt = held[0].stem.partition("-")[2]
    return plain(self, receipt)


# the server's folder


@planted("the checkpoint lacks the receipts of what nodes keep", Receipts, "dump")
def no_receipts(plain: Any, self: Receipts) -> Any:
    plain(self)
    return {}


@planted("what an abandoned try of a round has left counts in the next", Receipts, "begin")
def abandoned_try(plain: Any, self: Receipts, number: int) -> None:
    return None


@planted("what a second component writes to a client replaces what the first has written", Receipts, "put")
def written_over(plain: Any, self: Receipts, client: int, memory: Any) -> None:
    held = {exchange.RECEIPT: told} if (told := self.get(client).get(exchange.RECEIPT)) else {}
    plain(self, client, {**held, **memory})


@planted("a server that goes on forgets the best model", Session, "restore")
def best_forgotten(plain: Any, self: Session) -> None:
    plain(self)
    self.best = None


@planted("a server that goes on keeps rows of clients of rounds that it repeats", Record, "clients")
def rows_kept(plain: Any, self: Record, last: int) -> Any:
    return plain(self, 1 << 62)


@planted("a server that goes on repeats the last round", Record, "restore")
def round_repeated(plain: Any, self: Record) -> Any:
    found = plain(self)
    return found and (found[0], {**found[1], "round": found[1]["round"] - 1}, found[2])


@planted("a server that goes on skips a round", Record, "restore")
def round_skipped(plain: Any, self: Record) -> Any:
    found = plain(self)
    last = found[2][-1:] if found else []
    more = [{**row, "round": row["round"] + 1} for row in last]
    return found and (found[0], {**found[1], "round": found[1]["round"] + 1}, [*found[2], *more])


@planted("a run is called finished a round too early", serve.lib, "finished")
def early_end(plain: Any, out: Path, number: int, patience: int | None) -> bool:
    return len((out / "rounds.jsonl").read_text().splitlines()) >= number - 1


# the disk


@planted("a file is acknowledged that is not synced", files, "sync")
def unsynced_file(plain: Any, path: Path) -> None:
    if path.is_dir():
        plain(path)


@planted("a name is acknowledged that is not synced", files, "sync")
def unsynced_name(plain: Any, path: Path) -> None:
    if not path.is_dir():
        plain(path)


@planted("a checkpoint is written before its rounds are on the disk", rounds.Rounds, "sync")
def unsynced_rounds(plain: Any, self: rounds.Rounds) -> None:
    return None


@planted("a file is written in place", files, "replace_whole")
def in_place(plain: Any, path: Path, write: Callable[[Path], object]) -> None:
    with files.writing(path):
        write(path)
        files.sync(path)
