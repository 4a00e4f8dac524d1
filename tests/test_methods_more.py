"""What planted faults showed to be untested in methods and slots: defaults, limits of fields, edges of the plans."""

from __future__ import annotations

import math
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedskew import functional as F
from fedskew import methods as m
from fedskew import rng
from fedskew.errors import ConfigError
from fedskew.method import Component, Method
from fedskew.methods import METHODS
from fedskew.methods.astraea import Augmentation, Mediators
from fedskew.methods.balancefl import KnowledgeInheritance
from fedskew.methods.centralised import LDAM, ClassBalancedLoss
from fedskew.methods.climb import Dual
from fedskew.methods.creff import FederatedFeatures
from fedskew.methods.fedbal import AggregationBalancer, LocalBalancer
from fedskew.methods.feddyn import DynamicCorrection
from fedskew.methods.fedfocal import Focal
from fedskew.methods.fedga import CalibratedTargets
from fedskew.methods.fedgc import PrivateHead
from fedskew.methods.fedgr import Gravitation
from fedskew.methods.fedgrab import GradientBalancer
from fedskew.methods.fedlc import LogitAdjustment, LogitCalibration, PooledLogitCalibration
from fedskew.methods.fednova import GlobalMomentum
from fedskew.methods.fedntd import NotTrueDistillation
from fedskew.methods.fedrl import RatioLoss
from fedskew.methods.fedrs import RestrictedSoftmax
from fedskew.methods.fedvc import VirtualClient
from fedskew.methods.moon import ModelContrastive
from fedskew.methods.perfedavg import Meta
from fedskew.methods.pfedme import Moreau
from fedskew.methods.powerofchoice import PowerOfChoice
from fedskew.methods.scaffold import ControlVariate
from fedskew.methods.seolkim import KLD, Dynamic
from fedskew.shared import SGD, Fixed, Random, Shuffle, Uniform
from fedskew.shared.paces import Staged
from fedskew.shared.parts import ProximalVariant
from fedskew.shared.samplers import ClassBalanced, batched, realise
from fedskew.shared.selectors import draw_clients
from fedskew.shared.servers import Adam, Momentum
from fedskew.types import Answers, Batch, Context, Output, Task, View
from support.federations import blobs
from support.methods import spied
from support.runs import gap, go, same

TINY, BELOW_ONE, ABOVE_ONE = math.ulp(0.0), math.nextafter(1, 0), math.nextafter(1, 2)

# (component, field, the last legal values, the first illegal ones)
LIMITS: list[tuple[type[Component], str, tuple[float, ...], tuple[float, ...]]] = [
    (Augmentation, "alpha", (0.0, 1.0), (-TINY, ABOVE_ONE)),
    (Mediators, "gamma", (1,), (0,)),
    (Mediators, "mediator_epochs", (1,), (0,)),
    (ClassBalancedLoss, "beta", (0.0, BELOW_ONE), (-TINY, 1.0)),
    (Dual, "dual_lr", (0.0,), (-TINY,)),
    (Dual, "primal_rounds", (1,), (0,)),
    (FederatedFeatures, "features_per_class", (1,), (0,)),
    (FederatedFeatures, "draws", (1,), (0,)),
    (LocalBalancer, "strength", (0.0,), (-TINY,)),
    (LocalBalancer, "early", (0,), (-1,)),
    (Dual, "initial", (0.0,), (-TINY,)),
    (GlobalMomentum, "gmf", (0.0, BELOW_ONE), (-TINY, 1.0)),
    (PooledLogitCalibration, "tau", (0.0,), (-TINY,)),
    (ProximalVariant, "mu", (0.0,), (-TINY,)),
    (RestrictedSoftmax, "few", (0,), (-1,)),
    (Staged, "warmup", (0, 160), (-1,)),
    (Staged, "first", (5, 180), (4,)),
    (Staged, "second", (160,), (159,)),
    (Staged, "middle", (TINY,), (0.0, -1.0)),
    (Staged, "end", (TINY,), (0.0, -1.0)),
    (AggregationBalancer, "beta", (0.0, math.inf), (-TINY,)),
    (AggregationBalancer, "temperature", (TINY,), (0.0, -1.0)),
    (DynamicCorrection, "alpha", (TINY,), (0.0, -1.0)),
    (Focal, "gamma", (0.0,), (-TINY,)),
    (Focal, "alpha", (TINY,), (0.0, -1.0)),
    (PrivateHead, "strength", (0.0,), (-TINY,)),
    (Gravitation, "strength", (0.0,), (-TINY,)),
    (LogitCalibration, "tau", (0.0,), (-TINY,)),
    (NotTrueDistillation, "tau", (TINY,), (0.0, -1.0)),
    (RestrictedSoftmax, "alpha", (0.0, 1.0), (-TINY, ABOVE_ONE)),
    (VirtualClient, "size", (1,), (0,)),
    (ModelContrastive, "temperature", (TINY,), (0.0, -1.0)),
    (Meta, "alpha", (0.0,), (-TINY,)),
    (Meta, "delta", (TINY,), (0.0, -1.0)),
    (PowerOfChoice, "candidates", (1,), (0,)),
    (KLD, "candidate_fraction", (TINY, 1.0), (0.0, ABOVE_ONE)),
    (Dynamic, "beta", (1,), (0,)),
    (Dynamic, "b0", (TINY,), (0.0, -1.0)),
    (Dynamic, "epochs", (1,), (0,)),
    (Fixed, "batch_size", (0,), (-1,)),
    (Fixed, "lr", (TINY,), (0.0, math.inf)),
    (Momentum, "beta", (0.0, BELOW_ONE), (-TINY, 1.0)),
    (Adam, "beta1", (0.0, BELOW_ONE), (-TINY, 1.0)),
    (Adam, "beta2", (0.0, BELOW_ONE), (-TINY, 1.0)),
    (Adam, "tau", (TINY,), (0.0, -1.0)),
    (SGD, "momentum", (0.0, BELOW_ONE), (-TINY, 1.0)),
    (SGD, "weight_decay", (0.0,), (-TINY,)),
    (SGD, "clip", (0.0,), (-TINY,)),
]


