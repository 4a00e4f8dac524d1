"""What must hold of methods beside their formulas: limits, symmetric cases, sums. The formulas are the oracle's.

Neutral settings stand in `test_battery.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedskew import methods as m
from fedskew.method import Component, Method
from fedskew.method.paces import Fixed, Staged
from fedskew.method.parts import ProximalVariant
from fedskew.method.servers import Adagrad, Adam, Momentum, Yogi
from fedskew.method.weightings import Uniform
from fedskew.methods.balancefl import KnowledgeInheritance
from fedskew.methods.climb import Dual
from fedskew.methods.fedgc import PrivateHead
from fedskew.methods.fedlesam import GlobalSharpnessAware
from fedskew.methods.fednova import GlobalMomentum
from fedskew.methods.fedprox import Proximal
from fedskew.methods.moon import ModelContrastive
from fedskew.methods.scaffold import ControlVariate
from fedskew.methods.seolkim import DecayingOversampling
from fedskew.types import Params
from support.federations import RAGGED, blobs, skewed
from support.methods import WHOLE
from support.nets import norm_net
from support.runs import gap, go, same

BALANCED = [[4, 4, 4]] * 4
PAIRS = [[4, 4], [6, 6], [2, 2]]  # two classes


def avg(*parts: Component, **slots: Any) -> Method:
    return replace(m.fedavg(), parts=parts, **slots)


def uniform(*parts: Component, **slots: Any) -> Method:
    return avg(*parts, weighting=Uniform(), **slots)


# ---------------------------------------------------------------------------------------------------------------------
# Two settings that give the same model: (one, the other, tolerance, counts, options of the run)

Equal = tuple[Method, Method, float, Any, dict[str, Any]]
EQUAL: dict[str, Equal] = {
    # the stand-in of other code for FedProx: nothing pulls at the first step
    "unsquared norm, first step": (avg(ProximalVariant(7.0)), m.fedavg(), 0.0, RAGGED, {"pace": WHOLE, "rounds": 1}),
    # SCAFFOLD: a single client has c = c_k; plain SGD reaches as far as its steps; all clients are the cohort
    "scaffold, N = 1": (m.scaffold(), m.fedavg(), 1e-12, [[5, 4, 3]], {"cohort": 1, "rounds": 4}),
    "scaffold, division without momentum": (
        uniform(ControlVariate(division="steps")), m.scaffold(), 0.0, RAGGED, {},
    ),
    "scaffold, everybody is the cohort": (
        uniform(ControlVariate(spread="cohort")), m.scaffold(), 0.0, RAGGED, {"cohort": 4},
    ),
    "scaffold, shares of rows that are equal": (
        uniform(ControlVariate(spread="size")), m.scaffold(), 1e-12, [[3, 2, 4], [4, 2, 3], [1, 4, 4], [2, 3, 4]], {},
    ),
    # where all clients are the cohort, and the two ways in which an accelerated model is sent
    "fedspeed, all clients are the cohort": (
        m.fedspeed(0.3), m.fedspeed(0.3, 0.1, "all"), 1e-12, RAGGED, {"cohort": 4},
    ),
    "fedacg sends what Nesterov's server momentum sends": (
        m.fedacg(0.6, 0.3), uniform(Proximal(0.3), server=Momentum(1.0, 0.6, nesterov=True)), 0.0, RAGGED, {},
    ),
    "fedlesam, everybody takes part in every round": (
        uniform(local=GlobalSharpnessAware(rho=0.5, since="round")), m.fedlesam(0.5), 1e-12, RAGGED, {"cohort": 4},
    ),
    # CLIMB: equal losses leave the duals alone
    "climb, equal clients": (
        avg(weighting=Dual(50.0, 0.0, 1)), uniform(), 1e-12, "copies", {"cohort": 2},
    ),
    # Seol-Kim: a strong decay ends oversampling after the first round (r = 0 knows no decay)
    "oversampling, delta large": (
        avg(sampler=DecayingOversampling(delta=1e9)), avg(sampler=DecayingOversampling(delta=1e6, increment=9.0)), 0.0,
        RAGGED, {},
    ),
    # BalanceFL: no class is rare
    "balancefl, equal counts need no noise": (
        avg(KnowledgeInheritance(smoothing=0.0)), m.fedavg(), 1e-12, BALANCED, {},
    ),
    # MOON: who took part in round 1 is no newcomer
    "moon, everybody from the start": (
        avg(ModelContrastive(5.0, newcomer="initial")), m.moon(5.0), 0.0, RAGGED, {"cohort": 4, "rounds": 3},
    ),
    # FedGC: alone, there is nobody to be pushed from
    "fedgc class means, one client": (
        avg(PrivateHead(9.0, "class_mean")), avg(PrivateHead(0.0)), 0.0, RAGGED, {"cohort": 1},
    ),
    # Feature-Balanced Loss's rate: no stage is reached
    "staged rate between its stages": (
        avg(pace=Staged(warmup=0, batch_size=4)), avg(pace=Fixed(batch_size=4)), 0.0, RAGGED, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", EQUAL)
def test_two_settings_are_one(what: str) -> None:
    one, other, tolerance, counts, options = EQUAL[what]
    options = {"rounds": 3, "cohort": 2} | options
    pace = {"pace": options.pop("pace")} if "pace" in options else {}
    fed = skewed() if counts is None else blobs([[3, 2, 4]] * 4, copies=True) if counts == "copies" else blobs(counts)
    a, b = (go(fed, replace(method, **pace), **options).state.params for method in (one, other))
    assert gap(a, b) <= tolerance
    far = go(fed, replace(other, **pace), **(options | {"rounds": options["rounds"] + 1})).state.params
    assert gap(a, far) > 1e-6  # the test can fail


# ---------------------------------------------------------------------------------------------------------------------
# Aggregation


@pytest.mark.parametrize(
    "weighting", [m.fednova().weighting, Dual(500.0, 0.0, 1)], ids=lambda weighting: str(weighting.name)
)
def test_buffers_are_averaged_by_convex_weights(weighting: Any) -> None:
    """Effective and dual weights must not touch variances: statistics move as under weights by size (D3)."""
    fed, runs = blobs(RAGGED), []
    for choice in (weighting, m.fedavg().weighting):
        method = avg(weighting=choice, pace=Fixed(lr=1e-30, batch_size=4))  # parameters stand still: same batches
        runs.append(go(fed, method, model=norm_net(3, 5), cohort=4, rounds=3))
    assert gap(runs[0].state.buffers, runs[1].state.buffers) <= 1e-12
    assert runs[0].rounds[-1]["weights"] != pytest.approx(runs[1].rounds[-1]["weights"], abs=1e-3)


# ---------------------------------------------------------------------------------------------------------------------
# Servers


@pytest.mark.parametrize(
    "server", [Adagrad(), Adam(), Yogi(), Momentum(), GlobalMomentum(gmf=0.9)], ids=lambda s: str(s.name)
)
def test_without_an_update_the_model_stays(server: Any) -> None:
    x = {"w": torch.tensor([1.0, -2.0])}
    state = server.init_server(x, None, None)
    cohort: Any = type("Cohort", (), {"round": 1, "reports": type("R", (), {"lr": torch.tensor([0.1])})})
    moved, _ = server.update(x, {"w": torch.zeros(2)}, state, cohort)
    assert same(moved, x)


# ---------------------------------------------------------------------------------------------------------------------
# Clients


@dataclass(frozen=True)
class Idle(Component):
    """Adds a parameter that no loss reads."""

    name = "idle"

    def init_params(self, params: Params, task: Any, key: Tensor) -> Params:
        return {"idle": torch.arange(3.0, dtype=params[task.weight].dtype)}


@pytest.mark.parametrize("engine", ["sequential", "batched"])
def test_a_parameter_that_no_loss_reads_stays(engine: str) -> None:
    a, b = (go(blobs(RAGGED), method, engine=engine) for method in (avg(Idle()), m.fedavg()))
    assert a.params["idle"].tolist() == [0, 1, 2]
    assert gap({n: p for n, p in a.params.items() if n != "idle"}, b.params) == 0
