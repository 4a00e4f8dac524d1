"""Every method of the table, and the options that change its mathematics, against the numpy oracle: whole rounds.

The oracle is given the recorded plans (who, which rows, which order, which rate) and nothing that was computed. After
every round all parameters agree, and so do the aggregation weights and what server and clients keep.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from fedskew import functional as F
from fedskew import methods as m
from fedskew.method import Method
from fedskew.method.paces import Fixed
from fedskew.method.parts import DatasetMean, ProximalVariant
from fedskew.method.samplers import ClassBalanced
from fedskew.method.servers import Adagrad, Adam, Momentum, Plain, WeightedSum, Yogi
from fedskew.method.steps import SGD, SharpnessAware
from fedskew.method.weightings import Size, Uniform, UnionShare
from fedskew.methods import METHODS
from fedskew.methods.astraea import Mediators
from fedskew.methods.balancefl import KnowledgeInheritance
from fedskew.methods.centralised import ClassBalancedLoss
from fedskew.methods.climb import Dual
from fedskew.methods.fedamp import AttentiveMessages
from fedskew.methods.fedbal import AggregationBalancer, LocalBalancer
from fedskew.methods.fedcurv import Curvature
from fedskew.methods.feddecorr import Decorrelation
from fedskew.methods.feddisco import DiscrepancyAware
from fedskew.methods.feddyn import DynamicCorrection, WeightedRegulariser, feddyn
from fedskew.methods.fedexp import Extrapolated
from fedskew.methods.fedfocal import Focal
from fedskew.methods.fedga import CalibratedTargets
from fedskew.methods.fedgc import PrivateHead
from fedskew.methods.fedgr import Gravitation, UnbalancedSoftmax, WeightedGravitation
from fedskew.methods.fedir import ImportanceReweighting
from fedskew.methods.fedlc import LogitAdjustment, LogitCalibration, PooledLogitCalibration
from fedskew.methods.fedlesam import GlobalSharpnessAware
from fedskew.methods.fednh import NonParametricHead
from fedskew.methods.fednova import GlobalMomentum
from fedskew.methods.fedntd import NotTrueDistillation
from fedskew.methods.fedprox import Proximal
from fedskew.methods.fedrl import RatioLoss
from fedskew.methods.fedrs import RestrictedSoftmax
from fedskew.methods.fedsmoo import DynamicSharpnessAware
from fedskew.methods.fedsol import StabilisedOrthogonal
from fedskew.methods.fedvc import fedvc
from fedskew.methods.moon import ModelContrastive
from fedskew.methods.perfedavg import Meta
from fedskew.methods.pfedme import Moreau
from fedskew.methods.precisionweighted import PrecisionWeighted
from fedskew.methods.scaffold import ControlVariate
from fedskew.methods.seolkim import DecayingOversampling, Dynamic
from fedskew.models.architectures import TwoNN
from oracle.model import Tree
from support.personal import CASES as PERSONAL
from support.replay import MODELS, PACE, ROUNDS, Replay, agree, federation, numpy, record

ENGINES = ("sequential", "batched")


@dataclass(frozen=True)
class Case:
    """A method of the library, and the recipe and options that mean the same to the oracle."""

    method: Method
    recipe: str
    options: dict[str, Any] = field(default_factory=dict)
    auxiliary: int = 0


def case(method: Method, recipe: str, slots: dict[str, Any] | None = None, auxiliary: int = 0, **options: Any) -> Case:
    """The method with small mini-batches (unless it has a pace of its own) and these slots."""
    pace = {"pace": replace(PACE, lr=method.pace.lr)} if type(method.pace) is Fixed else {}
    return Case(replace(method, **pace | (slots or {})), recipe, options, auxiliary)


def sphere(weight: Any) -> Any:
    """The prototypes that the library makes of the classifier's initial weight: the oracle is told them."""
    return F.spread_prototypes(torch.from_numpy(weight)).numpy()


HEAVY = {"momentum": 0.5, "weight_decay": 0.02, "clip": 0.6}
SGD_HEAVY = {"local": SGD(**HEAVY)}
DECAYING = {"pace": replace(PACE, lr=0.15, decay=0.7)}
RAGGED = {"pace": Dynamic(epochs=2, lr=0.2, beta=3)}  # every client has a batch size and a rate of its own

