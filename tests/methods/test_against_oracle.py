"""Every method of the table, and the options that change its mathematics, against the numpy oracle: whole rounds.

The oracle is given what the method is made of and the recorded plans (who, which rows, which order, which rate), and
nothing that was computed. After every round all parameters agree, and so do the aggregation weights and what server and
clients keep.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from fedskew import functional as F
from fedskew import methods as m
from fedskew import paces, samplers, selectors, servers, steps
from fedskew import parts as p
from fedskew import weightings as w
from fedskew.method import Method
from fedskew.method.component import SLOTS
from fedskew.method.paces import Fixed
from fedskew.method.parts import DatasetMean, ProximalVariant
from fedskew.method.samplers import ClassBalanced
from fedskew.method.servers import Adagrad, Adam, Momentum, Plain, WeightedSum, Yogi
from fedskew.method.steps import SGD, SharpnessAware
from fedskew.method.weightings import Size, Uniform, UnionShare
from fedskew.methods import METHODS
from fedskew.models.architectures import TwoNN
from oracle.model import Tree
from support.personal import CASES as PERSONAL
from support.personal import HEAVY
from support.replay import PACE, ROUNDS, Replay, agree, federation, numpy, record

ENGINES = ("sequential", pytest.param("batched", marks=pytest.mark.thorough))
HEAVY_SGD = SGD(**HEAVY)
DECAYING = replace(PACE, lr=0.15, decay=0.7)
RAGGED = paces.Dynamic(epochs=2, lr=0.2, beta=3)  # every client has a batch size and a rate of its own


def case(method: Method, *ingredients: Any) -> Method:
    """The method with these ingredients in their slots, and small mini-batches unless it has a pace of its own."""
    slots: dict[str, Any] = {"pace": replace(PACE, lr=method.pace.lr)} if type(method.pace) is Fixed else {}
    for one in ingredients:
        slot = next((name for name, kind in SLOTS.items() if isinstance(one, kind)), "parts")
        slots[slot] = (*slots.get("parts", ()), one) if slot == "parts" else one
    return replace(method, **slots)


def avg(*ingredients: Any) -> Method:
    return case(m.fedavg(), *ingredients)


def sphere(weight: Any) -> Any:
    """The prototypes that the library makes of the classifier's initial weight: the oracle is told them."""
    return F.spread_prototypes(torch.from_numpy(weight)).numpy()


SET = {  # with options under which their terms act
    "astraea": case(m.astraea(alpha=0.9, gamma=2)),
    "climb": case(m.climb(), w.Dual(3.0, 0.1, primal_rounds=1)),
    "creff": case(m.creff().with_("federated_features", match_steps=2, head_epochs=2)),
    "fedadam": case(m.fedadam(0.1)),
    "fedcm": case(m.fedcm(0.3)),
    "fedprox": case(m.fedprox(0.3)),
    "fedacg": case(m.fedacg(0.6, 0.2)),
    "fedspeed": case(m.fedspeed(0.3, 0.4)),
    "fedsmoo": case(m.fedsmoo(0.3, 0.4)),
    "fedlesam": case(m.fedlesam(0.4)),
    "fedexp": case(m.fedexp(1e-3)),
    "fedsam": case(m.fedsam(0.3)),
    "feddecorr": case(m.feddecorr(0.7)),
    "feduv": case(m.feduv(0.8, 0.6)),
    "fedvls": case(m.fedvls(0.7, 0.3)),
    "fedmlb": case(m.fedmlb(0.7, 0.4, 1.5)),
    "feddisco": case(m.feddisco(0.3, 0.2)),
    "fedpals": case(m.fedpals(0.5)),
    "fedsol": case(m.fedsol(0.7)),
    "ccvr": case(m.ccvr(5)),
    "fedamp": case(m.fedamp(0.5, 2.0, 0.7)),
    "ifca": case(m.ifca(2), SGD(momentum=0.5), Size()),
    "precisionweighted": case(m.precisionweighted(1e-3)),
    "fedcurv": case(m.fedcurv(0.3)),
    "fednh": case(m.fednh(), p.NonParametricHead(0.6, 3.0)),
    "fedyogi": case(m.fedyogi(0.1)),
    "mofedsam": case(m.mofedsam(0.3, 0.2)),
    "pfedme": case(m.pfedme(lr=0.02)),
    "powerofchoice": case(m.powerofchoice(4)),
    "seolkim": case(m.seolkim(), paces.Dynamic(epochs=2, beta=3)),
}


