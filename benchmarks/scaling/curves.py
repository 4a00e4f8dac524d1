"""How fedskew's cost grows, and what each method costs beside FedAvg. One thread, one process and one line a point.

python benchmarks/scaling/curves.py  # everything, appended to results/scaling/curves.jsonl
python benchmarks/scaling/curves.py --curves cohort,methods --engine batched
python benchmarks/scaling/curves.py --table results/scaling/curves.jsonl

clients: 100 to 100 000, ten a round. cohort: 10 to 1000 of 1000 clients. model: one hidden layer of 32 to 8192 units.
methods: each method for some rounds between two lots of FedAvg in the same process, so that what slows the machine
slows both; the cost is that of a round without its evaluation. Clients own five of the ten classes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, where common is

import fedskew as fs
from common import work as bench
from common.processes import run_process
from common.runs import AUXILIARY, WARM_STEPS, federation, measure, paced
from common.session import BENCHMARKS, ROOT, setting
from common.work import MNIST, Work
from fedskew.errors import FedskewError
from fedskew.methods import METHODS

SMALL = Work("growth", "mlp-32", (1, 8, 8), 1000, 20, 10, 1, 10, 0.05, rounds=2, test=1000)
MIDDLE = Work("methods", "mlp-128", MNIST, 100, 300, 10, 2, 32, 0.05, rounds=2, test=1000)

GROWTH: dict[str, tuple[tuple[int, ...], Callable[[int], Work]]] = {
    "clients": ((100, 1_000, 10_000, 100_000), lambda n: replace(SMALL, clients=n)),
    "cohort": ((10, 30, 100, 300, 1_000), lambda k: replace(SMALL, cohort=k)),
    "model": ((32, 128, 512, 2_048, 8_192), lambda h: replace(MIDDLE, model=f"mlp-{h}", epochs=1)),
}
CURVES = {**{name: tuple(map(str, values)) for name, (values, _) in GROWTH.items()}, "methods": tuple(METHODS)}


def settled(work: Work, rounds: int) -> Work:
    """The work for at least so many rounds that the second half of them is past everything that engines warm up."""
    return replace(work, rounds=max(rounds, -(-2 * WARM_STEPS // work.steps)))


def second_half(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rounds that count."""
    return rows[len(rows) // 2 :]


def median_of(rows: list[dict[str, Any]], cost: Callable[[dict[str, Any]], float]) -> float:
    """Median over the rounds that count."""
    return statistics.median(map(cost, second_half(rows)))


def growth(curve: str, value: str, rounds: int, engine: str) -> dict[str, Any]:
    """One point of a growth curve."""
    work = settled(GROWTH[curve][1](int(value)), rounds)
    clock, rows, used = measure(work, federation(work), paced(fs.methods.fedavg(), work), engine)
    stages = ("wall_s", "select_s", "train_s", "aggregate_s", "evaluate_s", "record_s")
    medians = {stage: median_of(rows, lambda row, stage=stage: row[stage]) for stage in stages}
    size = sum(p.numel() for p in bench.make_model(work).parameters())
    facts = {"parameters": size, "steps": work.steps, "rounds": work.rounds, "startup_s": clock.startup_s}
    return {**facts, **medians, **used}


def untested(row: dict[str, Any]) -> float:
    """Seconds of a round without its evaluation and without writing the record."""
    return row["select_s"] + row["train_s"] + row["aggregate_s"]


def method(name: str, rounds: int, engine: str) -> dict[str, Any]:
    """What a method costs beside FedAvg at the same pace, on the same federation, in the same process."""
    work = settled(MIDDLE, rounds)
    fed = federation(work, AUXILIARY)
    plain = paced(fs.methods.fedavg(), work)
    before, (_, rows, used), after = (
        measure(work, fed, one, engine) for one in (plain, paced(METHODS[name](), work), plain)
    )
    references = [*second_half(before[1]), *second_half(after[1])]
    reference, cost = statistics.median(map(untested, references)), median_of(rows, untested)
    return {
        "rounds": work.rounds,
        "x_fedavg": cost / reference,
        "round_s": cost,
        "fedavg_s": reference,
        "fedavg_drift": median_of(after[1], untested) / median_of(before[1], untested),
        "x_steps": median_of(rows, lambda row: row["steps"]) / references[0]["steps"],
        "x_upload": median_of(rows, lambda row: row["upload_bytes"]) / references[0]["upload_bytes"],
        **used,
    }


def point(curve: str, value: str, rounds: int, engine: str) -> None:
    """Measure in this process and print the RESULT line."""
    torch.set_num_threads(1)
    try:
        found = method(value, rounds, engine) if curve == "methods" else growth(curve, value, rounds, engine)
    except FedskewError as error:
        raise SystemExit(f"curves.py: {error}") from None
    print("RESULT", json.dumps({k: round(v, 6) if isinstance(v, float) else v for k, v in found.items()}))


def run(curve: str, value: str, args: argparse.Namespace) -> dict[str, Any]:
    """One point in a process of its own."""
    words = [sys.executable, __file__, "--point", curve, value, "--rounds", str(args.rounds), "--engine", args.engine]
    path = os.pathsep.join([str(BENCHMARKS), str(ROOT / "src")])
    done = run_process(words, {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}, args.timeout)
    facts = {"curve": curve, "value": value, "engine_asked": args.engine}
    lines = [line for line in done.output.splitlines() if line.startswith("RESULT ")]
    if done.failure or not lines:
        return {**facts, "failed": done.failure or "no RESULT line"}
    return {**facts, **json.loads(lines[-1][len("RESULT ") :]), "peak_mb": round(done.peak_mb)}


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown of the last session: a table a curve."""
    rows = [row for row in rows if row["session"] == max(r["session"] for r in rows)]
    blocks = []
    for curve in dict.fromkeys(row["curve"] for row in rows):
        mine = [row for row in rows if row["curve"] == curve]
        good = [row for row in mine if "failed" not in row]
        lines = _methods(good) if curve == "methods" else _growth(curve, good)
        lines += [f"| {row['value']} | failed: {row['failed']} | | | | | |" for row in mine if "failed" in row]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _methods(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["| method | x FedAvg | ms a round | FedAvg ms | x steps | x upload | MB |", "|---|" + "---:|" * 6]
    for row in sorted(rows, key=lambda r: r["x_fedavg"]):
        lines.append(
            f"| {row['value']} | {row['x_fedavg']:.2f} | {1e3 * row['round_s']:.1f} | {1e3 * row['fedavg_s']:.1f} | "
            f"{row['x_steps']:.2f} | {row['x_upload']:.2f} | {row['peak_mb']} |"
        )
    return lines


def _growth(curve: str, rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"| {curve} | parameters | ms a round | selection, aggregation ms | ms a step | startup s | MB |",
        "|---:|" + "---:|" * 6,
    ]
    for row in rows:
        ends = row["select_s"] + row["aggregate_s"]
        lines.append(
            f"| {row['value']} | {row['parameters']} | {1e3 * row['wall_s']:.1f} | {1e3 * ends:.1f} | "
            f"{1e3 * row['train_s'] / row['steps']:.3f} | {row['startup_s']:.1f} | {row['peak_mb']} |"
        )
    return lines


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", default=",".join(CURVES), help="names, with commas between")
    parser.add_argument("--only", help="these values, with commas between, instead of all of a curve's")
    parser.add_argument("--engine", default="sequential")
    parser.add_argument("--rounds", type=int, default=6, help="a point, or more for 2400 steps; half are counted")
    parser.add_argument("--timeout", type=float, default=900, help="seconds a point")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "scaling" / "curves.jsonl")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the last session of this file")
    parser.add_argument("--point", nargs=2, metavar=("CURVE", "VALUE"), help="one point in this process")
    args = parser.parse_args()
    for curve in args.curves.split(","):
        if curve not in CURVES:
            parser.error(f"unknown curve {curve!r}; known: {', '.join(CURVES)}")
    if args.rounds < 2:
        parser.error(f"--rounds must be at least 2, since the first half is not counted; got {args.rounds}")
    return args


def main() -> int:
    """Measure one point, print a table, or measure all and print."""
    args = arguments()
    if args.point:
        point(*args.point, args.rounds, args.engine)
        return 0
    if args.table:
        print(table([json.loads(line) for line in args.table.read_text().splitlines()]))
        return 0
    args.out.parent.mkdir(parents=True, exist_ok=True)
    facts, rows = setting(), []
    for curve in args.curves.split(","):
        for value in args.only.split(",") if args.only else CURVES[curve]:
            rows.append({**run(curve, value, args), **facts})
            with args.out.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(f"{curve} {value}: {rows[-1].get('failed', 'done')}", file=sys.stderr, flush=True)
    print(table(rows))
    return int(any("failed" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