@pytest.mark.parametrize(
    ("kind", "field", "legal", "illegal"), LIMITS, ids=[f"{kind.__name__}-{field}" for kind, field, *_ in LIMITS]
)
def test_limits(kind: Any, field: str, legal: tuple[float, ...], illegal: tuple[float, ...]) -> None:
    for value in legal:
        assert getattr(kind(**{field: value}), field) == value
    for value in illegal:
        with pytest.raises(ConfigError, match=rf"must .*; got {value!r}"):
            kind(**{field: value})


# The cards' defaults, of methods and of components that no method of the table has
DEFAULTS: dict[str, dict[str, Any]] = {
    "augmentation": {"alpha": 0.5},
    "mediators": {"gamma": 5, "mediator_epochs": 1},
    "knowledge_inheritance": {
        "temperature": 2.0, "lam": 1.0, "smoothing": 0.002, "scope": "client", "entropy_reduction": "mean",
        "augment_features": True,
    },
    "dual": {
        "dual_lr": 1.0, "eps": 1.0, "primal_rounds": 5, "lambda_max": 100.0, "clamp_weights": False, "apply": "delta",
        "report": "all", "initial": 0.0,
    },
    "federated_features": {
        "features_per_class": 100, "match_steps": 100, "match_lr": 0.1, "head_epochs": 300, "head_lr": 0.01,
        "draws": 10, "rows": 32,
    },
    "adagrad": {"lr": 0.1, "beta1": 0.9, "tau": 1e-3, "initial": -1.0, "bias_correction": False},
    "momentum": {"lr": 1.0, "beta": 0.9},
    "local_balancer": {"strength": 60.0, "schedule_unit": "epoch", "one_based": True, "missing": "clamp1", "early": 0},
    "aggregation_balancer": {
        "beta": 3.0, "temperature": 1.0, "inverse": False, "include_bias": True, "scope": "head",
        "similarity": "cosine",
    },
    "dynamic_regulariser": {"alpha": 0.01},
    "dynamic_correction": {"lr": 1.0, "alpha": 0.01},
    "calibrated_targets": {"form": "softce", "count_scope": "batch"},
    "private_head": {"strength": 0.5, "anchors": "own"},
    "unbalanced_softmax": {"gamma": "max1", "missing": "mask"},
    "gravitation": {"strength": 0.5, "row_average": "all"},
    "gradient_balancer": {"kp": 10.0, "ki": 0.01, "kd": 0.1},
    "global_momentum": {"lr": 1.0, "gmf": 0.0},
    "logit_calibration": {"tau": 1.0, "denominator": "full", "missing": "mask"},
    "not_true_distillation": {"beta": 1.0, "tau": 1.0, "scaled": True},
    "ratio_loss": {
        "alpha": 1.0, "beta": 0.1, "threshold": 0.8, "by": "signed", "estimator": "training", "broken_broadcast": False,
        "monitor": False, "ratio": "masked", "divide": "rows",
    },
    "proximal": {"mu": 0.01},
    "restricted_softmax": {"alpha": 0.5, "scaling": "paper", "few": 0},
    "virtual_client": {"size": 256},
    "model_contrastive": {"mu": 1.0, "temperature": 0.5, "projection": 0, "newcomer": "omit"},
    "meta": {"alpha": 0.01, "delta": 1e-3, "hessian": "free"},
    "moreau": {"inner_steps": 5, "penalty": 15.0, "personal_lr": 0.09, "personal_decay": 0.0, "reset": False},
    "power_of_choice": {"candidates": 20},
    "control_variate": {"option": 2, "division": "reach", "spread": "clients"},
    "decaying_oversampling": {"delta": 0.01, "increment": 0.1, "threshold": 0.1},
    "kld": {"threshold": 0.1, "candidate_fraction": 1.0},
    "dynamic": {"epochs": 5, "lr": 0.1, "decay": 1.0, "beta": 25, "literal": False, "b0": 1.0},
    "sgd": {"momentum": 0.0, "weight_decay": 0.0, "clip": 0.0},
    "fixed": {"epochs": 2, "lr": 0.1, "decay": 1.0, "batch_size": 64},
    "plain": {"lr": 1.0},
}  # fmt: skip
OF_METHODS = {("pfedme", "fixed"): {"lr": 0.005}}  # where a method sets another default
LOOSE: list[tuple[type[Component], dict[str, Any]]] = [
    (LDAM, {"margin": 0.5, "scale": 30.0}),
    (ClassBalancedLoss, {"beta": 0.9999}),
    (LogitAdjustment, {"tau": 1.0}),
    (PooledLogitCalibration, {"tau": 1.0}),
    (ProximalVariant, {"mu": 0.01, "form": "norm"}),
    (
        Staged,
        {"epochs": 2, "lr": 0.1, "decay": 1.0, "batch_size": 64}
        | {"warmup": 5, "first": 160, "second": 180, "middle": 0.01, "end": 1e-4},
    ),
]


