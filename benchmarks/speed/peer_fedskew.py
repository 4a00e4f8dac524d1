"""fedskew through its public API: FedAvg, recorded in a run folder, evaluated after every round."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, where common is

import fedskew as fs
from common import work as bench
from common.runs import federation, measure, paced
from fedskew.errors import FedskewError

LEAST = 0.95  # of the loop's wall time must be on record


def on_record(clock: bench.Clock, rows: list[dict[str, Any]]) -> float | None:
    """Share of the loop's wall time that the rounds' wall_s account for; None with fewer than three rounds.

    The first round and the last are left out of both: the last writes the checkpoint, which no later row can tell.
    """
    loop = clock.rounds[1:-1]
    return sum(row["wall_s"] for row in rows[1:-1]) / sum(loop) if loop else None


def arguments(parser: argparse.ArgumentParser) -> None:
    """What this peer takes beside the common options."""
    parser.add_argument("--engine", default="auto", help="auto, sequential, threaded, batched")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32", help="float32, tf32, bfloat16")
    parser.add_argument("--no-record", action="store_true", help="write no run folder")


def main() -> None:
    """Train and report; exit 1 where the record leaves out more than a twentieth of the time."""
    args = bench.options(__doc__, arguments)
    work = args.work
    fed, method = federation(work), paced(fs.methods.fedavg(), work)
    try:
        clock, rows, engine = measure(work, fed, method, args.engine, args.device, not args.no_record, args.precision)
    except FedskewError as error:
        raise SystemExit(f"peer_fedskew.py: {error}") from None
    share = on_record(clock, rows)
    stages = {f"{s}_s": sum(row[f"{s}_s"] for row in rows[1:]) / len(rows[1:]) for s in ("train", "evaluate", "record")}
    bench.report(
        "fedskew", work, clock, rows[-1]["accuracy"], sum(row["steps"] for row in rows),
        engine=engine.get("engine_used", args.engine), engine_asked=args.engine, device=args.device,
        precision=args.precision, recorded_share=share, **stages,
    )  # fmt: skip
    if share is not None and share < LEAST:
        raise SystemExit(f"peer_fedskew.py: wall_s must account for {LEAST:.0%} of the loop's time; got {share:.1%}")


if __name__ == "__main__":
    main()
