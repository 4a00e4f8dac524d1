"""What components keep on clients between rounds, and where: on the device, in main memory, or in a mapped file."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from io import FileIO
from pathlib import Path

import torch
from torch import Tensor

from fedskew import tree
from fedskew.errors import RecordError, require, unknown
from fedskew.records import digests
from fedskew.records.files import DAMAGED, writing
from fedskew.tree import Tree

Memory = dict[str, Tree]
HOMES = {
    "device": "on the device that trains",
    "ram": "in main memory, copied to the device when a client trains",
    "disk": "in a mapped file of the run folder, for more clients than memory holds",
}
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no room: on the disk, in the quota, under a limit of the process
UNABLE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)  # what a file system says that cannot allocate


def _own(leaf: Tensor, place: torch.device) -> Tensor:
    """A contiguous copy. Sums over another layout round differently, and a checkpoint keeps no layout."""
    return leaf.detach().to(place).clone(memory_format=torch.contiguous_format)


def _allocate(file: FileIO, begin: int, size: int) -> None:
    """Give a file its bytes from ``begin`` to ``size`` on the disk; its content stays.

    A mapped page that has no room on the disk ends the process (SIGBUS) when it is written. Raises OSError where there
    is no room; the file then has its old size.
    """
    had = os.fstat(file.fileno()).st_size
    try:
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(file.fileno(), begin, max(had, size) - begin)
                return
            except OSError as error:
                if error.errno not in UNABLE:
                    raise
        file.seek(had)
        while (missing := size - file.tell()) > 0:
            file.write(bytes(min(missing, 1 << 20)))
        os.fsync(file.fileno())  # a network's file system finds only now that it has no room
    except OSError:
        file.truncate(had)
        raise


class Held:
    """Keeps the memories of clients once a round is over: as tensors in a dict, on the device of the template."""

    def __init__(self, template: Memory) -> None:
        self.template = template
        self.kept: dict[int, Memory] = {}

    def read(self, client: int) -> Memory | None:
        """The tensors as they were written, no copies."""
        return self.kept.get(client)

    def write(self, memories: dict[int, Memory]) -> None:
        """Keep the tensors, not copies of them: all, or none if it is interrupted. Safe to repeat."""
        self.kept.update(memories)

    def close(self) -> None:
        """Nothing to release."""

    def dump(self) -> Tree:
        """{client id: {component: tree}}."""
        return {str(client): memory for client, memory in sorted(self.kept.items())}

    def load(self, dumped: Tree) -> None:
        """The inverse of `dump`. Components that keep nothing come from the template.

        Raises RecordError where another home wrote it.
        """
        if "slots" in dumped:
            raise RecordError("memory must be disk to continue: the clients' memories are in the run folder's file")
        place = place_of(self.template)
        whole = {int(k): {n: memory.get(n, t) for n, t in self.template.items()} for k, memory in dumped.items()}
        self.write(tree.map_tree(lambda t: t.to(place), whole))


class Mapped:
    """Memories as records of equal size in one file that is mapped into memory.

    The operating system keeps in RAM what there is room for. A client that writes again gets another record; the old
    one is free only after the next checkpoint. So the records of the last checkpoint are whole at any time.
    """

    GROWTH = 1 << 20  # bytes by which the file grows at least; half of its size where that is more

    def __init__(self, template: Memory, path: Path | None) -> None:
        self.template = dict(tree.flatten(template))
        self.begins, self.size = {}, 0
        for where, leaf in self.template.items():
            self.begins[where] = self.size
            self.size += 0 if leaf is None else -(-leaf.numel() * leaf.element_size() // 64) * 64
        self.slots: dict[int, int] = {}
        self.free: list[int] = []
        self.fixed: frozenset[int] = frozenset()  # records of the last checkpoint
        self.digests = torch.empty(0, 2, dtype=torch.int64)  # of each record, as of the last checkpoint
        self.written: set[int] = set()  # records since then
        self.used = 0
        self._folder = tempfile.TemporaryDirectory(prefix="fedskew-") if path is None else None
        self.path = path or Path(str(self._folder and self._folder.name)) / "memory.bin"
        self._map: mmap.mmap | None = None
        self._bytes = torch.empty(0, dtype=torch.uint8)

    def _reach(self, records: int) -> None:
        """Grow the file to so many records. Raises RecordError where the disk has no room."""
        held, needed = len(self._bytes), records * self.size
        if held >= needed and self._map is not None:
            return
        generous = max(needed, held + max(self.GROWTH, held // 2))
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "ab"), open(self.path, "r+b", buffering=0) as file:
                try:
                    _allocate(file, held, generous)  # from 0 the first time: a copy may have holes
                except OSError as error:
                    if error.errno not in FULL:
                        raise
                    _allocate(file, held, needed)  # the disk has room for less
                fresh = mmap.mmap(file.fileno(), 0)
        self._map, self._bytes = fresh, torch.frombuffer(fresh, dtype=torch.uint8)

    def _views(self, slot: int) -> dict[tuple[str, ...], Tensor | None]:
        """The leaves of a record, as views of the file."""

        def view(where: tuple[str, ...], leaf: Tensor) -> Tensor:
            begin = slot * self.size + self.begins[where]
            return self._bytes[begin : begin + leaf.numel() * leaf.element_size()].view(leaf.dtype).reshape(leaf.shape)

        return {where: None if leaf is None else view(where, leaf) for where, leaf in self.template.items()}

    def read(self, client: int) -> Memory | None:
        """Copies of the leaves.

        The record may be written again, and products of tensors with another alignment round differently.
        """
        if client not in self.slots:
            return None
        views = self._views(self.slots[client]).items()
        memory: Memory = tree.unflatten((where, None if view is None else view.clone()) for where, view in views)
        return memory

    def write(self, memories: dict[int, Memory]) -> None:
        """Write free records first; they then replace the old ones all at once.

        An interruption at any line loses at most the use of some records until the next checkpoint, and never lets two
        clients have one record.
        """
        fresh = {client: self._put(memory) for client, memory in memories.items()}
        old = [self.slots[client] for client in fresh if client in self.slots]
        self.slots.update(fresh)
        self.free += [slot for slot in old if slot not in self.fixed]  # the others wait for the next checkpoint

    def _put(self, memory: Memory) -> int:
        """Write a memory; the number of its record. Raises ConfigError where its structure is not the template's."""
        given = dict(tree.flatten(memory))
        for where in {**self.template, **given}:
            known, leaf = self.template.get(where), given.get(where)
            told, got = (None if t is None else (tuple(t.shape), t.dtype) for t in (known, leaf))
            name = f"{'.'.join(where)} of a client's memory"
            require(told == got, name, f"match what init_client returned, {told}, on disk", got)
        if self.free:
            slot = self.free.pop()
        else:
            slot = self.used
            self._reach(slot + 1)
            self.used += 1
        self.written.add(slot)
        for where, view in self._views(slot).items():
            leaf = given[where]
            if view is not None and leaf is not None:
                view.copy_(leaf)
        return slot

    def close(self) -> None:
        """Release the file; a temporary one is removed."""
        if self._folder is not None:
            self._bytes, self._map = torch.empty(0, dtype=torch.uint8), None
            self._folder.cleanup()

    def dump(self) -> Tree:
        """{"slots": [n, 2] client and record, "digests": [n, 2] and "size" of the records}; once they are on disk.

        Raises RecordError where they cannot be written.
        """
        if self._map is not None:
            with writing(self.path):
                self._map.flush()
            # the pages stay in the system's cache, but no longer count as memory of this process
            if hasattr(mmap, "MADV_DONTNEED"):
                self._map.madvise(mmap.MADV_DONTNEED)
        slots = torch.tensor(sorted(self.slots.items()), dtype=torch.int64).reshape(-1, 2)
        self._digest()
        self._fix()  # the checkpoint is written before the next record is
        return {"slots": slots, "digests": self.digests[slots[:, 1]], "size": torch.tensor(self.size)}

    def load(self, dumped: Tree) -> None:
        """The inverse of `dump`; memories that `Held` dumped are written to the file."""
        if "slots" not in dumped:
            self.write({int(client): memory for client, memory in dumped.items()})
            return
        self.slots = dict(dumped["slots"].tolist())
        self.used = max(self.slots.values(), default=-1) + 1
        if self.used and not self.path.exists():
            raise RecordError(f"{self.path} must hold the clients' memories; it is missing")
        held, wanted = self.path.stat().st_size if self.used else 0, self.used * self.size
        if held < wanted:
            raise RecordError(f"{self.path} must hold the clients' memories; it has {held} bytes of {wanted}")
        if self.used:
            self._reach(self.used)
        self._check(dumped["slots"], dumped["digests"])
        self._fix()

    def _check(self, slots: Tensor, wanted: Tensor) -> None:
        """Raise RecordError, which names the client, where a record is not the one of the checkpoint."""
        found = digests.of_records(self._bytes, self.size, slots[:, 1].tolist())
        altered = slots[:, 0][(found != wanted).any(1)].tolist()
        if altered:
            told = f"{self.path} was altered: what client {altered[0]} kept is not what the checkpoint has"
            others = f", nor is that of {len(altered) - 1} others" if len(altered) > 1 else ""
            raise RecordError(f"{told}{others}; {DAMAGED}")
        self.digests = torch.zeros(self.used, 2, dtype=torch.int64)
        self.digests[slots[:, 1]] = wanted

    def _digest(self) -> None:
        """Bring the digests up to date: those of the records that were written since the last checkpoint."""
        fresh = sorted(self.written)
        grown = torch.zeros(self.used, 2, dtype=torch.int64)
        grown[: len(self.digests)] = self.digests
        if fresh:
            grown[fresh] = digests.of_records(self._bytes, self.size, fresh)
        self.digests, self.written = grown, set()

    def _fix(self) -> None:
        """From now on, the records in use stay as they are until the next checkpoint; all others are free."""
        fixed = frozenset(self.slots.values())
        self.fixed, self.free = fixed, [slot for slot in range(self.used) if slot not in fixed]