BASE = {
    "astraea": case(m.astraea(alpha=0.9, gamma=2), "astraea"),
    "climb": case(m.climb(), "climb", {"weighting": Dual(3.0, 0.1, primal_rounds=1)}, eta=3.0, eps=0.1, every=1),
    "creff": case(replace(m.creff(), parts=(replace(m.creff().parts[-1], match_steps=2, head_epochs=2),)), "creff"),
    "fedadagrad": case(m.fedadagrad(), "fedadagrad", server_lr=0.1),
    "fedadam": case(m.fedadam(0.1), "fedadam", server_lr=0.1),
    "fedavg": case(m.fedavg(), "fedavg"),
    "fedavgm": case(m.fedavgm(), "fedavgm"),
    "fedbal": case(m.fedbal(), "fedbal", strength=1.0),
    "fedbn": case(m.fedbn(), "fedavg"),  # these networks have no normalisation layers
    "fedcm": case(m.fedcm(0.3), "fedcm", mix=0.3),
    "fedga": case(m.fedga(), "fedga"),
    "fedgc": case(m.fedgc(), "fedgc"),
    "fedgr": case(m.fedgr(), "fedgr", gamma="weight"),
    "fedgrab": case(m.fedgrab(), "fedgrab"),
    "fedla": case(m.fedla(), "fedla"),
    "fednova": case(m.fednova(), "fednova"),
    "fedprox": case(m.fedprox(0.3), "fedprox", mu=0.3),
    "fedrl": case(m.fedrl(), "fedrl", auxiliary=5),
    "fedacg": case(m.fedacg(0.6, 0.2), "fedacg", beta=0.6, mu=0.2),
    "fedspeed": case(m.fedspeed(0.3, 0.4), "fedspeed", alpha=0.3, rho=0.4),
    "fedsmoo": case(m.fedsmoo(0.3, 0.4), "fedsmoo", alpha=0.3, rho=0.4),
    "fedlesam": case(m.fedlesam(0.4), "fedlesam", rho=0.4),
    "fedexp": case(m.fedexp(1e-3), "fedexp", eps=1e-3),
    "fedsam": case(m.fedsam(0.3), "fedsam", rho=0.3),
    "feddecorr": case(m.feddecorr(0.7), "feddecorr", beta=0.7),
    "feduv": case(m.feduv(0.8, 0.6), "feduv", deviation=0.8, uniformity=0.6),
    "fedvls": case(m.fedvls(0.7, 0.3), "fedvls", lam=0.7, suppression=0.3),
    "fedmlb": case(m.fedmlb(0.7, 0.4, 1.5), "fedmlb", lam1=0.7, lam2=0.4, tau=1.5),
    "feddisco": case(m.feddisco(0.3, 0.2), "feddisco", disco_a=0.3, disco_b=0.2),
    "fedpals": case(m.fedpals(0.5), "fedpals", pals=0.5),
    "fedsol": case(m.fedsol(0.7), "fedsol", rho=0.7),
    "clusteredsampling": case(m.clusteredsampling(), "fedavg", weighting="uniform"),
    "ccvr": case(m.ccvr(5), "fedavg"),
    "fedamp": case(m.fedamp(0.5, 2.0, 0.7), "fedamp", message=0.5, sigma=2.0, pull_u=0.7),
    "ifca": case(m.ifca(1), "fedavg", weighting="uniform"),
    "precisionweighted": case(m.precisionweighted(1e-3), "precisionweighted", eps=1e-3),
    "fedcurv": case(m.fedcurv(0.3), "fedcurv", lam=0.3),
    "fednh": case(
        replace(m.fednh(), parts=(NonParametricHead(0.6, 3.0),)), "fednh", rho=0.6, scale=3.0, start_w=sphere
    ),
    "fedyogi": case(m.fedyogi(0.1), "fedyogi", server_lr=0.1),
    "mofedsam": case(m.mofedsam(0.3, 0.2), "mofedsam", rho=0.3, mix=0.2),
    "moon": case(m.moon(), "moon"),
    "perfedavg": case(m.perfedavg(), "perfedavg"),
    "pfedme": case(m.pfedme(lr=0.02), "pfedme", personal_lr=0.09),
    "powerofchoice": case(m.powerofchoice(4), "fedavg"),
    "scaffold": case(m.scaffold(), "scaffold"),
    "seolkim": case(replace(m.seolkim(), pace=Dynamic(epochs=2, beta=3)), "seolkim"),
}


def nova(base: Any = Size(), **slots: Any) -> Method:
    return replace(m.fednova(base), **slots)


def balanced(strength: float = 60.0, **fields: Any) -> Method:
    return replace(m.fedbal(aggregation=False), parts=(LocalBalancer(strength, **fields),))


def alone(*parts: Any, **slots: Any) -> Method:
    return replace(m.fedavg(), parts=parts, **slots)


def averaged(**fields: Any) -> dict[str, Any]:
    return {"weighting": AggregationBalancer(**fields)}


def servers(server: Any) -> dict[str, Any]:
    return {"server": server}


