"""A study over a cluster of two nodes leaves the store that a study on one machine leaves, whatever is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fedskew.studies.spec import spec_from
from fedskew.studies.study import Study
from fedskew.studies.work import Outcome
from support.resuming import equal

pytestmark = [
    pytest.mark.ray,
    pytest.mark.usefixtures("cluster"),
    # Ray's own: sockets and processes that it leaves to the collector
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
WORDS = [("clients", "6"), ("cohort", "3"), ("model", "logistic"), ("checkpoint.every", "1")]


def study(folder: Path, rounds: int) -> Study:
    return Study(spec_from(["fedavg", "scaffold"], [*WORDS, ("rounds", str(rounds))], seeds=(0, 1)), folder)


def compared(one: Path, two: Path) -> None:
    """Both stores have the same runs, byte for byte."""
    names = sorted(p.name for p in (one / "runs").iterdir() if p.is_dir())
    assert len(names) == 4 and names == sorted(p.name for p in (two / "runs").iterdir() if p.is_dir())
    for name in names:
        equal(one / "runs" / name, two / "runs" / name)


def doing() -> list[int]:
    """Processes that do a run now."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if words.startswith(b"ray::_work"):
            found.append(int(folder.name))
    return found


def test_the_store_is_that_of_one_machine(tmp_path: Path) -> None:
    told: list[Outcome] = []
    study(tmp_path / "here", 3).run(2)
    study(tmp_path / "there", 3).run(cluster="auto", told=lambda outcome, one: told.append(outcome))
    assert [o.state for o in told] == ["finished"] * 4
    compared(tmp_path / "here", tmp_path / "there")
    assert not study(tmp_path / "there", 3).missing()


def test_a_killed_run_goes_on_elsewhere(tmp_path: Path) -> None:
    killed: list[int] = []

    def kill() -> None:
        """End a worker that is within a run."""
        until = time.monotonic() + 60
        while not killed and time.monotonic() < until:
            begun = [p for p in tmp_path.glob("there/runs/*/rounds.jsonl") if p.read_text().count("\n") > 10]
            for pid in doing()[:1] if begun else []:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            time.sleep(0.02)

    thread = threading.Thread(target=kill)
    thread.start()
    told: list[Outcome] = []
    study(tmp_path / "there", 80).run(cluster="auto", told=lambda outcome, one: told.append(outcome))
    thread.join()
    study(tmp_path / "here", 80).run(2)
    assert killed and [o.state for o in told] == ["finished"] * 4 and any(o.resumed for o in told)
    compared(tmp_path / "here", tmp_path / "there")


def test_a_study_that_is_stopped_goes_on(tmp_path: Path) -> None:
    begun: list[Any] = []

    def stop(one: Any) -> None:
        begun.append(one)
        if len(begun) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study(tmp_path / "there", 80).run(cluster="auto", began=stop)
    left = len(study(tmp_path / "there", 80).missing())
    assert 0 < left < 4
    study(tmp_path / "there", 80).run(cluster="auto")
    study(tmp_path / "here", 80).run(2)
    compared(tmp_path / "here", tmp_path / "there")
