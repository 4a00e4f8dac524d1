"""Ctrl-C while the command is still importing: one word and exit code 130, where Python would print a traceback.

Begun by the entry point before its imports. Only the command is concerned: a program of the user's that imports fedskew
keeps Python's own behaviour.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import pairwise
from typing import Any

__all__ = ["begin", "end"]


def is_command(argv: list[str], original: list[str]) -> bool:
    """Whether the program is ``fedskew`` or ``python -m fedskew``."""
    name = os.path.basename(argv[0]) if argv else ""
    as_module = name in ("-m", "__main__.py") and ("-m", "fedskew") in pairwise(original)
    return os.path.splitext(name)[0] == "fedskew" or as_module


def _leave(*_: Any) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)  # an exception inside a half-done import can be swallowed, or end in another one


def begin() -> None:
    """From here on an interruption ends the command at once."""
    if is_command(sys.argv, sys.orig_argv) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def end() -> None:
    """An interruption is a KeyboardInterrupt again: the command handles it."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
