"""A process with a limit on its time, and the most memory that it and its children held together."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

EVERY_S = 0.5  # reading a gigabyte's page table takes milliseconds, so this costs the run less than one per cent


class Done(NamedTuple):
    """What a process printed, or why it failed."""

    output: str
    failure: str  # "" for an exit code of 0
    peak_mb: float  # largest sum over the process and its descendants of the proportional set size


def run_process(words: list[str], env: dict[str, str], timeout_s: float) -> Done:
    """Run a command to its end, or kill it and all its descendants when its time is up."""
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(words, env=env, stdout=log, stderr=subprocess.STDOUT)
        end, peak, late = time.monotonic() + timeout_s, 0.0, False
        while process.poll() is None:
            tree = descendants(process.pid)
            peak = max(peak, sum(map(resident_mb, tree)))
            late = time.monotonic() > end
            if late:
                kill(tree)
            time.sleep(EVERY_S)
        log.seek(0)
        output = log.read()
    if late:
        return Done(output, f"stopped after {timeout_s:g} s", peak)
    told = [line for line in output.splitlines() if line.strip()] or [""]
    failure = f"exit {process.returncode}: {told[-1][:200]}" if process.returncode else ""
    return Done(output, failure, peak)


def descendants(pid: int) -> list[int]:
    """The process and all its descendants that live."""
    found = [pid]
    for one in found:
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            with suppress(OSError):  # ended meanwhile
                found += map(int, task.read_text().split())
    return found


def resident_mb(pid: int) -> float:
    """Proportional set size: pages that processes share are counted once, in parts. 0 for one that has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) / 1024


def kill(pids: list[int]) -> None:
    """End processes that this program started."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
