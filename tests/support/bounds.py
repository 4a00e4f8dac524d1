"""Bounds of an attack: seconds and memory. What would take more fails at once, and takes nothing from the machine."""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Hung", "bounded", "within"]

ROOM = 6 << 30  # bytes of address space beyond what the process has; torch and its threads reserve much of it


class Hung(BaseException):
    """An attack took too long. No handler of errors catches it."""


@contextmanager
def within(seconds: float, error: type[BaseException] = Hung) -> Iterator[None]:
    """Raise Hung, or another error, where the block takes longer."""

    def late(*_: Any) -> None:
        raise error

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def bounded(room: int = ROOM) -> Iterator[None]:
    """Let the process have so many bytes of address space more than it has, where the system can tell."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    statm = Path("/proc/self/statm")
    used = int(statm.read_text().split()[0]) * resource.getpagesize() if sys.platform == "linux" else 0
    try:
        if used:
            resource.setrlimit(resource.RLIMIT_AS, (used + room, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
