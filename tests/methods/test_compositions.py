"""Where arguments of methods go that the oracle is not told of. Defaults: `golden/addresses.json`."""

from __future__ import annotations

from typing import Any

from fedskew import methods as m
from fedskew.method import Method
from fedskew.method.weightings import Uniform
from fedskew.methods import METHODS
from fedskew.methods.fedgrab import PriorAnalyser

PLAIN = {"cross_entropy", "shuffle", "random", "fixed", "size", "plain", "sgd"}


def test_arguments_of_methods_reach_their_components() -> None:
    def value(method: Method, component: str, field: str) -> Any:
        return getattr(next(c for c in method.components if c.name == component), field)

    cases = [
        (m.climb(2.0, 0.5), "dual", "dual_lr", 2.0),
        (m.climb(2.0, 0.5), "dual", "eps", 0.5),
        (m.fednova(Uniform(), 0.5), "fednova", "base", Uniform()),
        (m.fednova(Uniform(), 0.5), "global_momentum", "gmf", 0.5),
        (m.fednova(Uniform(), 0.5), "global_momentum", "lr", 1.0),
        (m.fedntd(0.5, 3.0), "not_true_distillation", "beta", 0.5),
        (m.fedntd(0.5, 3.0), "not_true_distillation", "tau", 3.0),
        (m.fedadagrad(0.5), "adagrad", "lr", 0.5),
        (m.fedavgm(0.5, 0.25), "momentum", "beta", 0.5),
        (m.fedavgm(0.5, 0.25), "momentum", "lr", 0.25),
        (m.clusteredsampling("none"), "clustered", "clusters", "none"),
        (m.ccvr(7), "virtual_representations", "samples", 7),
        (m.fedloge(0.5), "initial_head", "sparsity", 0.5),
        (m.fedloge(norm=0.5), "initial_head", "norm", 0.5),
        (m.fedetf(projection=9, personal="alternating", cycles=7), "tuned_cosine_softmax", "cycles", 7),
        (m.fedetf(projection=9, personal="alternating", steps=7), "tuned_cosine_softmax", "steps", 7),
        (m.fedetf(7.0, 9, personal="alternating"), "tuned_cosine_softmax", "scale", 7.0),
        (m.moon(2.0, 0.25, 9), "model_contrastive", "projection", 9),
        (m.perfedavg(0.5), "meta", "alpha", 0.5),
        (m.perfedavg(0.5, 0.25), "fixed", "lr", 0.25),
        (m.fedavgm(nesterov=True), "momentum", "nesterov", True),
    ]
    for method, component, field, want in cases:
        assert value(method, component, field) == want, (component, field)
    assert [len(m.fedgr(a, b).parts) for a, b in ((True, True), (True, False), (False, True))] == [2, 1, 2]
    assert m.fedgrab(analyser=True).parts[1:] == (PriorAnalyser(),)
    assert {c.name for c in m.fedbal(False, False).components} == PLAIN
    assert {c.name for c in m.seolkim(False, False, False).components} == PLAIN


def test_every_method_has_a_source_and_fedrl_alone_needs_rows_at_the_server() -> None:
    made = {name: method() for name, method in METHODS.items()}
    assert all(method.reference for method in made.values())
    needing = {name: max(c.auxiliary for c in method.components) for name, method in made.items()}
    assert {name: rows for name, rows in needing.items() if rows} == {"fedrl": 63}