def nova(*ingredients: Any, base: Any = Size()) -> Method:
    return case(m.fednova(base), *ingredients)


def balanced(*pace: Any, strength: float = 60.0, **fields: Any) -> Method:
    return case(m.fedbal(aggregation=False), p.LocalBalancer(strength, **fields), *pace)


VARIANTS = {
    "astraea passes": case(m.astraea(), selectors.Mediators(2, mediator_epochs=2)),
    "astraea momentum": case(m.astraea(gamma=3), HEAVY_SGD),
    "climb from one": case(m.climb(), w.Dual(9.0, 1.5, 1, initial=1.0)),
    "climb whole": case(m.climb(), w.Dual(60.0, 0.1, 1, apply="loss", initial=1.0, whole=True), SGD(clip=0.6)),
    "climb primal": case(m.climb(), w.Dual(9.0, 0.0, 2)),
    "climb on losses": case(m.climb(), w.Dual(9.0, 0.0, 1, apply="loss"), HEAVY_SGD),
    "climb of the cohort": case(m.climb(), w.Dual(9.0, 0.0, 1, report="cohort")),
    "climb clamped": case(m.climb(), w.Dual(300.0, 0.0, 1, lambda_max=7.0, clamp_weights=True)),
    "fedadagrad zero": avg(Adagrad(0.2, 0.0, initial=0.0)),
    "fedadam corrected": avg(Adam(beta2=0.999, bias_correction="torch")),
    "fedadam of keras": avg(Adam(tau=0.1, bias_correction="keras")),
    "fedadam of flower": avg(Adam(tau=0.1, bias_correction="flower")),
    "fedyogi corrected": avg(Yogi(0.03, tau=0.1, bias_correction="torch")),
    "fedavgm lr": avg(Momentum(0.5, 0.6)),
    "fedavg heavy": avg(HEAVY_SGD),
    "fedavg uniform": avg(Uniform(), DECAYING),
    "fedavg server lr": avg(Plain(0.5), RAGGED),
    "fedbal LB": case(m.fedbal(aggregation=False)),
    "fedbal printed eps": balanced(eps=1e-12),
    "fedbal AB": case(m.fedbal(local=False, beta=0.5)),
    "fedbal inverse": case(m.fedbal(beta=1.0, inverse=True)),
    "fedbal step": balanced(schedule_unit="step"),
    "fedbal early": balanced(replace(PACE, epochs=3), strength=9.0, one_based=False, early=1),
    "fedbal round": balanced(strength=9.0, schedule_unit="round"),
    "fedbal from zero": balanced(strength=6.0, one_based=False),
    "fedbal mask": balanced(missing="mask"),
    "fedbal scope": avg(w.AggregationBalancer(scope="all", similarity="l2", temperature=0.3, beta=0.4)),
    "fedbal features": avg(w.AggregationBalancer(scope="features")),
    "fedbal no bias": avg(w.AggregationBalancer(include_bias=False)),
    "fedga exact": case(m.fedga("exact"), HEAVY_SGD),
    "fedga client": case(m.fedga(), p.CalibratedTargets(count_scope="client"), Size()),
    "fedga class": case(m.fedga(), p.CalibratedTargets("exact", probability="class"), HEAVY_SGD),
    "fedgc spread": case(m.fedgc(3.0), Uniform(), HEAVY_SGD),
    "fedgc means": case(m.fedgc(), p.PrivateHead(2.0, "class_mean"), RAGGED),
    "fedgc free": case(m.fedgc(0.0)),
    "fedgr raw": avg(p.UnbalancedSoftmax("raw"), HEAVY_SGD),
    "fedgr one": case(m.fedgr(), p.UnbalancedSoftmax("one"), p.Gravitation(), RAGGED),
    "fedgr max1": case(m.fedgr(), p.UnbalancedSoftmax("max1"), p.Gravitation(), RAGGED),
    "fedgr code": avg(p.UnbalancedSoftmax(missing="code")),
    "fedgr raw code": avg(p.UnbalancedSoftmax("raw", "code")),
    "fedgr owners": case(m.fedgr(), p.UnbalancedSoftmax(), p.Gravitation(2.0, "owners")),
    "fedgr by sample": case(m.fedgr(), p.UnbalancedSoftmax(), p.WeightedGravitation(9.0), RAGGED),
    "fedgr by client": case(m.fedgr(), p.UnbalancedSoftmax(), p.WeightedGravitation(9.0, "owners", "client")),
    "fedgr pull": case(m.fedgr(softmax=False, strength=2.0)),
    "fedgrab gains": case(m.fedgrab().with_("gradient_balancer", kp=1.0, ki=0.2, kd=0.5)),
    "fedla momentum": case(m.fedla(), HEAVY_SGD, RAGGED),
    "fednova heavy": nova(HEAVY_SGD),
    "fednova AB": nova(RAGGED, base=w.AggregationBalancer(0.5)),
    "fednova LB": nova(p.LocalBalancer(5.0), base=Uniform()),
    "fednova global momentum": case(m.fednova(gmf=0.7), replace(PACE, decay=0.5), servers.GlobalMomentum(0.8, 0.7)),
    "fednova control": nova(p.ControlVariate()),
    "fednova proximal": nova(p.Proximal(0.5), RAGGED),
    "fednova proximal by steps": nova(p.Proximal(0.5), w.FedNova(tau_eff="steps"), RAGGED),
    "fedprox norm": avg(ProximalVariant(0.3), HEAVY_SGD),
    "fedprox smooth": avg(ProximalVariant(400.0, "smooth_l1"), SGD(clip=0.6), DECAYING),
    "fedprox heavy": case(m.fedprox(0.5), HEAVY_SGD),
    "fedrl of rows": avg(p.RatioLoss(0.7, 0.4, ratio="row", divide="weights")),
    "fedrl of fedga": avg(p.RatioLoss(0.7, 0.4, by="quotient", zeros=True, estimator="unflipped", serves="same")),
    "fedrl heavy": case(m.fedrl(0.7, 0.4), Size(), HEAVY_SGD),
    "fedacg heavy": case(m.fedacg(0.6, 0.2), HEAVY_SGD, Size(), RAGGED),
    "fedspeed heavy": case(m.fedspeed(0.3), SharpnessAware(**HEAVY, rho=0.4, alpha=0.6), RAGGED),
    "fedspeed as printed": case(m.fedspeed(0.3), SharpnessAware(rho=0.4, normalised=False), Size()),
    "fedspeed of all": case(m.fedspeed(0.3, 0.4, "all"), RAGGED),
    "fedsmoo heavy": case(m.fedsmoo(0.3), steps.DynamicSharpnessAware(**HEAVY, rho=0.4, alpha=0.6), RAGGED),
    "fedsmoo adaptive": case(m.fedsmoo(0.3), steps.DynamicSharpnessAware(rho=0.4, adaptive=True)),
    "fedlesam heavy": case(m.fedlesam(), steps.GlobalSharpnessAware(**HEAVY, rho=0.4), Plain(0.5), RAGGED),
    "fedlesam of rounds": case(m.fedlesam(), steps.GlobalSharpnessAware(rho=0.4, since="round", norm="tensors")),
    "fedexp of code": case(m.fedexp(), servers.Extrapolated(eps=2e-4, decay=0.5, scaled=True), Size(), RAGGED),
    "fedsam heavy": case(m.fedsam(), SharpnessAware(**HEAVY, rho=0.5, alpha=0.7), RAGGED),
    "fedsam adaptive": case(m.fedsam(), SharpnessAware(rho=2.0, adaptive=True), DECAYING),
    "fedsam as long as the gradient": case(m.fedsam(), SharpnessAware(rho=0.5, normalised=False)),
    "fedsam adaptive, as long as the gradient": case(
        m.fedsam(), SharpnessAware(rho=2.0, adaptive=True, normalised=False)
    ),
    "mofedsam pulled": case(m.mofedsam(0.5, 0.3), p.Proximal(0.3), p.ClientMomentum(0.3)),
    "feddecorr as printed": case(m.feddecorr(), p.Decorrelation(3.0, "printed"), HEAVY_SGD),
    "feduv heavy": case(m.feduv(), HEAVY_SGD, RAGGED),
    "fedvls heavy": case(m.fedvls(), HEAVY_SGD, RAGGED),
    "fedmlb heavy": case(m.fedmlb(0.5, 2.0), HEAVY_SGD, RAGGED),
    "feddisco plain": case(m.feddisco(0.2, 0.1, "kl_plain")),
    "feddisco l2": case(m.feddisco(), w.DiscrepancyAware(a=0.4, metric="l2", target=(5.0, 1.0, 2.0, 2.0)), RAGGED),
    "feddisco l1": case(m.feddisco(0.2, 0.2, "l1")),
    "feddisco cosine": case(m.feddisco(), w.DiscrepancyAware(Uniform(), 0.4, 0.2, "cosine")),
    "fedpals near": case(m.fedpals(1e-3, (6.0, 1.0, 1.0, 4.0)), RAGGED),
    "fedsol fixed": case(m.fedsol(), steps.StabilisedOrthogonal(**HEAVY, rho=0.4, scale="fixed", tau=1.5), RAGGED),
    "fedsol of the head": case(m.fedsol(), steps.StabilisedOrthogonal(rho=2.0, perturbs="head")),
    "fedsol pulled": case(m.fedsol(), p.Proximal(0.3)),
    "fedamp unbounded": case(m.fedamp(), p.AttentiveMessages(1.5, 1.0, 0.4, math.inf), HEAVY_SGD, RAGGED),
    "ifca of three": case(m.ifca(3), SGD(momentum=0.5)),
    "precision weighted heavy": case(
        m.precisionweighted(), steps.PrecisionWeighted(**HEAVY, beta2=0.7, eps=1e-4), Size(), RAGGED
    ),
    "precision weighted, last step": case(
        m.precisionweighted(), steps.PrecisionWeighted(beta2=0.0, eps=1e-4), p.Proximal(0.3)
    ),
    "fedcurv of batches": case(m.fedcurv(), p.Curvature(2.0, "batch"), HEAVY_SGD, RAGGED),
    "fednh heavy": case(m.fednh(), HEAVY_SGD, Size(), RAGGED),
    "clustered by update": case(m.clusteredsampling("similarity"), HEAVY_SGD, RAGGED),
    "fednh of a trained scale": case(m.fednh(0.6, 3.0, trained=True), HEAVY_SGD, RAGGED),
    "fednh by confidence": case(m.fednh(0.6, 3.0, weighs="confidence")),
    "fednh by confidence of a trained scale": case(m.fednh(0.6, 3.0, True, "confidence"), HEAVY_SGD, RAGGED),
    "moon newcomer": case(m.moon(), p.ModelContrastive(2.0, newcomer="initial")),
    "moon without a head": case(m.moon(1.0, projection=0)),
    "moon cold": case(m.moon(5.0, 0.2), HEAVY_SGD),
    "perfedavg far": case(m.perfedavg(), steps.Meta(0.2, 1e-2), Size()),
    "perfedavg heavy": case(m.perfedavg(), steps.Meta(0.2, 1e-2, weight_decay=0.3, clip=0.4)),
    "perfedavg heavy first order": case(m.perfedavg(), steps.Meta(0.2, hessian="none", weight_decay=0.3, clip=0.4)),
    "perfedavg first order": case(m.perfedavg(), steps.Meta(0.2, hessian="none")),
    "pfedme reset": case(m.pfedme(2.0, 0.05), steps.Moreau(3, 5.0, 0.12, 0.01, reset=True, clip=0.4)),
    "scaffold heavy": case(m.scaffold(), HEAVY_SGD, DECAYING),
    "scaffold I": case(m.scaffold(), p.ControlVariate(1), HEAVY_SGD),
    "scaffold AB": case(m.scaffold(), w.AggregationBalancer(beta=0.5), RAGGED),
    "scaffold steps": case(m.scaffold(), p.ControlVariate(division="steps"), HEAVY_SGD),
    "scaffold cohort": case(m.scaffold(), p.ControlVariate(spread="cohort")),
    "scaffold by size": case(m.scaffold(), p.ControlVariate(spread="size"), Size()),
    "scaffold size": case(m.scaffold(), Size(), Plain(0.7)),
    "seolkim as printed": case(m.seolkim(), DatasetMean(), UnionShare(), WeightedSum(), RAGGED),
    "seolkim of used rows": case(
        m.seolkim(), DatasetMean("used"), samplers.DecayingOversampling(decays="amount"), UnionShare(), RAGGED
    ),
    "all at once": case(
        m.scaffold(),
        p.LocalBalancer(5.0),
        p.Proximal(0.2),
        p.ControlVariate(),
        Adam(),
        w.AggregationBalancer(),
        HEAVY_SGD,
    ),
    "balancefl": avg(p.KnowledgeInheritance(augment_features=False), ClassBalanced()),
    "balancefl batch": avg(p.KnowledgeInheritance(1.5, 0.5, 0.1, "batch", "sum", augment_features=False)),
    "class balanced": avg(p.ClassBalancedLoss(0.9)),
    "fedcm heavy": case(m.fedcm(0.3), HEAVY_SGD, Plain(0.5), RAGGED),
    "fedcm by size": case(m.fedcm(0.3), Size(), DECAYING),
    "feddyn": case(m.feddyn(0.3), RAGGED),
    "feddyn by weight": avg(p.WeightedRegulariser(0.3), Uniform(), servers.DynamicCorrection(alpha=0.3), RAGGED),
    "fedfocal": avg(p.Focal(1.5, 0.25)),
    "fedir": avg(p.ImportanceReweighting()),
    "fedlc tiny": avg(p.LogitCalibration(0.02, missing="tiny")),
    "fedlc pooled": avg(p.PooledLogitCalibration(2.0)),
    "fedlc": avg(p.LogitCalibration(0.8)),
    "fedntd unscaled": avg(p.NotTrueDistillation(0.7, 2.0, scaled=False)),
    "fedntd": avg(p.NotTrueDistillation(0.7, 2.0)),
    "fedrs": avg(p.RestrictedSoftmax(0.3)),
    "fedrs few": avg(p.RestrictedSoftmax(0.3, few=2)),
    "fedrs few code": avg(p.RestrictedSoftmax(0.3, "code", 2)),
    "fedrs code": avg(p.RestrictedSoftmax(0.3, "code")),
    "fedvc": case(m.fedvc(7)),
    "logit adjustment": avg(p.LogitAdjustment(0.6)),
}

