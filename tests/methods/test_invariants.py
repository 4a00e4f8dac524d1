"""What must hold of every method, card by card: limits, symmetric cases, sums; what other files assert is not repeated.

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
from fedskew.method.servers import Adagrad, Adam, Momentum, Plain, Yogi
from fedskew.method.weightings import Uniform
from fedskew.methods.balancefl import KnowledgeInheritance
from fedskew.methods.centralised import ClassBalancedLoss
from fedskew.methods.climb import Dual
from fedskew.methods.fedbal import LocalBalancer
from fedskew.methods.fedga import CalibratedTargets
from fedskew.methods.fedgc import PrivateHead
from fedskew.methods.fedlc import LogitAdjustment, PooledLogitCalibration
from fedskew.methods.fedlesam import GlobalSharpnessAware
from fedskew.methods.fednova import GlobalMomentum
from fedskew.methods.fedprox import Proximal
from fedskew.methods.fedrl import RatioLoss
from fedskew.methods.fedrs import RestrictedSoftmax
from fedskew.methods.moon import ModelContrastive
from fedskew.methods.scaffold import ControlVariate
from fedskew.methods.seolkim import DecayingOversampling
from fedskew.models.architectures import MLP
from fedskew.types import Params
from support.federations import RAGGED, blobs, skewed
from support.methods import NAMES, WHOLE, spied, tiny
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
    # FedProx: nothing pulls at the first step; the stand-ins of other code neither
    "fedprox, first step": (m.fedprox(7.0), m.fedavg(), 0.0, RAGGED, {"pace": WHOLE, "rounds": 1}),
    "unsquared norm, first step": (avg(ProximalVariant(7.0)), m.fedavg(), 0.0, RAGGED, {"pace": WHOLE, "rounds": 1}),
    "unsquared norm, mu = 0": (avg(ProximalVariant(0.0)), m.fedavg(), 0.0, RAGGED, {}),
    "smooth l1, mu = 0": (avg(ProximalVariant(0.0, "smooth_l1")), m.fedavg(), 0.0, RAGGED, {}),
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
    # sharpness-aware steps: each piece switched off leaves the other one
    "fedspeed of all, rho = 0": (m.fedspeed(0.3, 0.0, "all"), m.feddyn(0.3), 0.0, RAGGED, {}),
    "fedspeed, all clients are the cohort": (
        m.fedspeed(0.3), m.fedspeed(0.3, 0.1, "all"), 1e-12, RAGGED, {"cohort": 4},
    ),
    "fedsmoo, rho = 0": (m.fedsmoo(0.3, 0.0), m.feddyn(0.3), 0.0, RAGGED, {}),
    "fedacg sends what Nesterov's server momentum sends": (
        m.fedacg(0.6, 0.3), uniform(Proximal(0.3), server=Momentum(1.0, 0.6, nesterov=True)), 0.0, RAGGED, {},
    ),
    "fedlesam, everybody takes part in every round": (
        uniform(local=GlobalSharpnessAware(rho=0.5, since="round")), m.fedlesam(0.5), 1e-12, RAGGED, {"cohort": 4},
    ),
    "mofedsam, rho = 0": (m.mofedsam(0.0, 0.3), m.fedcm(0.3), 0.0, RAGGED, {}),
    "mofedsam, alpha = 1": (m.mofedsam(0.3, 1.0), m.fedsam(0.3), 0.0, RAGGED, {}),
    # FedNova's global momentum: none is plain, and under a constant rate it is server momentum
    "fednova, gmf = 0": (m.fednova(), replace(m.fednova(), server=Plain()), 0.0, RAGGED, {}),
    "global momentum, constant rate": (
        avg(server=GlobalMomentum(0.5, 0.8)), avg(server=Momentum(0.5, 0.8)), 1e-12, RAGGED, {},
    ),
    # CLIMB: equal losses leave the duals alone; a common start cancels until a clip acts
    "climb, equal clients": (
        avg(weighting=Dual(50.0, 0.0, 1)), uniform(), 1e-12, "copies", {"cohort": 2},
    ),
    "climb, a common start": (
        avg(weighting=Dual(2.0, 0.0, 1, initial=40.0)), avg(weighting=Dual(2.0, 0.0, 1, initial=50.0)),
        1e-12, RAGGED, {},
    ),
    # Seol-Kim: a strong decay ends oversampling after the first round (r = 0 knows no decay)
    "oversampling, delta large": (
        avg(sampler=DecayingOversampling(delta=1e9)), avg(sampler=DecayingOversampling(delta=1e6, increment=9.0)), 0.0,
        RAGGED, {},
    ),
    # losses that are cross-entropy at a limit
    "class-balanced loss, beta = 0": (avg(ClassBalancedLoss(0.0)), m.fedavg(), 1e-12, RAGGED, {}),
    "class-balanced loss, equal counts": (avg(ClassBalancedLoss(0.9)), m.fedavg(), 1e-12, BALANCED, {}),
    "logit adjustment, tau = 0": (avg(LogitAdjustment(0.0)), m.fedavg(), 1e-12, RAGGED, {}),
    "logit adjustment, equal counts": (avg(LogitAdjustment(2.0)), m.fedavg(), 1e-12, BALANCED, {}),
    "pooled calibration, tau = 0": (avg(PooledLogitCalibration(0.0)), m.fedavg(), 1e-12, RAGGED, {}),
    "pooled calibration, equal sums": (
        avg(PooledLogitCalibration(2.0)), m.fedavg(), 1e-12, [[8, 1, 3], [1, 4, 7], [3, 7, 2]], {},
    ),
    "fedga binary, balanced batches": (
        uniform(CalibratedTargets("binary")), uniform(), 1e-12, PAIRS, {"pace": WHOLE},
    ),
    "fedga binary, balanced clients": (
        avg(CalibratedTargets("binary", "client")), m.fedavg(), 1e-12, PAIRS, {},
    ),
    "fedgr, all owned equally": (m.fedgr(gravitation=False), m.fedavg(), 1e-12, BALANCED, {}),
    "fedrs code, equal counts": (avg(RestrictedSoftmax(0.3, "code")), m.fedavg(), 1e-12, BALANCED, {}),
    "fedrs, few rows still count": (avg(RestrictedSoftmax(0.3, few=3)), m.fedavg(), 1e-12, BALANCED, {}),
    "balancefl, all classes owned, no entropy": (
        avg(KnowledgeInheritance(smoothing=0.0, augment_features=False)), m.fedavg(), 1e-12, BALANCED, {},
    ),
    "balancefl, equal counts need no noise": (
        avg(KnowledgeInheritance(smoothing=0.0)), m.fedavg(), 1e-12, BALANCED, {},
    ),
    # FedRL: dividing by the weights undoes a common weight
    "fedrl, any common weight": (
        avg(RatioLoss(5.0, 0.0, divide="weights")), avg(RatioLoss(1.0, 0.0)), 1e-12, None, {},
    ),
    # FedBal: an earlier end of the schedule is that of fewer epochs
    "local balancer, one epoch earlier": (
        avg(LocalBalancer(9.0 * 4.0), pace=Fixed(epochs=2, batch_size=0)),
        avg(LocalBalancer(9.0, early=1), pace=Fixed(epochs=2, batch_size=0)), 1e-12, RAGGED, {},
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


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("fednova", "climb")])
def test_weights_are_convex(name: str) -> None:
    """FedNova's and CLIMB's need not be; every other method's add up to one and none is negative."""
    for row in go(skewed(), tiny(name), rounds=2, cohort=4).rounds:
        assert min(row["weights"]) >= 0 and sum(row["weights"]) == pytest.approx(1, abs=1e-12)


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


