"""fedskew through its public API: FedAvg, recorded in a run folder, evaluated after every round."""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
import work as bench
from work import Work

import fedskew as fs
from fedskew.errors import FedskewError

LEAST = 0.95  # of the loop's wall time must be on record


def federation(work: Work, auxiliary: int = 0) -> Any:
    """The workload's split, as clients that the data came with."""
    x, y, x_test, y_test = bench.make_data(work)
    client = torch.arange(work.clients).repeat_interleave(work.rows)
    data = fs.from_arrays(x, y, x_test, y_test, name=work.name, classes=work.classes, columns={"client": client})
    return fs.federate(data, fs.partitioners.Natural(), auxiliary=auxiliary)


def paced(method: fs.Method, work: Work) -> fs.Method:
    """The method at the workload's batch, epochs, rate and weight decay, as far as its own pace and step have them."""

    def given(component: Any, **values: Any) -> Any:
        known = {f.name for f in fields(component)}
        return replace(component, **{k: v for k, v in values.items() if k in known})

    pace = given(method.pace, lr=work.lr, epochs=work.epochs, batch_size=work.batch)
    return replace(method, pace=pace, local=given(method.local, weight_decay=work.weight_decay))


def measure(
    work: Work,
    fed: Any,
    method: fs.Method,
    engine: str,
    device: str = "cpu",
    record: bool = True,
    precision: str = "float32",
) -> tuple[bench.Clock, list[dict[str, Any]], dict[str, Any]]:
    """(clock outside the loop, recorded rounds, what the run folder says of the engine)."""
    clock = bench.Clock()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run" if record else None
        network = bench.make_model(work)

        def on_round(row: dict[str, Any]) -> None:
            clock.tick()

        clock.start()
        result = fs.run(
            fed, method, model=network, head="fc", rounds=work.rounds, cohort=work.cohort, engine=engine,
            device=device, precision=precision, checkpoint_every=0, out=out, on_round=on_round,
        )  # fmt: skip
        facts = json.loads((out / "config.json").read_text()) if out else {}
    return clock, result.rounds, {k: v for k, v in facts.items() if k.startswith("engine")}


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