BALANCER = {"weighting": "balancer"}
VARIANTS = {
    "astraea passes": case(replace(m.astraea(gamma=2), selector=Mediators(2, mediator_epochs=2)), "astraea"),
    "astraea momentum": case(m.astraea(gamma=3), "astraea", SGD_HEAVY, **HEAVY),
    "climb from one": case(
        m.climb(), "climb", {"weighting": Dual(9.0, 1.5, 1, initial=1.0)}, eta=9.0, eps=1.5, every=1, start=1.0
    ),
    "climb whole": case(
        m.climb(),
        "climb",
        {"weighting": Dual(60.0, 0.1, 1, apply="loss", initial=1.0, whole=True), "local": SGD(clip=0.6)},
        eta=60.0,
        eps=0.1,
        every=1,
        apply="loss",
        start=1.0,
        whole=True,
        clip=0.6,
    ),
    "climb primal": case(m.climb(), "climb", {"weighting": Dual(9.0, 0.0, 2)}, eta=9.0, eps=0.0, every=2),
    "climb on losses": case(
        m.climb(),
        "climb",
        {"weighting": Dual(9.0, 0.0, 1, apply="loss"), **SGD_HEAVY},
        **{"eta": 9.0, "eps": 0.0, "every": 1, "apply": "loss", **HEAVY},
    ),
    "climb of the cohort": case(
        m.climb(),
        "climb",
        {"weighting": Dual(9.0, 0.0, 1, report="cohort")},
        eta=9.0,
        eps=0.0,
        every=1,
        report="cohort",
    ),
    "climb clamped": case(
        m.climb(),
        "climb",
        {"weighting": Dual(300.0, 0.0, 1, lambda_max=7.0, clamp_weights=True)},
        eta=300.0,
        eps=0.0,
        every=1,
        top=7.0,
        clamp=True,
    ),
    "fedadagrad zero": case(
        m.fedavg(), "fedadagrad", servers(Adagrad(0.2, 0.0, initial=0.0)), server_lr=0.2, beta1=0, v0=0
    ),
    "fedadam corrected": case(
        m.fedavg(),
        "fedadam",
        servers(Adam(beta2=0.999, bias_correction="torch")),
        server_lr=0.1,
        beta2=0.999,
        bias_correction="torch",
    ),
    "fedadam of keras": case(
        m.fedavg(),
        "fedadam",
        servers(Adam(tau=0.1, bias_correction="keras")),
        server_lr=0.1,
        tau=0.1,
        bias_correction="keras",
    ),
    "fedadam of flower": case(
        m.fedavg(),
        "fedadam",
        servers(Adam(tau=0.1, bias_correction="flower")),
        server_lr=0.1,
        tau=0.1,
        bias_correction="flower",
    ),
    "fedyogi corrected": case(
        m.fedavg(),
        "fedyogi",
        servers(Yogi(0.03, tau=0.1, bias_correction="torch")),
        server_lr=0.03,
        tau=0.1,
        bias_correction="torch",
    ),
    "fedavgm lr": case(m.fedavg(), "fedavgm", servers(Momentum(0.5, 0.6)), server_lr=0.5, beta=0.6),
    "fedavg heavy": case(m.fedavg(), "fedavg", SGD_HEAVY, **HEAVY),
    "fedavg uniform": case(m.fedavg(), "fedavg", {"weighting": Uniform(), **DECAYING}, weighting="uniform"),
    "fedavg server lr": case(m.fedavg(), "fedavg", {"server": Plain(0.5), **RAGGED}, server_lr=0.5),
    "fedbal LB": case(m.fedbal(aggregation=False), "fedbal", weighting="size", strength=1.0),
    "fedbal printed eps": case(balanced(eps=1e-12), "fedbal", lb_eps=1e-12, weighting="size"),
    "fedbal AB": case(m.fedbal(local=False, beta=0.5), "fedavg", ab_beta=0.5, **BALANCER),
    "fedbal inverse": case(m.fedbal(beta=1.0, inverse=True), "fedbal", ab_beta=1.0, ab_inverse=True, strength=1.0),
    "fedbal step": case(balanced(schedule_unit="step"), "fedbal", unit="step", weighting="size"),
    "fedbal early": case(
        balanced(9.0, one_based=False, early=1),
        "fedbal",
        {"pace": replace(PACE, epochs=3)},
        strength=9.0,
        one_based=False,
        early=1,
        weighting="size",
    ),
    "fedbal round": case(balanced(9.0, schedule_unit="round"), "fedbal", unit="round", strength=9.0, weighting="size"),
    "fedbal from zero": case(balanced(6.0, one_based=False), "fedbal", strength=6.0, one_based=False, weighting="size"),
    "fedbal mask": case(balanced(missing="mask"), "fedbal", missing="mask", weighting="size"),
    "fedbal scope": case(
        m.fedavg(),
        "fedavg",
        averaged(scope="all", similarity="l2", temperature=0.3, beta=0.4),
        ab_scope="all",
        ab_similarity="l2",
        ab_temperature=0.3,
        ab_beta=0.4,
        **BALANCER,
    ),
    "fedbal features": case(m.fedavg(), "fedavg", averaged(scope="features"), ab_scope="features", **BALANCER),
    "fedbal no bias": case(m.fedavg(), "fedavg", averaged(include_bias=False), ab_bias=False, **BALANCER),
    "fedga exact": case(m.fedga("exact"), "fedga", SGD_HEAVY, variant="exact", **HEAVY),
    "fedga client": case(
        replace(m.fedga(), parts=(CalibratedTargets(count_scope="client"),)),
        "fedga",
        {"weighting": Size()},
        count_scope="client",
        weighting="size",
    ),
    "fedga class": case(
        replace(m.fedga(), parts=(CalibratedTargets("exact", probability="class"),)),
        "fedga",
        SGD_HEAVY,
        variant="exact",
        probability="class",
        **HEAVY,
    ),
    "fedgc spread": case(
        m.fedgc(3.0), "fedgc", {"weighting": Uniform(), **SGD_HEAVY}, lam=3.0, weighting="uniform", **HEAVY
    ),
    "fedgc means": case(
        m.fedgc(), "fedgc", {"parts": (PrivateHead(2.0, "class_mean"),), **RAGGED}, lam=2.0, anchors="class_mean"
    ),
    "fedgc free": case(m.fedgc(0.0), "fedgc", lam=0.0),
    "fedgr raw": case(
        m.fedavg(), "fedgr", {"parts": (UnbalancedSoftmax("raw"),), **SGD_HEAVY}, gamma="raw", lam=0.0, **HEAVY
    ),
    "fedgr one": case(
        m.fedgr(), "fedgr", {"parts": (UnbalancedSoftmax("one"), Gravitation()), **RAGGED}, gamma="one", lam=0.5
    ),
    "fedgr max1": case(
        m.fedgr(), "fedgr", {"parts": (UnbalancedSoftmax("max1"), Gravitation()), **RAGGED}, gamma="max1", lam=0.5
    ),
    "fedgr code": case(m.fedavg(), "fedgr", {"parts": (UnbalancedSoftmax(missing="code"),)}, missing="code", lam=0.0),
    "fedgr owners": case(
        m.fedgr(), "fedgr", {"parts": (UnbalancedSoftmax(), Gravitation(2.0, "owners"))}, lam=2.0, row_average="owners"
    ),
    "fedgr by sample": case(
        m.fedgr(), "fedgr", {"parts": (UnbalancedSoftmax(), WeightedGravitation(9.0)), **RAGGED}, lam=9.0, mass="sample"
    ),
    "fedgr by client": case(
        m.fedgr(),
        "fedgr",
        {"parts": (UnbalancedSoftmax(), WeightedGravitation(9.0, "owners", "client"))},
        lam=9.0,
        row_average="owners",
        mass="client",
    ),
    "fedgr pull": case(m.fedgr(softmax=False, strength=2.0), "fedgr", loss="ce", lam=2.0),
    "fedgrab gains": case(
        replace(m.fedgrab(), parts=(replace(m.fedgrab().parts[-1], kp=1.0, ki=0.2, kd=0.5),)),
        "fedgrab",
        gains=(1.0, 0.2, 0.5),
    ),
    "fedla momentum": case(m.fedla(), "fedla", SGD_HEAVY | RAGGED, **HEAVY),
    "fednova heavy": case(nova(), "fednova", SGD_HEAVY, **HEAVY),
    "fednova AB": case(nova(AggregationBalancer(0.5)), "fednova", RAGGED, ab_beta=0.5, **BALANCER),
    "fednova LB": case(
        nova(Uniform(), parts=(LocalBalancer(5.0),)), "fednova", loss="lb", strength=5.0, weighting="uniform"
    ),
    "fednova global momentum": case(
        m.fednova(gmf=0.7),
        "fednova",
        {"pace": replace(PACE, decay=0.5), **servers(GlobalMomentum(0.8, 0.7))},
        gmf=0.7,
        server_lr=0.8,
    ),
    "fednova control": case(
        nova(parts=(ControlVariate(),)),
        "scaffold",
        server="nova",
        weighting="size",
    ),
    "fednova proximal": case(nova(parts=(Proximal(0.5),)), "fednova", RAGGED, mu=0.5),
    "fedprox norm": case(alone(ProximalVariant(0.3)), "fedprox variant", SGD_HEAVY, pull=0.3, **HEAVY),
    "fedprox smooth": case(
        alone(ProximalVariant(400.0, "smooth_l1")),
        "fedprox variant",
        {"local": SGD(clip=0.6)} | DECAYING,
        clip=0.6,
        pull=400.0,
        form="smooth_l1",
    ),
    "fedprox heavy": case(m.fedprox(0.5), "fedprox", SGD_HEAVY, mu=0.5, **HEAVY),
    "fedrl of rows": case(
        m.fedavg(),
        "fedrl",
        {"parts": (RatioLoss(0.7, 0.4, ratio="row", divide="weights"),)},
        4,
        alpha=0.7,
        beta=0.4,
        ratio="row",
        divide="weights",
        weighting="size",
        momentum=0.0,
        weight_decay=0.0,
    ),
    "fedrl of fedga": case(
        m.fedavg(),
        "fedrl",
        {"parts": (RatioLoss(0.7, 0.4, by="quotient", zeros=True, estimator="unflipped", serves="same"),)},
        1,
        alpha=0.7,
        beta=0.4,
        copy=True,
        weighting="size",
        momentum=0.0,
        weight_decay=0.0,
    ),
    "fedrl heavy": case(
        m.fedrl(0.7, 0.4),
        "fedrl",
        {"weighting": Size(), **SGD_HEAVY},
        4,
        alpha=0.7,
        beta=0.4,
        weighting="size",
        **HEAVY,
    ),
    "fedacg heavy": case(
        m.fedacg(0.6, 0.2),
        "fedacg",
        SGD_HEAVY | {"weighting": Size(), **RAGGED},
        beta=0.6,
        mu=0.2,
        weighting="size",
        **HEAVY,
    ),
    "fedspeed heavy": case(
        m.fedspeed(0.3),
        "fedspeed",
        {"local": SharpnessAware(**HEAVY, rho=0.4, alpha=0.6), **RAGGED},
        alpha=0.3,
        rho=0.4,
        share=0.6,
        **HEAVY,
    ),
    "fedspeed as printed": case(
        m.fedspeed(0.3),
        "fedspeed",
        {"local": SharpnessAware(rho=0.4, normalised=False), "weighting": Size()},
        alpha=0.3,
        rho=0.4,
        normalised=False,
        weighting="size",
    ),
    "fedspeed of all": case(m.fedspeed(0.3, 0.4, "all"), "fedspeed", RAGGED, server="dynamic", alpha=0.3, rho=0.4),
    "fedsmoo heavy": case(
        m.fedsmoo(0.3),
        "fedsmoo",
        {"local": DynamicSharpnessAware(**HEAVY, rho=0.4, alpha=0.6), **RAGGED},
        alpha=0.3,
        rho=0.4,
        share=0.6,
        **HEAVY,
    ),
    "fedsmoo adaptive": case(
        m.fedsmoo(0.3),
        "fedsmoo",
        {"local": DynamicSharpnessAware(rho=0.4, adaptive=True)},
        alpha=0.3,
        rho=0.4,
        asam=True,
    ),
    "fedlesam heavy": case(
        m.fedlesam(),
        "fedlesam",
        {"local": GlobalSharpnessAware(**HEAVY, rho=0.4), "server": Plain(0.5), **RAGGED},
        rho=0.4,
        server_lr=0.5,
        **HEAVY,
    ),
    "fedlesam of rounds": case(
        m.fedlesam(),
        "fedlesam",
        {"local": GlobalSharpnessAware(rho=0.4, since="round", norm="tensors")},
        rho=0.4,
        since="round",
        norm="tensors",
    ),
    "fedexp of code": case(
        m.fedexp(),
        "fedexp",
        {"server": Extrapolated(eps=2e-4, decay=0.5, scaled=True), "weighting": Size(), **RAGGED},
        eps=2e-4,
        eps_decay=0.5,
        by_cohort=True,
        weighting="size",
    ),
    "fedsam heavy": case(
        m.fedsam(),
        "fedsam",
        {"local": SharpnessAware(**HEAVY, rho=0.5, alpha=0.7), **RAGGED},
        rho=0.5,
        share=0.7,
        **HEAVY,
    ),
    "fedsam adaptive": case(
        m.fedsam(), "fedsam", {"local": SharpnessAware(rho=2.0, adaptive=True), **DECAYING}, rho=2.0, asam=True
    ),
    "fedsam as long as the gradient": case(
        m.fedsam(), "fedsam", {"local": SharpnessAware(rho=0.5, normalised=False)}, rho=0.5, normalised=False
    ),
    "fedsam adaptive, as long as the gradient": case(
        m.fedsam(),
        "fedsam",
        {"local": SharpnessAware(rho=2.0, adaptive=True, normalised=False)},
        rho=2.0,
        asam=True,
        normalised=False,
    ),
    "mofedsam pulled": case(
        m.mofedsam(0.5, 0.3), "mofedsam", {"parts": (Proximal(0.3), *m.fedcm(0.3).parts)}, rho=0.5, mix=0.3, mu=0.3
    ),
    "feddecorr as printed": case(
        m.feddecorr(),
        "feddecorr",
        {"parts": (Decorrelation(3.0, "printed"),), **SGD_HEAVY},
        beta=3.0,
        form="printed",
        **HEAVY,
    ),
    "feduv heavy": case(m.feduv(), "feduv", SGD_HEAVY | RAGGED, **HEAVY),
    "fedvls heavy": case(m.fedvls(), "fedvls", SGD_HEAVY | RAGGED, **HEAVY),
    "fedmlb heavy": case(m.fedmlb(0.5, 2.0), "fedmlb", SGD_HEAVY | RAGGED, lam1=0.5, lam2=2.0, **HEAVY),
    "feddisco plain": case(m.feddisco(0.2, 0.1, "kl_plain"), "feddisco", disco_a=0.2, metric="kl_plain"),
    "feddisco l2": case(
        m.feddisco(),
        "feddisco",
        {"weighting": DiscrepancyAware(a=0.4, metric="l2", target=(5.0, 1.0, 2.0, 2.0))} | RAGGED,
        disco_a=0.4,
        metric="l2",
        target=(5.0, 1.0, 2.0, 2.0),
    ),
    "feddisco l1": case(m.feddisco(0.2, 0.2, "l1"), "feddisco", disco_a=0.2, disco_b=0.2, metric="l1"),
    "feddisco cosine": case(
        m.feddisco(),
        "feddisco",
        {"weighting": DiscrepancyAware(Uniform(), 0.4, 0.2, "cosine")},
        disco_a=0.4,
        disco_b=0.2,
        metric="cosine",
        disco_base="uniform",
    ),
    "fedpals near": case(
        m.fedpals(1e-3, (6.0, 1.0, 1.0, 4.0)), "fedpals", RAGGED, pals=1e-3, target=(6.0, 1.0, 1.0, 4.0)
    ),
    "fedsol fixed": case(
        m.fedsol(),
        "fedsol",
        {"local": StabilisedOrthogonal(**HEAVY, rho=0.4, scale="fixed", tau=1.5), **RAGGED},
        rho=0.4,
        scale="fixed",
        tau=1.5,
        **HEAVY,
    ),
    "fedsol of the head": case(
        m.fedsol(), "fedsol", {"local": StabilisedOrthogonal(rho=2.0, perturbs="head")}, rho=2.0, perturbs="head"
    ),
    "fedsol pulled": case(m.fedsol(), "fedsol", {"parts": (Proximal(0.3),)}, mu=0.3),
    "fedamp unbounded": case(
        m.fedamp(),
        "fedamp",
        {"parts": (AttentiveMessages(1.5, 1.0, 0.4, math.inf),), **SGD_HEAVY, **RAGGED},
        message=1.5,
        sigma=1.0,
        pull_u=0.4,
        most=math.inf,
        **HEAVY,
    ),
    "precision weighted heavy": case(
        m.precisionweighted(),
        "precisionweighted",
        {"local": PrecisionWeighted(**HEAVY, beta2=0.7, eps=1e-4), "weighting": Size(), **RAGGED},
        beta2=0.7,
        eps=1e-4,
        weighting="size",
        **HEAVY,
    ),
    "precision weighted, last step": case(
        m.precisionweighted(),
        "precisionweighted",
        {"local": PrecisionWeighted(beta2=0.0, eps=1e-4), "parts": (Proximal(0.3),)},
        beta2=0.0,
        eps=1e-4,
        mu=0.3,
    ),
    "fedcurv of batches": case(
        m.fedcurv(),
        "fedcurv",
        {"parts": (Curvature(2.0, "batch"),), **SGD_HEAVY, **RAGGED},
        lam=2.0,
        fisher="batch",
        **HEAVY,
    ),
    "fednh heavy": case(
        m.fednh(), "fednh", SGD_HEAVY | {"weighting": Size(), **RAGGED}, start_w=sphere, weighting="size", **HEAVY
    ),
    "clustered by update": case(
        m.clusteredsampling("similarity"), "fedavg", SGD_HEAVY | RAGGED, weighting="uniform", **HEAVY
    ),
    "fednh of a trained scale": case(
        m.fednh(0.6, 3.0, trained=True), "fednh", SGD_HEAVY | RAGGED, rho=0.6, start_w=sphere, **HEAVY
    ),
    "fednh by confidence": case(
        m.fednh(0.6, 3.0, weighs="confidence"), "fednh", rho=0.6, scale=3.0, sure=True, start_w=sphere
    ),
    "fednh by confidence of a trained scale": case(
        m.fednh(0.6, 3.0, True, "confidence"), "fednh", SGD_HEAVY | RAGGED, rho=0.6, sure=True, start_w=sphere, **HEAVY
    ),
    "moon newcomer": case(
        m.moon(), "moon", {"parts": (ModelContrastive(2.0, newcomer="initial"),)}, mu_con=2.0, newcomer="initial"
    ),
    "moon without a head": case(m.moon(1.0, projection=0), "moon", mu_con=1.0),
    "moon cold": case(m.moon(5.0, 0.2), "moon", SGD_HEAVY, mu_con=5.0, temperature=0.2, **HEAVY),
    "perfedavg far": case(
        m.perfedavg(),
        "perfedavg",
        {"local": Meta(0.2, 1e-2), "weighting": Size()},
        alpha=0.2,
        delta=1e-2,
        weighting="size",
    ),
    "perfedavg heavy": case(
        m.perfedavg(),
        "perfedavg",
        {"local": Meta(0.2, 1e-2, weight_decay=0.3, clip=0.4)},
        alpha=0.2,
        delta=1e-2,
        weight_decay=0.3,
        clip=0.4,
    ),
    "perfedavg heavy first order": case(
        m.perfedavg(),
        "perfedavg",
        {"local": Meta(0.2, hessian="none", weight_decay=0.3, clip=0.4)},
        alpha=0.2,
        variant="fo",
        weight_decay=0.3,
        clip=0.4,
    ),
    "perfedavg first order": case(
        m.perfedavg(), "perfedavg", {"local": Meta(0.2, hessian="none")}, alpha=0.2, variant="fo"
    ),
    "pfedme reset": case(
        m.pfedme(2.0, 0.05),
        "pfedme",
        {"local": Moreau(3, 5.0, 0.12, 0.01, reset=True, clip=0.4)},
        server_lr=2.0,
        inner=3,
        lam=5.0,
        personal_lr=0.12,
        weight_decay=0.01,
        clip=0.4,
        reset=True,
    ),
    "scaffold heavy": case(m.scaffold(), "scaffold", SGD_HEAVY | DECAYING, **HEAVY),
    "scaffold I": case(m.scaffold(), "scaffold", {"parts": (ControlVariate(1),), **SGD_HEAVY}, option=1, **HEAVY),
    "scaffold AB": case(m.scaffold(), "scaffold", averaged(beta=0.5) | RAGGED, ab_beta=0.5, **BALANCER),
    "scaffold steps": case(
        m.scaffold(), "scaffold", {"parts": (ControlVariate(division="steps"),), **SGD_HEAVY}, division="steps", **HEAVY
    ),
    "scaffold cohort": case(m.scaffold(), "scaffold", {"parts": (ControlVariate(spread="cohort"),)}, spread="cohort"),
    "scaffold by size": case(
        m.scaffold(),
        "scaffold",
        {"parts": (ControlVariate(spread="size"),), "weighting": Size()},
        spread="size",
        weighting="size",
    ),
    "scaffold size": case(
        m.scaffold(), "scaffold", {"weighting": Size(), "server": Plain(0.7)}, weighting="size", server_lr=0.7
    ),
    "seolkim as printed": case(
        replace(m.seolkim(), parts=(DatasetMean(),), weighting=UnionShare(), server=WeightedSum(), pace=RAGGED["pace"]),
        "seolkim",
        per="owned",
        weighting="union",
        server="sum",
    ),
    "seolkim of used rows": case(
        replace(m.seolkim(), parts=(DatasetMean("used"),), sampler=DecayingOversampling(decays="amount")),
        "seolkim",
        {"pace": RAGGED["pace"], "weighting": UnionShare()},
        per="used",
        weighting="union",
    ),
    "all at once": case(
        m.scaffold(),
        "scaffold",
        {"parts": (LocalBalancer(5.0), Proximal(0.2), ControlVariate()), "server": Adam(), **averaged(), **SGD_HEAVY},
        loss="lb",
        strength=5.0,
        mu=0.2,
        server="adaptive",
        beta1=0.9,
        kind="adam",
        server_lr=0.1,
        **BALANCER,
        **HEAVY,
    ),
}

