"""Random histories of a store: four processes compare, merge, archive, retry and delete, and are killed.

A run that a command reported stays until a command deletes it, and whoever reads sees whole runs or none. After each
history everything can be done again. This file is also the script: it imports torch once, and forks a process for each
command, which does its runs without workers of its own.
"""

from __future__ import annotations

import gc
import io
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fedskew.cli import command
from fedskew.errors import RecordError
from fedskew.studies import study
from fedskew.studies.archiving import write
from fedskew.studies.pool import work_here
from fedskew.studies.store import Store
from support.attack import Line, some
from support.lives import fork, script, warm
from support.resuming import recorded

if os.name != "posix":
    pytest.skip("signals are POSIX", allow_module_level=True)

SEEDS = range(6)
THEIRS = range(2, 6)  # the seeds of another store
PROCESSES, COMMANDS = 4, 14  # at a time, and of a history
KINDS = ("compare", "compare", "retry", "merge", "lines", "archive", "delete", "read")
SMALL = ["--clients", "4", "--cohort", "2", "--model", "logistic", "--rounds", "2"]
WORDS = ["compare", "fedavg", "--data", "digits", "--partition", "iid", *SMALL]


@dataclass
class Life:
    """A command of a history."""

    kind: str
    pid: int
    output: Path
    begun: float
    adds: list[int] = field(default_factory=list)  # seeds
    deletes: int | None = None
    dies: float = 0.0  # when it is killed
    ended: float = 0.0
    code: int = 0


def inline(jobs: Any, processes: int, on_end: Callable[[Any], None]) -> None:
    """Runs of a study one after another, in this process."""
    work_here(deque(jobs), on_end)


def alone() -> None:
    """What a forked command does first."""
    study.schedule = inline


def compare(store: Path, seeds: Iterable[int], *more: str) -> list[str]:
    return [*WORDS, "--seeds", ",".join(map(str, seeds)), "--store", str(store), *more]


def reading(store: Path, addresses: list[str]) -> Callable[[], None]:
    """A reader who looks at every run again and again, and ends with 3 where one is not whole."""

    def look() -> None:
        for _ in range(8):
            for address in addresses:
                try:
                    run = Store(store).finished(address)
                except RecordError as error:
                    os.write(2, f"{error}\n".encode())
                    os._exit(3)
                if run is not None and not len(run.rows) == run.summary["rounds"] == 2:
                    os.write(2, f"{address} has {len(run.rows)} rounds\n".encode())
                    os._exit(3)
        os._exit(0)

    return look


class History:
    """One history of a store."""

    def __init__(self, base: Path, reference: Path, addresses: list[str], seed: int) -> None:
        self.base, self.reference, self.addresses = base, reference, addresses
        self.rng, self.store = random.Random(seed), base / "store"
        self.lives: list[Life] = []

    def words(self, kind: str, number: int, seeds: list[int], deleted: int) -> list[str]:
        """The words of a command; none of a reader."""
        store = str(self.store)
        if kind in ("compare", "retry"):
            return compare(self.store, seeds, *(["--retry"] * (kind == "retry")))
        if kind in ("merge", "lines"):
            source = self.reference / ("theirs" if kind == "merge" else "lines.jsonl.xz")
            return ["study", "merge", str(source), "--into", store]
        if kind == "archive":
            return ["study", "archive", store, "--out", str(self.base / f"archive-{number}.jsonl")]
        return ["runs", f"{store}/runs/{self.addresses[deleted]}", "--delete", "--yes"] if kind == "delete" else []

    def begin(self, number: int) -> Life:
        rng, output = self.rng, self.base / f"said-{number}.txt"
        kind, seeds, deleted = rng.choice(KINDS), sorted(rng.sample(SEEDS, 2)), rng.choice(SEEDS)
        adds = seeds if kind in ("compare", "retry") else list(THEIRS) if kind in ("merge", "lines") else []
        before = reading(self.store, self.addresses) if kind == "read" else alone
        begun = time.monotonic()
        dies = begun + rng.uniform(0, 0.5) if rng.random() < 0.3 else 0.0
        pid = fork(self.words(kind, number, seeds, deleted), output, before)
        return Life(kind, pid, output, begun, adds, deleted if kind == "delete" else None, dies)

    def play(self) -> None:
        """Commands of which several run at a time; some are killed."""

        Store(self.store)
        running: list[Life] = []
        for number in range(COMMANDS):
            running.append(self.begin(number))
            self.lives.append(running[-1])
            while len(running) >= PROCESSES or (number == COMMANDS - 1 and running):
                running = [life for life in running if not self.over(life)]
                time.sleep(0.002)

    def over(self, life: Life) -> bool:
        if life.dies and time.monotonic() > life.dies:
            os.kill(life.pid, signal.SIGKILL)
            life.dies = 0.0
        pid, status = os.waitpid(life.pid, os.WNOHANG)
        if not pid:
            return False
        life.ended, life.code = time.monotonic(), os.waitstatus_to_exitcode(status)
        return True

    def harm(self) -> str:
        """What is wrong after the history; "" where nothing is."""
        for life in self.lives:
            text = life.output.read_text(encoding="utf-8", errors="replace") if life.output.exists() else ""
            if life.code not in (0, 2, -signal.SIGKILL) or "Traceback" in text or "fault of fedskew" in text:
                return f"{life.kind} ended with {life.code}: {text[-300:]!r}"
        for seed in SEEDS:
            if wrong := self.of_run(seed):
                return f"seed {seed}: {wrong}"
        output = self.base / "last.txt"
        last = Life("compare", fork(compare(self.store, SEEDS), output, alone), output, 0)
        while not self.over(last):
            time.sleep(0.005)
        if last.code:
            return f"the last compare ended with {last.code}: {output.read_text(encoding='utf-8')[-300:]!r}"
        return next((f"seed {seed} at last: {why}" for seed in SEEDS if (why := self.of_run(seed, there=True))), "")

    def of_run(self, seed: int, there: bool = False) -> str:
        """What is wrong with a run: it is gone, damaged, or another one."""

        address, store = self.addresses[seed], Store(self.store)
        ends = [life.ended for life in self.lives if life.deletes == seed]
        adds = [life for life in self.lives if seed in life.adds and life.code == 0]
        promised = there or any(all(end < life.begun for end in ends) for life in adds)
        try:
            run = store.finished(address)
        except RecordError as error:
            return f"damaged: {error}"
        if run is None:
            return f"gone, which {[life.kind for life in adds]} reported" if promised else ""
        plain = self.reference / "ours" / "runs" / address
        folder = store.run_folder(address)
        if (folder / "summary.json").exists() and recorded(folder) != recorded(plain):
            return "another run"
        model = folder / "final.safetensors"
        return (
            "other weights"
            if model.exists() and model.read_bytes() != (plain / "final.safetensors").read_bytes()
            else ""
        )


