"""The plain example and the library, given the same plans: two ways of writing the same mathematics."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedskew import methods as m
from fedskew.method.weightings import Uniform
from fedskew.methods.scaffold import ControlVariate
from support.replay import MODELS, PACE, plan, record
from support.scripts import script

mini = script("examples/minifed.py")
METHODS = {
    "fedavg": m.fedavg(),
    "fedprox": m.fedprox(0.4),
    "scaffold": replace(m.fedavg(), parts=(ControlVariate(),), weighting=Uniform()),
}


@pytest.mark.parametrize("engine", ["sequential", "batched"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", METHODS)
def test_minifed(name: str, model: str, engine: str) -> None:
    replay = record(replace(METHODS[name], pace=PACE), engine, model)
    problem = replay.problem
    x, y, sizes = torch.tensor(problem.x), torch.tensor(problem.y), replay.fed.sizes.tolist()
    w = {n: torch.tensor(v) for n, v in problem.params.items()}
    c = {n: torch.zeros_like(v) for n, v in w.items()}
    memory = [c] * replay.fed.clients
    for seen in replay.rounds:
        given = plan(seen)
        cohort = dict(zip(given.ids, given.batches, strict=True))
        if name == "fedavg":
            w = mini.fedavg_round(w, cohort, sizes, PACE.lr, x, y)
        elif name == "fedprox":
            w = mini.fedprox_round(w, cohort, sizes, PACE.lr, x, y, mu=0.4)
        else:
            w, c, memory = mini.scaffold_round(w, c, memory, cohort, PACE.lr, x, y)
            torch.testing.assert_close(seen.parts["control_variate"]["c"], c, rtol=0, atol=1e-12)
        torch.testing.assert_close({n: torch.tensor(v) for n, v in seen.after.items()}, w, rtol=0, atol=1e-12)
    if name == "scaffold":
        for k, own in enumerate(memory):
            torch.testing.assert_close(replay.memory(k, "control_variate")["c"], own, rtol=0, atol=1e-12)