@pytest.mark.parametrize("name", METHODS)
def test_defaults(name: str) -> None:
    for component in METHODS[name]().components:
        want = DEFAULTS.get(component.name, {})
        for field, value in (want | OF_METHODS.get((name, component.name), {})).items():
            assert getattr(component, field) == value, f"{component.name}.{field}"
        for field, value in want.items():
            assert getattr(type(component)(), field) == value, f"{component.name}.{field} by itself"


def test_defaults_of_components_without_a_method() -> None:
    for kind, want in LOOSE:
        component: Any = kind()
        assert {f.name: getattr(component, f.name) for f in fields(component)} == want


# The cards' compositions: what a method has beyond plain FedAvg

COMPOSITIONS: dict[str, set[str]] = {
    "astraea": {"augmentation", "mediators"},
    "balancefl": {"knowledge_inheritance", "class_balanced"},
    "climb": {"dual"},
    "creff": {"federated_features"},
    "fedadagrad": {"adagrad"},
    "fedadam": {"adam"},
    "fedavg": set(),
    "fedavgm": {"momentum"},
    "fedbal": {"local_balancer", "aggregation_balancer"},
    "feddyn": {"dynamic_regulariser", "dynamic_correction", "uniform"},
    "fedfocal": {"focal"},
    "fedga": {"calibrated_targets", "uniform"},
    "fedgc": {"private_head"},
    "fedgr": {"unbalanced_softmax", "gravitation"},
    "fedgrab": {"gradient_balancer"},
    "fedir": {"importance_reweighting"},
    "fedla": {"label_aware"},
    "fedlc": {"logit_calibration"},
    "fednova": {"fednova", "global_momentum"},
    "fedntd": {"not_true_distillation"},
    "fedprox": {"proximal"},
    "fedrl": {"ratio_loss"},
    "fedrs": {"restricted_softmax"},
    "fedvc": {"virtual_client", "by_size", "uniform"},
    "fedyogi": {"yogi"},
    "moon": {"model_contrastive"},
    "perfedavg": {"meta", "uniform"},
    "pfedme": {"moreau"},
    "powerofchoice": {"power_of_choice"},
    "scaffold": {"control_variate", "uniform"},
    "seolkim": {"decaying_oversampling", "kld", "dynamic"},
}
PLAIN = {"cross_entropy", "shuffle", "random", "fixed", "size", "plain", "sgd"}
LEARNING_RATES = {"fedadagrad": 0.1, "fedadam": 0.01, "fedyogi": 0.01, "fedavgm": 1.0}


@pytest.mark.parametrize("name", METHODS)
def test_compositions(name: str) -> None:
    method = METHODS[name]()
    assert {c.name for c in method.components} - PLAIN == COMPOSITIONS[name]
    assert method.reference
    assert method.server.lr == LEARNING_RATES.get(name, 1.0)
    wanted = {"ratio_loss": 8}
    assert {c.name: c.auxiliary for c in method.components if c.auxiliary} == {
        c.name: wanted[c.name] for c in method.components if c.name in wanted
    }


def test_arguments_of_methods_reach_their_components() -> None:
    def value(method: Method, component: str, field: str) -> Any:
        return getattr(next(c for c in method.components if c.name == component), field)

    cases = [
        (m.astraea(0.25, 3), "augmentation", "alpha", 0.25),
        (m.astraea(0.25, 3), "mediators", "gamma", 3),
        (m.climb(2.0, 0.5), "dual", "dual_lr", 2.0),
        (m.climb(2.0, 0.5), "dual", "eps", 0.5),
        (m.fedbal(strength=7.0), "local_balancer", "strength", 7.0),
        (m.fedbal(beta=2.0), "aggregation_balancer", "beta", 2.0),
        (m.fedbal(inverse=True), "aggregation_balancer", "inverse", True),
        (m.feddyn(0.5), "dynamic_regulariser", "alpha", 0.5),
        (m.feddyn(0.5), "dynamic_correction", "alpha", 0.5),
        (m.fedfocal(1.5), "focal", "gamma", 1.5),
        (m.fedga("exact"), "calibrated_targets", "form", "exact"),
        (m.fedgc(0.25), "private_head", "strength", 0.25),
        (m.fedgr(strength=0.25), "gravitation", "strength", 0.25),
        (m.fedlc(0.5), "logit_calibration", "tau", 0.5),
        (m.fednova(Uniform(), 0.5), "fednova", "base", Uniform()),
        (m.fednova(Uniform(), 0.5), "global_momentum", "gmf", 0.5),
        (m.fednova(Uniform(), 0.5), "global_momentum", "lr", 1.0),
        (m.fedntd(0.5, 3.0), "not_true_distillation", "beta", 0.5),
        (m.fedntd(0.5, 3.0), "not_true_distillation", "tau", 3.0),
        (m.fedadagrad(0.5), "adagrad", "lr", 0.5),
        (m.fedadam(0.5), "adam", "lr", 0.5),
        (m.fedyogi(0.5), "yogi", "lr", 0.5),
        (m.fedavgm(0.5, 0.25), "momentum", "beta", 0.5),
        (m.fedavgm(0.5, 0.25), "momentum", "lr", 0.25),
        (m.fedprox(0.5), "proximal", "mu", 0.5),
        (m.fedrl(2.0, 0.5), "ratio_loss", "alpha", 2.0),
        (m.fedrl(2.0, 0.5), "ratio_loss", "beta", 0.5),
        (m.fedrs(0.25), "restricted_softmax", "alpha", 0.25),
        (m.fedvc(9), "virtual_client", "size", 9),
        (m.moon(2.0, 0.25), "model_contrastive", "mu", 2.0),
        (m.moon(2.0, 0.25), "model_contrastive", "temperature", 0.25),
        (m.perfedavg(0.5), "meta", "alpha", 0.5),
        (m.pfedme(0.5, 0.25), "plain", "lr", 0.5),
        (m.pfedme(0.5, 0.25), "fixed", "lr", 0.25),
        (m.powerofchoice(7), "power_of_choice", "candidates", 7),
    ]
    for method, component, field, want in cases:
        assert value(method, component, field) == want, (component, field)
    assert [len(m.fedgr(a, b).parts) for a, b in ((True, True), (True, False), (False, True))] == [2, 1, 2]
    assert {c.name for c in m.fedbal(False, False).components} == PLAIN
    assert {c.name for c in m.seolkim(False, False, False).components} == PLAIN


