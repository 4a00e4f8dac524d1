"""Nodes of a deployment that are killed at random times, and begun again, while runs go on."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.deployment import Deployment
from support.lives import below, unlike

__all__ = ["Killer", "alone", "differs"]


def alone(folder: Path, config: dict[str, Any]) -> Path:
    """The run folder of the engine sequential on this machine."""
    from fedskew.flower.options import experiment_of

    experiment_of({**config, "engine": "sequential"}).run(out=folder)
    return folder


def differs(a: Path, b: Path) -> str:
    """In what a run differs from another; "" where model and rounds are equal to the byte, without times."""
    told = unlike(a, b)
    return "" if told.startswith("files") and not _contents(a, b) else told


def _contents(a: Path, b: Path) -> bool:
    from support.resuming import recorded

    same = (a / "final.safetensors").read_bytes() == (b / "final.safetensors").read_bytes()
    return not same or recorded(a) != recorded(b)


class Killer:
    """Kills each node after a random time of its life, and begins it again at once.

    A superlink refuses a node whose place it still keeps, so a life begins about a minute after the kill.
    """

    def __init__(self, deployment: Deployment, seed: int, longest_s: float) -> None:
        """A node lives for up to ``longest_s`` seconds after it has been taken."""
        self.deployment, self.longest_s, self.rng = deployment, longest_s, random.Random(seed)
        self.kills = 0
        self.begun = dict.fromkeys(range(deployment.nodes), 0)  # where its log stood when the node began
        self.due: dict[int, float] = {}

    def look(self, wanted: int) -> None:
        """Kill the nodes whose time has come, until so many are killed."""
        for k, at in self.begun.items():
            code, log = self.deployment.alive[f"node-{k}"].poll(), self.deployment.log(f"node-{k}")
            assert code is None, f"node {k} ended by itself with {code}:\n{log[-3000:]}"
            if "SuperNode ID" not in log[at:]:
                continue  # the superlink has not taken it yet
            due = self.due.setdefault(k, time.monotonic() + self.rng.uniform(0, self.longest_s))
            if self.kills < wanted and time.monotonic() >= due:
                self.kill(k)

    def kill(self, k: int) -> None:
        """Kill one node: in one of four times the process that trains alone, else all of its processes."""
        name = f"node-{k}"
        children = [pid for pid in below(self.deployment.alive[name].pid) if _trains(pid)]
        self.kills += 1
        del self.due[k]
        if children and self.rng.random() < 0.25:
            with suppress(ProcessLookupError):
                os.kill(children[0], signal.SIGKILL)
            return
        self.deployment.kill(name)
        self.begun[k] = len(self.deployment.log(name))
        self.deployment.node(k)


def _trains(pid: int) -> bool:
    try:
        return b"flwr-clientapp" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
