"""SCAFFOLD with many clients, few of whom take part: seconds a round and peak memory must not follow N.

python benchmarks/scaling/many_clients.py --clients 1000,10000,100000
python benchmarks/scaling/many_clients.py --clients 100000 --methods scaffold --cohort 500 --memory device,ram
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from statistics import median

import numpy as np

import fedskew as fs
from fedskew import rng

ROWS = 2  # of a client


def one(clients: int, method: str, memory: str, rounds: int, cohort: int) -> dict[str, object]:
    """A run on made-up 28x28 images, the MLP of 100 000 parameters; a checkpoint every fifth round."""
    draw = rng.generator(0, "many")
    x = draw.integers(0, 256, size=(clients * ROWS, 1, 28, 28), dtype=np.uint8)
    y = np.arange(len(x)) % 10
    data = fs.from_arrays(x, y, x[:1000], y[:1000], columns={"client": np.arange(len(x)) // ROWS})
    fed = fs.federate(data, fs.partitioners.Natural())
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        result = fs.run(
            fed, fs.methods.METHODS[method](), model="mlp", rounds=rounds, cohort=cohort, memory=memory,
            checkpoint_every=5, out=Path(folder) / "run",
        )  # fmt: skip
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = median(row["wall_s"] for row in result.rounds[1:])
    facts = {"rounds": rounds, "date": time.strftime("%Y-%m-%dT%H:%M")}
    whole = round(time.perf_counter() - start, 2)
    return {
        "clients": clients,
        "method": method,
        "cohort": cohort,
        "memory": memory,
        "took_part": len({k for row in result.rounds for k in row["clients"]}),
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
    parser.add_argument("--cohort", type=int, default=10)
    parser.add_argument("--memory", default="device", help="homes of what clients keep, with commas between")
    parser.add_argument("--out", type=Path, default=Path("results/scaling/many-clients.jsonl"))
    parser.add_argument("--one", nargs=3, metavar=("CLIENTS", "METHOD", "MEMORY"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(int(args.one[0]), args.one[1], args.one[2], args.rounds, args.cohort)))
        return
    for point in product(args.methods.split(","), args.clients.split(","), args.memory.split(",")):
        method, clients, memory = point
        words = [sys.executable, __file__, "--rounds", str(args.rounds), "--cohort", str(args.cohort)]
        words += ["--one", clients, method, memory]
        line = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
        with args.out.open("a") as file:
            file.write(line + "\n")
        print(line, flush=True)


if __name__ == "__main__":
    main()