# Paces


def test_the_staged_rate_warms_up_and_drops_twice() -> None:
    pace = Staged(lr=0.4, decay=0.5, warmup=2, first=4, second=6, middle=0.1, end=0.02)
    seen = [float(pace.of(torch.tensor([3, 9]), r, 9).lr[1]) / 0.5 ** (r - 1) for r in range(1, 9)]
    assert seen == pytest.approx([0.2, 0.4, 0.4, 0.4, 0.04, 0.04, 0.008, 0.008])
    assert Staged(warmup=0, first=0, second=0, end=0.5).of(torch.tensor([1]), 1, 9).lr.tolist() == [0.05]


@pytest.mark.parametrize("pace", [Fixed(3, 0.4, 0.5, batch_size=7), Dynamic(3, 0.4, 0.5, beta=4, b0=2.0)])
def test_the_rate_decays_after_every_round(pace: Any) -> None:
    used = torch.tensor([1, 9, 40])
    fixed = isinstance(pace, Fixed)
    first = [0.4] * 3 if fixed else [0.4 * 2 / math.pi * math.atan(b / 2) for b in (1, 2, 10)]
    for round, factor in ((1, 1.0), (2, 0.5), (4, 0.125)):
        plan = pace.of(used, round, 9)
        assert plan.lr.tolist() == pytest.approx([factor * r for r in first])
        assert plan.epochs.tolist() == [3, 3, 3]
        assert plan.batch.tolist() == ([7, 7, 7] if fixed else [1, 2, 10])
        assert plan.steps.tolist() == ([0, 0, 0] if fixed else [4, 4, 4])


# Samplers

OWN = np.array([2, 0, 2, 2, 0, 3, 2])  # labels of a client's rows; classes 1 and 4 have none


def draw(seed: int) -> np.random.Generator:
    return rng.generator(rng.key(seed, "draw"))


def test_rows_are_realised_as_asked() -> None:
    seen = set[int]()
    for seed in range(30):
        rows = realise(OWN, np.array([5, 3, 2, 1, 1]), draw(seed))
        assert np.bincount(OWN[rows], minlength=5).tolist() == [5, 0, 2, 1, 0]  # there is nothing to copy of 1 and 4
        times = np.bincount(rows, minlength=7)
        assert sorted(times[OWN == 0]) == [2, 3] and times[OWN == 2].max() == 1  # no third copy before all have two
        seen |= {int(times[1]), *(100 + np.flatnonzero(times * (OWN == 2))).tolist()}
    assert seen == {2, 3, 100, 102, 103, 106}  # any row may be the one that is copied or left out
    assert len(realise(OWN, np.zeros(5, np.int64), draw(0))) == 0


@pytest.mark.parametrize(("size", "steps"), [(3, 3), (7, 1), (1, 7), (10, 1), (0, 1)])
def test_an_epoch_is_a_shuffle_in_batches(size: int, steps: int) -> None:
    pool = np.arange(10, 17)
    plan = batched(pool, (size, 4, 0), draw(0))
    assert plan.shape == (4, steps, size or 7)
    orders = [epoch[epoch >= 0].tolist() for epoch in plan]
    assert all(sorted(o) == pool.tolist() for o in orders) and len({tuple(o) for o in orders}) == 4
    assert (plan.reshape(4, -1)[:, :7] >= 0).all() and (plan.reshape(4, -1)[:, 7:] == -1).all()  # padding comes last
    assert np.array_equal(batched(pool, (size, 4, 2), draw(0)), plan[:, :2])
    assert batched(pool[:0], (size, 4, 0), draw(0)).size == 0


