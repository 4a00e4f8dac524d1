"""Workers and schedulers of a study that are killed: nothing is lost, and nothing is computed twice."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path
from subprocess import Popen
from typing import Any

from fedskew.config.recorded import finished
from fedskew.errors import RecordError
from fedskew.studies.store import Store
from support.attack import FULL, Line, some
from support.lives import below, start

METHODS = ("fedavg", "fedla", "scaffold", "fedbal")[: some(1, 4)]
SEEDS = some(6, 30)
ROUNDS = some(6, 20)
WORDS = (
    "compare", *METHODS, "--seeds", f"0-{SEEDS - 1}", "--clients", "5", "--cohort", "3", "--model", "logistic",
    "--checkpoint.every", "2",
)  # fmt: skip
KILLS = some(2, 200)


def begun(store: Path, *more: str, rounds: int = ROUNDS) -> tuple[Popen[bytes], Path]:
    """The command, begun in a session of its own, and the file of what it says."""
    words = [*WORDS, "--rounds", str(rounds), "--store", str(store), "--processes", "2", *more]
    output = store.parent / f"said-{len(list(store.parent.iterdir()))}.txt"
    return start(words, output, setup="os.setsid()"), output


def workers(pid: int) -> list[int]:
    """The worker processes: children of the scheduler's fork server."""
    return [grand for child in below(pid)[:2] for grand in below(child)]


def tables(store: Path) -> dict[str, Any]:
    """What every finished run came to, without times."""
    results = {}
    for address in Store(store).addresses():
        folder = store / "runs" / address
        if (folder / "summary.json").exists():
            summary = json.loads((folder / "summary.json").read_text())
            results[address] = {k: v for k, v in summary.items() if "wall_s" not in k}
    return results


def stamps(store: Path) -> dict[str, int]:
    """When the summary of each finished run was written: it counts once the manifest vouches for it."""
    times = {}
    for file in (store / "runs").glob("*/summary.json"):
        with suppress(RecordError, OSError):  # another process is writing it
            when = file.stat().st_mtime_ns
            if finished(file.parent, ROUNDS):
                times[file.parent.name] = when
    return times


def test_workers_and_schedulers_that_are_killed(tmp_path: Path) -> None:
    plain, output = begun(tmp_path / "plain")
    assert plain.wait(3600) == 0, output.read_text()[-2000:]
    expected = tables(tmp_path / "plain")
    draw, killed, store = random.Random(0), 0, tmp_path / "killed"
    with Line("studies", "workers and schedulers killed at random instants") as line:
        while True:
            process, output = begun(store)
            before = stamps(store) if store.exists() else {}
            while killed < KILLS and process.poll() is None:
                time.sleep(draw.uniform(0.05, 1.0 if FULL else 0.2))  # the short form has few and quick runs
                victims = workers(process.pid)
                if not victims:
                    continue  # still importing
                killed += 1
                whole = draw.random() < 0.3
                with suppress(ProcessLookupError):
                    os.kill(process.pid if whole else draw.choice(victims), signal.SIGKILL)
                after = stamps(store)
                again = [a for a, when in before.items() if after.get(a) != when]
                line.check(not again, f"kill {killed}: finished runs were written again: {again}")
                before = after
                if whole:
                    break
            if not (code := process.wait(3600)):
                break
            if code != -signal.SIGKILL:
                line.check(False, f"ended with {code}: {output.read_text()[-500:]}")
                if killed >= KILLS:
                    break
        results = tables(store)
        for address, numbers in expected.items():
            line.check(results.get(address) == numbers, f"{address} came to other numbers")
        line.check(results.keys() == expected.keys(), "other runs are in the store")
    assert killed >= KILLS or len(expected) < KILLS


def test_ctrl_c_ends_a_study_that_goes_on(tmp_path: Path) -> None:
    store, rounds = tmp_path / "store", 200  # so many that no quick machine ends the runs first
    process, file = begun(store, rounds=rounds)
    before = time.monotonic()
    while not workers(process.pid) and time.monotonic() - before < 120:
        time.sleep(0.05)
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    code, output = process.wait(60), file.read_text()
    assert code == 130 and output.rstrip().endswith("interrupted; the same command continues"), output[-500:]
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers(process.pid))
    after, _ = begun(store, rounds=rounds)
    assert "Traceback" not in output and after.wait(600) == 0
