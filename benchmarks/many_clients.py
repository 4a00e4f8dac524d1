"""SCAFFOLD with many clients, few of whom take part: seconds a round and peak memory must not follow N.

python benchmarks/many_clients.py --clients 1000,10000,100000
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np

import fedskew as fs
from fedskew import rng

ROWS = 2  # of a client


def one(clients: int, method: str, rounds: int) -> dict[str, object]:
    """A run of cohorts of ten on made-up 28x28 images, the MLP of 100 000 parameters."""
    draw = rng.generator(0, "many")
    x = draw.integers(0, 256, size=(clients * ROWS, 1, 28, 28), dtype=np.uint8)
    y = np.arange(len(x)) % 10
    data = fs.from_arrays(x, y, x[:1000], y[:1000], columns={"client": np.arange(len(x)) // ROWS})
    fed = fs.federate(data, fs.partitions.Natural())
    start = time.perf_counter()
    result = fs.run(fed, fs.methods.METHODS[method](), model="mlp", rounds=rounds, cohort=10, checkpoint_every=0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = median(row["wall_s"] for row in result.rounds[1:])
    facts = {"rounds": rounds, "date": time.strftime("%Y-%m-%dT%H:%M")}
    whole = round(time.perf_counter() - start, 2)
    return {
        "clients": clients,
        "method": method,
        "round_s": round(seconds, 4),
        "run_s": whole,
        "peak_mb": round(peak),
    } | facts


def main() -> None:
    """A process of its own for each number of clients, one line of JSON each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default="1000,10000,100000")
    parser.add_argument("--methods", default="fedavg,scaffold,moon")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("results/many-clients.jsonl"))
    parser.add_argument("--one", nargs=2, metavar=("CLIENTS", "METHOD"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(int(args.one[0]), args.one[1], args.rounds)))
        return
    for method in args.methods.split(","):
        for clients in args.clients.split(","):
            words = [sys.executable, __file__, "--rounds", str(args.rounds), "--one", clients, method]
            line = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
            with args.out.open("a") as file:
                file.write(line + "\n")
            print(line, flush=True)


if __name__ == "__main__":
    main()
