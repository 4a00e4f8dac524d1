"""Where a round's time goes: stages and processor seconds of each engine, beside the work there is to do.

python benchmarks/speed/stages.py --workloads mnist-lr,mnist-2nn --engines sequential,threaded,batched
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, where common is

from gpu import demand

import fedskew as fs
from common import work as bench
from common.runs import federation, paced

STAGES = ("select_s", "train_s", "aggregate_s", "evaluate_s", "record_s")


def stages_of(work: bench.Work, engine: str, threads: int) -> dict[str, Any]:
    """Medians over the second half of the rounds, when everything is warm."""
    fed, method = federation(work), paced(fs.methods.fedavg(), work)
    marks = [time.process_time()]
    result = fs.run(
        fed, method, model=bench.make_model(work), head="fc", rounds=work.rounds, cohort=work.cohort, engine=engine,
        threads=threads, on_round=lambda row: marks.append(time.process_time()),
    )  # fmt: skip
    half = work.rounds // 2
    rows = result.rounds[half:]
    cpu = median(b - a for a, b in zip(marks[half:-1], marks[half + 1 :], strict=True))
    stages = {s: median(row[s] for row in rows) for s in (*STAGES, "wall_s")}
    need = demand(work)
    facts = {"date": time.strftime("%Y-%m-%dT%H:%M"), "torch": torch.__version__, "rounds": work.rounds}
    return {
        "workload": work.name,
        "engine": engine,
        "threads": threads,
        "cpu_s": cpu,
        **stages,
        **need._asdict(),
        **facts,
    }


def main() -> None:
    """One line of JSON a run, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default="mnist-lr,mnist-2nn,cifar-tfcnn")
    parser.add_argument("--engines", default="sequential,threaded,batched")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="0: one a core")
    parser.add_argument("--out", type=Path, default=Path("results/speed/stages.jsonl"))
    args = parser.parse_args()
    print("| workload | engine | wall s a round | processor s | train | aggregate | evaluate | GFLOP a round |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for name in args.workloads.split(","):
        work = bench.WORKLOADS[name]
        work = replace(work, rounds=args.rounds) if args.rounds else work
        for engine in args.engines.split(","):
            row = stages_of(work, engine, args.threads)
            with args.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            cells = [f"{row[k]:.3f}" for k in ("wall_s", "cpu_s", "train_s", "aggregate_s", "evaluate_s")]
            print(f"| {name} | {engine} | {' | '.join(cells)} | {row['flops'] / 1e9:.1f} |", flush=True)


if __name__ == "__main__":
    main()
