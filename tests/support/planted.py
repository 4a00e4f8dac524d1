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


def planted(words: str) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        PLANTED[plant.__name__.replace("_", "-")] = (words, plant)
        return plant

    return add


# messages


@planted("an answer to an earlier message is taken")
def stale_reply(patch: pytest.MonkeyPatch) -> None:
    plain = Link.opened

    def opened(self: Link, message: Any, client: int, turn: int) -> Any:
        told = wire.opened(message.content).facts.get("turn")
        return plain(self, message, client, told if type(told) is int else turn)

    patch.setattr(Link, "opened", opened)


@planted("an answer of another session or round is taken")
def other_round(patch: pytest.MonkeyPatch) -> None:
    def opened(self: Link, message: Any, client: int, turn: int) -> Any:
        return wire.opened(message.content), ""

    patch.setattr(Link, "opened", opened)


@planted("the update of an answer that is lost and asked for again counts twice")
def counted_twice(patch: pytest.MonkeyPatch) -> None:
    plain = link._Batch._end

    def end(self: Any, at: int, envelope: Any, wrong: str, missing: bool = False) -> None:
        if envelope is not None and self.kind == "train" and self.tries[at] > 1:
            sent = dict(envelope.trees["sent"])  # type: ignore[arg-type]
            sent["params"] = tree.map_tree(lambda leaf: 2 * leaf, sent["params"])
            envelope = envelope._replace(trees={**envelope.trees, "sent": sent})
        plain(self, at, envelope, wrong, missing)

    patch.setattr(link._Batch, "_end", end)


@planted("a question has no time-out")
def no_time_out(patch: pytest.MonkeyPatch) -> None:
    plain = link._Batch.give_up

    def give_up(self: Any, there: Any) -> None:
        self.in_flight = {name: sent._replace(since=float("inf")) for name, sent in self.in_flight.items()}
        plain(self, there)

    patch.setattr(link._Batch, "give_up", give_up)


@planted("a hello that is lost is never said again")
def lost_hello(patch: pytest.MonkeyPatch) -> None:
    plain = Link._greet

    def greet(self: Link, there: Any) -> bool:
        self._greeted = {name: sent._replace(since=float("inf")) for name, sent in self._greeted.items()}
        return plain(self, there)

    patch.setattr(Link, "_greet", greet)


@planted("a server that waits for ever gives up")
def gives_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Link, "forever", False)


@planted("a message that Flower did not take counts as sent")
def refused_is_sent(patch: pytest.MonkeyPatch) -> None:
    plain = link._Batch.send

    def send(self: Any, there: Any) -> None:
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

    patch.setattr(link._Batch, "send", send)


@planted("answers are added in the order in which they come")
def order_of_arrival(patch: pytest.MonkeyPatch) -> None:
    plain = link._Batch._end

    def end(self: Any, at: int, envelope: Any, wrong: str, missing: bool = False) -> None:
        free = min(set(range(len(self.requests))) - set(self.done)) if self.kind == "train" else at
        plain(self, free, envelope, wrong, missing)

    patch.setattr(link._Batch, "_end", end)


@planted("what was answered in another round is taken from the server's own memory")
def answered_before(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(exchange, "_key", lambda request: str(request.facts["kind"]))


@planted("a line of the log is written as it came")
def forged_line(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(link, "one_line", str)


# lies


@planted("names, shapes and types of tensors are not checked")
def tensors_unchecked(patch: pytest.MonkeyPatch) -> None:
    plain = wire.Sealed.unsealed
    patch.setattr(wire.Sealed, "unsealed", lambda self, expected=None: plain(self))


@planted("classes of test rows are not held against earlier ones")
def classes_unchecked(patch: pytest.MonkeyPatch) -> None:
    plain = NodeMetrics._measured
    patch.setattr(NodeMetrics, "_measured", lambda self, *told: (self._tested.clear(), plain(self, *told))[1])


@planted("sums of a fit are not held against the rows")
def sums_unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(exchange, "check_sums", lambda *_: None)


@planted("a confusion matrix is not held against the rows")
def matrix_unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        NodeMetrics, "_measured", lambda self, k, answer: (answer.trees["matrix"], float.fromhex(answer.facts["loss"]))
    )


# the node


@planted("a node answers a message again")
def nonce_unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NodeMemory, "newer", lambda *_: True)


@planted("a node answers messages of a session that is over")
def old_sessions(patch: pytest.MonkeyPatch) -> None:
    plain = NodeMemory.newer

    def newer(self: NodeMemory, session: str, turn: int) -> bool:
        notes = self._notes()
        notes.over.clear()
        self._write(notes)
        return plain(self, session, turn)

    patch.setattr(NodeMemory, "newer", newer)


@planted("a node keeps the memory of the last message alone")
def one_memory(patch: pytest.MonkeyPatch) -> None:
    plain = NodeMemory.keep
    patch.setattr(NodeMemory, "keep", lambda self, *receipts, logits="": plain(self, receipts[0], logits=logits))


