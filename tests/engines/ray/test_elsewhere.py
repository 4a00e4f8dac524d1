"""A run that was stopped goes on with another cluster, by the command: a cluster has another address tomorrow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.resuming import equal, recorded

pytest.importorskip("ray")
pytestmark = pytest.mark.ray
RUN = ["run", "scaffold", "--clients", "6", "--cohort", "4", "--rounds", "3", "--model", "logistic"]
ONE_ROUND = ["--max-minutes", "0.0001"]  # a start does one round at least
TIME_IS_UP = 75


def fedskew(*words: object, folder: Path) -> tuple[int, str]:
    """The command in a process of its own, which joins the cluster that it is told: (exit code, what it says)."""
    command = [sys.executable, "-m", "fedskew", *map(str, words)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


def test_a_run_goes_on_with_another_cluster(cluster: Any, tmp_path: Path) -> None:
    address, run = cluster.address, tmp_path / "run"
    assert fedskew(*RUN, "--engine", "sequential", "--out", "whole", folder=tmp_path)[0] == 0
    far = ["--engine", "ray", "--ray.address", address, "--ray.workers", "2", "--ray.gpus", "0.5"]
    code, said = fedskew(*RUN, *far, *ONE_ROUND, "--out", "run", folder=tmp_path)
    assert code == TIME_IS_UP and len(recorded(run)) == 1, said
    before = json.loads((run / "config.json").read_text())
    assert (before["ray_address"], before["ray_workers"], before["ray_gpus"]) == (address, 2, 0.5)

    # nothing listens at the port: the run and its record stay
    code, said = fedskew("run", "--resume", "run", "--ray.address", "127.0.0.1:1", folder=tmp_path)
    assert code == 2 and "there is no Ray cluster at '127.0.0.1:1'" in said and said.count("\n") == 1, said
    assert json.loads((run / "config.json").read_text()) == before and len(recorded(run)) == 1

    code, said = fedskew("run", "--resume", "run", "--seed", "2", folder=tmp_path)
    assert code == 2 and "--resume must be used alone, or with --rounds" in said and "got '--seed 2'" in said

    here = ["--ray.address", "local", "--ray.workers", "1", "--ray.gpus", "1", *ONE_ROUND]
    code, said = fedskew("run", "--resume", "run", *here, folder=tmp_path)
    assert code == TIME_IS_UP and len(recorded(run)) == 2, said
    after = json.loads((run / "config.json").read_text())
    assert after == {**{n: v for n, v in before.items() if n != "ray_gpus"}, "ray_address": "local", "ray_workers": 1}

    again = ["--ray.address", address, "--ray.workers", "0", "--max-minutes", "60"]
    code, said = fedskew("run", "--resume", "run", *again, folder=tmp_path)
    assert code == 0, said
    equal(tmp_path / "whole", run)
    last = json.loads((run / "config.json").read_text())
    assert last["ray_address"] == address and "ray_workers" not in last and "ray_gpus" not in last
