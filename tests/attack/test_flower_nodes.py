"""Nodes of a Flower deployment that are killed at random times: no result may differ."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from support.attack import Line, some
from support.deployment import Deployment
from support.kills import Killer, alone, differs

pytestmark = pytest.mark.flower
KILLS = some(3, 100)
CONFIG: dict[str, Any] = {
    "method": "scaffold", "data": "digits", "model": "logistic", "partition": "dirichlet", "partition.alpha": 0.5,
    "clients": 5, "cohort": 5, "rounds": 3, "epochs": 1, "checkpoint-every": 1,
}  # fmt: skip
WORDS = [f"--{name}={value}" for name, value in CONFIG.items() if name not in ("method", "clients")]


def test_nodes_that_are_killed_at_random_times(tmp_path: Path) -> None:
    """With ``FEDSKEW_KILLS``, a file, a long attack goes on where it was ended."""
    known = Path(os.environ.get("FEDSKEW_KILLS") or tmp_path / "kills.jsonl")
    done = [json.loads(line) for line in known.read_text().splitlines()] if known.exists() else []
    with Line("signals", "SIGKILL of Flower's nodes") as line, Deployment(tmp_path, "scaffold", *WORDS) as deployment:
        deployment.begin()
        number, before = len(done), sum(entry["kills"] for entry in done)
        killer = Killer(deployment, seed=number, longest_s=some(15, 60))
        while before + killer.kills < KILLS:
            kills, began, out = killer.kills, time.monotonic(), f"run-{number}"
            run = deployment.run(out, seed=number, flower__wait_s=120.0)
            while deployment.alive[run].poll() is None:
                killer.look(KILLS - before)
                time.sleep(0.2)
                logs = (f"{name}: {deployment.log(name)[-2000:]}" for name in deployment.alive)
                assert time.monotonic() - began < 1200, "\n".join(logs)
            output = deployment.ended(run)
            expected = alone(tmp_path / f"alone-{number}", {**CONFIG, "seed": number})
            folder = deployment.app / out
            wrong = differs(folder, expected) if (folder / "final.safetensors").exists() else output[-1000:]
            entry = {"kills": killer.kills - kills, "wrong": wrong, "seconds": round(time.monotonic() - began)}
            with known.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
            line.check(not wrong, f"run {number}: {wrong}")
            line.survived(entry["kills"] if not wrong else 0)
            number += 1
    print(f"{before + killer.kills} kills, {number} runs")
