"""The command with a cluster of its own, as a newcomer types it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.resuming import equal

pytest.importorskip("ray")
pytestmark = pytest.mark.ray

RUN = ["run", "scaffold", "--clients", "10", "--cohort", "5", "--rounds", "60", "--model", "logistic"]


def fedskew(*words: str, folder: Path) -> subprocess.Popen[str]:
    """The command in a process group of its own, as a terminal starts it."""
    command = [sys.executable, "-m", "fedskew", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def test_ctrl_c_keeps_whole_rounds_and_the_run_goes_on(tmp_path: Path) -> None:
    whole = fedskew(*RUN, "--engine", "sequential", "--out", "whole", folder=tmp_path)
    run = fedskew(*RUN, "--engine", "ray", "--ray.workers", "2", "--out", "run", folder=tmp_path)
    rounds, until = tmp_path / "run" / "rounds.jsonl", time.monotonic() + 120
    while not rounds.exists() or rounds.read_text().count("\n") < 3:
        assert time.monotonic() < until and run.poll() is None, run.communicate()
        time.sleep(0.05)
    os.killpg(run.pid, signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 130 and "Traceback" not in out + err, err
    assert 3 <= rounds.read_text().count("\n") < 60
    again = fedskew("run", "--resume", "run", folder=tmp_path)
    out, err = again.communicate(timeout=120)
    assert again.returncode == 0, err
    whole.communicate(timeout=60)
    assert whole.returncode == 0
    equal(tmp_path / "whole", tmp_path / "run")
    assert not [line for line in (out + err).splitlines() if "raylet" in line], "Ray's own words stay away"
