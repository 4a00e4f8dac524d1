"""Whole runs of the methods against numbers that the public code of their papers gave.

`tests/golden/authors_code.json` holds the problem, the numbers and how they were had. No line of that code is here.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedskew import methods as m
from fedskew.method import LocalStep, Method
from fedskew.method.servers import Plain
from fedskew.method.steps import SGD, SharpnessAware
from fedskew.method.weightings import Uniform
from fedskew.methods.fedcurv import Curvature
from fedskew.methods.fedexp import Extrapolated
from fedskew.methods.fedlesam import GlobalSharpnessAware
from fedskew.methods.fedmlb import HybridPaths
from fedskew.methods.fedsmoo import DynamicSharpnessAware
from fedskew.methods.fedsol import StabilisedOrthogonal
from fedskew.types import Weights
from support.authors import CODE, ENGINES, close, filled, ran

PROBLEM: dict[str, Any] = CODE["problem"]
PACE = {name: PROBLEM[name] for name in ("epochs", "lr", "decay")}
DECAY = {"weight_decay": PROBLEM["weight_decay"]}


def clipped(method: Method, local: LocalStep) -> Method:
    """With the regulariser's own clip, which takes in neither the pull to the weights nor weight decay."""
    *others, regulariser = method.parts
    return replace(method, parts=(*others, replace(regulariser, clip=0.5)), local=local)  # type: ignore[call-arg]


LESAM = GlobalSharpnessAware(**DECAY, rho=0.4, since="round", norm="tensors")
RUNS: dict[str, Method] = {
    "fedavg": replace(m.scaffold(), parts=(), local=SGD(**DECAY)),
    "feddyn": replace(m.feddyn(0.2), local=SGD(**DECAY)),
    "fedcm": replace(m.fedcm(0.3), local=SGD(**DECAY)),
    "fedacg": replace(m.fedacg(0.6, 0.4), local=SGD(**DECAY)),
    "fedacg, sent": replace(m.fedacg(0.6, 0.4), local=SGD(**DECAY)),
    "fedspeed": replace(m.fedspeed(0.2, average="all"), local=SharpnessAware(**DECAY, rho=0.4)),
    "fedsmoo": replace(m.fedsmoo(0.2), local=DynamicSharpnessAware(**DECAY, rho=0.4)),
    "feddyn, clipped": clipped(m.feddyn(0.2), SGD(**DECAY)),
    "fedspeed, clipped": clipped(m.fedspeed(0.2, average="all"), SharpnessAware(**DECAY, rho=0.4)),
    "fedsmoo, clipped": clipped(m.fedsmoo(0.2), DynamicSharpnessAware(**DECAY, rho=0.4)),
    "fedlesam": replace(m.fedlesam(), local=LESAM),
    "fedlesam-d": replace(m.feddyn(0.2), local=LESAM),
    "fedsam": replace(m.fedsam(), local=SharpnessAware(**DECAY, rho=0.4)),
    "fedsam, adaptive": replace(m.fedsam(), local=SharpnessAware(**DECAY, rho=0.4, adaptive=True)),
    "mofedsam": replace(m.mofedsam(alpha=0.3), local=SharpnessAware(**DECAY, rho=0.4)),
    "fedsol": replace(m.fedsol(), weighting=Uniform(), local=StabilisedOrthogonal(**DECAY, rho=0.6)),
    "fedsol, fixed": replace(
        m.fedsol(), weighting=Uniform(), local=StabilisedOrthogonal(**DECAY, rho=0.6, scale="fixed")
    ),
    "fedcurv": replace(m.fedcurv(), parts=(Curvature(0.7, "batch"),), weighting=Uniform(), local=SGD(**DECAY)),
    "fedcm, server rate": replace(m.fedcm(0.3), server=Plain(0.5), local=SGD(**DECAY)),
}


def test_every_number_is_compared() -> None:
    assert RUNS.keys() == CODE["runs"].keys()
    last = {name: rounds[-1] for name, rounds in CODE["runs"].items()}
    assert len({tuple(np.round(values, 4)) for values in last.values()}) == len(last), "no two runs are alike"


@pytest.mark.parametrize(
    "engine",
    ["sequential", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("threaded", "batched"))],
)
@pytest.mark.parametrize("name", RUNS)
def test_the_authors_code_gives_the_same_rounds(name: str, engine: str) -> None:
    net = filled(nn.Sequential(nn.Linear(4, 3)), (PROBLEM["weight"], PROBLEM["bias"]))
    replay = ran(RUNS[name], engine, net, PROBLEM["cohorts"], **PACE)
    for done, want in zip(replay.rounds, CODE["runs"][name], strict=False):
        params: Any = {n: torch.from_numpy(p) for n, p in done.after.items()}
        if name == "fedacg":
            params = RUNS[name].server.serve(params, done.parts["accelerated"], replay.result.task)
        close(params, want, atol=5e-11)


def moves_as_fedmlb(method: Method, engine: str, told: list[list[float]]) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3))
    method = replace(method, local=SGD(**DECAY))
    replay = ran(method, engine, filled(net, CODE["fedmlb"]["start"]), PROBLEM["cohorts"], **PACE)
    for done, want in zip(replay.rounds, told, strict=False):
        close(done.after, want)


@ENGINES
def test_fedmlb_moves_as_the_authors_clients(engine: str) -> None:
    told = CODE["fedmlb"]
    moves_as_fedmlb(m.fedmlb(told["lam1"], told["lam2"], told["tau"]), engine, told["rounds"])


@ENGINES
@pytest.mark.parametrize(("level", "cut"), [(0, "2"), (1, "head")])
def test_one_path_of_fedmlb_is_the_authors_select_level(level: int, cut: str, engine: str) -> None:
    """Their code goes on dividing by the number of all paths, which is 2 here."""
    told = CODE["fedmlb"]
    part = HybridPaths(told["lam1"] / 2, told["lam2"] / 2, told["tau"], cuts=(cut,))
    moves_as_fedmlb(Method("one", (part,)), engine, told["levels"][level])


def test_fedexp_moves_as_the_authors_server() -> None:
    told = CODE["fedexp"]
    server: Any = Extrapolated(eps=told["eps"], decay=told["decay"], scaled=True)
    params = {"w": torch.tensor(told["start"], dtype=torch.float64)}
    state, p = server.init_server(params, None, None), torch.tensor(told["sizes"]).double() / sum(told["sizes"])
    for t, rows in enumerate(told["deltas"]):
        deltas = torch.tensor(rows, dtype=torch.float64)
        uploads = {"extrapolated": {"square": deltas.square().sum(1)}}
        cohort: Any = SimpleNamespace(ids=range(len(rows)), round=t + 1, weights=Weights(p, p), uploads=uploads)
        params, state = server.update(params, {"w": p @ deltas}, state, cohort)
        assert float(state["rate"]) == pytest.approx(told["rates"][t], rel=1e-10)
        assert params["w"].tolist() == pytest.approx(told["params"][t], abs=1e-10)
        assert server.serve(params, state, None)["w"].tolist() == pytest.approx(told["served"][t], abs=1e-10)
    assert max(told["rates"]) > 1 == min(told["rates"])
