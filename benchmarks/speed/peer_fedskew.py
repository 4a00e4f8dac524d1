"""fedskew through its public API: FedAvg, recorded in a run folder, evaluated after every round."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, where common is

import torch

import fedskew as fs
from common import work as bench
from fedskew.errors import FedskewError

LEAST = 0.95  # of the loop's wall time must be on record


def federation(work: bench.Work) -> Any:
    """The workload's split, as clients that the data came with."""
    x, y, x_test, y_test = bench.make_data(work)
    client = torch.arange(work.clients).repeat_interleave(torch.from_numpy(work.sizes))
    data = fs.from_arrays(x, y, x_test, y_test, name=work.name, classes=work.classes, columns={"client": client})
    return fs.federate(data, fs.partitioners.Natural())


def measure(work: bench.Work, **options: Any) -> tuple[bench.Clock, list[dict[str, Any]], str]:
    """(clock outside the loop, recorded rounds, the engine that was used)."""
    clock, fed, method = bench.Clock(), federation(work), fs.methods.fedavg()
    method = method.with_("pace", lr=work.lr, epochs=work.epochs, batch_size=work.batch)
    method = method.with_("local", weight_decay=work.weight_decay)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        network = bench.make_model(work)
        clock.start()
        result = fs.run(
            fed, method, model=network, head="fc", rounds=work.rounds, cohort=work.cohort, checkpoint_every=0, out=out,
            on_round=lambda row: clock.tick(), **options,
        )  # fmt: skip
        used = json.loads((out / "config.json").read_text()).get("engine_used", options["engine"])
    return clock, result.rounds, used


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
    parser.add_argument("--free", action="store_true", help="convolutions sum in any order")
    parser.add_argument("--profile", action="store_true", help="print what took the time; the rounds are slower")


def main() -> None:
    """Train and report; exit 1 where the record leaves out more than a twentieth of the time."""
    args = bench.options(__doc__, arguments)
    how = {"engine": args.engine, "device": args.device, "precision": args.precision, "deterministic": not args.free}
    try:
        with torch.profiler.profile() if args.profile else nullcontext() as profile:
            clock, rows, used = measure(args.work, **how)
    except FedskewError as error:
        raise SystemExit(f"peer_fedskew.py: {error}") from None
    if profile:
        by = "self_cpu_time_total" if args.device == "cpu" else "self_device_time_total"
        print(profile.key_averages().table(sort_by=by, row_limit=25, max_name_column_width=70))
        return
    share = on_record(clock, rows)
    # medians: the last round also evaluates what a run ends with
    stages = {f"{s}_s": statistics.median(row[f"{s}_s"] for row in rows[1:]) for s in ("train", "evaluate", "record")}
    bench.report(
        "fedskew", args.work, clock, rows[-1]["accuracy"], sum(row["steps"] for row in rows), engine=used,
        engine_asked=args.engine, recorded_share=share, **stages,
        **{name: value for name, value in how.items() if name != "engine"},
    )  # fmt: skip
    if share is not None and share < LEAST:
        raise SystemExit(f"peer_fedskew.py: wall_s must account for {LEAST:.0%} of the loop's time; got {share:.1%}")


if __name__ == "__main__":
    main()
