"""Every ingredient by itself: the limits of its fields, and the defaults of the papers."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest

from fedskew.errors import ConfigError
from fedskew.method import Component
from fedskew.method.paces import Cosine, Drops, Fixed, Part, Staged, Steps
from fedskew.method.parts import ProximalVariant
from fedskew.method.servers import Adam, Momentum
from fedskew.method.steps import SGD, AdamW, SharpnessAware
from fedskew.methods import METHODS
from fedskew.methods.astraea import Augmentation, Mediators
from fedskew.methods.centralised import LDAM, ClassBalancedLoss
from fedskew.methods.climb import Dual
from fedskew.methods.clusteredsampling import ClusteredByUpdate
from fedskew.methods.creff import FederatedFeatures
from fedskew.methods.fedacg import Accelerated
from fedskew.methods.fedbal import AggregationBalancer, LocalBalancer
from fedskew.methods.fedcm import ClientMomentum
from fedskew.methods.feddyn import DynamicCorrection
from fedskew.methods.fedetf import TunedCosineSoftmax
from fedskew.methods.fedexp import Extrapolated
from fedskew.methods.fedfocal import Focal
from fedskew.methods.fedgc import PrivateHead
from fedskew.methods.fedgr import Gravitation
from fedskew.methods.fedlc import LogitAdjustment, LogitCalibration, PooledLogitCalibration
from fedskew.methods.fedlesam import GlobalSharpnessAware
from fedskew.methods.fednova import GlobalMomentum
from fedskew.methods.fedntd import NotTrueDistillation
from fedskew.methods.fedrod import GeneratedHead
from fedskew.methods.fedrs import RestrictedSoftmax
from fedskew.methods.fedsmoo import DynamicSharpnessAware
from fedskew.methods.fedspeed import CorrectedMean, UploadedRegulariser
from fedskew.methods.fedvc import VirtualClient
from fedskew.methods.moon import ModelContrastive
from fedskew.methods.perfedavg import Meta
from fedskew.methods.powerofchoice import PowerOfChoice
from fedskew.methods.seolkim import KLD, Dynamic

TINY, BELOW_ONE, ABOVE_ONE = math.ulp(0.0), math.nextafter(1, 0), math.nextafter(1, 2)


# (component, field, the last legal values, the first illegal ones)
LIMITS: list[tuple[type[Component], str, tuple[float, ...], tuple[float, ...]]] = [
    (Augmentation, "alpha", (0.0, 1.0), (-TINY, ABOVE_ONE)),
    (Mediators, "gamma", (1,), (0,)),
    (Mediators, "mediator_epochs", (1,), (0,)),
    (ClassBalancedLoss, "beta", (0.0, BELOW_ONE), (-TINY, 1.0)),
    (ClientMomentum, "alpha", (TINY, 1.0), (0.0, ABOVE_ONE)),
    (Dual, "dual_lr", (0.0,), (-TINY,)),
    (Dual, "primal_rounds", (1,), (0,)),
    (FederatedFeatures, "features_per_class", (1,), (0,)),
    (FederatedFeatures, "draws", (1,), (0,)),
    (LocalBalancer, "strength", (0.0,), (-TINY,)),
    (LocalBalancer, "early", (0,), (-1,)),
    (Dual, "initial", (0.0,), (-TINY,)),
    (GeneratedHead, "width", (1,), (0, -1)),
    (GlobalMomentum, "gmf", (0.0, BELOW_ONE), (-TINY, 1.0)),
    (PooledLogitCalibration, "tau", (0.0,), (-TINY,)),
    (ProximalVariant, "mu", (0.0,), (-TINY,)),
    (RestrictedSoftmax, "few", (0,), (-1,)),
    (Staged, "warmup", (0, 160), (-1,)),
    (Staged, "first", (5, 180), (4,)),
    (Staged, "second", (160,), (159,)),
    (Staged, "middle", (TINY,), (0.0, -1.0)),
    (Staged, "end", (TINY,), (0.0, -1.0)),
    (Steps, "steps", (1,), (0,)),
    (Part, "part", (TINY,), (0.0, -1.0)),
    (Drops, "every", (1,), (0,)),
    (Drops, "factor", (TINY,), (0.0,)),
    (Cosine, "warmup", (0,), (-1,)),
    (Cosine, "floor", (0.0, 1.0), (-TINY, 1.1)),
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
    (Accelerated, "beta", (0.0, BELOW_ONE), (-TINY, 1.0)),
    (CorrectedMean, "alpha", (TINY,), (0.0, -1.0)),
    (UploadedRegulariser, "alpha", (TINY,), (0.0, -1.0)),
    (DynamicSharpnessAware, "rho", (0.0,), (-TINY,)),
    (GlobalSharpnessAware, "rho", (0.0,), (-TINY, math.inf)),
    (Extrapolated, "eps", (TINY,), (0.0, -1.0)),
    (TunedCosineSoftmax, "projection", (1, "linear"), (0, "lines")),
    (TunedCosineSoftmax, "steps", (0,), (-1,)),
    (TunedCosineSoftmax, "cycles", (0,), (-1,)),
    (TunedCosineSoftmax, "turn", (1,), (0,)),
    (TunedCosineSoftmax, "head_lr", (TINY,), (0.0,)),
    (TunedCosineSoftmax, "projection_lr", (TINY,), (0.0,)),
    (TunedCosineSoftmax, "momentum", (0.0, BELOW_ONE), (-TINY, 1.0)),
    (TunedCosineSoftmax, "weight_decay", (0.0,), (-TINY,)),
    (Extrapolated, "decay", (TINY,), (0.0, -1.0)),
    (SharpnessAware, "rho", (0.0,), (-TINY, math.inf)),
    (SharpnessAware, "alpha", (0.0, 1.0), (-TINY, ABOVE_ONE)),
    (Momentum, "beta", (0.0, BELOW_ONE), (-TINY, 1.0)),
    (Adam, "beta1", (0.0, BELOW_ONE), (-TINY, 1.0)),
    (Adam, "beta2", (0.0, BELOW_ONE), (-TINY, 1.0)),
    (Adam, "tau", (TINY,), (0.0, -1.0)),
    (SGD, "momentum", (0.0, BELOW_ONE), (-TINY, 1.0)),
    (SGD, "weight_decay", (0.0,), (-TINY,)),
    (SGD, "clip", (0.0,), (-TINY,)),
    (AdamW, "beta1", (0.0, BELOW_ONE), (-TINY, 1.0)),
    (AdamW, "beta2", (0.0, BELOW_ONE), (-TINY, 1.0)),
    (AdamW, "eps", (TINY,), (0.0,)),
    (AdamW, "weight_decay", (0.0,), (-TINY,)),
    (AdamW, "clip", (0.0, math.inf), (-TINY,)),
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
    "alternating": {"epochs": 10, "first": "head", "last": 0, "last_lr": 0.01},
    "cosine_softmax": {"scale": 10.0, "learnt": True, "tau": 1.0, "projection": "linear"},
    "fine_tune": {"steps": 0, "lr": 0.01, "tuned": "all", "epochs": 5, "batch_size": 50, "momentum": 0.0},
    "initial_head": {"rows": "simplex", "norm": 1.0, "sparsity": 0.0, "steps": 300},
    "realigned_heads": {"length": 1.7, "serves": "realigned", "beside": "own"},
    "mixed": {"alpha": 0.5, "learnt": True, "learns": "round", "momentum": 0.0, "weight_decay": 0.0, "clip": 0.0},
    "tethered": {"penalty": 0.1, "personal_lr": 0.0, "momentum": 0.0, "weight_decay": 0.0, "clip": 0.0},
    "client_momentum": {"alpha": 0.1},
    "augmentation": {"alpha": 0.5},
    "mediators": {"gamma": 5, "mediator_epochs": 1},
    "knowledge_inheritance": {
        "temperature": 2.0, "lam": 1.0, "smoothing": 0.002, "scope": "client", "entropy_reduction": "mean",
        "augment_features": True,
    },
    "dual": {
        "dual_lr": 2.0, "eps": 0.01, "primal_rounds": 5, "lambda_max": 100.0, "clamp_weights": False, "apply": "delta",
        "report": "all", "initial": 0.0, "whole": False,
    },
    "federated_features": {
        "features_per_class": 100, "match_steps": 100, "match_lr": 0.1, "head_epochs": 300, "head_lr": 0.01,
        "head_batch": 32, "match_bias": True, "draws": 10, "rows": 32,
    },
    "adagrad": {"lr": 0.1, "beta1": 0.0, "tau": 1e-3, "initial": -1.0, "bias_correction": "none"},
    "momentum": {"lr": 1.0, "beta": 0.9, "nesterov": False},
    "local_balancer": {"strength": 60.0, "schedule_unit": "epoch", "one_based": True, "missing": "clamp1", "early": 0},
    "aggregation_balancer": {
        "beta": 3.0, "temperature": 1.0, "inverse": False, "include_bias": True, "scope": "head",
        "similarity": "cosine",
    },
    "dynamic_regulariser": {"alpha": 0.01, "clip": 0.0},
    "dynamic_correction": {"lr": 1.0, "alpha": 0.01},
    "calibrated_targets": {"form": "softce", "count_scope": "batch", "probability": "row"},
    "private_head": {"strength": 0.5, "anchors": "own"},
    "unbalanced_softmax": {"gamma": "max1", "missing": "mask"},
    "gravitation": {"strength": 0.5, "row_average": "all"},
    "gradient_balancer": {"kp": 10.0, "ki": 0.01, "kd": 0.1, "release": False},
    "global_momentum": {"lr": 1.0, "gmf": 0.0},
    "logit_calibration": {"tau": 1.0, "denominator": "full", "missing": "mask"},
    "not_true_distillation": {"beta": 1.0, "tau": 1.0, "scaled": True},
    "ratio_loss": {
        "alpha": 1.0, "beta": 0.1, "threshold": 0.8, "by": "signed", "estimator": "training", "broken_broadcast": False,
        "monitor": False, "ratio": "masked", "divide": "rows", "zeros": False, "serves": "next",
    },
    "proximal": {"mu": 0.01},
    "restricted_softmax": {"alpha": 0.5, "scaling": "paper", "few": 0},
    "virtual_client": {"size": 256},
    "model_contrastive": {"mu": 5.0, "temperature": 0.5, "projection": 256, "newcomer": "omit"},
    "meta": {"alpha": 0.01, "delta": 1e-3, "hessian": "free", "weight_decay": 0.0, "clip": 0.0},
    "moreau": {
        "inner_steps": 5, "penalty": 15.0, "personal_lr": 0.09, "weight_decay": 0.0, "reset": False, "clip": 0.0,
    },
    "power_of_choice": {"candidates": 20},
    "control_variate": {"option": 2, "division": "reach", "spread": "clients"},
    "decaying_oversampling": {"delta": 0.01, "increment": 0.1, "threshold": 0.1, "decays": "target"},
    "kld": {"threshold": 0.1, "candidate_fraction": 1.0, "passes": "restart"},
    "dynamic": {"epochs": 5, "lr": 0.1, "decay": 1.0, "beta": 25, "literal": False, "b0": 1.0},
    "accelerated": {"lr": 1.0, "beta": 0.85},
    "corrected_mean": {"lr": 1.0, "alpha": 0.1},
    "dynamic_sam": {"rho": 0.1, "alpha": 1.0, "adaptive": False, "normalised": True},
    "extrapolated": {"lr": 1.0, "eps": 1e-3, "decay": 1.0, "scaled": False, "serves": "average"},
    "lesam": {"rho": 0.1, "since": "participation", "norm": "all"},
    "uploaded_dynamic_regulariser": {"alpha": 0.1},
    "sam": {
        "momentum": 0.0, "weight_decay": 0.0, "clip": 0.0, "rho": 0.1, "alpha": 1.0, "adaptive": False,
        "normalised": True,
    },
    "decorrelation": {"beta": 0.1, "form": "code"},
    "uniformity_variance": {"spread": 2.5, "uniformity": 0.5},
    "hybrid_paths": {"lam1": 1.0, "lam2": 1.0, "tau": 1.0, "cuts": ()},
    "vacant_classes": {"lam": 0.1, "suppression": 0.005},
    "discrepancy_aware": {"a": 0.5, "b": 0.1, "metric": "kl", "target": ()},
    "label_matching": {"lam": 10.0, "target": ()},
    "stabilised_orthogonal": {"rho": 1.0, "scale": "adaptive", "tau": 3.0, "perturbs": "all"},
    "clustered": {"clusters": "size"},
    "virtual_representations": {
        "samples": 200, "epochs": 1, "lr": 0.1, "batch": 64, "clients": "all", "serves": "asked",
    },
    "attentive_messages": {"alpha": 0.1, "sigma": 1.0, "pull": 1.0, "most": 1.0},
    "cluster_identity": {"clusters": 2},
    "precision_weighted": {"beta2": 0.999, "eps": 1e-8},
    "curvature": {"lam": 1.0, "fisher": "rows"},
    "non_parametric_head": {"smoothing": 0.9, "scale": 30.0, "trained": False, "weighs": "rows"},
    "sgd": {"momentum": 0.0, "weight_decay": 0.0, "clip": 0.0},
    "fixed": {"epochs": 2, "lr": 0.1, "decay": 1.0, "batch_size": 64},
    "plain": {"lr": 1.0},
}  # fmt: skip
OF_METHODS: dict[tuple[str, str], dict[str, Any]] = {  # where a method sets another default
    ("fedbal", "local_balancer"): {"strength": 1.0},
    ("fedgr", "unbalanced_softmax"): {"gamma": "weight"},
    ("balancefl", "fixed"): {"lr": 0.005},
    ("balancefl", "sgd"): {"momentum": 0.9, "weight_decay": 1e-4},
    ("fedbn", "private"): {"names": ("norm",)},
    ("fedrep", "fixed"): {"epochs": 11},
    ("lgfedavg", "private"): {"names": ("body",)},
    ("localonly", "private"): {"names": ("*",)},
    ("fedloge", "initial_head"): {"norm": 0.1, "sparsity": 0.6},
    ("fedgrab", "fixed"): {"lr": 0.03},
    ("fedgrab", "sgd"): {"momentum": 0.5},
    ("fedrl", "fixed"): {"lr": 0.001},
    ("fedrl", "sgd"): {"momentum": 0.9, "weight_decay": 5e-4},
    ("fedacg", "proximal"): {"mu": 0.002},
    ("fedsmoo", "dynamic_correction"): {"alpha": 0.1},
    ("fedsmoo", "dynamic_regulariser"): {"alpha": 0.1},
    ("perfedavg", "fixed"): {"lr": 0.003},
    ("pfedme", "fixed"): {"lr": 0.005},
}
LOOSE: list[tuple[type[Component], dict[str, Any]]] = [
    (LDAM, {"margin": 0.5, "scale": 30.0}),
    (ClassBalancedLoss, {"beta": 0.9999}),
    (GeneratedHead, {"width": 32}),
    (LogitAdjustment, {"tau": 1.0}),
    (PooledLogitCalibration, {"tau": 1.0}),
    (ProximalVariant, {"mu": 0.01, "form": "norm"}),
    (
        Staged,
        {"epochs": 2, "lr": 0.1, "decay": 1.0, "batch_size": 64}
        | {"warmup": 5, "first": 160, "second": 180, "middle": 0.01, "end": 1e-4},
    ),
    (AdamW, {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01, "clip": 0.0}),
    (ClusteredByUpdate, {"ward": "rows"}),
    (
        TunedCosineSoftmax,
        {"scale": 10.0, "learnt": True, "tau": 1.0, "projection": "linear", "steps": 5, "lr": 0.1}
        | {"cycles": 20, "turn": 3, "head_lr": 0.1, "projection_lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4},
    ),
    (Steps, {"epochs": 2, "lr": 0.1, "decay": 1.0, "batch_size": 64, "steps": 10}),
    (Part, {"epochs": 2, "lr": 0.1, "decay": 1.0, "batch_size": 64, "part": 0.5}),
    (Drops, {"epochs": 2, "lr": 0.1, "decay": 1.0, "batch_size": 64, "every": 100, "factor": 0.1}),
    (Cosine, {"epochs": 2, "lr": 0.1, "decay": 1.0, "batch_size": 64, "warmup": 0, "floor": 0.0}),
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
