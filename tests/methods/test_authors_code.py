"""Whole runs of the methods against numbers that the public code of their papers gave.

`tests/golden/authors_code.json` holds the problem, the numbers and how they were had. No line of that code is here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedskew as fs
from fedskew import methods as m
from fedskew.data.federation import Federation
from fedskew.method import Method
from fedskew.shared import SGD, Fixed, Plain
from fedskew.shared.sharpness import SharpnessAware
from fedskew.types import Assignment
from support.paths import TESTS
from support.runs import go

CODE: dict[str, Any] = json.loads((TESTS / "golden/authors_code.json").read_text(encoding="utf-8"))
PROBLEM: dict[str, Any] = CODE["problem"]
PACE = Fixed(epochs=PROBLEM["epochs"], lr=PROBLEM["lr"], decay=PROBLEM["decay"], batch_size=0)
DECAY = {"weight_decay": PROBLEM["weight_decay"]}


@dataclass(frozen=True)
class Listed(fs.Selector):
    """The cohorts of the problem, one a round."""

    name = "listed"

    def init_server(self, params: Any, fed: Any, task: Any) -> Any:
        return {"round": torch.zeros((), dtype=torch.int64)}

    def select(self, state: Any, k: int, key: Tensor) -> Assignment:
        return Assignment(torch.tensor(PROBLEM["cohorts"][int(state["round"])])[:, None])

    def absorb(self, state: Any, cohort: Any, key: Tensor) -> Any:
        return {"round": state["round"] + 1}, None


@cache
def federation() -> Federation:
    x, y = (np.concatenate([np.array(rows) for rows in PROBLEM[name]]) for name in "xy")
    owner = np.repeat(np.arange(len(PROBLEM["y"])), [len(rows) for rows in PROBLEM["y"]])
    data = fs.data.from_arrays(x, y, x[:4], y[:4], classes=3, columns={"client": owner})
    return fs.federate(data, "natural")


def network() -> nn.Module:
    net = nn.Sequential(nn.Linear(4, 3))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor(PROBLEM["weight"]))
        net[0].bias.copy_(torch.tensor(PROBLEM["bias"]))
    return net


def trained(method: Method, engine: str, served: bool = False) -> list[list[float]]:
    """The model after each round: what is sent, or what is served."""
    seen: list[list[float]] = []
    for rounds in range(1, len(PROBLEM["cohorts"]) + 1):
        method = replace(method, pace=PACE, selector=Listed())
        found = go(federation(), method, model=network(), rounds=rounds, cohort=4, engine=engine)
        params = found.params if served else found.state.params
        seen.append(torch.cat([params[n].flatten() for n in ("0.weight", "0.bias")]).tolist())
    return seen


RUNS: dict[str, Method] = {
    "fedavg": replace(m.scaffold(), parts=(), local=SGD(**DECAY)),
    "feddyn": replace(m.feddyn(0.2), local=SGD(**DECAY)),
    "fedcm": replace(m.fedcm(0.3), local=SGD(**DECAY)),
    "fedsam": replace(m.fedsam(), local=SharpnessAware(**DECAY, rho=0.4)),
    "fedsam, adaptive": replace(m.fedsam(), local=SharpnessAware(**DECAY, rho=0.4, adaptive=True)),
    "mofedsam": replace(m.mofedsam(alpha=0.3), local=SharpnessAware(**DECAY, rho=0.4)),
    "fedcm, server rate": replace(m.fedcm(0.3), server=Plain(0.5), local=SGD(**DECAY)),
}


def test_every_number_is_compared() -> None:
    assert RUNS.keys() == CODE["runs"].keys()
    last = {name: rounds[-1] for name, rounds in CODE["runs"].items()}
    assert len({tuple(np.round(values, 4)) for values in last.values()}) == len(last), "no two runs are alike"


@pytest.mark.parametrize("engine", ["sequential", "threaded", "batched"])
@pytest.mark.parametrize("name", RUNS)
def test_the_authors_code_gives_the_same_rounds(name: str, engine: str) -> None:
    np.testing.assert_allclose(trained(RUNS[name], engine), CODE["runs"][name], rtol=0, atol=2e-11)
