"""What each method has beyond plain FedAvg, and where its arguments go."""

from __future__ import annotations

from typing import Any

import pytest

from fedskew import methods as m
from fedskew.method import Method
from fedskew.method.weightings import Uniform
from fedskew.methods import METHODS

COMPOSITIONS: dict[str, set[str]] = {
    "apfl": {"mixed"},
    "astraea": {"augmentation", "mediators"},
    "balancefl": {"knowledge_inheritance", "class_balanced"},
    "ccvr": {"virtual_representations"},
    "climb": {"dual"},
    "clusteredsampling": {"clustered", "uniform"},
    "creff": {"federated_features"},
    "fedadagrad": {"adagrad"},
    "fedadam": {"adam"},
    "fedamp": {"attentive_messages"},
    "fedavg": set(),
    "fedavgm": {"momentum"},
    "fedbal": {"local_balancer", "aggregation_balancer"},
    "fedcm": {"client_momentum", "uniform"},
    "fedcurv": {"curvature"},
    "feddecorr": {"decorrelation"},
    "feddisco": {"discrepancy_aware"},
    "feddyn": {"dynamic_regulariser", "dynamic_correction", "uniform"},
    "fedfocal": {"focal"},
    "fedga": {"calibrated_targets", "uniform"},
    "fedgc": {"private_head"},
    "fedgr": {"unbalanced_softmax", "gravitation"},
    "fedgrab": {"gradient_balancer"},
    "fedir": {"importance_reweighting"},
    "fedla": {"label_aware"},
    "fedlc": {"logit_calibration"},
    "fedloge": {"initial_head", "frozen", "realigned_heads"},
    "fednh": {"non_parametric_head", "uniform"},
    "fednova": {"fednova", "global_momentum"},
    "fedntd": {"not_true_distillation"},
    "fedpals": {"label_matching"},
    "fedprox": {"proximal"},
    "fedrl": {"ratio_loss", "uniform"},
    "fedrs": {"restricted_softmax"},
    "ditto": {"tethered"},
    "fedbabu": {"frozen", "fine_tune"},
    "fedbn": {"private"},
    "fedetf": {"cosine_softmax", "initial_head", "frozen", "fine_tune"},
    "fedper": {"private"},
    "fedrep": {"private", "alternating"},
    "fedrod": {"logit_adjustment", "personal_head"},
    "lgfedavg": {"private"},
    "localonly": {"private"},
    "fedacg": {"proximal", "accelerated", "uniform"},
    "fedexp": {"extrapolated", "uniform"},
    "fedlesam": {"lesam", "uniform"},
    "fedsmoo": {"dynamic_regulariser", "dynamic_correction", "dynamic_sam", "uniform"},
    "fedsol": {"stabilised_orthogonal"},
    "fedspeed": {"uploaded_dynamic_regulariser", "corrected_mean", "sam", "uniform"},
    "fedsam": {"sam", "uniform"},
    "fedmlb": {"hybrid_paths"},
    "feduv": {"uniformity_variance"},
    "fedvc": {"virtual_client", "by_size", "uniform"},
    "fedvls": {"vacant_classes"},
    "fedyogi": {"yogi"},
    "ifca": {"cluster_identity", "uniform"},
    "mofedsam": {"client_momentum", "sam", "uniform"},
    "moon": {"model_contrastive"},
    "perfedavg": {"meta", "uniform"},
    "pfedme": {"moreau"},
    "powerofchoice": {"power_of_choice"},
    "precisionweighted": {"precision_weighted", "uniform"},
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
    wanted = {"ratio_loss": 63}
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
        (m.fedcm(0.5), "client_momentum", "alpha", 0.5),
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
        (m.fedacg(0.5, 0.25), "accelerated", "beta", 0.5),
        (m.fedacg(0.5, 0.25), "proximal", "mu", 0.25),
        (m.feddecorr(0.5), "decorrelation", "beta", 0.5),
        (m.feduv(0.5, 0.25), "uniformity_variance", "spread", 0.5),
        (m.feduv(0.5, 0.25), "uniformity_variance", "uniformity", 0.25),
        (m.fedmlb(0.5, 0.25, 2.0), "hybrid_paths", "lam1", 0.5),
        (m.fedmlb(0.5, 0.25, 2.0), "hybrid_paths", "lam2", 0.25),
        (m.fedmlb(0.5, 0.25, 2.0), "hybrid_paths", "tau", 2.0),
        (m.fedvls(0.5, 0.25), "vacant_classes", "lam", 0.5),
        (m.fedvls(0.5, 0.25), "vacant_classes", "suppression", 0.25),
        (m.feddisco(0.25, 0.5, "l2"), "discrepancy_aware", "a", 0.25),
        (m.feddisco(0.25, 0.5, "l2"), "discrepancy_aware", "b", 0.5),
        (m.feddisco(0.25, 0.5, "l2"), "discrepancy_aware", "metric", "l2"),
        (m.fedpals(0.5, (1.0, 2.0)), "label_matching", "lam", 0.5),
        (m.fedpals(0.5, (1.0, 2.0)), "label_matching", "target", (1.0, 2.0)),
        (m.fedsol(0.5), "stabilised_orthogonal", "rho", 0.5),
        (m.clusteredsampling("none"), "clustered", "clusters", "none"),
        (m.ccvr(7), "virtual_representations", "samples", 7),
        (m.fedamp(0.5, 2.0, 3.0), "attentive_messages", "alpha", 0.5),
        (m.fedamp(0.5, 2.0, 3.0), "attentive_messages", "sigma", 2.0),
        (m.fedamp(0.5, 2.0, 3.0), "attentive_messages", "pull", 3.0),
        (m.ifca(3), "cluster_identity", "clusters", 3),
        (m.precisionweighted(0.5), "precision_weighted", "eps", 0.5),
        (m.fedcurv(0.5), "curvature", "lam", 0.5),
        (m.fedloge(0.5), "initial_head", "sparsity", 0.5),
        (m.fedloge(norm=0.5), "initial_head", "norm", 0.5),
        (m.fednh(0.5), "non_parametric_head", "smoothing", 0.5),
        (m.fednh(0.5, 2.0), "non_parametric_head", "scale", 2.0),
        (m.fednh(0.5, trained=True), "non_parametric_head", "trained", True),
        (m.fednh(0.5, weighs="confidence"), "non_parametric_head", "weighs", "confidence"),
        (m.fedetf(projection=9, personal="alternating", cycles=7), "tuned_cosine_softmax", "cycles", 7),
        (m.fedetf(projection=9, personal="alternating", steps=7), "tuned_cosine_softmax", "steps", 7),
        (m.fedetf(7.0, 9, personal="alternating"), "tuned_cosine_softmax", "scale", 7.0),
        (m.fedexp(0.5), "extrapolated", "eps", 0.5),
        (m.fedlesam(0.5), "lesam", "rho", 0.5),
        (m.fedsmoo(0.5, 0.25), "dynamic_correction", "alpha", 0.5),
        (m.fedsmoo(0.5, 0.25), "dynamic_regulariser", "alpha", 0.5),
        (m.fedsmoo(0.5, 0.25), "dynamic_sam", "rho", 0.25),
        (m.fedspeed(0.5, 0.25), "uploaded_dynamic_regulariser", "alpha", 0.5),
        (m.fedspeed(0.5, 0.25), "corrected_mean", "alpha", 0.5),
        (m.fedspeed(0.5, 0.25, "all"), "sam", "rho", 0.25),
        (m.fedspeed(0.5, 0.25, "all"), "dynamic_correction", "alpha", 0.5),
        (m.fedsam(0.5), "sam", "rho", 0.5),
        (m.mofedsam(0.5, 0.25), "sam", "rho", 0.5),
        (m.mofedsam(0.5, 0.25), "client_momentum", "alpha", 0.25),
        (m.fedvc(9), "virtual_client", "size", 9),
        (m.moon(2.0, 0.25), "model_contrastive", "mu", 2.0),
        (m.moon(2.0, 0.25), "model_contrastive", "temperature", 0.25),
        (m.moon(2.0, 0.25, 9), "model_contrastive", "projection", 9),
        (m.perfedavg(0.5), "meta", "alpha", 0.5),
        (m.perfedavg(0.5, 0.25), "fixed", "lr", 0.25),
        (m.fedavgm(nesterov=True), "momentum", "nesterov", True),
        (m.pfedme(0.5, 0.25), "plain", "lr", 0.5),
        (m.pfedme(0.5, 0.25), "fixed", "lr", 0.25),
        (m.powerofchoice(7), "power_of_choice", "candidates", 7),
    ]
    for method, component, field, want in cases:
        assert value(method, component, field) == want, (component, field)
    assert [len(m.fedgr(a, b).parts) for a, b in ((True, True), (True, False), (False, True))] == [2, 1, 2]
    assert {c.name for c in m.fedbal(False, False).components} == PLAIN
    assert {c.name for c in m.seolkim(False, False, False).components} == PLAIN
