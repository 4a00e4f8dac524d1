"""What must hold of methods beside their formulas: limits, symmetric cases, sums. The formulas are the oracle's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedskew import methods as m
from fedskew import parts as p
from fedskew import servers, steps
from fedskew import weightings as w
from fedskew.method import Component, Method
from fedskew.method.paces import Fixed, Staged
from fedskew.method.servers import Adagrad, Adam, Momentum, Yogi
from fedskew.method.steps import SGD
from fedskew.method.weightings import Uniform
from fedskew.methods.seolkim import DecayingOversampling, Dynamic
from fedskew.models import MLP
from fedskew.types import Params
from support.federations import RAGGED, blobs, skewed
from support.methods import WHOLE, tiny
from support.nets import norm_net
from support.runs import gap, go, same

BALANCED = [[4, 4, 4]] * 4  # counts of four clients that own every class equally
PROPORTIONAL = [[2, 4, 6], [1, 2, 3], [4, 8, 12], [3, 6, 9]]


def avg(*parts: Component, **slots: Any) -> Method:
    return replace(m.fedavg(), parts=parts, **slots)


def uniform(*parts: Component, **slots: Any) -> Method:
    return avg(*parts, weighting=Uniform(), **slots)


# ---------------------------------------------------------------------------------------------------------------------
# Two settings that give the same model: neutral ones at the edges of formulas, as the cards say, and others

UNIFORM, ALL_ROWS, FIVE = uniform(), Fixed(batch_size=0), avg(pace=Fixed(epochs=5))  # five: Seol-Kim's baselines
SINGLES, ROW = Fixed(batch_size=1), {"model": MLP(hidden=8)}
HEADED = MLP(hidden=8, projection=6)  # FedAvg's network, with the head that MOON wants
HEAVY, EXACT = SGD(momentum=0.9), 0.0


def pair(
    one: Method, other: Method = avg(), tolerance: float = 1e-12, counts: Any = RAGGED, **options: Any
) -> tuple[Method, Method, float, Any, dict[str, Any]]:
    """(one method, what it must equal, how closely, rows of each class at the clients, options of the run)."""
    return one, other, tolerance, counts, {"rounds": 3, "cohort": 2} | options


EQUAL = {
    "local balancer, equal counts": pair(m.fedbal(aggregation=False), counts=BALANCED),
    "aggregation balancer, one client": pair(m.fedbal(local=False), tolerance=EXACT, cohort=1),
    "unsquared norm, first step": pair(
        avg(p.ProximalVariant(7.0), pace=WHOLE), avg(pace=WHOLE), tolerance=EXACT, rounds=1
    ),
    "fedgr, one client": pair(avg(p.Gravitation()), cohort=1),
    "fedgc, strength 0, first round": pair(m.fedgc(0.0), counts=BALANCED, rounds=1),
    "fedgc, one client, first round": pair(m.fedgc(), counts=BALANCED, rounds=1, cohort=1),
    "fedgc class means, one client": pair(  # alone, there is nobody to be pushed from
        avg(p.PrivateHead(9.0, "class_mean")), avg(p.PrivateHead(0.0)), EXACT, cohort=1
    ),
    "feddecorr, one row a mini-batch": pair(replace(m.feddecorr(5.0), pace=SINGLES), avg(pace=SINGLES), **ROW),
    "feduv, one row a mini-batch": pair(replace(m.feduv(), pace=SINGLES), avg(pace=SINGLES), **ROW),
    "fedmlb, one block": pair(m.fedmlb(), tolerance=EXACT),
    "fedvls, all classes alike, no suppression": pair(m.fedvls(9.0, 0.0), counts=BALANCED),
    "feddisco, nothing left": pair(m.feddisco(1e9, -1.0, "l2"), tolerance=EXACT),
    "feddisco, labels of the target": pair(m.feddisco(9.0, 0.0, "kl_plain"), counts=BALANCED),
    "fedpals, alike": pair(m.fedpals(1.0), counts=PROPORTIONAL),
    "fedpals, one client": pair(m.fedpals(), tolerance=EXACT, cohort=1),
    "fedsol, one step a round": pair(replace(m.fedsol(5.0), pace=WHOLE), avg(pace=WHOLE), EXACT),
    "clustered sampling, equal clients, everybody": pair(m.clusteredsampling(), UNIFORM, EXACT, BALANCED, cohort=4),
    "ccvr broadcasts": pair(tiny("ccvr"), tiny("fedavg"), EXACT),
    "creff broadcasts": pair(tiny("creff"), tiny("fedavg"), EXACT),
    "fedamp, no pull, first round": pair(m.fedamp(pull=0.0), tolerance=EXACT, rounds=1),
    "ifca, one model": pair(m.ifca(1), UNIFORM),
    "precision weighted, one client": pair(m.precisionweighted(), UNIFORM, cohort=1),
    "fedcurv, first round": pair(m.fedcurv(9.0), tolerance=EXACT, rounds=1),
    "fedcurv, one client": pair(m.fedcurv(9.0), counts=[[5, 2, 4]], cohort=1),
    "fedexp, one client": pair(m.fedexp(), UNIFORM, cohort=1),
    "fedlesam, first round": pair(m.fedlesam(0.5), UNIFORM, EXACT, rounds=1),
    "fedlesam, everybody takes part in every round": pair(
        uniform(local=steps.GlobalSharpnessAware(rho=0.5, since="round")), m.fedlesam(0.5), cohort=4
    ),
    "fedspeed, all clients are the cohort": pair(m.fedspeed(0.3), m.fedspeed(0.3, 0.1, "all"), cohort=4),
    "fedacg sends what Nesterov's server momentum sends": pair(
        m.fedacg(0.6, 0.3), uniform(p.Proximal(0.3), server=Momentum(1.0, 0.6, nesterov=True)), EXACT
    ),
    "scaffold, first round": pair(m.scaffold(), UNIFORM, EXACT, rounds=1),
    "scaffold, N = 1": pair(m.scaffold(), counts=[[5, 4, 3]], cohort=1, rounds=4),  # c = c_k
    "scaffold, division without momentum": pair(uniform(p.ControlVariate(division="steps")), m.scaffold(), EXACT),
    "scaffold, everybody is the cohort": pair(
        uniform(p.ControlVariate(spread="cohort")), m.scaffold(), EXACT, cohort=4
    ),
    "scaffold, shares of rows that are equal": pair(
        uniform(p.ControlVariate(spread="size")), m.scaffold(), counts=[[3, 2, 4], [4, 2, 3], [1, 4, 4], [2, 3, 4]]
    ),
    "climb, equal clients": pair(avg(weighting=w.Dual(50.0, 0.0, 1)), UNIFORM, counts="copies"),  # the duals stay
    "fednova, equal steps": pair(m.fednova(), counts=BALANCED),
    "fednova, equal steps, momentum": pair(replace(m.fednova(), local=HEAVY), avg(local=HEAVY), counts=BALANCED),
    "fednova, one client": pair(m.fednova(), cohort=1),
    "adam and yogi, v = 0, first round": pair(avg(server=Adam(initial=0.0)), avg(server=Yogi(initial=0.0)), rounds=1),
    "fedrl, first round": pair(m.fedrl(), replace(m.fedrl(), parts=()), counts=None, rounds=1, cohort=3),
    "moon, mu = 0": pair(m.moon(mu=0.0), tolerance=EXACT, model=HEADED),
    "moon, mu = 0, no head": pair(m.moon(mu=0.0, projection=0), tolerance=EXACT),
    "moon, first round": pair(m.moon(), tolerance=EXACT, rounds=1, model=HEADED),
    "moon, everybody from the start": pair(  # who took part in round 1 is no newcomer
        avg(p.ModelContrastive(5.0, newcomer="initial")), m.moon(5.0), EXACT, cohort=4
    ),
    "power of choice, everybody": pair(m.powerofchoice(4), tolerance=EXACT, cohort=4),
    "astraea, alpha = 0, gamma = 1": pair(m.astraea(0.0, 1)),
    "seolkim, three parts off": pair(m.seolkim(False, False, False), FIVE, EXACT),
    "seolkim, one class a client": pair(m.seolkim(True, False, False), FIVE, EXACT, [[5, 0, 0], [0, 7, 0], [0, 0, 3]]),
    "seolkim, balanced clients": pair(m.seolkim(True, False, False), FIVE, EXACT, BALANCED),
    "seolkim, no scale of the batch": pair(avg(pace=Dynamic(epochs=2, beta=1, b0=1e-18)), avg(pace=ALL_ROWS)),
    "oversampling, delta large": pair(  # it ends after the first round, which knows no decay
        *(avg(sampler=DecayingOversampling(**s)) for s in ({"delta": 1e9}, {"delta": 1e6, "increment": 9.0})), EXACT
    ),
    "balancefl, equal counts need no noise": pair(avg(p.KnowledgeInheritance(smoothing=0.0)), counts=BALANCED),
    "fedla, proportional histograms": pair(m.fedla(), counts=PROPORTIONAL),
    "fedla, one client": pair(m.fedla(), tolerance=EXACT, cohort=1),
    "fedntd, two classes": pair(m.fedntd(beta=3.0), counts=[[5, 2], [1, 7], [4, 4]]),
    "fedntd, first step": pair(replace(m.fedntd(beta=3.0), pace=WHOLE), avg(pace=WHOLE)),
    "fedlc, tau = 0": pair(m.fedlc(tau=0.0)),
    "fedlc, equal counts": pair(m.fedlc(tau=2.0), counts=BALANCED),
    "fedir, everybody like the whole": pair(m.fedir(), counts=PROPORTIONAL),
    "fedvc, clients of that size": pair(
        replace(m.fedvc(12), pace=ALL_ROWS), uniform(pace=ALL_ROWS), counts=BALANCED, cohort=4
    ),
    "staged rate between its stages": pair(
        avg(pace=Staged(warmup=0, batch_size=4)), avg(pace=Fixed(batch_size=4)), EXACT
    ),
} | {  # same rows, all at once, everybody takes part: every convex average, and SCAFFOLD in every round, is FedAvg
    f"{method.name}, identical clients": pair(
        replace(method, pace=WHOLE), avg(pace=WHOLE), counts="copies", rounds=4, cohort=4
    )
    for method in (m.fedbal(local=False), m.scaffold(), m.fednova(), m.fedla(), replace(UNIFORM, name="uniform"))
}


@pytest.mark.parametrize("what", EQUAL)
def test_two_settings_are_one(what: str) -> None:
    """Compared is the model that is broadcast."""
    one, other, tolerance, counts, options = EQUAL[what]
    fed = skewed() if counts is None else blobs([[3, 2, 4]] * 4, copies=True) if counts == "copies" else blobs(counts)
    a, b = (go(fed, method, **options) for method in (one, other))
    chosen = [[np.sort(np.ravel(row["clients"])).tolist() for row in result.rounds] for result in (a, b)]
    assert chosen[0] == chosen[1]
    assert gap(a.state.params, b.state.params) <= tolerance
    assert gap(a.state.params, go(fed, other, **(options | {"seed": 1})).state.params) > 1e-6  # the test can fail


# ---------------------------------------------------------------------------------------------------------------------
# Aggregation


@pytest.mark.parametrize(
    "weighting", [m.fednova().weighting, w.Dual(500.0, 0.0, 1)], ids=lambda weighting: str(weighting.name)
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
    "server", [Adagrad(), Adam(), Yogi(), Momentum(), servers.GlobalMomentum(gmf=0.9)], ids=lambda s: str(s.name)
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