def test_a_quota_takes_one_subset_for_all_epochs() -> None:
    chosen = set()
    for seed in range(20):
        plan = Shuffle().plan(OWN, np.array([2, 0, 4, 1, 0]), np.array([9, 9, 3, 0, 0]), (2, 3, 0), {}, rng.key(seed))
        epochs = [tuple(sorted(epoch[epoch >= 0])) for epoch in plan]
        assert len(set(epochs)) == 1 and np.bincount(OWN[list(epochs[0])], minlength=5).tolist() == [2, 0, 3, 0, 0]
        chosen.add(epochs[0])
    assert len(chosen) == 4


def balanced(offered: list[int], quota: list[int] | None, epochs: int) -> np.ndarray[Any, Any]:
    limit = None if quota is None else np.array(quota)
    return ClassBalanced().plan(OWN, np.array(offered), limit, (4, epochs, 0), {}, rng.key(3))


def test_balanced_batches_draw_classes_uniformly_and_rows_uniformly_within() -> None:
    plan = balanced([2, 3, 4, 1, 0], None, 4000)  # class 1 is offered, but the client has no row of it
    assert plan.shape == (4000, 3, 4) and ((plan >= 0).sum((1, 2)) == 10).all()
    rows = plan[plan >= 0]
    assert np.bincount(OWN[rows], minlength=5) / len(rows) == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3, 0], abs=0.01)
    within = np.bincount(rows, minlength=7)[OWN == 2] / (OWN[rows] == 2).sum()
    assert within == pytest.approx([0.25] * 4, abs=0.015)
    assert len({epoch.tobytes() for epoch in plan[:50]}) == 50  # drawn anew every epoch
    assert len({tuple(np.sort(epoch[epoch >= 0])) for epoch in plan[:50]}) > 40


def test_a_quota_of_balanced_batches_sets_their_number_and_classes() -> None:
    plan = balanced([2, 0, 4, 1, 0], [1, 0, 9, 0, 0], 200)
    assert ((plan >= 0).sum((1, 2)) == 5).all()
    assert np.bincount(OWN[plan[plan >= 0]], minlength=5) / 1000 == pytest.approx([0.5, 0, 0.5, 0, 0], abs=0.05)
    assert balanced([0, 5, 0, 0, 0], None, 2).size == 0  # none of what is offered is there


# Selection


def shares(sizes: list[int], k: int, proportional: bool) -> Tensor:
    """How often each client is drawn."""
    keys = [rng.key(seed, "clients") for seed in range(1000)]
    drawn = torch.stack([draw_clients(torch.tensor(sizes), k, key, proportional) for key in keys])
    assert (drawn.diff(dim=1) > 0).all()  # sorted, and nobody twice
    return torch.bincount(drawn.flatten(), minlength=len(sizes)) / len(keys)


def test_clients_are_drawn_uniformly_or_by_size() -> None:
    assert shares([1, 0, 6, 3], 1, False).tolist() == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3], abs=0.05)
    assert shares([1, 0, 6, 3], 2, False).tolist() == pytest.approx([2 / 3, 0, 2 / 3, 2 / 3], abs=0.05)
    assert shares([1, 0, 6, 3], 1, True).tolist() == pytest.approx([0.1, 0, 0.6, 0.3], abs=0.05)
    second = 0.6 * 0.1 / 0.4 + 0.3 * 0.1 / 0.7 + 0.1  # drawn second after 2, second after 3, or first
    assert float(shares([1, 0, 6, 3], 2, True)[0]) == pytest.approx(second, abs=0.05)
    assert shares([1, 0, 6, 3], 9, True).tolist() == [1, 0, 1, 1]


def test_virtual_clients_offer_their_size_in_proportion() -> None:
    counts = torch.tensor([[1, 0, 0], [0, 0, 0], [2, 1, 3], [1, 1, 1]])
    offered = VirtualClient(10).offer(counts, {}, 1, rng.key(0))
    assert offered.tolist() == [[10, 0, 0], [0, 0, 0], [3, 2, 5], [4, 3, 3]]  # largest remainders, then lowest index


# Hooks by hand

TASK = Task("fc", 3, 4, 5, 9)


def view(labels: list[int], **changes: Any) -> View:
    """What a component sees of these rows: seeded logits, features and parameters, everything else as given."""
    draw = np.random.default_rng(4)
    params = {n: torch.as_tensor(draw.normal(size=s)) for n, s in {"fc.weight": (3, 4), "fc.bias": (3,)}.items()}
    features = torch.as_tensor(draw.normal(size=(len(labels), 4)))
    out = Output(features @ params["fc.weight"].T + params["fc.bias"], features)
    counts = torch.tensor([16, 1, 81])
    lr, y = torch.tensor(0.1, dtype=torch.float64), torch.tensor(labels)
    ctx = Context(TASK, params, {}, {}, {}, counts, counts, lr)
    whole = Batch(features, y, torch.ones(len(labels), dtype=torch.float64))
    seen: Any = View(None, params, {}, out, whole, ctx, {}, rng.key(0), None)  # type: ignore[arg-type]
    return seen._replace(**changes)  # type: ignore[no-any-return]


