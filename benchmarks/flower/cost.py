"""What a round over Flower costs on the loopback: seconds, bytes, and where the processor's time goes.

    .venv-flower/bin/python benchmarks/flower/cost.py --rounds 6 --json results/flower/cost.json
    .venv-flower/bin/python benchmarks/flower/cost.py --only stages

1. ``rounds``: a SuperLink over TLS and one or five nodes on this machine, as `fedskew flower init` makes them; FedAvg
   on the digits. ``empty`` is logistic regression with one step, in which nothing but the deployment takes time. Round
   1, in which nodes unpack the app, is left out; every number is a median with its lowest and highest.
2. ``stages``: processor seconds of the process that Flower begins for each message, stage by stage, in fresh processes.
   A machine that is busy otherwise disturbs them least.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from support.deployment import Deployment

WORKLOADS: dict[str, dict[str, Any]] = {
    "empty": {"model": "logistic", "batch-size": 4096},
    "mlp": {"model": "mlp", "batch-size": 64},
    "resnet20": {"model": "resnet20", "batch-size": 64},
}
STAGE = """
import json, sys, time
from pathlib import Path

before, found = time.process_time(), {}


def stage(name):
    global before
    now = time.process_time()
    found[name], before = now - before, now


import flwr.supernode.cli.flwr_clientapp
stage("import flwr")
import torch
stage("import torch")
from fedskew.flower import serve
stage("import fedskew")
config, own = json.loads(sys.argv[1])
experiment = serve.experiment_of(config)
stage("read the configuration")
node = serve._node(json.dumps([config, own, ".", None], sort_keys=True), serve.experiment_of)
stage("rows")
node.engine
stage("prepare the model")
node.contract
stage("contract")
print(json.dumps(found))
"""


def spread(values: list[float]) -> dict[str, float]:
    """Median and range."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "n": len(values)}


def config(workload: str, nodes: int, rounds: int) -> dict[str, Any]:
    """Options of the run."""
    usual = {"data": "digits", "partition": "iid", "cohort": nodes, "rounds": rounds, "epochs": 1}
    return {**usual, **WORKLOADS[workload]}


def rounds(nodes: int, workloads: list[str], count: int) -> list[dict[str, Any]]:
    """Seconds and bytes of the rounds of each workload, with so many nodes."""
    rows = []
    with tempfile.TemporaryDirectory() as place:
        words = [f"--{name}={value}" for name, value in config("mlp", nodes, count).items()]
        with Deployment(Path(place), "fedavg", *words, nodes=nodes) as deployment:
            deployment.begin()
            for workload in workloads:
                load = os.getloadavg()[0]
                given = config(workload, nodes, count)
                keys = {name.replace("-", "_"): given[name] for name in ("model", "batch-size", "rounds")}
                said = deployment.ended(deployment.run(workload, **keys), 3600)
                lines = (deployment.app / workload / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
                sizes = re.search(r"(\d+) messages, (\d+) bytes to the nodes, (\d+) bytes back", said)
                assert sizes, said
                trained = count * nodes
                rows.append({
                    "workload": workload, "nodes": nodes, "load": load,
                    "seconds": spread([json.loads(line)["wall_s"] for line in lines[1:]]),
                    "messages": int(sizes[1]), "down": int(sizes[2]) / trained, "up": int(sizes[3]) / trained,
                })  # fmt: skip
                print(json.dumps(rows[-1]), flush=True)
    return rows


def stages(workload: str, repeats: int) -> dict[str, Any]:
    """Processor seconds of a message's process, by stage."""
    found: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as place:
        given = {**config(workload, 5, 1), "method": "fedavg", "clients": 5, "flower.out": "run"}
        told = json.dumps([given, {"client": 1, "allow": "all", "state": place}])
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        for _ in range(repeats):
            done = subprocess.run(
                [sys.executable, "-c", STAGE, told], env=env, capture_output=True, text=True, check=True
            )
            found.append(json.loads(done.stdout.splitlines()[-1]))
    row = {"workload": workload, "stages": {name: spread([one[name] for one in found]) for name in found[0]}}
    print(json.dumps(row), flush=True)
    return row


def main() -> None:
    """Measure, print, and keep with ``--json``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6, help="the first is left out (default: 6)")
    parser.add_argument("--repeats", type=int, default=5, help="processes for the stages (default: 5)")
    parser.add_argument("--nodes", default="1,5")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--only", choices=("rounds", "stages"))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    workloads = given.workloads.split(",")
    rows: list[dict[str, Any]] = []
    if given.only != "rounds":
        rows += [stages(workload, given.repeats) for workload in workloads]
    if given.only != "stages":
        for nodes in map(int, given.nodes.split(",")):
            rows += rounds(nodes, workloads, given.rounds)
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        told = {"when": time.strftime("%Y-%m-%d %H:%M"), "cores": os.cpu_count(), "rows": rows}
        given.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
