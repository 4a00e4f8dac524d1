"""An exclusive hold on a folder, a run or a store: one process writes it at a time.

The system's own file lock (flock) holds ``.lock`` and ends with the process, however it ends, so a dead owner's lock is
free at once. ``.owner.json`` says who holds it. A file system without such locks refuses, and so does a run on it.
A folder in which a file that is written in place leads elsewhere is not held: nothing is written through a link.
"""

import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from fedskew.errors import RecordError, json_file
from fedskew.records.files import UnwritableError, write_atomic

IN_PLACE = (".lock", "rounds.jsonl")  # all else that a run writes is replaced whole


class InUseError(RecordError):
    """Another process writes the folder."""


class Hold:
    """The hold of this process on a folder.

    Args:
        folder: An existing folder.
        wait: Seconds for which the end of another hold is waited for.

    Raises:
        InUseError: Another process holds the folder.
        RecordError: The file system has no locks, or a file that is written in place is a link, a pipe or a device.

    Example:
        >>> from pathlib import Path
        >>> from fedskew.records.lock import Hold
        >>> hold = Hold(Path("."))
        >>> hold.release()
    """

    def __init__(self, folder: Path, wait: float = 0) -> None:
        _check_plain(folder)
        self._owner = folder / ".owner.json"
        self._lock = FileLock(folder / ".lock", timeout=wait)
        try:
            self._lock.acquire()
        except Timeout:
            raise InUseError(f"{folder} is in use {self._told()}; wait for it, or end it") from None
        except (OSError, NotImplementedError) as error:
            why = getattr(error, "strerror", None) or error
            raise UnwritableError(f"{folder} cannot be locked: {why}; a run needs a file system with locks") from None
        facts = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        with suppress(RecordError):  # only words: a full disk is told where something is lost
            write_atomic(self._owner, (json.dumps(facts) + "\n").encode())

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


def _check_plain(folder: Path) -> None:
    """Raise RecordError where a file leads elsewhere: a run would write there, or wait for a reader."""
    for name in IN_PLACE:
        try:
            kind = os.lstat(folder / name).st_mode
        except OSError:
            continue
        if not stat.S_ISREG(kind):
            raise RecordError(f"{folder / name} must be a file of this folder; it is a link, a pipe or a device")


@contextmanager
def held(folder: Path) -> Iterator[Hold]:
    """Hold a folder, and let it go if what follows raises; otherwise the caller keeps the hold."""
    hold = Hold(folder)
    try:
        yield hold
    except BaseException:
        hold.release()
        raise
