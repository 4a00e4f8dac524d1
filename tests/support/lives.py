"""Lives of the command in processes of their own, which can be killed.

A process that imports torch takes two seconds to begin. So `fork` begins most lives in a process that has imported it,
with the handlers and streams of a new one; `start` begins true ones.
"""

from __future__ import annotations

import gc
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import torch

import fedskew as fs
from fedskew.cli import command, interrupt
from support.attack import FULL
from support.paths import TESTS
from support.resuming import recorded

__all__ = ["below", "ended", "finished", "fork", "script", "start", "tried_by", "unlike", "wait_for", "warm"]

HANGS = 600  # seconds after which a life has hung, on a machine that is busy


def script(file: str, *words: object, timeout: float = 3600) -> Any:
    """Run a test file as a program, alone in its process; what it prints last, from JSON."""
    paths = os.pathsep.join([str(Path(fs.__file__).parents[1]), str(TESTS)])
    env = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, file, *map(str, words)], capture_output=True, text=True, timeout=timeout, env=env
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def tried_by(file: str, attacks: Iterable[str], base: Path) -> Callable[[str], Any]:
    """What an attack of a test file found. One process makes all that are short; at full strength each has its own."""
    results: dict[str, Any] = {}

    def get(what: str) -> Any:
        if what not in results:
            place = base / str(len(list(base.iterdir())))  # an attack that failed has left one
            place.mkdir()
            results.update(script(file, place, *([what] if FULL else attacks)))
        return results[what]

    return get


def warm(*lives: list[str]) -> None:
    """Run commands in this process and forget them: what they import, forked processes need not import again."""
    torch.set_num_threads(1)  # a process that has begun threads must not fork
    for number, words in enumerate(lives):
        with ExitStack() as stack:
            folder, silent = stack.enter_context(tempfile.TemporaryDirectory()), io.StringIO()
            for quiet in (redirect_stdout(silent), redirect_stderr(silent), suppress(SystemExit)):
                stack.enter_context(quiet)
            command.main([*words, "--out", f"{folder}/{number}"])
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy every page


def fork(words: list[str], output: Path, before: Callable[[], object] | None = None) -> int:
    """Begin a life of the command by a fork; its process id. What it says goes to a file."""
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        stream = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(stream, 1)
        os.dup2(stream, 2)
        os.close(stream)
        sys.argv = ["fedskew", *words]
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        interrupt.begin()
        signal.alarm(HANGS)  # by which a life that hangs is ended, and told of
        if before:
            before()
        command.main(words)
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException as error:  # what Python would print a traceback of
        os.write(2, f"Traceback of {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


def start(words: list[str], output: Path, *, setup: str = "") -> subprocess.Popen[bytes]:
    """Begin a true process of the command; ``setup`` is Python that it runs before."""
    paths = os.pathsep.join([str(Path(fs.__file__).parents[1]), str(TESTS)])
    env = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    # a job in the background ignores SIGINT and SIGQUIT, and its children inherit that
    plain = "; ".join(f"signal.signal(signal.{name}, signal.SIG_DFL)" for name in ("SIGINT", "SIGQUIT", "SIGHUP"))
    first = f"import os, signal, sys; {plain}; {setup}\n"
    child = [sys.executable, "-c", f"{first}os.execv(sys.executable, sys.argv[1:])", sys.executable]
    with open(output, "wb") as stream:
        return subprocess.Popen([*child, "-m", "fedskew", *words], stdout=stream, stderr=stream, env=env)


def ended(pid: int) -> int:
    """Wait for a forked life: its exit code; minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def below(pid: int) -> list[int]:
    """Processes that a process began, and those that they began."""
    pids: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                pids += [int(child), *below(int(child))]
    return pids


def wait_for(holds: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until something holds."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.002)


def finished(folder: Path) -> bool:
    """Whether the folder says that its run came to its end."""
    summary = folder / "summary.json"
    return summary.exists() and json.loads(summary.read_text(encoding="utf-8"))["stopped"] == ""


def unlike(a: Path, b: Path) -> str:
    """In what the runs of two folders differ: bytes of the model, rows without their times, names of files."""
    given = [[p.relative_to(f).as_posix() for p in f.rglob("*") if p.is_file()] for f in (a, b)]
    names = [{name for name in some if name != ".owner.json"} for some in given]  # words of who holds the folder
    if names[0] != names[1]:
        return f"files {sorted(names[0] - names[1])} against {sorted(names[1] - names[0])}"
    if (a / "final.safetensors").read_bytes() != (b / "final.safetensors").read_bytes():
        return "final.safetensors"
    listed = [(f / "clients.jsonl").read_bytes() if (f / "clients.jsonl").exists() else b"" for f in (a, b)]
    return "rounds.jsonl" if recorded(a) != recorded(b) else "clients.jsonl" if listed[0] != listed[1] else ""
