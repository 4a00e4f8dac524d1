"""IFCA: whole rounds by the oracle, given the models that the clusters start from; and clusters that are found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import fedskew as fs
from fedskew import server
from fedskew.engines.evaluation import personal_model
from fedskew.method.paces import Fixed
from fedskew.method.steps import SGD
from fedskew.method.weightings import Size
from fedskew.methods.ifca import ClusterIdentity
from support.federations import Owners, skewed
from support.methods import spied
from support.replay import PACE, agree, numpy, record
from support.runs import go


@pytest.mark.parametrize("engine", ["sequential", "batched"])
@pytest.mark.parametrize("clusters", [2, 3])
def test_rounds_are_those_of_the_oracle(clusters: int, engine: str) -> None:
    method = replace(fs.methods.ifca(clusters), pace=PACE, local=SGD(momentum=0.5), weighting=Size())
    replay = record(method, engine, "mlp")
    start = replay.rounds[0].common["cluster_identity"]["models"]
    models = [numpy({n: w[j] for n, w in start.items()}) for j in range(clusters)]
    history, state = replay.oracle("ifca", models=models, momentum=0.5, weighting="size")
    for seen, expected in zip(replay.rounds, history, strict=True):
        agree(seen.after, expected, "the mean")
    kept = replay.rounds[-1].parts["cluster_identity"]["models"]
    for j, model in enumerate(state["clusters"]):
        agree(numpy({n: w[j] for n, w in kept.items()}), model, f"model {j}")
    assert {s for chosen in state["chosen"] for s in chosen} == set(range(clusters)), "the case is worth its name"


def test_models_start_apart_with_the_same_entries() -> None:
    params = {"fc.weight": torch.arange(12.0).view(3, 4), "fc.bias": torch.zeros(3)}
    models: Any = ClusterIdentity(3).init_server(params, None, None)["models"]  # type: ignore[arg-type]
    assert torch.equal(models["fc.weight"][0], params["fc.weight"])
    for j in range(3):
        assert models["fc.weight"][j].flatten().sort().values.tolist() == list(range(12))
    assert len({tuple(w.flatten().tolist()) for w in models["fc.weight"]}) == 3


def test_two_labellings_are_told_apart() -> None:
    """Two groups of clients that name the same rows differently: each group settles on a model of its own."""
    draw = np.random.default_rng(0)
    kind, owner = draw.integers(0, 2, 400), np.arange(400) % 8
    x = draw.normal(size=(400, 4)) + 3 * np.eye(2, 4)[kind]
    y = np.where(owner < 4, kind, 1 - kind)
    fed = fs.federate(fs.from_arrays(x, y, x[:40], y[:40]), Owners(tuple(owner)), clients=8)
    pace, loss = Fixed(epochs=3, lr=0.1, batch_size=10), {}
    for clusters in (1, 2):
        method, seen = spied(replace(fs.methods.ifca(clusters), pace=pace))
        result = go(fed, method, model=fs.models.MLP(hidden=8), rounds=6, cohort=8)
        loss[clusters] = result.rounds[-1]["train_loss"]
    chosen = seen[-1].uploads["cluster_identity"]["cluster"].tolist()
    assert chosen in ([0.0] * 4 + [1.0] * 4, [1.0] * 4 + [0.0] * 4)
    assert loss[2] < loss[1] / 2


def test_a_client_has_the_model_that_fits_its_rows_at_evaluation() -> None:
    """Whatever it chose when it last took part, and where it never did; the losses are torch's."""
    fed, method = skewed(), replace(fs.methods.ifca(3), pace=Fixed(batch_size=16))
    replay = record(method, "sequential", "mlp", fed, rounds=2, cohort=2)
    models: Any = replay.result.state.parts["cluster_identity"]["models"]
    clients, memory = replay.engine.clients, replay.engine.memory
    sent, chosen = server.broadcast(method, replay.result.state, None), []
    for k in range(fed.clients):
        rows = clients.batch(fed.rows(k))
        losses = []
        for j in range(3):
            hidden = torch.relu(rows.x.flatten(1) @ models["hidden1.weight"][j].T + models["hidden1.bias"][j])
            logits = hidden @ models["fc.weight"][j].T + models["fc.bias"][j]
            losses.append(float(torch.nn.functional.cross_entropy(logits, rows.y)))
        chosen.append(int(np.argmin(losses)))
        own, _ = personal_model(clients, method, sent, memory, k)
        assert torch.equal(own["fc.weight"], models["fc.weight"][chosen[-1]])
    assert len(set(chosen)) > 1, "the case is worth its name"
