"""Peak memory of a run beside the bound that was set for it.

python benchmarks/scaling/peak.py                                  # needs FEDSKEW_DATA with Fashion-MNIST and CIFAR-10
python benchmarks/scaling/peak.py --cases fedbal/mlp/fashion_mnist/50

The bound in MB: the dataset as it is stored, two stacks of one client with six copies of the model each, the cohort's
models (a weighting may read all deltas), 500 for everything else. Each case runs twice: as it is, and with glibc told
to give large blocks back at once, where by default it learns to keep them (mallopt(3), M_MMAP_THRESHOLD).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, where common is

import fedskew as fs
from common.session import ROOT, setting
from fedskew import tree
from fedskew.engines.batched import COPIES

FIXED = "MALLOC_TRIM_THRESHOLD_=131072"
CASES = "fedbal/mlp/fashion_mnist/50,fedavg/tfcnn/cifar10/10"


def one(case: str, rounds: int) -> dict[str, object]:
    """Peak and bound of a run in this process."""
    method, model, data, cohort = case.split("/")
    fed = fs.federate(data, fs.partitioners.Dirichlet(alpha=0.5), clients=100)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    result = fs.run(fed, fs.methods.METHODS[method](), model=model, rounds=rounds, cohort=int(cohort))
    d = fed.dataset
    stored = tree.size_bytes({"train": d.x, "test": d.x_test}) / 2**20
    each = tree.size_bytes(result.params) / 2**20
    return {
        "bound_mb": round(stored + 2 * COPIES * each + int(cohort) * each + 500),
        "loaded_mb": round(before),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def main() -> None:
    """A process a run, a line of JSON and of the table each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=CASES, help="METHOD/MODEL/DATA/COHORT, with commas between")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "scaling" / "peak.jsonl")
    parser.add_argument("--one", metavar="CASE", help="one case in this process")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(args.one, args.rounds)))
        return
    print("| run | in the environment | peak MB | bound MB | MB once the data are loaded |\n|---|---|---:|---:|---:|")
    for case in args.cases.split(","):
        for chosen in ("", FIXED):
            words = [sys.executable, __file__, "--one", case, "--rounds", str(args.rounds)]
            environment = {**os.environ, **dict(pair.split("=") for pair in [chosen] if pair)}
            done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"peak.py: {case}: {done.stderr.strip().splitlines()[-1]}")
            row = {
                "case": case,
                "environment": chosen,
                "at": time.strftime("%H:%M"),
                **json.loads(done.stdout),
                **setting(),
            }
            with args.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            shown = f"{row['peak_mb']} | {row['bound_mb']} | {row['loaded_mb']}"
            print(f"| {case.replace('/', ', ')} a round | {chosen} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