BASE = {name: SET.get(name) or case(METHODS[name]()) for name in METHODS if name not in VARIANTS | PERSONAL}

SERVER_STATE = {  # component -> {its field: the oracle's}
    "cluster_identity": {"models": "clusters"},
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
            held = state[theirs]
            if isinstance(held, list):  # of models, which the library stacks
                held = {name: [one[name] for one in held] for name in held[0]}
            agree(parts[component][ours], held, f"server {component} {ours}")
    for component in parts.keys() & CLIENT_STATE.keys():
        for k in sorted({k for r in replay.rounds for k in r.assignment.ids.tolist()}):
            for ours, path in CLIENT_STATE[component].items():
                theirs = state["clients"][k]
                for name in path:
                    theirs = theirs[name]
                agree(replay.memory(k, component)[ours], theirs, f"client {k} {component} {ours}")


def agree_on_run(method: Method, model: Any, engine: str, rounds: int = ROUNDS) -> None:
    """Parameters and weights after every round, then the state."""
    auxiliary = 4 if any(part.auxiliary for part in method.components) else 0
    replay = record(method, engine, model, federation(auxiliary=auxiliary), rounds=rounds)
    history, state = replay.oracle(start_w=sphere)
    for r, (seen, expected, trace) in enumerate(zip(replay.rounds, history, state["trace"], strict=True), 1):
        agree(seen.after, expected, f"round {r}")
        agree(replay.result.rounds[r - 1]["weights"], trace["factors"], f"weights of round {r}")
    agree(numpy(replay.result.state.params), history[-1], "the result")
    agree_on_state(replay, state)


def test_clients_come_again_and_clusters_differ():
    taken = [set(r.assignment.ids.tolist()) for r in record(BASE["fedavg"]).rounds]
    assert set.union(*taken) == set(range(5)) and any(a & b for a, b in pairwise(taken))
    _, told = record(BASE["ifca"]).oracle()
    assert {cluster for chosen in told["chosen"] for cluster in chosen} == {0, 1}


@pytest.mark.parametrize(("model", "engine"), [("logistic", "sequential"), ("mlp", "sequential"), ("mlp", "batched")])
@pytest.mark.parametrize("name", BASE)
def test_method(name: str, model: str, engine: str):
    agree_on_run(BASE[name], model, engine, rounds=ROUNDS if model == "mlp" else 2)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["fedmlb", "fedmlb heavy"])
def test_two_hybrid_paths(name: str, engine: str):
    agree_on_run((BASE | VARIANTS)[name], TwoNN(hidden=5), engine, rounds=2)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", VARIANTS)
def test_variant(name: str, engine: str):
    agree_on_run(VARIANTS[name], "mlp", engine, rounds=ROUNDS if engine == "sequential" else 2)
