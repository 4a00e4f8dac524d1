"""What a power failure may leave of a folder: every prefix of the recorded writes, renames and syncs.

The model is that of a journalling file system such as ext4 or xfs. Changes of names (create, rename, unlink, mkdir)
reach the disk in their order; a sync of any file or folder brings all that were before it. The content of a file is on
the disk as of its last sync. What was written to it since is there, is lost, is half there, or reads as zeros, each
file for itself.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Platter", "State"]

FATES = ("lost", "there", "half", "zeros", "mixed")


@dataclass
class Step:
    """One thing that happened: to a name, to the content of a file, a sync, or something that a caller was promised."""

    kind: str  # "name", "data", "sync", "promise"
    words: str
    names: dict[str, int] = field(default_factory=dict)  # after a change of names: the file of each path, 0 a folder
    file: int = 0
    content: bytes = b""


@dataclass
class State:
    """A folder after a power failure."""

    words: str
    names: dict[str, int]
    contents: dict[int, bytes]
    promises: list[str]

    @property
    def digest(self) -> str:
        """Equal for equal folders that must keep equal promises."""
        hashed = hashlib.sha256(repr(self.promises).encode())
        for path, file in sorted(self.names.items()):
            hashed.update(
                f"{path}\0{'' if file else '/'}".encode() + hashlib.sha256(self.contents.get(file, b"")).digest()
            )
        return hashed.hexdigest()

    def build(self, folder: Path) -> Path:
        """Write the folder."""
        folder.mkdir(parents=True)
        for path, file in sorted(self.names.items()):
            if file:
                (folder / path).write_bytes(self.contents.get(file, b""))
            else:
                (folder / path).mkdir()
        return folder


class Platter:
    """A recorder of what happens to a folder while a patch holds.

    Args:
        folder: The folder, which exists. What is in it counts as synced.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.steps = [Step("sync", "the folder was there")]
        self._names: dict[str, int] = {}
        self._last: dict[int, bytes] = {}
        self._inodes: dict[str, int] = {}
        self._count = 0
        self._look()
        self.steps += [Step("sync", f"{path} was there", file=file) for path, file in self._names.items()]
        self._begin = len(self.steps)

    def attach(self, patch: pytest.MonkeyPatch) -> Platter:
        """Stand between Python and the system until the patch is undone."""
        for kind in ("replace", "rename", "mkdir", "unlink", "remove", "rmdir", "truncate"):
            self._wrap(patch, os, kind, lambda path, *_, **__: str(path))
        self._wrap(patch, os, "fsync", lambda at: os.readlink(f"/proc/self/fd/{at}"), sync=True)
        return self

    def promise(self, patch: pytest.MonkeyPatch, owner: Any, name: str, words: Callable[..., str]) -> None:
        """From the return of a call on, what ``words`` says of its arguments is promised."""
        plain = getattr(owner, name)

        def promised(*args: Any, **kwargs: Any) -> Any:
            done = plain(*args, **kwargs)
            self._look()
            if text := words(*args, **kwargs):
                self.steps.append(Step("promise", text))
            return done

        patch.setattr(owner, name, promised)

    def _wrap(
        self, patch: pytest.MonkeyPatch, module: Any, kind: str, path_of: Callable[..., str], sync: bool = False
    ) -> None:
        plain = getattr(module, kind)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            path = path_of(*args, **kwargs)
            inside = any(str(p).startswith(str(self.folder)) for p in (path, *args)) or kwargs.get("dir_fd") is not None
            if inside:
                self._look()
            done = plain(*args, **kwargs)
            if inside and sync:
                self._sync(os.path.relpath(path, self.folder))
            elif inside:
                if kind in ("replace", "rename"):
                    self._move(*(os.path.relpath(p, self.folder) for p in args[:2]))
                self._look(kind)
            return done

        patch.setattr(module, kind, wrapped)

    def _sync(self, path: str) -> None:
        self.steps.append(Step("sync", f"sync {path}", file=self._names.get(path, 0)))

    def _move(self, old: str, new: str) -> None:
        """Note a rename: files keep what they are under another path."""
        for table in (self._names, self._inodes):
            moved = {p: v for p, v in table.items() if p == old or p.startswith(f"{old}/")}
            for path in [p for p in table if p in moved or p == new or p.startswith(f"{new}/")]:
                del table[path]
            table.update({new + path[len(old) :]: value for path, value in moved.items()})
        self.steps.append(Step("name", f"rename {old} to {new}", names=dict(self._names)))

    def _look(self, kind: str = "write") -> None:
        """Note what changed since the last look."""
        names, inodes = dict[str, int](), dict[str, int]()
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if path.is_dir():
                names[name] = 0
                continue
            inodes[name] = path.stat().st_ino
            if self._inodes.get(name) == inodes[name]:
                names[name] = self._names[name]
            else:
                self._count += 1
                names[name] = self._count
        if names != self._names:
            changed = sorted({path for path, _ in set(names.items()) ^ set(self._names.items())})
            self.steps.append(Step("name", f"{kind} {', '.join(changed)}", names=dict(names)))
        self._names, self._inodes = names, inodes
        for name, file in names.items():
            if file:
                content = (self.folder / name).read_bytes()
                if self._last.get(file) != content:
                    self._last[file] = content
                    self.steps.append(Step("data", f"write {name}", file=file, content=content))

    def states(self, seed: int = 0) -> Iterator[State]:
        """Each different folder that a power failure at some instant may leave."""
        rng, seen = random.Random(seed), set[str]()
        for end in range(self._begin, len(self.steps) + 1):
            for kept, names in self._names_left(end):
                for fate in FATES:
                    state = self._state(end, kept, names, fate, rng)
                    if state.digest not in seen:
                        seen.add(state.digest)
                        yield state

    def failed(self, rng: random.Random) -> State:
        """One of the folders that a power failure may leave now."""
        self._look()
        kept, names = rng.choice(self._names_left(len(self.steps)))
        return self._state(len(self.steps), kept, names, rng.choice(FATES), rng)

    def _names_left(self, end: int) -> list[tuple[str, dict[str, int]]]:
        """(last change of names that the disk has, names) that are possible after so many steps."""
        done = self.steps[:end]
        barrier = max((i for i, step in enumerate(done) if step.kind == "sync"), default=-1)
        names = [("nothing", dict[str, int]())] + [(step.words, step.names) for step in done if step.kind == "name"]
        return names[sum(step.kind == "name" for step in done[: barrier + 1]) :]

    def _state(self, end: int, kept: str, names: dict[str, int], fate: str, rng: random.Random) -> State:
        done = self.steps[:end]
        words = f"after step {end} ({done[-1].words}), names up to {kept!r}, unsynced {fate}"
        promises = [step.words for step in done if step.kind == "promise"]
        return State(words, names, self._contents(done, fate, rng), promises)

    def _contents(self, done: list[Step], fate: str, rng: random.Random) -> dict[int, bytes]:
        latest, synced = dict[int, bytes](), dict[int, bytes]()
        for step in done:
            if step.kind == "data":
                latest[step.file] = step.content
            elif step.kind == "sync" and step.file:
                synced[step.file] = latest.get(step.file, b"")
        return {file: _left(synced.get(file, b""), now, fate, rng) for file, now in latest.items()}


def _left(synced: bytes, latest: bytes, fate: str, rng: random.Random) -> bytes:
    """The content of a file after a power failure."""
    if synced == latest or fate == "there":
        return latest
    if fate == "lost":
        return synced
    kept = next(
        (i for i, (a, b) in enumerate(zip(synced, latest, strict=False)) if a != b), min(len(synced), len(latest))
    )
    if fate == "half":
        return latest[: (kept + len(latest)) // 2]
    if fate == "zeros":
        return latest[:kept] + bytes(len(latest) - kept)
    return _left(synced, latest, rng.choice(FATES[:4]), rng)
