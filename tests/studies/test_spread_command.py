"""`fedskew compare --cluster ADDRESS` as it is typed: over two nodes, stopped by Ctrl-C, and gone on with."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.resuming import equal

pytestmark = [
    pytest.mark.ray,
    # Ray's own: sockets and processes that it leaves to the collector
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
STUDY = ["compare", "fedavg", "scaffold", "--seeds", "0-1", "--clients", "6", "--cohort", "3", "--model", "logistic"]
STUDY += ["--rounds", "400", "--checkpoint.every", "1", "--data", "npz", "--data.path", "own.npz"]
PATIENCE = 120  # seconds


def fedskew(*words: str, folder: Path) -> subprocess.Popen[str]:
    """The command in a process group of its own, as a terminal starts it."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "fedskew", *words]
    return subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def ended(process: subprocess.Popen[str], code: int) -> str:
    """What a command said, which ends with this code and without words of Python's or Ray's own."""
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == code, err
    assert not [line for line in (out + err).splitlines() if "Traceback" in line or "raylet" in line], err
    return out + err


def nodes_at_work() -> set[int]:
    """Ray's daemons of which a process does a run now: one a node."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes().startswith(b"ray::_work"):
                found.add(int((folder / "stat").read_text().rpartition(")")[2].split()[1]))
        except OSError:
            continue  # it has ended
    return found


def runs_of(store: Path) -> list[Path]:
    return sorted(path.parent for path in store.glob("runs/*/summary.json"))


@pytest.fixture(autouse=True)
def own(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((240, 6), dtype=np.float32)
    np.savez(tmp_path / "own.npz", x=x, y=np.arange(240) % 3)


def test_a_study_on_a_cluster_is_stopped_and_goes_on(cluster: Any, tmp_path: Path) -> None:
    """The data and the store are named as seen from here; Ray's workers begin where the cluster was started."""
    there = [*STUDY, "--store", "there", "--cluster", cluster.address]
    process, nodes, until = fedskew(*there, folder=tmp_path), set[int](), time.monotonic() + PATIENCE
    rounds = lambda: [p.read_text().count("\n") for p in tmp_path.glob("there/runs/*/rounds.jsonl")]
    while len(nodes) < 2 or not any(number > 5 for number in rounds()):
        assert time.monotonic() < until and process.poll() is None, ended(process, -1)
        nodes |= nodes_at_work()
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    assert "interrupted; the same command continues" in ended(process, 130)
    assert len(runs_of(tmp_path / "there")) < 4 and any(5 < number < 400 for number in rounds()), "it was done before"

    tables = [ended(fedskew(*words, folder=tmp_path), 0) for words in (there, [*STUDY, "--store", "here"])]
    verdict = re.compile(r"(scaffold|fedavg) +\d+ +\d+\.\d ")  # the table of work beside it holds times
    far, near = ([line for line in said.splitlines() if verdict.match(line)] for said in tables)
    assert len(far) == 2 and far == near
    here = runs_of(tmp_path / "here")
    assert len(here) == 4 and [path.name for path in here] == [path.name for path in runs_of(tmp_path / "there")]
    for path in here:
        equal(path, tmp_path / "there/runs" / path.name)
    assert "nothing to do" in ended(fedskew(*there, folder=tmp_path), 0)


def test_a_cluster_that_is_not_there_is_told_in_a_line(tmp_path: Path) -> None:
    said = ended(fedskew(*STUDY, "--store", "there", "--cluster", "127.0.0.1:1", folder=tmp_path), 2)
    assert said.startswith("fedskew: there is no Ray cluster at '127.0.0.1:1'") and said.count("\n") == 1
