"""Secure sums between processes, over TLS: the model of a plain run, a killed node, and what the server keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from fedskew.flower.options import experiment_of
from fedskew.records.files import load_tree
from fedskew.tree import flatten
from support.deployment import Deployment
from support.forms import forms
from support.runs import gap

pytestmark = [pytest.mark.flower, pytest.mark.slow]
NODES = 4
CONFIG: dict[str, Any] = {
    "data": "digits", "model": "logistic", "partition": "dirichlet", "partition.alpha": 0.5, "cohort": NODES,
    "epochs": 1, "checkpoint-every": 1, "secure": "sums",
}  # fmt: skip


def test_a_run_between_processes(tmp_path: Path) -> None:
    with Deployment(tmp_path, "fedla", *[f"--{n}={v}" for n, v in CONFIG.items()], nodes=NODES) as deployment:
        deployment.begin()
        deployment.ended(deployment.run("whole", rounds=1), code=0)
        alone = experiment_of({**CONFIG, "method": "fedla", "clients": NODES, "rounds": 1, "secure": "none"}).run()
        assert gap(load_file(deployment.app / "whole" / "final.safetensors"), alone.params) < 1e-4

        run = deployment.run("killed", rounds=2, flower__missing="drop", flower__wait_s=120.0)
        deployment.until(lambda: deployment.rounds("killed") >= 1, run)
        deployment.kill("node-1")
        deployment.ended(run, code=0)
        rows = [json.loads(line) for line in (deployment.app / "killed" / "rounds.jsonl").read_text().splitlines()]
        assert [row["clients"] for row in rows] == [[0, 1, 2, 3], [0, 2, 3]]

        kept = [path for path in (deployment.app / "killed").rglob("*") if path.is_file()]
        kept += [*deployment.app.glob("superlink.db*"), deployment.app / "superlink.log", deployment.app / f"{run}.log"]
        seen = b"\n".join(path.read_bytes() for path in kept)
        for k in (0, 2, 3):
            held, _ = load_tree(deployment.app / "state" / "killed" / f"client-{k}" / "held-update.safetensors")
            assert held["own"]["rows"]["used"].sum() > 0
            for path, leaf in flatten(held):
                if leaf is not None and leaf.numel() >= 10:  # a number alone stands anywhere
                    assert not any(form in seen for form in forms(leaf)), path
