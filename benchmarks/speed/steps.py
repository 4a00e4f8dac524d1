"""What a client's local steps cost under each method, over FedAvg's: one thread, one process, in turns.

python benchmarks/speed/steps.py --methods fedlc,fedbal --models lr,mlp-128
python benchmarks/speed/steps.py --table results/speed/steps.jsonl

The last local run of a short training is kept for each method, traced steps where the engine traces them, and run
again and again, each time after FedAvg's: turns of some milliseconds, so that what else the machine does falls on both
alike. FedAvg stands in the list beside itself.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from unittest.mock import patch

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, where common is

import fedskew as fs
from common import work as bench
from common.runs import AUXILIARY, WARM_STEPS, federation, paced
from common.session import ROOT, setting
from common.work import CIFAR, MNIST, Work
from fedskew.engines.stepper import Stepper
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


def seconds(act: Callable[[], Any]) -> float:
    """Of one call."""
    begin = time.perf_counter()
    act()
    return time.perf_counter() - begin


def measure(model: str, names: list[str], count: int) -> list[dict[str, Any]]:
    """A row a method: ratios to the turn of FedAvg just before, milliseconds a step, traced and by the tape."""
    work = workload(model)
    fed = federation(work, AUXILIARY)
    reference = local_run(fed, "fedavg", work, True)
    runs = {name: tuple(local_run(fed, name, work, traced) for traced in (True, False)) for name in names}
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in names}
    for _ in range(count):
        for name, (traced, tape) in runs.items():
            found[name].append((seconds(reference), seconds(traced), seconds(tape)))
    steps = work.steps // work.cohort
    rows = []
    for name, turns in found.items():
        low, middle, high = quantiles([own / plain for plain, own, _ in turns], n=4)
        traced_ms, tape_ms = (1e3 * median(turn[i] for turn in turns) / steps for i in (1, 2))
        facts = {"model": model, "method": name, "batch": BATCH, "turns": count}
        rows.append({**facts, "x_fedavg": middle, "low": low, "high": high, "step_ms": traced_ms, "tape_ms": tape_ms})
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
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "speed" / "steps.jsonl")
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
