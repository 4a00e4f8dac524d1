"""Rounds of personalised methods against numbers that their authors' public code gave.

`tests/golden/authors_code.json` holds the problem, the numbers and how they were had. No line of that code is here.
Averages are uniform, as in all seven; here the default is by size, and the preset `authors` is uniform.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedskew import methods as m
from fedskew import server
from fedskew.client import KEPT
from fedskew.engines.evaluation import personal_model
from fedskew.method import Method
from fedskew.method.paces import Fixed
from fedskew.method.steps import SGD
from fedskew.method.weightings import Uniform
from support.authors import CODE, federation
from support.listed import listed
from support.nets import plain_module
from support.replay import Replay, record

TOLD: dict[str, Any] = CODE["personal"]
COHORTS: list[list[int]] = TOLD["cohorts"]
EVERYBODY = [[0, 1, 2, 3]] * len(COHORTS)
engines = pytest.mark.parametrize("engine", ["sequential", "threaded", "batched"])


def network(*between: nn.Module, start: Sequence[Any] = TOLD["start"]) -> nn.Module:
    net = plain_module(lambda: nn.Sequential(nn.Linear(4, 4), *between, nn.ReLU(), nn.Linear(4, 3)))
    linear = [p for layer in net if isinstance(layer, nn.Linear) for p in (layer.weight, layer.bias)]
    with torch.no_grad():
        for p, value in zip(linear, start, strict=True):
            p.copy_(torch.tensor(value))
    return net


def ran(
    method: Method, engine: str, net: nn.Module, cohorts: list[list[int]] = COHORTS, **step: float
) -> tuple[Replay, Method]:
    pace = Fixed(epochs=TOLD["epochs"], lr=TOLD["lr"], batch_size=0)
    method = replace(method, pace=pace, weighting=Uniform(), selector=listed(cohorts))
    method = replace(method, local=SGD(**step)) if step else method
    return record(method, engine, net, federation(), rounds=len(cohorts), cohort=len(cohorts[0])), method


def close(found: dict[str, Any], want: Sequence[float], names: Sequence[str] = (), atol: float = 2e-11) -> None:
    """Values of the parameters whose names begin so, one after the other."""
    named = [np.ravel(v) for n, v in found.items() if not names or n.startswith(tuple(names))]
    np.testing.assert_allclose(np.concatenate(named), want, rtol=0, atol=atol)


def averages(replay: Replay, told: dict[str, Any], *names: str) -> None:
    for done, want in zip(replay.rounds, told["rounds"], strict=True):
        close(done.after, want, names)


def personal(replay: Replay, method: Method, k: int) -> dict[str, Tensor]:
    """The client's own model, as it is evaluated."""
    made = replay.engine
    sent = server.broadcast(method, replay.result.state, None)
    return personal_model(made.clients, method, made.runtime.laid_out(sent), made.memory, k)[0]


@engines
def test_ditto(engine: str) -> None:
    """The model of their TensorFlow 1 was replaced by one of torch; the rounds are theirs."""
    told = TOLD["ditto"]
    replay, method = ran(m.ditto(told["lam"]), engine, network())
    averages(replay, told)
    for k, want in enumerate(told["own"]):
        close(personal(replay, method, k), want)


@engines
def test_ifca(engine: str) -> None:
    """The rounds; and the model that each client has after each of them, which it chooses anew."""
    told = TOLD["ifca"]
    for rounds in range(1, len(EVERYBODY) + 1):
        replay, method = ran(m.ifca(2), engine, network(start=told["start"]), EVERYBODY[:rounds])
        models = replay.rounds[-1].parts["cluster_identity"]["models"]
        for j in range(2):
            close(
                {n: w[j] for n, w in replay.rounds[0].common["cluster_identity"]["models"].items()}, told["starts"][j]
            )
            close({n: w[j] for n, w in models.items()}, told["rounds"][rounds - 1][j])
        for k, j in enumerate(told["chosen"][rounds]):
            close(personal(replay, method, k), told["rounds"][rounds - 1][j])
    assert told["chosen"][-1] != told["chosen"][-2], "a client chooses another model than it trained"


@engines
def test_fedbabu(engine: str) -> None:
    told, tuned = TOLD["fedbabu"], TOLD["fedbabu"]["tuned"]
    replay, method = ran(m.fedbabu(), engine, network(), momentum=told["momentum"], weight_decay=told["weight_decay"])
    averages(replay, told)
    for part in ("all", "head"):
        options = {"lr": tuned["lr"], "momentum": tuned["momentum"], "tuned": part}
        for k, want in enumerate(tuned[part]):
            close(personal(replay, method.with_("fine_tune", **options), k), want)


@engines
@pytest.mark.parametrize("tau", [2, 10])
def test_fedrep(tau: int, engine: str) -> None:
    """Without their weight decay; of fewer epochs than tau, the last is the body's."""
    told = TOLD["fedrep"]
    replay, method = ran(m.fedrep(tau), engine, network(), EVERYBODY, momentum=told["momentum"])
    averages(replay, told, "0.")
    for k, want in enumerate(told["own"]):
        close(replay.memory(k, KEPT)["params"], want)
    last = method.with_("alternating", last=10, last_lr=TOLD["lr"])
    for k, want in enumerate(told["last"]):
        close(personal(replay, last, k), want)


@engines
def test_lgfedavg(engine: str) -> None:
    told = TOLD["lgfedavg"]
    replay, method = ran(m.lgfedavg(), engine, network(), momentum=told["momentum"])
    averages(replay, told, "2.")
    for k, want in enumerate(told["own"]):
        close(personal(replay, method, k), want, ("0.",))


@engines
def test_fedbn(engine: str) -> None:
    told = TOLD["fedbn"]
    replay, _ = ran(m.fedbn(), engine, network(nn.BatchNorm1d(4)), EVERYBODY)
    averages(replay, told, "0.", "3.")
    for k, want in enumerate(told["own"]):
        kept = replay.memory(k, KEPT)
        statistics = {n: v for n, v in kept["buffers"].items() if "running" in n}
        close({**kept["params"], **statistics}, want, atol=5e-8)  # the momentum of 0.1 is a float32 here


@engines
@pytest.mark.parametrize("form", ["fixed", "learnt"])
def test_apfl(form: str, engine: str) -> None:
    """The shared model is the authors'. Their order of its step and the client's own is not (notes/cards.md)."""
    told = TOLD["apfl"]
    net = nn.Sequential(nn.Linear(4, 3))
    with torch.no_grad():
        for p, name in zip(net.parameters(), ("weight", "bias"), strict=True):
            p.copy_(torch.tensor(CODE["problem"][name]))
    replay, _ = ran(m.apfl(told["alpha"], form == "learnt"), engine, net)
    averages(replay, told[form])