Home = Held | Mapped


def home(name: str, template: Memory, folder: Path | None) -> Home:
    """Make a home.

    Args:
        name: of `HOMES`.
        template: memory of a client that has not taken part, on the device where memories are kept.
        folder: run folder, for the file of "disk"; None takes a temporary folder.

    Raises:
        ConfigError: there is no such home.
    """
    if name not in HOMES:
        raise unknown("memory", name, HOMES)
    if name == "disk":
        return Mapped(template, folder and folder / "memory.bin")
    return Held(template)


def place_of(template: Memory) -> torch.device:
    """The device of a template; all its tensors are on one."""
    return next((leaf.device for leaf in tree.leaves(template)), torch.device("cpu"))


class ClientMemory:
    """Memory by client id. Only clients that took part are stored; the others have the template.

    All memories are on the device of the template, so that clients of all kinds can be stacked. A round's writes wait
    in ``pending`` until `settle` says whether the round came to its end, so that an interrupted round leaves nothing.
    """

    def __init__(self, template: Memory, home: Home | None = None) -> None:
        self.template, self.place = template, place_of(template)
        self.home = home or Held(template)
        self.pending: dict[int, Memory] = {}
        self.round = 0  # whose writes are pending

    @property
    def empty(self) -> bool:
        """Whether no component keeps anything."""
        return not any(True for _ in tree.leaves(self.template))

    def get(self, client: int) -> Memory:
        """One client's memory, {component: tree}."""
        return self.pending.get(client) or self.home.read(client) or self.template

    def put(self, client: int, memory: Memory) -> None:
        """Replace what the components in ``memory`` keep on this client; what others keep stays."""
        if not self.empty:
            merged = {**self.get(client), **memory}
            self.pending[client] = {n: tree.map_tree(lambda t: _own(t, self.place), merged[n]) for n in self.template}

    def begin(self, round: int) -> None:
        """Open a round: the writes that follow are its own."""
        self.settle(round - 1)
        self.round = round

    def settle(self, done: int) -> None:
        """Keep the open round's writes if it is among the rounds that are done, else drop them. Safe to repeat."""
        if self.round <= done:
            self.home.write(self.pending)
        self.pending = {}

    def dump(self) -> Tree:
        """What a checkpoint must hold for `load`."""
        return self.home.dump()

    def load(self, dumped: Tree) -> None:
        """The inverse of `dump`."""
        self.home.load(dumped)
        self.pending = {}
