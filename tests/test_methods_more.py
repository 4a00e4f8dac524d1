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
from fedskew import rng
from fedskew.errors import ConfigError
from fedskew.method import Component
from fedskew.methods import METHODS
from fedskew.methods.astraea import Augmentation, Mediators
from fedskew.methods.balancefl import KnowledgeInheritance
from fedskew.methods.centralised import LDAM, ClassBalancedLoss
from fedskew.methods.climb import DualWeights
from fedskew.methods.creff import FederatedFeatures
from fedskew.methods.fedbal import AggregationBalancer, LocalBalancer
from fedskew.methods.feddyn import Dynamic
from fedskew.methods.fedfocal import Focal
from fedskew.methods.fedgc import PrivateHead
from fedskew.methods.fedgr import Gravitation
from fedskew.methods.fedgrab import GradientBalancer
from fedskew.methods.fedlc import LogitAdjustment, LogitCalibration
from fedskew.methods.fedntd import NotTrueDistillation
from fedskew.methods.fedrl import RatioLoss
from fedskew.methods.fedrs import RestrictedSoftmax
from fedskew.methods.fedvc import VirtualClient
from fedskew.methods.moon import ModelContrastive
from fedskew.methods.perfedavg import MetaStep
from fedskew.methods.pfedme import Moreau
from fedskew.methods.powerofchoice import PowerOfChoice
from fedskew.methods.scaffold import ControlVariate
from fedskew.methods.seolkim import DynamicPace, KLDSelection
from fedskew.slots import SGD, FixedPace, Shuffle
from fedskew.slots.samplers import ClassBalanced, batched, realise
from fedskew.slots.selectors import draw_clients
from fedskew.slots.servers import Adam, Momentum
from fedskew.types import Batch, Context, Output, Task, View

TINY, BELOW_ONE, ABOVE_ONE = math.ulp(0.0), math.nextafter(1, 0), math.nextafter(1, 2)

# (component, field, the last legal values, the first illegal ones)
LIMITS: list[tuple[type[Component], str, tuple[float, ...], tuple[float, ...]]] = [
    (Augmentation, "alpha", (0.0, 1.0), (-TINY, ABOVE_ONE)),
    (Mediators, "gamma", (1,), (0,)),
    (Mediators, "mediator_epochs", (1,), (0,)),
    (ClassBalancedLoss, "beta", (0.0, BELOW_ONE), (-TINY, 1.0)),
    (DualWeights, "dual_lr", (0.0,), (-TINY,)),
    (DualWeights, "primal_rounds", (1,), (0,)),
    (FederatedFeatures, "features_per_class", (1,), (0,)),
    (FederatedFeatures, "draws", (1,), (0,)),
    (LocalBalancer, "strength", (0.0,), (-TINY,)),
    (AggregationBalancer, "beta", (0.0, math.inf), (-TINY,)),
    (AggregationBalancer, "temperature", (TINY,), (0.0, -1.0)),
    (Dynamic, "alpha", (TINY,), (0.0, -1.0)),
    (Focal, "gamma", (0.0,), (-TINY,)),
    (Focal, "alpha", (TINY,), (0.0, -1.0)),
    (PrivateHead, "strength", (0.0,), (-TINY,)),
    (Gravitation, "strength", (0.0,), (-TINY,)),
    (LogitCalibration, "tau", (0.0,), (-TINY,)),
    (NotTrueDistillation, "tau", (TINY,), (0.0, -1.0)),
    (RestrictedSoftmax, "alpha", (0.0, 1.0), (-TINY, ABOVE_ONE)),
    (VirtualClient, "size", (1,), (0,)),
    (ModelContrastive, "temperature", (TINY,), (0.0, -1.0)),
    (MetaStep, "alpha", (0.0,), (-TINY,)),
    (MetaStep, "delta", (TINY,), (0.0, -1.0)),
    (PowerOfChoice, "candidates", (1,), (0,)),
    (KLDSelection, "candidate_fraction", (TINY, 1.0), (0.0, ABOVE_ONE)),
    (DynamicPace, "beta", (1,), (0,)),
    (DynamicPace, "b0", (TINY,), (0.0, -1.0)),
    (DynamicPace, "epochs", (1,), (0,)),
    (FixedPace, "batch_size", (0,), (-1,)),
    (FixedPace, "lr", (TINY,), (0.0, math.inf)),
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
        "report": "all",
    },
    "federated_features": {
        "features_per_class": 100, "match_steps": 100, "match_lr": 0.1, "head_epochs": 300, "head_lr": 0.01,
        "draws": 10, "rows": 32,
    },
    "adagrad": {"lr": 0.1, "beta1": 0.9, "tau": 1e-3, "initial": -1.0, "bias_correction": False},
    "momentum": {"lr": 1.0, "beta": 0.9},
    "local_balancer": {"strength": 60.0, "schedule_unit": "epoch", "one_based": True, "missing": "clamp1"},
    "aggregation_balancer": {
        "beta": 3.0, "temperature": 1.0, "inverse": False, "include_bias": True, "scope": "head",
        "similarity": "cosine",
    },
    "dynamic_regulariser": {"alpha": 0.01},
    "dynamic_correction": {"lr": 1.0, "alpha": 0.01},
    "calibrated_targets": {"form": "softce", "count_scope": "batch"},
    "private_head": {"strength": 0.5},
    "unbalanced_softmax": {"gamma": "max1", "missing": "mask"},
    "gravitation": {"strength": 0.5, "row_average": "all"},
    "gradient_balancer": {"kp": 10.0, "ki": 0.01, "kd": 0.1},
    "logit_calibration": {"tau": 1.0, "denominator": "full"},
    "not_true_distillation": {"beta": 1.0, "tau": 1.0},
    "proximal": {"mu": 0.01},
    "restricted_softmax": {"alpha": 0.5, "scaling": "paper"},
    "virtual_client": {"size": 256},
    "model_contrastive": {"mu": 1.0, "temperature": 0.5, "projection": 0},
    "meta": {"alpha": 0.01, "delta": 1e-3, "hessian": "free"},
    "moreau": {"inner_steps": 5, "penalty": 15.0, "personal_lr": 0.09, "personal_decay": 0.0, "reset": False},
    "power_of_choice": {"candidates": 20},
    "control_variate": {"option": 2},
    "decaying_oversampling": {"delta": 0.01, "increment": 0.1, "threshold": 0.1},
    "kld": {"threshold": 0.1, "candidate_fraction": 1.0},
    "dynamic": {"epochs": 5, "lr": 0.1, "decay": 1.0, "beta": 25, "literal": False, "b0": 1.0},
    "sgd": {"momentum": 0.0, "weight_decay": 0.0, "clip": 0.0},
    "fixed": {"epochs": 2, "lr": 0.1, "decay": 1.0, "batch_size": 64},
    "plain": {"lr": 1.0},
}  # fmt: skip
OF_METHODS = {("pfedme", "fixed"): {"lr": 0.005}}  # where a method sets another default
LOOSE = [(LDAM, {"margin": 0.5, "scale": 30.0}), (ClassBalancedLoss, {"beta": 0.9999}), (LogitAdjustment, {"tau": 1.0})]


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


# Paces


@pytest.mark.parametrize("pace", [FixedPace(3, 0.4, 0.5, batch_size=7), DynamicPace(3, 0.4, 0.5, beta=4, b0=2.0)])
def test_the_rate_decays_after_every_round(pace: Any) -> None:
    used = torch.tensor([1, 9, 40])
    fixed = isinstance(pace, FixedPace)
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
    record = DualWeights().record({"duals": torch.tensor([0.5, 0.0, 2.0])})
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
