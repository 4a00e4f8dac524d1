"""FedETF's own models: by epochs on the scaled cosines, and by turns of the classifier and the projection head."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedskew as fs
from fedskew import methods as m
from fedskew import rng, server
from fedskew.engines.evaluation import personal_model
from fedskew.errors import ConfigError, FieldError
from fedskew.method import Method
from fedskew.method.keeping import Frozen
from fedskew.method.paces import Fixed
from fedskew.methods.fedetf import TunedCosineSoftmax
from fedskew.models import MLP
from fedskew.types import COSINE_SCALE
from support import authors
from support.federations import skewed
from support.replay import PACE, federation, record
from support.runs import go, same

TOLD = authors.CODE["fedetf"]
STILL = Fixed(epochs=1, lr=1e-30, batch_size=0)  # a round that moves no bit


@pytest.mark.parametrize("engine", ["sequential", "threaded", "batched"])
def test_own_models_are_fine_tuned_on_the_scaled_cosines(engine: str, tmp_path: Path) -> None:
    """Of a linear projection, by torch's own SGD from the model of the record: the scale stands still, W moves."""
    fed, method = federation(), replace(m.fedetf(epochs=2).with_("fine_tune", batch_size=4), pace=PACE)
    options = {"model": MLP(hidden=5), "rounds": 2, "cohort": 3, "engine": engine, "keep_own": True}
    served = go(fed, method, out=tmp_path / "run", **options).params
    for k in range(fed.clients):
        own = {n: p.clone().requires_grad_(n != COSINE_SCALE) for n, p in served.items()}
        sgd = torch.optim.SGD([p for p in own.values() if p.requires_grad], lr=0.01)
        x, y = fed.dataset.x[fed.rows(k)].double(), fed.dataset.y[fed.rows(k)]
        for epoch in range(2):
            draws = rng.uniform(rng.key(epoch, "fine_tune"), (len(y),), torch.float64)
            for at in draws.argsort(stable=True).split(4):
                h = torch.relu(x[at] @ own["hidden1.weight"].T + own["hidden1.bias"])
                z = nn.functional.normalize(h @ own["fc.out.weight"].T + own["fc.out.bias"])
                loss = nn.functional.cross_entropy(own[COSINE_SCALE] * z @ own["fc.classifier.weight"].T, y[at])
                sgd.zero_grad()
                loss.backward()
                sgd.step()
        kept = fs.load_model(tmp_path / "run", client=k).params
        for n, p in kept.items():
            assert torch.allclose(p, own[n], rtol=0, atol=1e-9), (k, n)
        assert not torch.equal(kept["fc.classifier.weight"], served["fc.classifier.weight"])


@pytest.mark.parametrize("engine", ["sequential", "threaded", "batched"])
def test_the_clients_models_are_those_of_the_authors_code(engine: str) -> None:
    options = {name: TOLD[name] for name in ("scale", "steps", "lr", "momentum", "weight_decay")}
    method = Method("etf", (TunedCosineSoftmax(**options, projection=3), Frozen()), pace=STILL)
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    replay = record(method, engine, net, authors.federation(None), rounds=1, cohort=4)
    made = replay.engine
    given = [*TOLD["start"], TOLD["classifier"], [0.0, 0.0, 0.0], TOLD["scale"]]
    params = {n: torch.tensor(v, dtype=torch.float64) for n, v in zip(replay.rounds[0].before, given, strict=True)}
    sent = server.broadcast(method, server.State(1, params, {}, {c.name: {} for c in method.components}), None)
    for k, want in enumerate(TOLD["personal"]):
        got, _ = personal_model(made.clients, method, made.runtime.laid_out(sent), made.memory, k)
        assert not got.pop("2.classifier.bias").any()  # below: the steps make 1e-15 of a parameter 2e-10 of client 0's
        np.testing.assert_allclose(torch.cat([p.flatten() for p in got.values()]), want, rtol=0, atol=1e-9)


def test_the_rounds_are_those_of_the_other_fine_tuning() -> None:
    turns, together = (
        go(skewed(), replace(m.fedetf(projection=12, personal=p), pace=Fixed(batch_size=16)), model=MLP(hidden=12))
        for p in ("alternating", "together")
    )
    shared = [n for n in turns.params if "." in n and not n.endswith("softmax.scale")]
    assert same({n: turns.params[n] for n in shared}, {n: together.params[n] for n in shared})
    assert turns.rounds[-1]["loss"] == together.rounds[-1]["loss"]
    assert turns.rounds[-1]["personal_loss"] != together.rounds[-1]["personal_loss"]


def test_no_cycles_and_no_steps_are_the_global_model() -> None:
    method = m.fedetf(projection=12, personal="alternating", steps=0, cycles=0)
    found, other = (
        go(skewed(), replace(x, pace=Fixed(batch_size=16)), model=MLP(hidden=12)).rounds[-1]["personal_loss"]
        for x in (method, m.fedetf(projection=12, epochs=0))
    )
    assert found == other


def test_without_a_projection_there_is_nothing_to_take_turns_with() -> None:
    with pytest.raises(FieldError, match=r"projection must be at least 1; got 0; the turns are those of") as error:
        m.fedetf(projection=0, personal="alternating")
    assert "\n" not in str(error.value)
    closed = MLP(hidden=12, projection=0)
    with pytest.raises(FieldError, match=r"projection must go with a network that has a projection head"):
        go(skewed(), m.fedetf(projection=12, personal="alternating"), model=closed)
    with pytest.raises(ConfigError, match="unknown personal 'turns'; known: alternating, together"):
        m.fedetf(projection=12, personal="turns")  # type: ignore[arg-type]


def test_a_fixed_scale_is_that_of_the_loss() -> None:
    """Whether the scale is learnt or not, the turns take the same number."""
    base = m.fedetf(5.0, 12, steps=0, personal="alternating").with_(pace=STILL)
    runs = [go(skewed(), base.with_("tuned_cosine_softmax", learnt=x), model=MLP(hidden=12)) for x in (True, False)]
    assert runs[0].rounds[-1]["personal_loss"] == pytest.approx(runs[1].rounds[-1]["personal_loss"], abs=1e-12)