@planted("a node's memory has one file, which the next one replaces")
def one_file(patch: pytest.MonkeyPatch) -> None:
    plain = NodeMemory.save

    def save(self: NodeMemory, held: Any) -> str:
        for old in self.folder.glob("memory-*"):
            old.unlink()
        return plain(self, held)

    patch.setattr(NodeMemory, "save", save)


@planted("a node acknowledges a memory that it writes later")
def written_later(patch: pytest.MonkeyPatch) -> None:
    plain, waiting = NodeMemory.save, dict[int, Any]()

    def flush(self: NodeMemory) -> None:
        if (held := waiting.pop(id(self), None)) is not None:
            plain(self, held)

    def save(self: NodeMemory, held: Any) -> str:
        waiting[id(self)] = held
        return "" if self.empty else memory.receipt_of({n: memory.tree.map_tree(memory.copied, held[n]) for n in held})

    load = NodeMemory.load
    patch.setattr(NodeMemory, "save", save)
    patch.setattr(NodeMemory, "load", lambda self, receipt: (flush(self), load(self, receipt))[1])


@planted("a node goes on from what memory it has")
def any_memory(patch: pytest.MonkeyPatch) -> None:
    plain = NodeMemory.load

    def load(self: NodeMemory, receipt: str) -> Any:
        held = sorted(self.folder.glob("memory-*"))
        if receipt and held and not self._path(memory.FILE, receipt).exists():
            receipt = held[0].stem.partition("-")[2]
        return plain(self, receipt)

    patch.setattr(NodeMemory, "load", load)


# the server's folder


@planted("the checkpoint lacks the receipts of what nodes keep")
def no_receipts(patch: pytest.MonkeyPatch) -> None:
    plain = Receipts.dump
    patch.setattr(Receipts, "dump", lambda self: (plain(self), {})[1])


@planted("what an abandoned try of a round has left counts in the next")
def abandoned_try(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Receipts, "begin", lambda self, number: None)


@planted("what a second component writes to a client replaces what the first has written")
def written_over(patch: pytest.MonkeyPatch) -> None:
    plain = Receipts.put

    def put(self: Receipts, client: int, memory: Any) -> None:
        held = {exchange.RECEIPT: told} if (told := self.get(client).get(exchange.RECEIPT)) else {}
        plain(self, client, {**held, **memory})

    patch.setattr(Receipts, "put", put)


@planted("a server that goes on forgets the best model")
def best_forgotten(patch: pytest.MonkeyPatch) -> None:
    plain = Session.restore

    def restore(self: Session) -> None:
        plain(self)
        self.best = None

    patch.setattr(Session, "restore", restore)


@planted("a server that goes on keeps rows of clients of rounds that it repeats")
def rows_kept(patch: pytest.MonkeyPatch) -> None:
    plain = Record.clients
    patch.setattr(Record, "clients", lambda self, last: plain(self, 1 << 62))


@planted("a server that goes on repeats the last round")
def round_repeated(patch: pytest.MonkeyPatch) -> None:
    plain = Record.restore

    def restore(self: Record) -> Any:
        found = plain(self)
        return found and (found[0], {**found[1], "round": found[1]["round"] - 1}, found[2])

    patch.setattr(Record, "restore", restore)


@planted("a server that goes on skips a round")
def round_skipped(patch: pytest.MonkeyPatch) -> None:
    plain = Record.restore

    def restore(self: Record) -> Any:
        found = plain(self)
        last = found[2][-1:] if found else []
        more = [{**row, "round": row["round"] + 1} for row in last]
        return found and (found[0], {**found[1], "round": found[1]["round"] + 1}, [*found[2], *more])

    patch.setattr(Record, "restore", restore)


@planted("a run is called finished a round too early")
def early_end(patch: pytest.MonkeyPatch) -> None:
    def finished(out: Path, number: int, patience: int | None) -> bool:
        return len((out / "rounds.jsonl").read_text().splitlines()) >= number - 1

    patch.setattr(serve.lib, "finished", finished)


# the disk


@planted("a file is acknowledged that is not synced")
def unsynced_file(patch: pytest.MonkeyPatch) -> None:
    plain = files.sync
    patch.setattr(files, "sync", lambda path: plain(path) if path.is_dir() else None)


@planted("a name is acknowledged that is not synced")
def unsynced_name(patch: pytest.MonkeyPatch) -> None:
    plain = files.sync
    patch.setattr(files, "sync", lambda path: None if path.is_dir() else plain(path))


@planted("a checkpoint is written before its rounds are on the disk")
def unsynced_rounds(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rounds.Rounds, "sync", lambda self: None)


@planted("a file is written in place")
def in_place(patch: pytest.MonkeyPatch) -> None:
    def replace_whole(path: Path, write: Callable[[Path], object]) -> None:
        with files.writing(path):
            write(path)
            files.sync(path)

    patch.setattr(files, "replace_whole", replace_whole)
