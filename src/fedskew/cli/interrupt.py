"""How the command ends where it is asked to: by Ctrl-C (SIGINT), SIGTERM or SIGHUP.

A run keeps its whole rounds and can be resumed. The exit code is 128 and the signal's number: 130 after Ctrl-C. A
second signal ends the process at once. So does the first one while the command is still importing, where Python would
print a traceback. Begun by the entry point before its imports. Only the command is concerned: a program of the user's
that imports fedskew keeps Python's own behaviour.
"""

import atexit
import os
import signal
import sys
import time
from contextlib import suppress
from itertools import pairwise
from typing import Any

from fedskew.errors import ensure_interrupt

INTERRUPTED = 130  # exit code of a command that was asked to end
# SIGTERM comes from schedulers, containers and `kill`; SIGHUP from a terminal that is closed, and nohup ignores it
ASKED = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
TWICE = 0.5  # seconds: sooner, a second signal is the first once more, sent to the process and to its group
_got: list[tuple[int, float]] = []  # (signal, when it came)


def is_command(argv: list[str], original: list[str]) -> bool:
    """Whether the program is ``fedskew`` or ``python -m fedskew``."""
    name = os.path.basename(argv[0]) if argv else ""
    as_module = name in ("-m", "__main__.py") and ("-m", "fedskew") in pairwise(original)
    return os.path.splitext(name)[0] == "fedskew" or as_module


def _leave(number: int, _: Any) -> None:
    if os.isatty(2):
        os.write(2, b"\x1b[?25h")  # the bar of a run hides the cursor
    os.write(2, b"interrupted\n")
    os._exit(128 + number)  # an exception inside a half-done import can be swallowed, or end in another one


def _stop(number: int, frame: Any) -> None:
    if not _got:
        _got.append((number, time.monotonic()))
        raise KeyboardInterrupt
    if time.monotonic() - _got[0][1] > TWICE:
        _leave(number, frame)


def _again() -> None:
    number, _ = _got.pop()
    os.kill(os.getpid(), number)


def begin() -> None:
    """From here on an interruption ends the command at once."""
    if is_command(sys.argv, sys.orig_argv) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def end() -> None:
    """The imports are done: SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt, which the command handles."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, _stop)
    if is_command(sys.argv, sys.orig_argv):
        for number in ASKED:
            if signal.getsignal(number) in (signal.SIG_DFL, _leave):
                signal.signal(number, _stop)
        ensure_interrupt(lambda: bool(_got), _again)


def over(code: int) -> int:
    """The command is done: its exit code, 143 after SIGTERM.

    What comes now ends the process at once where it was interrupted, and else changes nothing: Python would let it end
    a process whose run is finished by the signal.
    """
    interrupted = code == INTERRUPTED and bool(_got)
    for number in (signal.SIGINT, *ASKED):
        if signal.getsignal(number) is _stop:
            signal.signal(number, _leave if interrupted else signal.SIG_IGN)
    if not interrupted:
        return code
    asked = 128 + _got[0][0]
    atexit.register(_end, asked)
    return asked


def _end(code: int) -> None:
    """End the process with this code: where exec() was interrupted, `python -m` ends by SIGINT and forgets the code."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