RELATED = {
    "balancefl": case(alone(KnowledgeInheritance(augment_features=False), sampler=ClassBalanced()), "balancefl"),
    "balancefl batch": case(
        alone(KnowledgeInheritance(1.5, 0.5, 0.1, "batch", "sum", augment_features=False)),
        "balancefl",
        temperature=1.5,
        lam=0.5,
        entropy=0.1,
        scope="batch",
        reduction="sum",
    ),
    "class balanced": case(alone(ClassBalancedLoss(0.9)), "class_balanced", beta=0.9),
    "fedcm heavy": case(
        m.fedcm(0.3), "fedcm", SGD_HEAVY | {"server": Plain(0.5), **RAGGED}, mix=0.3, server_lr=0.5, **HEAVY
    ),
    "fedcm by size": case(m.fedcm(0.3), "fedcm", {"weighting": Size(), **DECAYING}, mix=0.3, weighting="size"),
    "feddyn": case(feddyn(0.3), "feddyn", RAGGED, alpha=0.3),
    "feddyn by weight": case(
        alone(WeightedRegulariser(0.3), weighting=Uniform(), server=DynamicCorrection(alpha=0.3)),
        "feddyn",
        RAGGED,
        alpha=0.3,
        scaled=True,
    ),
    "fedfocal": case(alone(Focal(1.5, 0.25)), "fedfocal", gamma=1.5, alpha=0.25),
    "fedir": case(alone(ImportanceReweighting()), "fedir"),
    "fedlc tiny": case(alone(LogitCalibration(0.02, missing="tiny")), "fedlc", tau=0.02, floor=1e-8),
    "fedlc pooled": case(alone(PooledLogitCalibration(2.0)), "fedlc", tau=2.0, pooled=True),
    "fedlc": case(alone(LogitCalibration(0.8)), "fedlc", tau=0.8),
    "fedntd unscaled": case(
        alone(NotTrueDistillation(0.7, 2.0, scaled=False)), "fedntd", beta=0.7, tau=2.0, scaled=False
    ),
    "fedntd": case(alone(NotTrueDistillation(0.7, 2.0)), "fedntd", beta=0.7, tau=2.0),
    "fedrs": case(alone(RestrictedSoftmax(0.3)), "fedrs", alpha=0.3),
    "fedrs few": case(alone(RestrictedSoftmax(0.3, few=2)), "fedrs", alpha=0.3, few=2),
    "fedrs few code": case(alone(RestrictedSoftmax(0.3, "code", 2)), "fedrs", alpha=0.3, scaling="code", few=2),
    "fedrs code": case(alone(RestrictedSoftmax(0.3, "code")), "fedrs", alpha=0.3, scaling="code"),
    "fedvc": case(fedvc(7), "fedvc"),
    "logit adjustment": case(alone(LogitAdjustment(0.6)), "logit_adjust", tau=0.6),
}

