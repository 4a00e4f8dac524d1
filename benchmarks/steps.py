"""What a client's local steps cost under each method, over FedAvg's: one thread, one process, in turns.

python benchmarks/steps.py --methods fedlc,fedbal --models lr,mlp-128
python benchmarks/steps.py --table results/steps.jsonl

The last local run of a short training is kept for each method, traced steps where the engine traces them, and run
again and again, the methods taking turns of some milliseconds: what else the machine does falls on all alike, and the
ratio is that of neighbouring turns. FedAvg stands in the list beside itself.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from unittest.mock import patch

import torch
import work as bench
from bench import ROOT, setting
from curves import AUXILIARY, WARM_STEPS
from peer_fedskew import federation, paced
from work import CIFAR, MNIST, Work

import fedskew as fs
from fedskew.engines.programs import Stepper
from fedskew.methods import METHODS

LOSS_ONLY = "fedavg,fedlc,fedrs,fedfocal,fedir,fedga,fedgr,fedbal"
BATCH = 32


def workload(model: str) -> Work:
    """Some clients of 320 rows; few epochs, so that one local run takes milliseconds."""
    shape = CIFAR if model == "tfcnn" else MNIST
    work = Work(model, model, shape, 20, 10 * BATCH, 4, 1, BATCH, 0.05, rounds=2, test=100)
    return work if model == "tfcnn" else replace(work, rounds=-(-WARM_STEPS // work.steps) + 1)


def local_run(fed: Any, name: str, work: Work, traced: bool) -> Callable[[], Any]:
    """The last client's local run of a training, to be run again."""
    kept: list[Any] = []
    run = Stepper.run

    def keep(self: Stepper, *given: Any) -> Any:
        kept[:] = [self, *given]
        return run(self, *given)

    with patch.object(Stepper, "run", keep):
        fs.run(
            fed, paced(METHODS[name](), work), model=bench.make_model(work), head="fc", rounds=work.rounds,
            cohort=work.cohort, engine="threaded" if traced else "sequential", threads=1, eval_every=work.rounds,
        )  # fmt: skip
    return lambda: run(*kept)


def turns(runs: dict[str, Callable[[], Any]], count: int) -> dict[str, list[float]]:
    """Seconds of each turn of each."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(count):
        for name, again in runs.items():
            begin = time.perf_counter()
            again()
            seconds[name].append(time.perf_counter() - begin)
    return seconds


def measure(model: str, names: list[str], count: int) -> list[dict[str, Any]]:
    """A row a method: ratios to FedAvg's neighbouring turn, milliseconds a step, traced and by the tape."""
    work = workload(model)
    fed = federation(work, AUXILIARY)
    runs = {"reference": local_run(fed, "fedavg", work, True)}
    for name in names:
        runs[name] = local_run(fed, name, work, True)
        runs[f"{name} by the tape"] = local_run(fed, name, work, False)
    seconds = turns(runs, count)
    steps = work.steps // work.cohort
    rows = []
    for name in names:
        ratios = [a / b for a, b in zip(seconds[name], seconds["reference"], strict=True)]
        low, middle, high = quantiles(ratios, n=4)
        traced, tape = (1e3 * median(seconds[n]) / steps for n in (name, f"{name} by the tape"))
        facts = {"model": model, "method": name, "batch": BATCH, "turns": count}
        rows.append({**facts, "x_fedavg": middle, "low": low, "high": high, "step_ms": traced, "tape_ms": tape})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown of the last session."""
    lines = ["| network | method | x FedAvg | quartiles | ms a step | by the tape |", "|---|---|---:|---:|---:|---:|"]
    for row in rows:
        if row["session"] == max(r["session"] for r in rows):
            lines.append(
                f"| {row['model']} | {row['method']} | {row['x_fedavg']:.2f} | {row['low']:.2f} to {row['high']:.2f} | "
                f"{row['step_ms']:.3f} | {row['tape_ms']:.3f} |"
            )
    return "\n".join(lines)


def main() -> None:
    """A line of JSON a method and network, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default=LOSS_ONLY)
    parser.add_argument("--models", default="lr,mlp-128,2nn,tfcnn")
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "steps.jsonl")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the last session of this file")
    args = parser.parse_args()
    if args.table:
        print(table([json.loads(line) for line in args.table.read_text().splitlines()]))
        return
    torch.set_num_threads(1)
    facts, rows = setting(), []
    for model in args.models.split(","):
        for row in measure(model, args.methods.split(","), args.turns):
            rows.append({**{k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}, **facts})
            with args.out.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
