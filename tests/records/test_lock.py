"""One process writes a run folder at a time; a dead one's hold is free at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import fedskew as fs
from fedskew.errors import RecordError
from fedskew.records.files import Hold
from fedskew.records.folder import Record
from support.federations import skewed
from support.runs import go

HOLDER = """
import sys, time
from pathlib import Path
from fedskew.records.files import Hold
hold = Hold(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


@contextmanager
def holder(folder: Path, end: signal.Signals = signal.SIGKILL) -> Iterator[int]:
    """A process that holds a folder; its number."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout and process.stdout.readline() == "held\n"
        yield process.pid
    finally:
        process.send_signal(end)
        process.communicate()


def test_a_second_process_is_told_of_the_first_and_takes_over_from_a_dead_one(tmp_path: Path) -> None:
    told = r"is in use by process {} on \S+ since [\d-]+ [\d:]+; wait"
    with holder(tmp_path) as first, pytest.raises(RecordError, match=told.format(first)):
        Hold(tmp_path)
    Hold(tmp_path).release()
    with holder(tmp_path, signal.SIGTERM):
        pass
    Hold(tmp_path).release()


def test_a_run_is_neither_resumed_nor_begun_where_another_process_writes(tmp_path: Path) -> None:
    run = tmp_path / "run"
    go(skewed(), fs.methods.fedavg(), out=run)
    before = {p.name: p.read_bytes() for p in run.iterdir() if p.is_file()}
    with holder(run):
        for options in ({"resume": True, "rounds": 3}, {}):
            with pytest.raises(RecordError, match="in use by process"):
                go(skewed(), fs.methods.fedavg(), out=run, **options)
        kept = {p.name: p.read_bytes() for p in run.iterdir() if p.is_file() and p.name != ".owner.json"}
        assert kept == before


def test_a_run_that_ends_or_fails_lets_its_folder_go(tmp_path: Path) -> None:
    run = tmp_path / "run"
    go(skewed(), fs.methods.fedavg(), out=run)
    with pytest.raises(RecordError, match="same run"):
        go(skewed(), fs.methods.fedprox(), out=run, resume=True)
    Hold(run).release()
    assert not (run / ".owner.json").exists()


def test_a_run_in_progress_holds_its_folder(tmp_path: Path) -> None:
    def look(row: dict[str, Any]) -> None:
        with pytest.raises(RecordError, match=f"in use by process {os.getpid()}"):
            Record.open(tmp_path / "run")
        assert json.loads((tmp_path / "run" / ".owner.json").read_text())["pid"] == os.getpid()

    go(skewed(), fs.methods.fedavg(), out=tmp_path / "run", on_round=look)


def test_a_file_system_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any) -> None:
        raise NotImplementedError("no flock here")

    monkeypatch.setattr("fedskew.records.files.FileLock.acquire", refuse)
    with pytest.raises(RecordError, match="cannot be locked: no flock here; a run needs a file system with locks"):
        Hold(tmp_path)