ALL = VARIANTS | RELATED

SERVER_STATE = {  # component -> {its field: the oracle's}
    "accelerated": {"first": "m"},
    "client_momentum": {"momentum": "step"},
    "dynamic_sam": {"s": "s"},
    "extrapolated": {"rate": "rate"},
    "control_variate": {"c": "c"},
    "global_momentum": {"buffer": "buffer"},
    "momentum": {"first": "m"},
    **{name: {"first": "m", "second": "v"} for name in ("adagrad", "adam", "yogi")},
    "dual": {"duals": "lambda"},
    "dynamic_correction": {"h": "h"},
    "ratio_loss": {"weights": "class_weights"},
}
CLIENT_STATE = {
    "dynamic_regulariser": {"h": ("h",)},
    "dynamic_sam": {"mu": ("mu",)},
    "uploaded_dynamic_regulariser": {"h": ("h",)},
    "control_variate": {"c": ("c",)},
    "moreau": {"theta": ("theta",)},
    "private_head": {"head": ("head",)},
    "model_contrastive": {"params": ("previous",)},
    "attentive_messages": {"model": ("previous",)},
    "curvature": {"params": ("previous",)},
    "gradient_balancer": {
        "positive": ("pid", "pos"),
        "negative": ("pid", "neg"),
        "previous": ("pid", "e1"),
        "earlier": ("pid", "e2"),
        "u": ("pid", "u"),
    },
}


