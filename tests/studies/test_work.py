"""Workers: one that is asked to end does so, with its run saved; and any program may begin them."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedskew as fs
from fedskew.engines.runtime import Workers
from fedskew.session import Session
from fedskew.studies import pool
from fedskew.studies.spec import spec_from
from fedskew.studies.study import Study
from fedskew.studies.work import RunJob, begin, work
from support.paths import ROOT


def test_four_runs_share_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Workers, "cores", lambda: 16)
    assert [pool.workers_of(d) for d in (["cpu"], [], ["cuda", "cuda"], ["cuda:0", "cuda:1", "cpu"])] == [16, 16, 4, 8]


def job_of(folder: Path, rounds: int = 100_000) -> RunJob:
    """The job of a small run."""
    given = [("clients", "5"), ("cohort", "2"), ("rounds", str(rounds)), ("model", "logistic")]
    (planned,) = Study(spec_from(["fedavg"], given), folder).missing()
    return RunJob(planned.address, planned.job, str(folder))


def begun(target: Callable[[RunJob], None], job: RunJob, patch: pytest.MonkeyPatch) -> Any:
    """A process that does something with a job; it imports this module."""
    patch.syspath_prepend(ROOT)
    process = multiprocessing.get_context("spawn").Process(target=target, args=(job,))
    process.start()
    return process


def busy(job: RunJob) -> None:
    """A worker with one run, which then waits for more, as in a pool."""
    begin()
    work(job)
    time.sleep(600)


def test_a_worker_that_is_asked_to_end_saves_its_run_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the pool, which terminates its workers once and waits for them, would wait for ever."""
    process = begun(busy, job := job_of(tmp_path), monkeypatch)
    rounds, before = tmp_path / "runs" / job.address / "rounds.jsonl", time.monotonic()
    while not (rounds.exists() and rounds.read_text().count("\n") > 2) and time.monotonic() - before < 120:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGTERM)
    process.join(60)
    assert process.exitcode == 128 + signal.SIGTERM
    assert (rounds.parent / "checkpoint" / "state.safetensors").exists()


class Asks:
    """Asks the process to end while it is deleted, where no exception gets through."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)


def unlucky(job: RunJob) -> None:
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
def test_a_request_that_is_lost_in_a_callback_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    process = begun(unlucky, job_of(tmp_path), monkeypatch)
    process.join(120)
    assert process.exitcode == 128 + signal.SIGTERM
    assert "KeyboardInterrupt" not in capfd.readouterr().err


def test_a_run_that_another_process_ended_is_not_touched(tmp_path: Path) -> None:
    """A worker that outlived its scheduler may end a run after the next scheduler has planned it."""
    job = job_of(tmp_path, rounds=2)
    first, folder = work(job), tmp_path / "runs" / job.address
    before = {file: file.stat().st_mtime_ns for file in folder.glob("*.*")}
    again = work(job)
    assert (again.state, again.score) == ("finished", first.score)
    assert {file: file.stat().st_mtime_ns for file in folder.glob("*.*")} == before
    (folder / "summary.json").write_text("{}")  # not whole: its end is written again
    assert work(job).score == first.score and json.loads((folder / "summary.json").read_text())["rounds"] == 2


# A study that any program begins: workers need nothing of the program, and do not import it

PROGRAM = """
import fedskew as fs
print("begun")
study = fs.study(["fedavg", "fedla"], clients=5, cohort=2, rounds=2, model="logistic", store="store")
study.run(processes=2)
print(__name__, [row["state"] for row in study.table()])
"""
LINES = "\n".join(PROGRAM.strip().splitlines())  # as they are typed
TOLD = ["begun", "__main__ ['finished', 'finished']"]

WAYS = {
    "a file that trains wherever it is imported": (["program.py"], ""),
    "a module": (["-m", "program"], ""),
    "standard input": (["-"], PROGRAM),
    "an interactive session": (["-i", "-q"], LINES),
}


def said(words: list[str], given: str, folder: Path) -> list[str]:
    """The lines that Python prints, which ends without an error."""
    env = {k: v for k, v in os.environ.items() if k != "FEDSKEW_DATA"}
    env |= {"PYTHONPATH": str(Path(fs.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    python = [sys.executable, *words]
    done = subprocess.run(python, cwd=folder, input=given, capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0 and "Error" not in done.stderr, done.stdout + done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
def test_a_study_runs_from(way: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    assert said(*WAYS[way], tmp_path) == TOLD


def test_the_program_is_as_before_when_its_workers_have_begun() -> None:
    names: dict[str, Any] = {"__spec__": 1, "name": 2}
    with pytest.raises(KeyError), pool._holding(names, {"__spec__": None, "more": 3}):
        assert names == {"__spec__": None, "name": 2, "more": 3}
        raise KeyError
    assert list(names.items()) == [("__spec__", 1), ("name", 2)]


def test_a_worker_has_the_variables_that_are_set_when_it_begins(tmp_path: Path) -> None:
    """The server that forks workers lives as long as the program, and was begun with older ones."""
    program = f"""
import os
{PROGRAM}
os.environ["FEDSKEW_DATA"] = "nowhere"
from fedskew.studies.pool import _pool
with _pool(1) as made:
    print(made.submit(os.getenv, "FEDSKEW_DATA").result())
"""
    assert said(["-c", program], "", tmp_path) == [*TOLD, "nowhere"]