def test_a_batch_of_one_row_is_averaged_over_one() -> None:
    part, seen = GradientBalancer(), view([1])
    seen = seen._replace(memory={part.name: part.init_client(seen.params, {}, TASK)})
    learnt, p = part.learn(seen), seen.out.logits[0].sigmoid()
    torch.testing.assert_close(learnt["positive"], (1 - p) * torch.tensor([0.0, 1.0, 0.0]))
    torch.testing.assert_close(learnt["negative"], p * torch.tensor([1.0, 0.0, 1.0]))


def test_balancefl_measures_in_full_precision() -> None:
    seen = view([0, 1, 1, 0, 2, 2, 1])
    x, y = seen.out.features.numpy(), seen.batch.y.numpy()
    within = sum(np.cov(x[y == c], rowvar=False, bias=True) * (y == c).sum() for c in range(3)) / 7
    root = KnowledgeInheritance().covariance(seen)["root"]
    np.testing.assert_allclose(root @ root.T, within, rtol=1e-10)


def test_ldam_by_hand() -> None:
    seen = view([0, 1, 2])
    x, w = seen.out.features.numpy(), seen.params["fc.weight"].numpy()
    z = x @ w.T / np.linalg.norm(x, axis=1)[:, None] / np.linalg.norm(w, axis=1)
    z -= np.diag(0.5 * np.array([16, 1, 81.0]) ** -0.25)
    want = np.mean(np.log(np.exp(30 * z).sum(1)) - 30 * z.diagonal())
    assert float(LDAM().loss(seen)) == pytest.approx(want, rel=1e-6)
    served = LDAM().serve({"other": torch.ones(1), **seen.params}, {}, TASK)
    np.testing.assert_allclose(served["fc.weight"], w / np.linalg.norm(w, axis=1)[:, None], rtol=1e-12)
    assert served["fc.bias"].tolist() == [0, 0, 0] and served["other"].tolist() == [1]
    assert LDAM().serve({"fc.weight": seen.params["fc.weight"]}, {}, TASK).keys() == {"fc.weight"}


def test_class_balanced_loss_by_hand() -> None:
    seen = view([0, 1, 2])
    raw = np.array([(1 - 0.9) / (1 - 0.9**n) for n in (16, 1, 81)])
    rows = -seen.out.logits.log_softmax(1).diagonal().numpy()
    want = np.mean(3 * raw / raw.sum() * rows)
    assert float(ClassBalancedLoss(0.9).loss(seen)) == pytest.approx(want, rel=1e-12)


def test_a_client_that_never_took_part_has_the_global_model() -> None:
    part, seen = Moreau(), view([0])
    theta = {n: p + 1 for n, p in seen.params.items()}
    for told, want in ((0.0, seen.params), (1.0, theta)):
        ctx = seen.ctx._replace(memory={part.name: {"theta": theta, "seen": torch.tensor(told)}})
        own = part.personalize(seen.params, ctx, lambda p: p)
        assert all(torch.equal(own[n], want[n]) for n in want)


def test_scaffold_remembers_a_gradient_only_where_it_needs_one() -> None:
    params = view([0]).params
    assert ControlVariate().init_client(params, {}, TASK).keys() == {"c"}
    assert ControlVariate(1).init_client(params, {}, TASK).keys() == {"c", "gradient"}


def test_duals_are_recorded() -> None:
    record = Dual().record({"duals": torch.tensor([0.5, 0.0, 2.0])})
    assert record == {"dual_min": 0.0, "dual_max": 2.0}


def test_the_ratio_loss_may_take_minus_the_gradient_for_the_change() -> None:
    def forward(params: Any, buffers: Any, x: Tensor, mask: Tensor, **how: Any) -> tuple[Output, Any]:
        assert how["train"] is False
        return Output(x @ params["fc.weight"].T + params["fc.bias"], x), buffers

    seen = view([0, 2, 1], forward=forward)
    seen = seen._replace(batch=seen.batch._replace(mask=torch.tensor([1.0, 1, 0], dtype=torch.float64)))
    error = seen.out.logits.softmax(1) - torch.eye(3)[seen.batch.y]
    change = RatioLoss(estimator="gradient").minus_gradient(seen)
    assert change.keys() == {"fc.weight"}
    torch.testing.assert_close(change["fc.weight"], -error[:2].T @ seen.batch.x[:2] / 2)
    assert RatioLoss(estimator="gradient").ask({}, 1, rng.key(0)).what != RatioLoss().ask({}, 1, rng.key(0)).what  # type: ignore[union-attr]


def test_the_monitor_is_given_the_update_of_the_round() -> None:
    draw = np.random.default_rng(0)
    changes, before, after = (torch.as_tensor(draw.normal(size=s)) for s in ((3, 3, 4), (3, 4), (3, 4)))
    cohort: Any = SimpleNamespace(
        task=TASK, ids=torch.tensor([0, 3]), before={"fc.weight": before}, after={"fc.weight": after},
        reports=SimpleNamespace(samples=torch.tensor([30, 12])),
    )  # fmt: skip
    state = {"changes": {"fc.weight": changes}, "rows": torch.tensor(4.0), "weights": torch.ones(3)}
    got, written = RatioLoss(2.0, 0.5, monitor=True).absorb(state, cohort, rng.key(0))
    assert written is None and got.keys() == {"weights", "rows", "estimated"}
    torch.testing.assert_close(got["estimated"], F.ratio_monitor(changes, after - before, 42, 8.0))
    torch.testing.assert_close(got["weights"], 2 + 0.5 * F.ratio_of_changes(changes))
    assert RatioLoss().absorb(state, cohort, rng.key(0))[0].keys() == {"weights", "rows"}


