"""A node's memory between rounds, in files named by their content: a message says which of them it goes on from.

Beside it lies the client's own model, where the run has asked to keep it; `take_out` makes a run folder of it.

The server keeps a receipt, the digest of what a client holds, in its checkpoint. A round that is abandoned, or a server
that goes on from an older checkpoint, therefore finds the memory that belongs to it, and never another.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from fedskew import deployment as lib
from fedskew import tree
from fedskew.errors import RecordError, one_line
from fedskew.privacy import Client
from fedskew.tree import Tree

Memory = dict[str, Tree]
NONE = ""  # receipt of a client that has not taken part
FILE = "memory-{}.safetensors"
LOGITS = "logits-{}.safetensors"
OWN = "own.safetensors"
HELD = "held-{}.safetensors"  # until it is added up
SUM = "sum.json"  # of the secure sum that the client is in
SESSIONS = 1000  # that are remembered as over
NOTES = "notes.json"


class Notes(msgspec.Struct):
    """What a node has noted of the messages that it answered."""

    session: str = ""  # the server's
    turn: int = -1  # of the last message in it
    sums: list[list[int | str]] = []  # places of the secure sums that were begun in it
    fits: int = 0  # exchanges of fits in it
    over: list[str] = []  # sessions before it
    static: dict[str, list[int]] = {}  # clients over which what stays the same was added up first in this run


def receipt_of(memory: Memory) -> str:
    """Digest of a memory, 32 hex digits."""
    return lib.digests.of_tensors({".".join(path): leaf for path, leaf in tree.flatten(memory) if leaf is not None})


class NodeMemory:
    """The memories of one client in one run, as files of a folder."""

    def __init__(self, folder: Path, template: Memory, salted: bool = False) -> None:
        """``template`` is the memory of a client that has not taken part. Raises RecordError: no folder to write.

        With ``salted`` a receipt tells nothing of a memory that can be guessed.
        """
        self.folder, self.template, self.salted = folder, template, salted
        self.empty = not any(True for _ in tree.leaves(template))
        with lib.writing(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def load(self, receipt: str) -> Memory:
        """The memory of a receipt. Raises RecordError where this node does not have it, or it was altered."""
        if receipt == NONE or self.empty:
            return self.template
        hint = "has its folder been replaced? Begin the run again, or put the folder back"
        return self._saved(FILE, receipt, self.template, "what this client kept", hint)

    def save(self, memory: Memory) -> str:
        """Write a memory once, whole; its receipt."""
        if self.empty:
            return NONE
        named = {name: tree.map_tree(copied, memory[name]) for name in self.template}
        if self.salted:
            named["@salt"] = {"bytes": torch.tensor(list(os.urandom(16)), dtype=torch.uint8)}
        receipt = receipt_of(named)
        if not self._path(FILE, receipt).exists():
            lib.save_tree(self._path(FILE, receipt), named, {})
        return receipt

    def save_logits(self, logits: Tensor) -> str:
        """Keep the logits of a model that is being fitted; the receipt of them."""
        receipt = receipt_of({"logits": logits})
        lib.save_tree(self._path(LOGITS, receipt), {"logits": logits}, {})
        return receipt

    def load_logits(self, receipt: str) -> Tensor:
        """The logits of a receipt. Raises RecordError where this node does not have them, or they were altered."""
        saved = self._saved(LOGITS, receipt, {}, "the logits of this node's rows", "begin the fit again")
        logits: Tensor = saved["logits"]
        return logits

    def hold(self, what: str, content: Tree, **facts: Any) -> None:
        """Keep what a secure sum will add up, in place of what was held before."""
        lib.save_tree(self.folder / HELD.format(what), content, facts)

    def held(self, what: str, **facts: Any) -> Tree:
        """What was kept for a secure sum. Raises RecordError unless it is of these facts."""
        path = self.folder / HELD.format(what)
        content, known = lib.load_tree(path) if path.exists() else ({}, None)
        if known != facts:
            raise RecordError(f"this node must hold what is added up, of {facts}; it has {known}")
        return content

    def first(self, place: list[int | str]) -> bool:
        """Whether this sum is the first of its place in the server's session; it is noted."""
        notes = self._notes()
        known = place in notes.sums
        notes.sums.append(place)
        self._write(notes)
        return not known

    def summed_over(self, what: str, clients: Iterable[int]) -> set[int]:
        """The clients over which what stays the same was added up first in this run: these, where it was not before."""
        notes = self._notes()
        first = notes.static.setdefault(what, sorted(clients))
        self._write(notes)
        return set(first)

    def save_sum(self, name: str, place: Sequence[int | str], client: Client) -> None:
        """Keep the state of a secure sum until its next phase, in place of that of another sum."""
        lib.write_atomic(self.folder / SUM, msgspec.json.encode((name, place, client)))

    def take_sum(self, name: str) -> tuple[list[int | str], Client]:
        """(place, state) of a secure sum. It is there once, so no phase is answered twice. Raises RecordError."""
        taken = self.folder / f"taken-{SUM}"
        with suppress(FileNotFoundError):
            os.replace(self.folder / SUM, taken)
            content = taken.read_bytes()
            taken.unlink()
            known, place, client = msgspec.json.decode(content, type=tuple[str, list[int | str], Client])
            if known == name:
                return place, client
        rule = "this node must be asked for each phase of a secure sum once, in order"
        raise RecordError(f"{rule}; it is in no such sum at this phase")

    def keep(self, *receipts: str, logits: str = NONE) -> None:
        """Remove every other memory: those of rounds that were abandoned, or are older than the server's checkpoint.

        What a process that was killed had half written goes, too: a node answers one message after another.
        """
        kept = {*(self._path(FILE, receipt) for receipt in receipts), self._path(LOGITS, logits)}
        for path in [path for name in (FILE, LOGITS, ".{}.tmp") for path in self.folder.glob(name.format("*"))]:
            if path not in kept:
                with suppress(OSError):
                    path.unlink()

    def newer(self, session: str, turn: int = -1) -> bool:
        """Whether a message was not answered before; it is noted. A hello has no turn, and begins a session alone.

        Messages of a server's session count upwards. Once a session has begun, those before it are over: what is late
        removes no memory of a later one.
        """
        notes = self._notes()
        if session in notes.over or (session == notes.session and turn <= notes.turn):
            return False
        if session != notes.session:
            notes = Notes(session, over=[*notes.over, notes.session][-SESSIONS:], static=notes.static)
        notes.turn = turn
        self._write(notes)
        return True

    def fit_exchanges(self) -> int:
        """Exchanges of fits in the server's session, this one among them; it is noted."""
        notes = self._notes()
        notes.fits += 1
        self._write(notes)
        return notes.fits

    def _notes(self) -> Notes:
        """Raises RecordError where they are damaged."""
        path = self.folder / NOTES
        try:
            return msgspec.json.decode(path.read_bytes(), type=Notes) if path.exists() else Notes()
        except (OSError, msgspec.DecodeError, RecursionError) as error:
            raise RecordError(f"{path} is damaged: {one_line(error)}") from None

    def _write(self, notes: Notes) -> None:
        lib.write_atomic(self.folder / NOTES, msgspec.json.encode(notes))

    def _path(self, file: str, receipt: str) -> Path:
        return self.folder / file.format(os.path.basename(receipt))

    def _saved(self, file: str, receipt: str, template: Memory, what: str, hint: str) -> Memory:
        """The content of a file of a receipt; what it lacks is as in the template."""
        path = self._path(file, receipt)
        if not path.exists():
            raise RecordError(f"{path} must hold {what}; it is missing; {hint}")
        saved = {**template, **lib.load_tree(path)[0]}
        if receipt_of(saved) != receipt:
            raise RecordError(f"{path} was altered: it is not what this client kept")
        return saved


def take_out(folder: Path, out: Path) -> str:
    """Make a run folder of the own model that a client keeps, which `fedskew.load_model` reads.

    Args:
        folder: of the client, in the state folder of its node.
        out: a new folder; ``final.safetensors`` in it is the own model.

    Returns:
        What it is, in words.

    Raises:
        RecordError: there is no own model, it is damaged, or ``out`` cannot be written or holds a run.
    """
    if not (folder / OWN).exists():
        hint = "it is kept after a run with keep-own=true, of a method that gives clients some"
        raise RecordError(f"{folder} must hold a client's own model, {OWN}; it has none; {hint}")
    saved, facts = lib.load_tree(folder / OWN)
    try:
        config, about, model = facts["config"], facts["model"], saved["model"]
        what = f"own model of client {config['own_model']['client']} after round {about['round']}"
    except (LookupError, TypeError) as error:
        raise RecordError(f"{folder / OWN} is not what a node keeps: {error!r}") from None
    lib.write_model(out, config, model, about)
    return what


def copied(leaf: Any) -> Tensor:
    """A contiguous copy on the CPU."""
    copy: Tensor = leaf.detach().cpu().clone(memory_format=torch.contiguous_format)
    return copy
