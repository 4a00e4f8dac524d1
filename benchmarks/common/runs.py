"""fedskew at a workload through its public API: the federation, the pace, and a run that is timed from outside."""

from __future__ import annotations

import json
import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

import fedskew as fs
from common import work as bench
from common.work import Work

WARM_STEPS = 1200  # engines may trace a step once they have made it a thousand times
AUXILIARY = 8  # rows of each class at the server, for the methods that train on them


def federation(work: Work, auxiliary: int = 0) -> Any:
    """The workload's split, as clients that the data came with."""
    x, y, x_test, y_test = bench.make_data(work)
    client = torch.arange(work.clients).repeat_interleave(torch.from_numpy(work.sizes))
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
