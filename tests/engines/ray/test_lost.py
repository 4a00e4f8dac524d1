"""Workers and nodes that are killed within a round: replaced, and the round ends with the same bytes."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fedskew as fs
from fedskew.method import Component, Method
from fedskew.types import LocalRun, Params, View
from support.federations import skewed
from support.methods import tiny
from support.resuming import equal
from support.runs import measured as go

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("by_value")]
HERE = os.getpid()


@dataclass(frozen=True)
class Deadly(Component):
    """Kills its worker at a step of a local run, as often as its folder has files to remove."""

    name = "deadly"
    folder: str = ""

    def correct(self, grads: Params, view: View) -> Params:
        if os.getpid() != HERE and int(view.progress.step) == 2:
            for file in Path(self.folder).glob("bullet*"):
                file.unlink(missing_ok=True)
                os.kill(os.getpid(), signal.SIGKILL)
        return grads


@dataclass(frozen=True)
class Slow(Component):
    """Notes that it trains, then takes its time."""

    name = "slow"
    folder: str = ""

    def finish(self, local: LocalRun) -> tuple[Any, Any]:
        if os.getpid() != HERE:
            import ray

            node = ray.get_runtime_context().get_node_id()
            (Path(self.folder) / f"{node}-{time.monotonic_ns()}").touch()
            time.sleep(0.2)
        return {}, local.memory[self.name]


def armed(method: Method, part: Component) -> Method:
    return method.with_(parts=(*method.parts, part))


@pytest.mark.parametrize("name", ["scaffold", "astraea"])
def test_a_killed_worker_is_replaced(name: str, tmp_path: Path) -> None:
    method = armed(tiny(name), Deadly(str(tmp_path)))
    go(skewed(), method, out=tmp_path / "whole", rounds=4, cohort=6)
    for i in range(2):
        (tmp_path / f"bullet{i}").touch()
    go(skewed(), method, out=tmp_path / "killed", rounds=4, cohort=6, engine="ray")
    assert not list(tmp_path.glob("bullet*")), "nobody was killed"
    equal(tmp_path / "whole", tmp_path / "killed")


def test_a_client_that_ends_every_worker_is_told(tmp_path: Path) -> None:
    for i in range(50):
        (tmp_path / f"bullet{i}").touch()
    method = armed(tiny("fedavg"), Deadly(str(tmp_path)))
    with pytest.raises(fs.TrainingError, match=r"client \d of round 1 ended 3 worker processes of Ray") as caught:
        go(skewed(), method, engine="ray", cohort=2)
    assert "\n" not in str(caught.value)


def test_a_killed_node_takes_nothing_along(cluster: Any, tmp_path: Path) -> None:
    node = cluster.add_node(num_cpus=1)
    where = node.node_id
    method = armed(tiny("scaffold"), Slow(str(tmp_path)))
    go(skewed(), method, out=tmp_path / "whole", rounds=4, cohort=6)
    seen: list[str] = []

    def kill() -> None:
        """End the node once it has trained a client, which is within a round."""
        for _ in range(600):
            if found := list(tmp_path.glob(f"{where}-*")):
                seen.extend(f.name for f in found)
                cluster.remove_node(node, allow_graceful=False)
                return
            time.sleep(0.05)

    thread = threading.Thread(target=kill)
    thread.start()
    # the node with the most room gets a worker: there are three of a core each
    go(skewed(), method, out=tmp_path / "killed", rounds=4, cohort=6, engine="ray", ray_workers=3)
    thread.join()
    assert seen, "the node had no worker"
    equal(tmp_path / "whole", tmp_path / "killed")