def agree_on_state(replay: Replay, state: Tree) -> None:
    """What the server and the clients keep after the last round, where both have a name for it."""
    parts = replay.rounds[-1].parts
    for component in parts.keys() & SERVER_STATE.keys():
        for ours, theirs in SERVER_STATE[component].items():
            if ours not in parts[component] and theirs not in state:
                continue  # neither needs it: FedNova without a global momentum factor
            agree(parts[component][ours], state[theirs], f"server {component} {ours}")
    for component in parts.keys() & CLIENT_STATE.keys():
        for k in sorted({k for r in replay.rounds for k in r.assignment.ids.tolist()}):
            for ours, path in CLIENT_STATE[component].items():
                theirs = state["clients"][k]
                for name in path:
                    theirs = theirs[name]
                agree(replay.memory(k, component)[ours], theirs, f"client {k} {component} {ours}")


def agree_on_run(found: Case, model: Any, engine: str, rounds: int = ROUNDS) -> None:
    """Parameters and weights after every round, then the state."""
    replay = record(found.method, engine, model, federation(auxiliary=found.auxiliary), rounds=rounds)
    history, state = replay.oracle(found.recipe, **found.options)
    for r, (seen, expected, trace) in enumerate(zip(replay.rounds, history, state["trace"], strict=True), 1):
        agree(seen.after, expected, f"round {r}")
        agree(replay.result.rounds[r - 1]["weights"], trace["factors"], f"weights of round {r}")
    agree(numpy(replay.result.state.params), history[-1], "the result")
    agree_on_state(replay, state)


def test_the_table_is_covered():
    assert METHODS.keys() <= BASE.keys() | RELATED.keys() | PERSONAL.keys()
    taken = [set(r.assignment.ids.tolist()) for r in record(BASE["fedavg"].method).rounds]
    assert set.union(*taken) == set(range(5)) and any(a & b for a, b in pairwise(taken))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", BASE)
def test_method(name: str, model: str, engine: str):
    agree_on_run(BASE[name], model, engine, rounds=ROUNDS if model == "mlp" else 2)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["fedmlb", "fedmlb heavy"])
def test_two_hybrid_paths(name: str, engine: str):
    agree_on_run((BASE | ALL)[name], TwoNN(hidden=5), engine, rounds=2)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ALL)
def test_variant(name: str, engine: str):
    agree_on_run(ALL[name], "mlp", engine, rounds=ROUNDS if engine == "sequential" else 2)