def deltas(method: Method, fed: Any, **options: Any) -> list[Params]:
    """What each client's training changed, round by round."""
    method, seen = spied(method)
    go(fed, method, **options)
    return [cohort.trained for cohort in seen if cohort.trained is not None]


def test_rows_of_labels_that_a_client_lacks_get_no_gradient() -> None:
    fed = blobs([[5, 4, 0], [0, 3, 6]])
    for part in (m.fedgr(gravitation=False).parts[-1], PrivateHead(0.0), *m.fedlc().parts):
        (trained,) = deltas(avg(part), fed, rounds=1, cohort=2)
        head = trained["fc.weight"]
        assert (head[0, 2] == 0).all() and (head[1, 0] == 0).all(), part.name
        assert (head[0, :2] != 0).any(1).all() and (head[1, 1:] != 0).any(1).all(), part.name


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


def test_fednh_keeps_its_prototypes_and_serves_them() -> None:
    """Smoothing 1 keeps them; the model's own classifier stays as it was; classes that nobody has keep theirs."""
    fed, options = (
        blobs([[5, 3, 0], [2, 7, 0], [4, 4, 0]]),
        {"model": MLP(hidden=6), "cohort": 2, "rounds": 3},
    )
    still, moved = (go(fed, m.fednh(rho), **options) for rho in (1.0, 0.5))
    start = go(fed, m.fednh(), **(options | {"rounds": 1})).state
    *_, weight, bias, scale = still.params
    assert float(still.params[scale]) == 30.0, "what is served are scaled cosines"
    for result in (still, moved):
        kept = result.state.parts["non_parametric_head"]["prototypes"]
        assert torch.equal(result.params[weight], kept) and not result.params[bias].any()
        assert torch.equal(kept[2], start.parts["non_parametric_head"]["prototypes"][2])
        assert torch.equal(result.state.params[weight], start.params[weight])
    assert torch.equal(still.params[weight], start.parts["non_parametric_head"]["prototypes"])
    assert gap({weight: moved.params[weight][:2]}, {weight: still.params[weight][:2]}) > 1e-2
