"""A layer over the file system: any call by which a run writes can fail, stop halfway, or be the last of its process.

It stands in for a full or broken disk. What writes without Python (safetensors) is watched as well.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
from safetensors import SafetensorError

__all__ = ["Disk"]

Do = Callable[[], Any]


class Disk:
    """The calls by which a run writes a folder, numbered from 0, and what becomes of some of them.

    Args:
        folder: only calls that touch it are numbered.
        fate: maps a call's number to "" (it is made), "fail", "short" (half of it is made, then it fails), "kill",
            "kill halfway" or "kill after".
        code: errno of a call that fails.
        die: what "kill" does; it does not return.
    """

    def __init__(
        self, folder: Path, fate: Callable[[int], str] = lambda _: "", code: int = errno.ENOSPC, die: Do | None = None
    ) -> None:
        self.folder, self.fate, self.code = str(folder), fate, code
        self.die = die or (lambda: os.kill(os.getpid(), signal.SIGKILL))
        self.calls: list[str] = []

    def within(self, path: Any) -> bool:
        return str(path).startswith(self.folder)

    def struck(self) -> bool:
        """Whether a call met a fate."""
        return any(self.fate(number) for number in range(len(self.calls)))

    def fated(self, path: Any) -> str:
        """The fate of the next call."""
        return self.fate(len(self.calls))

    def call(self, kind: str, path: Any, whole: Do, half: Do | None = None, *, rust: bool = False) -> Any:
        """Make a call, or let it meet its fate."""
        fate = self.fated(path)
        self.calls.append(f"{kind} {Path(str(path)).name}")
        if not fate:
            return whole()
        if fate in ("short", "kill halfway") and half:
            half()
        if fate == "kill after":
            with suppress(OSError):  # as of a folder that exists
                made = whole()
                if isinstance(made, io.IOBase):
                    made.close()
        if fate.startswith("kill"):
            self.die()
        why = os.strerror(self.code)
        raise (
            SafetensorError(f"I/O error: {why} (os error {self.code})") if rust else OSError(self.code, why, str(path))
        )

    def attach(self, patch: pytest.MonkeyPatch) -> Disk:
        """Stand between Python and the system until the patch is undone."""
        self._files(patch)
        self._names(patch)
        self._descriptors(patch)
        self._tensors(patch)
        return self

    def _files(self, patch: pytest.MonkeyPatch) -> None:
        plain = io.open

        def opened(path: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if isinstance(path, int) or not self.within(path) or not set(mode) & set("wax+"):
                return plain(path, mode, *args, **kwargs)
            return File(self, path, self.call("open", path, lambda: plain(path, mode, *args, **kwargs)))

        for module in (builtins, io):
            patch.setattr(module, "open", opened)

    def _names(self, patch: pytest.MonkeyPatch) -> None:
        for kind in ("replace", "rename", "mkdir", "unlink", "truncate", "link", "symlink", "rmdir"):
            self._named(patch, kind)
        plain = os.open

        def opened(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            make = lambda: plain(path, flags, *args, **kwargs)
            writes = flags & (os.O_WRONLY | os.O_RDWR)
            return self.call("open", path, make) if writes and self.within(path) else make()  # type: ignore[no-any-return]

        patch.setattr(os, "open", opened)

    def _named(self, patch: pytest.MonkeyPatch, kind: str) -> None:
        plain = getattr(os, kind)

        def named(path: Any, *args: Any, **kwargs: Any) -> Any:
            make = lambda: plain(path, *args, **kwargs)
            return self.call(kind, path, make) if self.within(path) else make()

        patch.setattr(os, kind, named)

    def _descriptors(self, patch: pytest.MonkeyPatch) -> None:
        for kind in ("fsync", "fdatasync", "write", "pwrite", "ftruncate", "posix_fallocate"):
            if hasattr(os, kind):
                self._described(patch, kind)

    def _described(self, patch: pytest.MonkeyPatch, kind: str) -> None:
        plain = getattr(os, kind)

        def described(at: int, *args: Any) -> Any:
            link = f"/proc/self/fd/{at}"
            path = os.readlink(link) if os.path.lexists(link) else ""
            make = lambda: plain(at, *args)
            return self.call(kind, path, make) if self.within(path) else make()

        patch.setattr(os, kind, described)

    def _tensors(self, patch: pytest.MonkeyPatch) -> None:
        plain = safetensors.torch.serialize_file

        def written(tensors: Any, path: Any, *args: Any, **kwargs: Any) -> None:
            whole = lambda: plain(tensors, path, *args, **kwargs)
            cut = os.truncate

            def half() -> None:
                whole()
                cut(path, os.stat(path).st_size // 2)

            if self.within(path):
                self.call("tensors", path, whole, half, rust=True)
            else:
                whole()

        patch.setattr(safetensors.torch, "serialize_file", written)


class File:
    """An open file whose writes and whose end are calls of a disk."""

    def __init__(self, disk: Disk, path: Any, file: Any) -> None:
        self._disk, self._path, self._file = disk, path, file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, content: Any) -> Any:
        def half() -> None:
            self._file.write(content[: len(content) // 2])
            self._file.flush()

        return self._disk.call("write", self._path, lambda: self._file.write(content), half)

    def truncate(self, *size: int) -> Any:
        return self._disk.call("truncate", self._path, lambda: self._file.truncate(*size))

    def close(self) -> None:
        """A failing close has closed the file all the same."""
        if not self._file.closed:
            try:
                self._disk.call("close", self._path, self._file.close)
            finally:
                self._file.close()
