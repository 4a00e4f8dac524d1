"""A/A studies: FedAvg against itself under other seeds. A test of a difference at 5 % should find one in 5 % of them.

python benchmarks/accuracy/aa.py                 trains 4,000 short runs on the digits: five minutes of one core
python benchmarks/accuracy/aa.py --table         what the tests find in the recorded runs, and how often intervals cover

Two runs of a pair share the federation (the seed of the partition), as two methods of a study do, and have different
seeds for everything else. Two hundred studies of ten pairs use each run once. So the 200 outcomes are independent.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import fedskew as fs
from fedskew.data.sources.table import load

sys.path.insert(0, str(Path(__file__).parents[1]))
from common.session import setting

OUT = Path(__file__).parents[2] / "results/accuracy/aa-digits.jsonl"
STUDIES, PAIRS = 200, 10
OPTIONS = {"model": "logistic", "rounds": 5, "cohort": 5, "eval_every": 5, "engine": "sequential", "threads": 1}
PACE = fs.paces.Fixed(1, 0.1, batch_size=64)
ALPHA, CLIENTS = 0.1, 10


def trained(pairs: int) -> Iterator[dict]:
    """The final accuracy of both runs of each pair."""
    data, method = load("digits"), fs.methods.fedavg().with_(pace=PACE)
    for pair in range(pairs):
        fed = fs.federate(data, fs.partitioners.Dirichlet(alpha=ALPHA), clients=CLIENTS, seed=pair)
        seeds = [2 * pair, 2 * pair + 1]
        rows = [fs.run(fed, method, seed=seed, **OPTIONS).rounds[-1] for seed in seeds]
        yield {"partition": pair, "seeds": seeds, "accuracy": [round(row["accuracy"], 6) for row in rows]}


def record(out: Path, pairs: int) -> None:
    """Train, and write a line on the session and one for each pair."""
    torch.set_num_threads(1)
    began = time.process_time()
    lines = [json.dumps(row) for row in trained(pairs)]
    facts = {"clients": CLIENTS, "alpha": ALPHA, "batch": 64, "epochs": 1, "lr": 0.1, **OPTIONS}
    head = {**setting(), "cpu_s": round(time.process_time() - began), "options": facts}
    out.write_text("\n".join([json.dumps(head), *lines]) + "\n", encoding="utf-8")


def recorded(path: Path = OUT) -> np.ndarray:
    """The recorded accuracies, float64 [pairs, 2]."""
    _, *lines = path.read_text(encoding="utf-8").splitlines()
    return np.array([json.loads(line)["accuracy"] for line in lines])


def main() -> None:
    """Train, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=STUDIES * PAIRS)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    if not args.table:
        record(args.out, args.pairs)


if __name__ == "__main__":
    main()
