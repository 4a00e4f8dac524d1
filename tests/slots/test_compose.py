"""Random compositions of parts and slots: each trains, records and resumes, or is refused before it starts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedskew as fs
from fedskew import rng
from fedskew.config.tables import TABLES, make
from fedskew.method import Method
from support.federations import skewed
from support.resuming import stop_after
from support.runs import rows_of

SMALL: dict[str, dict[str, Any]] = {  # fields that make an ingredient quick, or fit the tiny federation
    "federated_features": {"features_per_class": 3, "match_steps": 2, "head_epochs": 3, "draws": 2, "rows": 4},
    "virtual_representations": {"samples": 4},
    "model_contrastive": {"projection": 4},
    "tuned_cosine_softmax": {"projection": 4, "cycles": 2},
    "moreau": {"inner_steps": 2},
    "power_of_choice": {"candidates": 5},
    "dynamic": {"beta": 3, "epochs": 2},
    **{name: {"batch_size": 16} for name in ("cosine", "drops", "fixed", "part", "steps")},
    "virtual_client": {"size": 20},
    "dynamic_sam": {"clip": 5.0},
    "lesam": {"clip": 5.0},
    "sam": {"clip": 5.0},
    "uploaded_dynamic_regulariser": {"alpha": 0.01},
    "sgd": {"momentum": 0.5, "clip": 5.0},
    "adam": {"lr": 0.01},
    "yogi": {"lr": 0.01},
}
ADAPTED = ("alternate_adapters", "average_products")  # they want a network with adapters
RULES = {  # what a refusal says: at most sixteen, each declared in notes/decisions.md
    "pass a model from client to client": "chains with memory on clients, uploads, or a step across clients",
    "be 0 if fednova is used with a proximal part": "FedNova with momentum and a proximal part",
    "equal the regulariser's alpha": "FedDyn's client half without its server half",
    "dynamic_regulariser beside the server": "FedDyn's server half without its client half",
    "it needs one alpha for all clients": "FedDyn with an alpha of each client beside a reach of local runs",
    "at least 1 row a class": "the ratio loss without rows at the server",
    "at most one classification loss": "two classification losses",
    "more than 4096 features": "BalanceFL's covariance of a wide head",
    "be at least the cohort": "fewer candidates than the cohort",
    "not keep parameters on clients beside": "private parameters where every parameter must be averaged",
    "not take a client twice in a round beside": "draws with replacement where a client must count once",
    "not hold parameters still beside": "frozen parameters beside a model of the client's own",
    "hold gradient_balancer beside prior_analyser": "a prior analyser without a controller to tell",
    "go with a network that has adapters": "averages of adapters for a network without",
    "features before the classifier, for": "an initial head of more classes than features",
    "give mini-batches of one size beside": "Poisson batches for steps that read several mini-batches",
}


def pick(draw: np.random.Generator, names: list[str]) -> str:
    return names[int(draw.integers(len(names)))]


def ingredient(slot: str, name: str) -> Any:
    return make(slot, {"name": name, **SMALL.get(name, {})})


def composition(number: int, seed: int) -> Method:
    """One of each slot, a classification loss, and up to two more parts; drawn from the tables."""
    draw = rng.generator(rng.key(seed, "composition", number))
    names = ("sampler", "selector", "pace", "server", "local")
    slots = {s: ingredient(s, pick(draw, sorted(TABLES[s]))) for s in names}
    weighting = ingredient("weighting", pick(draw, sorted(TABLES["weighting"])))
    if hasattr(weighting, "base"):
        inner = [n for n in sorted(TABLES["weighting"]) if n != weighting.name]
        weighting = replace(weighting, base=ingredient("weighting", pick(draw, inner)))
    losses = [n for n, kind in TABLES["parts"].items() if kind.classification]
    others = [n for n in TABLES["parts"] if n not in losses and n not in ADAPTED]
    chosen = [pick(draw, losses), *draw.permutation(others)[: int(draw.integers(0, 3))].tolist()]
    return Method(f"mix{number}", tuple(ingredient("parts", n) for n in chosen), weighting=weighting, **slots)


def outcome(number: int, seed: int, folder: Path) -> str:
    """ "trained", or the rule that refused; anything else fails."""
    method, fed = composition(number, seed), skewed()
    options: dict[str, Any] = {"model": "logistic", "cohort": 3, "dtype": "float64", "rounds": 3}
    try:
        whole = fs.run(fed, method, **options)
    except fs.ConfigError as error:
        rule = [r for r in RULES if r in str(error)]
        assert rule, f"{method}: {error}"
        return rule[0]
    except fs.TrainingError:
        return "diverged"  # a composition may be senseless: it must say so, and keep its record

    assert fs.run(fed, method, **options, out=folder / "run", on_round=stop_after(2)).stopped
    again = fs.run(fed, method, **options, out=folder / "run", resume=True)
    assert rows_of(again) == rows_of(whole), method
    assert all(torch.equal(again.params[n], whole.params[n]) for n in whole.params), method
    return "trained"


def check(outcomes: Counter[str]) -> None:
    total = sum(outcomes.values())
    assert outcomes["trained"] >= 0.4 * total, outcomes
    assert outcomes["diverged"] <= 0.1 * total, outcomes
    assert len(RULES) <= 16


@pytest.mark.parametrize(
    ("seed", "count"),
    [(0, 12), pytest.param(3, 60, marks=pytest.mark.thorough), pytest.param(1, 500, marks=pytest.mark.slow)],
)
def test_random_compositions(seed: int, count: int, tmp_path: Path) -> None:
    check(Counter(outcome(n, seed, tmp_path / str(n)) for n in range(count)))


def test_engines_agree_on_compositions() -> None:
    """Twenty more, trained by both engines."""
    for number in range(20):
        method, options = composition(number, 2), {"model": "logistic", "cohort": 3, "dtype": "float64", "rounds": 2}
        try:
            a, b = (fs.run(skewed(), method, engine=e, **options) for e in ("sequential", "batched"))
        except fs.FedskewError:
            continue
        gaps = {n: float((a.params[n] - b.params[n]).abs().max()) for n in a.params}
        assert max(gaps.values()) < 1e-8, (method, gaps)


def test_every_rule_refuses_what_it_names() -> None:
    m, f = fs.methods, skewed(auxiliary=0)
    narrow = {"model": "logistic", "cohort": 3, "rounds": 1}
    prox = (fs.parts.Proximal(0.1),)
    cases = {
        "pass a model from client to client": lambda: m.scaffold().with_(selector=fs.selectors.Mediators()),
        "be 0 if fednova is used with a proximal part": lambda: replace(
            m.fednova(), parts=prox, local=fs.steps.SGD(momentum=0.5)
        ),
        "equal the regulariser's alpha": lambda: m.feddyn(0.1).with_(server=fs.servers.Plain()),
        "dynamic_regulariser beside the server": lambda: m.feddyn(0.1).with_(parts=()),
        "it needs one alpha for all clients": lambda: m.feddyn().with_(
            parts=(fs.parts.WeightedRegulariser(),), weighting=fs.weightings.FedNova()
        ),
        "at least 1 row a class": m.fedrl,
        "at most one classification loss": lambda: fs.Method("two", (fs.parts.CrossEntropy(), fs.parts.Focal())),
        "be at least the cohort": lambda: m.powerofchoice(2),
        "not keep parameters on clients beside": lambda: m.fedcm().with_(parts=(*m.fedcm().parts, fs.parts.Private())),
        "not take a client twice in a round beside": lambda: m.scaffold().with_(selector=fs.selectors.Clustered()),
        "not hold parameters still beside": lambda: m.ditto().with_(parts=(fs.parts.Frozen(),)),
        "hold gradient_balancer beside prior_analyser": lambda: m.fedavg().with_(parts=(fs.parts.PriorAnalyser(),)),
        "go with a network that has adapters": lambda: m.fedavg().with_(parts=(fs.parts.AverageProducts(),)),
        "features before the classifier, for": lambda: m.fedetf(projection=4),
        "give mini-batches of one size beside": lambda: m.perfedavg().with_(sampler=fs.samplers.PoissonBatches()),
    }
    for rule, build in cases.items():
        with pytest.raises(fs.ConfigError, match=rule.replace("(", r"\(")):
            fs.run(f, build(), **narrow)  # type: ignore[arg-type]
    wide = fs.from_arrays(np.zeros((40, 5000)) + np.arange(40)[:, None], np.arange(40) % 2)
    with pytest.raises(fs.ConfigError, match="more than 4096 features"):
        fs.run(fs.federate(wide, fs.partitioners.Iid(), clients=4), m.balancefl(), **narrow)  # type: ignore[arg-type]
    assert {*cases, "more than 4096 features"} == set(RULES)
