"""An exclusive hold on a run folder: one process writes it at a time.

The system's own file lock (flock) holds ``.lock`` and ends with the process, however it ends, so a dead owner's lock is
free at once. ``.owner.json`` says who holds it. A file system without such locks refuses, and so does a run on it.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from fedskew.errors import RecordError, json_file

__all__ = ["Hold", "InUseError", "held"]


class InUseError(RecordError):
    """Another process writes the folder."""


class Hold:
    """The hold of this process on a folder.

    Args:
        folder: An existing folder.

    Raises:
        RecordError: Another process holds the folder, or its file system has no locks.

    Example:
        >>> from pathlib import Path
        >>> from fedskew.records.lock import Hold
        >>> hold = Hold(Path("."))
        >>> hold.release()
    """

    def __init__(self, folder: Path) -> None:
        self._owner = folder / ".owner.json"
        self._lock = FileLock(folder / ".lock", timeout=0)
        try:
            self._lock.acquire()
        except Timeout:
            raise InUseError(f"{folder} is in use {self._told()}; wait for it, or end it") from None
        except (OSError, NotImplementedError) as error:
            why = getattr(error, "strerror", None) or error
            raise RecordError(f"{folder} cannot be locked: {why}; a run needs a file system with locks") from None
        facts = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        with suppress(OSError):  # only words: a full disk is told where something is lost
            self._owner.write_text(json.dumps(facts) + "\n", encoding="utf-8")

    def _told(self) -> str:
        """Who holds the folder, as far as it is known."""
        try:
            facts = json_file(self._owner)
            return f"by process {facts['pid']} on {facts['host']} since {facts['since']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "by another process"

    def release(self) -> None:
        """Let others have the folder. Does nothing the second time."""
        if self._lock.is_locked:
            with suppress(OSError):  # a disk that fails ends no run that is over, and keeps no lock
                self._owner.unlink(missing_ok=True)
            self._lock.release()


@contextmanager
def held(folder: Path) -> Iterator[Hold]:
    """Hold a folder, and let it go if what follows raises; otherwise the caller keeps the hold."""
    hold = Hold(folder)
    try:
        yield hold
    except BaseException:
        hold.release()
        raise
