"""A worker that is asked to end does so, with its run saved."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from fedskew.engines.runtime import Workers
from fedskew.session import Session
from fedskew.studies.pool import workers_of
from fedskew.studies.spec import spec_from
from fedskew.studies.study import Study
from fedskew.studies.work import Job, begin, work


def test_four_runs_share_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Workers, "cores", lambda: 16)
    assert [workers_of(d) for d in (["cpu"], [], ["cuda", "cuda"], ["cuda:0", "cuda:1", "cpu"])] == [16, 16, 4, 8]


def busy(job: Job) -> None:
    """A worker with one run, which then waits for more, as in a pool."""
    begin()
    work(job)
    time.sleep(600)


def test_a_worker_that_is_asked_to_end_saves_its_run_and_ends(tmp_path: Path) -> None:
    """Else the pool, which terminates its workers once and waits for them, would wait for ever."""
    given = [("clients", "5"), ("cohort", "2"), ("rounds", "100000"), ("model", "logistic")]
    (planned,) = Study(spec_from(["fedavg"], given), tmp_path).missing()
    process = multiprocessing.get_context("spawn").Process(
        target=busy, args=(Job(planned.address, planned.job, str(tmp_path)),)
    )
    process.start()
    rounds, before = tmp_path / "runs" / planned.address / "rounds.jsonl", time.monotonic()
    while not (rounds.exists() and rounds.read_text().count("\n") > 2) and time.monotonic() - before < 120:
        time.sleep(0.05)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGTERM)
    process.join(60)
    assert process.exitcode == 128 + signal.SIGTERM
    assert (rounds.parent / "checkpoint" / "state.safetensors").exists()


class Asks:
    """Asks the process to end while it is deleted, where no exception gets through."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)


def unlucky(job: Job) -> None:
    """A worker that is asked to end at such an instant of its third round."""
    begin()
    whole, count = Session.round, itertools.count(1)

    def third(session: Session) -> Any:
        if next(count) == 3:
            Asks()
        return whole(session)

    Session.round = third  # type: ignore[method-assign]
    work(job)


@pytest.mark.thorough
def test_a_request_that_is_lost_in_a_callback_is_made_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    given = [("clients", "5"), ("cohort", "2"), ("rounds", "100000"), ("model", "logistic")]
    (planned,) = Study(spec_from(["fedavg"], given), tmp_path).missing()
    process = multiprocessing.get_context("spawn").Process(
        target=unlucky, args=(Job(planned.address, planned.job, str(tmp_path)),)
    )
    process.start()
    process.join(120)
    assert process.exitcode == 128 + signal.SIGTERM
    assert "KeyboardInterrupt" not in capfd.readouterr().err


def test_a_run_that_another_process_ended_is_not_touched(tmp_path: Path) -> None:
    """A worker that outlived its scheduler may end a run after the next scheduler has planned it."""
    given = [("clients", "5"), ("cohort", "2"), ("rounds", "2"), ("model", "logistic")]
    (planned,) = Study(spec_from(["fedavg"], given), tmp_path).missing()
    job = Job(planned.address, planned.job, str(tmp_path))
    first, folder = work(job), tmp_path / "runs" / planned.address
    before = {file: file.stat().st_mtime_ns for file in folder.glob("*.*")}
    again = work(job)
    assert (again.state, again.score) == ("finished", first.score)
    assert {file: file.stat().st_mtime_ns for file in folder.glob("*.*")} == before
    (folder / "summary.json").write_text("{}")  # not whole: its end is written again
    assert work(job).score == first.score and json.loads((folder / "summary.json").read_text())["rounds"] == 2
