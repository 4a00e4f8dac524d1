"""IFCA: whole rounds by the oracle, given the models that the clusters start from; and clusters that are found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import fedskew as fs
from fedskew.method.steps import SGD
from fedskew.method.weightings import Size
from fedskew.methods.ifca import ClusterIdentity
from support.replay import PACE, agree, numpy, record


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