def test_the_monitor_counts_the_rows_that_the_server_holds_of_a_class() -> None:
    state = RatioLoss().init_server(view([0]).params, blobs([[2, 3, 4]], auxiliary=5), TASK)  # type: ignore[arg-type]
    assert float(state["rows"]) == 5 and state["weights"].tolist() == [1, 1, 1]
    assert state["weights"].dtype == torch.float64


def test_the_round_is_absorbed_with_the_new_parameters() -> None:
    method, seen = spied(METHODS["fedavgm"]())
    result = go(blobs([[4, 2, 3], [1, 5, 2]]), method, cohort=2, rounds=1)
    (cohort,) = seen
    assert cohort.after is not None and same(cohort.after, result.params)
    assert gap(cohort.after, cohort.before) > 0 and cohort.weights is not None and cohort.trained is not None


def test_balancefl_adds_noise_to_rows_of_rare_classes() -> None:
    """Class 2 has the most rows: never; class c with probability 1 - n_c / 81."""
    labels = [0] * 600 + [1] * 600 + [2] * 600
    seen = view(labels)
    part = KnowledgeInheritance()
    root = torch.as_tensor(np.random.default_rng(0).normal(size=(4, 4)))
    noise = part._noise(seen._replace(memory={part.name: {"root": root}}), seen.ctx.used.to(root))
    hit = (noise != 0).all(1).reshape(3, 600).double().mean(1)
    assert hit.tolist() == pytest.approx([1 - 16 / 81, 1 - 1 / 81, 0.0], abs=0.05)
    weight = seen.params["fc.weight"]
    drawn = noise[(noise != 0).all(1)]
    np.testing.assert_allclose(np.cov(drawn.numpy().T), (weight @ root @ root.T @ weight.T).numpy(), rtol=0.35, atol=1)
    one = part._noise(seen._replace(memory={part.name: {"root": root}}, key=rng.key(1)), seen.ctx.used.to(root))
    assert not torch.equal(one, noise)


def test_creff_asks_the_cohort_for_augmented_draws() -> None:
    question = FederatedFeatures(draws=7).ask({}, 3, rng.key(0))
    assert question is not None and (question.ids, question.draws, question.augment) == ("cohort", 7, True)
    assert (question.rows, question.keep) == ("own", False)


def test_the_controller_starts_at_zero_in_the_parameters_precision() -> None:
    memory = GradientBalancer().init_client(view([0]).params, {}, TASK)
    assert memory.keys() == {"positive", "negative", "earlier", "previous", "u"}
    assert all(t.dtype == torch.float64 and t.tolist() == [0, 0, 0] for t in memory.values())


def test_candidates_are_asked_by_size_and_chosen_by_loss() -> None:
    part, fed = PowerOfChoice(1), blobs([[1, 0], [0, 0], [3, 3], [2, 1]])
    state = part.init_server({}, fed, TASK)
    asked = [part.ask(state, 1, rng.key(seed, "candidates")) for seed in range(1000)]
    drawn = torch.bincount(
        torch.cat([q.ids for q in asked if q is not None and not isinstance(q.ids, str)]), minlength=4
    )
    assert (drawn / 1000).tolist() == pytest.approx([0.1, 0, 0.6, 0.3], abs=0.05)
    assert asked[0] is not None and asked[0].what == "loss"
    close = torch.tensor([1.0, 1.0 + 1e-12], dtype=torch.float64)
    told = part.receive(state, Answers(torch.tensor([0, 3]), close), rng.key(0))
    assert PowerOfChoice(2).select(told, 1, rng.key(0)).chains.tolist() == [[3]]


@pytest.mark.parametrize(("unit", "last"), [("epoch", 3), ("round", 9)])
def test_a_schedule_ends_after_it_begins(unit: Any, last: int) -> None:
    method: Any = SimpleNamespace(pace=Fixed(epochs=3))
    LocalBalancer(schedule_unit=unit, early=last - 1).check(method, None, TASK)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=f"early must be less than the number of {unit}s, {last}; got {last}"):
        LocalBalancer(schedule_unit=unit, early=last).check(method, None, TASK)  # type: ignore[arg-type]
    LocalBalancer(schedule_unit="step", early=99).check(method, None, TASK)  # type: ignore[arg-type]


def test_the_binary_form_is_for_two_classes() -> None:
    part = CalibratedTargets("binary")
    part.check(None, None, TASK._replace(classes=2))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="form must be softce or exact for 3 classes; got 'binary'"):
        part.check(None, None, TASK)  # type: ignore[arg-type]


def test_fedga_counts_in_the_batch_or_at_the_client() -> None:
    seen = view([0, 1, 1, 0, 0])
    seen = seen._replace(
        out=Output(seen.out.logits[:, :2], seen.out.features), ctx=seen.ctx._replace(used=torch.tensor([16, 1])),
        batch=seen.batch._replace(mask=torch.tensor([1.0, 1, 1, 0, 1], dtype=torch.float64)),
    )  # fmt: skip
    for scope, counts in (("batch", [2.0, 2.0]), ("client", [16.0, 1.0])):
        rows = F.fedga_binary_loss(seen.out.logits, seen.batch.y, torch.tensor(counts, dtype=torch.float64))
        got = CalibratedTargets("binary", scope).loss(seen)  # type: ignore[arg-type]
        torch.testing.assert_close(got, rows[[0, 1, 2, 4]].mean())