def prepare(base: Path) -> tuple[Path, list[str]]:
    """A store of undisturbed runs, one with some of them, and an archive of that; the addresses by seed."""
    reference = base / "reference"
    lives = [(seeds, reference / name) for name, seeds in (("ours", SEEDS), ("theirs", THEIRS))]
    for seeds, store in lives:
        words = compare(store, seeds)
        assert os.waitpid(fork(words, base / "said.txt", alone), 0)[1] == 0, (base / "said.txt").read_text()
    write(reference / "theirs", reference / "lines.jsonl.xz")
    by_seed = {
        Store(reference / "ours").finished(a).config["seed"]: str(a) for a in Store(reference / "ours").addresses()
    }
    return reference, [by_seed[seed] for seed in SEEDS]


def rehearse(base: Path, reference: Path, addresses: list[str]) -> None:
    """Each kind of command once in this process: what they import, forked processes need not import again."""
    base.mkdir()
    history, silent, schedule = History(base, reference, addresses, 0), io.StringIO(), study.schedule
    alone()
    for kind in KINDS:
        words = history.words(kind, 0, [0], 0)
        with suppress(SystemExit), redirect_stdout(silent), redirect_stderr(silent):
            command.main(words) if words else None
    study.schedule = schedule
    gc.collect()
    gc.freeze()


def main(base: Path, first: int, count: int) -> None:
    """Play histories; what went wrong in each, and how many commands ended, and were killed."""
    warm(["run", "fedavg", "--data", "digits", "--clients", "4", "--rounds", "1", "--model", "logistic"])
    import scipy.stats  # noqa: F401

    reference, addresses = prepare(base)
    rehearse(base / "rehearsal", reference, addresses)
    failures, ended = dict[int, str](), {"done": 0, "refused": 0, "killed": 0}
    for seed in range(first, first + count):
        place = base / str(seed)
        place.mkdir()
        history = History(place, reference, addresses, seed)
        history.play()
        for life in history.lives:
            ended[{0: "done", 2: "refused"}.get(life.code, "killed")] += 1
        if wrong := history.harm():
            failures[seed] = wrong
        else:
            shutil.rmtree(place)
    print(json.dumps({"failures": failures, "ended": ended}))


def test_a_run_that_was_reported_stays_and_readers_see_whole_runs(tmp_path: Path) -> None:
    count = some(3, 1000)
    played = script(__file__, tmp_path, 0, count)
    with Line("histories", f"of a store, {PROCESSES} processes, {COMMANDS} commands each: {played['ended']}") as line:
        line.survived(count - len(played["failures"]))
        for seed, why in played["failures"].items():
            line.failed(f"history {seed}: {why}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
