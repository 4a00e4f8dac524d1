"""Rounds of personalised methods against numbers that their authors' public code gave.

`tests/golden/authors_code.json` holds the problem, the numbers and how they were had. No line of that code is here.
Averages are uniform, as in all seven; here the default is by size, and the preset `authors` is uniform.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor, nn

from fedskew import methods as m
from fedskew import server
from fedskew.client import PRIVATE
from fedskew.engines.evaluation import personal_model
from fedskew.method import Method
from fedskew.method.steps import SGD
from fedskew.method.weightings import Uniform
from support.authors import CODE, ENGINES, close, filled, ran
from support.nets import plain_module
from support.replay import Replay

TOLD: dict[str, Any] = CODE["personal"]
COHORTS: list[list[int]] = TOLD["cohorts"]
EVERYBODY = [[0, 1, 2, 3]] * len(COHORTS)


def network(*between: nn.Module, start: Sequence[Any] = TOLD["start"]) -> nn.Module:
    return filled(plain_module(lambda: nn.Sequential(nn.Linear(4, 4), *between, nn.ReLU(), nn.Linear(4, 3))), start)


def trained(
    method: Method, engine: str, net: nn.Module, cohorts: list[list[int]] = COHORTS, **step: float
) -> tuple[Replay, Method]:
    """Under the uniform average, with these fields of SGD."""
    method = replace(method, weighting=Uniform(), local=SGD(**step) if step else method.local)
    replay = ran(method, engine, net, cohorts, epochs=TOLD["epochs"], lr=TOLD["lr"])
    return replay, replay.method


def averages(replay: Replay, told: dict[str, Any], *names: str) -> None:
    for done, want in zip(replay.rounds, told["rounds"], strict=True):
        close(done.after, want, names)


def personal(replay: Replay, method: Method, k: int) -> dict[str, Tensor]:
    """The client's own model, as it is evaluated."""
    made = replay.engine
    sent = server.broadcast(method, replay.result.state, None)
    return personal_model(made.clients, method, made.runtime.laid_out(sent), made.memory, k)[0]


@ENGINES
def test_ditto(engine: str) -> None:
    """The model of their TensorFlow 1 was replaced by one of torch; the rounds are theirs."""
    told = TOLD["ditto"]
    replay, method = trained(m.ditto(told["lam"]), engine, network())
    averages(replay, told)
    for k, want in enumerate(told["own"]):
        close(personal(replay, method, k), want)


@ENGINES
def test_ifca(engine: str) -> None:
    """The rounds; and the model that each client has after each of them, which it chooses anew."""
    told = TOLD["ifca"]
    for rounds in range(1, len(EVERYBODY) + 1):
        replay, method = trained(m.ifca(2), engine, network(start=told["start"]), EVERYBODY[:rounds])
        models = replay.rounds[-1].parts["cluster_identity"]["models"]
        for j in range(2):
            close(
                {n: w[j] for n, w in replay.rounds[0].common["cluster_identity"]["models"].items()}, told["starts"][j]
            )
            close({n: w[j] for n, w in models.items()}, told["rounds"][rounds - 1][j])
        for k, j in enumerate(told["chosen"][rounds]):
            close(personal(replay, method, k), told["rounds"][rounds - 1][j])
    assert told["chosen"][-1] != told["chosen"][-2], "a client chooses another model than it trained"


@ENGINES
def test_fedbabu(engine: str) -> None:
    told, tuned = TOLD["fedbabu"], TOLD["fedbabu"]["tuned"]
    replay, method = trained(
        m.fedbabu(), engine, network(), momentum=told["momentum"], weight_decay=told["weight_decay"]
    )
    averages(replay, told)
    for part in ("all", "head"):
        options = {"lr": tuned["lr"], "momentum": tuned["momentum"], "tuned": part}
        for k, want in enumerate(tuned[part]):
            close(personal(replay, method.with_("fine_tune", **options), k), want)


@ENGINES
@pytest.mark.parametrize("tau", [2, 10])
def test_fedrep(tau: int, engine: str) -> None:
    """Without their weight decay; of fewer epochs than tau, the last is the body's."""
    told = TOLD["fedrep"]
    replay, method = trained(m.fedrep(tau), engine, network(), EVERYBODY, momentum=told["momentum"])
    averages(replay, told, "0.")
    for k, want in enumerate(told["own"]):
        close(replay.memory(k, PRIVATE)["params"], want)
    last = method.with_("alternating", last=10, last_lr=TOLD["lr"])
    for k, want in enumerate(told["last"]):
        close(personal(replay, last, k), want)


@ENGINES
def test_lgfedavg(engine: str) -> None:
    told = TOLD["lgfedavg"]
    replay, method = trained(m.lgfedavg(), engine, network(), momentum=told["momentum"])
    averages(replay, told, "2.")
    for k, want in enumerate(told["own"]):
        close(personal(replay, method, k), want, ("0.",))


@ENGINES
def test_fedbn(engine: str) -> None:
    told = TOLD["fedbn"]
    replay, _ = trained(m.fedbn(), engine, network(nn.BatchNorm1d(4)), EVERYBODY)
    averages(replay, told, "0.", "3.")
    for k, want in enumerate(told["own"]):
        kept = replay.memory(k, PRIVATE)
        statistics = {n: v for n, v in kept["buffers"].items() if "running" in n}
        close({**kept["params"], **statistics}, want, atol=5e-8)  # the momentum of 0.1 is a float32 here


@ENGINES
@pytest.mark.parametrize("form", ["fixed", "learnt"])
def test_apfl(form: str, engine: str) -> None:
    """The shared model is the authors'. Their order of its step and the client's own is not (notes/cards.md)."""
    told = TOLD["apfl"]
    net = filled(nn.Sequential(nn.Linear(4, 3)), (CODE["problem"][name] for name in ("weight", "bias")))
    replay, _ = trained(m.apfl(told["alpha"], form == "learnt"), engine, net)
    averages(replay, told[form])