def test_a_client_without_rows_has_no_loss() -> None:
    """What it would report, 0, is neither its loss nor part of the mean."""
    part, fed = Dual(), blobs([[2, 1], [0, 0], [3, 3]])
    state = part.init_server({}, fed, TASK._replace(clients=3))
    told = part.receive(state, Answers(torch.arange(3), torch.tensor([1.0, 0.0, 4.0])), rng.key(0))
    assert told["losses"].tolist() == [1.0, 2.5, 4.0] and told["known"].tolist() == [1, 0, 1]


def test_one_row_at_the_server_is_enough() -> None:
    RatioLoss().check(None, SimpleNamespace(auxiliary_rows=[3]), TASK)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="auxiliary must be at least 1 row a class"):
        RatioLoss().check(None, SimpleNamespace(auxiliary_rows=[]), TASK)  # type: ignore[arg-type]


def test_many_equal_remainders_go_to_the_lowest_classes() -> None:
    offered = VirtualClient(40).offer(torch.ones(1, 300, dtype=torch.int64), {}, 1, rng.key(0))
    assert offered[0].tolist() == [1] * 40 + [0] * 260


def test_the_projection_head_starts_as_torch_would() -> None:
    """Uniform in +-1/sqrt(F) both layers, different draws, the second as wide as asked."""
    like = {"fc.weight": torch.zeros(3, 400, dtype=torch.float64)}
    task = TASK._replace(features=400)
    assert ModelContrastive().init_params(like, task, rng.key(0)) == {}
    head = ModelContrastive(projection=50).init_params(like, task, rng.key(0))
    assert {n: tuple(w.shape) for n, w in head.items()} == {
        "model_contrastive.0.weight": (400, 400), "model_contrastive.2.weight": (50, 400),
    }  # fmt: skip
    for w in head.values():
        assert w.dtype == torch.float64 and float(w.min()) >= -0.05 and float(w.max()) <= 0.05
        assert (float(w.min()), float(w.max())) == pytest.approx((-0.05, 0.05), abs=1e-4)
        assert float(w.mean()) == pytest.approx(0, abs=1e-3) and float(w.std()) == pytest.approx(
            0.1 / 12**0.5, rel=0.02
        )
    assert not torch.equal(head["model_contrastive.0.weight"][:50], head["model_contrastive.2.weight"])


def test_a_meta_step_reads_three_batches_or_two() -> None:
    assert (Meta().batches, Meta(hessian="none").batches, SGD().batches) == (3, 2, 1)


def test_a_client_with_one_row_counts() -> None:
    fed = blobs([[1, 0], [0, 0], [3, 3]])
    assert Random().init_server({}, fed, TASK)["sizes"].tolist() == [1, 0, 1]
    assert Dual().init_server({}, fed, TASK)["real"].tolist() == [1, 0, 1]


def test_candidates_need_not_outnumber_the_clients_that_have_rows() -> None:
    part = PowerOfChoice(2)
    state = part.init_server({}, blobs([[1, 0], [0, 0], [3, 3]]), TASK)
    told = part.receive(state, Answers(torch.tensor([0, 2]), torch.tensor([1.0, 2.0])), rng.key(0))
    assert part.select(told, 3, rng.key(0)).chains.tolist() == [[0], [2]]


def test_one_row_of_every_class_needs_no_noise() -> None:
    part, seen = KnowledgeInheritance(), view([0, 1, 2] * 20)
    memory = {part.name: {"root": torch.eye(4, dtype=torch.float64)}}
    assert (part._noise(seen._replace(memory=memory), torch.ones(3).double()) == 0).all()


def test_balancefl_takes_heads_of_up_to_4096_features() -> None:
    wide = TASK._replace(features=4097)
    KnowledgeInheritance().check(None, None, TASK._replace(features=4096))  # type: ignore[arg-type]
    KnowledgeInheritance(augment_features=False).check(None, None, wide)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="be false for a head with more than 4096 features"):
        KnowledgeInheritance().check(None, None, wide)  # type: ignore[arg-type]


def test_balancefl_classifies_what_it_augmented_and_distils_what_it_did_not(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = view([0, 1, 0])
    seen = seen._replace(ctx=seen.ctx._replace(used=torch.tensor([2, 1, 0])))
    noise = torch.tensor([[0.5, -1.0, 2.0]], dtype=torch.float64).expand(3, 3)
    told = Output(seen.out.logits.flip(1), seen.out.features)
    monkeypatch.setattr(KnowledgeInheritance, "_noise", lambda *_: noise)
    monkeypatch.setattr(View, "teacher", lambda _: told)
    z, positive = seen.out.logits, torch.tensor([True, True, False])
    classify, distil, entropy = F.balancefl_terms(z, z + noise, told.logits, seen.batch.y, positive, 2.0)
    want = (classify + distil - 0.002 * entropy).mean()
    torch.testing.assert_close(KnowledgeInheritance().loss(seen), want, rtol=1e-12, atol=0)
    plain = F.balancefl_terms(z, z, told.logits, seen.batch.y, positive, 2.0)[0]
    assert not torch.allclose(plain, classify)
