"""Personalised methods against the step rules of their authors' public code, recomputed by `support.published`.

litian96/ditto@26d9b29 (flearn/trainers_MTL/ditto.py), jichan3751/ifca@61e44b8 (mnist/train_cluster_mnist.py),
jhoon-oh/FedBABU@e34c15b (main_fed.py, models/Update.py), lgcollins/FedRep@d82e629 (main_fedrep.py, models/Update.py),
pliang279/LG-FedAvg@7af0568 (main_lg.py), med-air/FedBN@2fa38ad (federated/fed_digits.py), MLOPTPSU/FedTorch@ab8068d
(comms/trainings/federated/apfl.py), which gives when APFL learns; how is equation 10 of the paper. Their code was read,
not run: momentum and weight decay are 0 here, and every step takes all rows of a client.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedskew as fs
from fedskew import methods as m
from fedskew.client import KEPT
from fedskew.data.federation import Federation
from fedskew.method import Method
from fedskew.method.paces import Fixed
from fedskew.method.weightings import Uniform
from fedskew.records.files import load_tree
from support.listed import listed
from support.nets import plain_module
from support.paths import TESTS
from support.published import World, apfl, ditto, ifca, shared_and_kept
from support.runs import go

PROBLEM: dict[str, Any] = json.loads((TESTS / "golden/authors_code.json").read_text(encoding="utf-8"))["problem"]
ENGINES = ("sequential", "threaded", "batched")
EPOCHS = 3


def federation() -> Federation:
    x, y = (np.concatenate([np.array(rows) for rows in PROBLEM[name]]) for name in "xy")
    owner = np.repeat(np.arange(len(PROBLEM["y"])), [len(rows) for rows in PROBLEM["y"]])
    data = fs.data.from_arrays(x, y, x[:4], y[:4], classes=3, columns={"client": owner})
    return fs.federate(data, "natural")


def network(norm: bool) -> nn.Module:
    layers = [nn.BatchNorm1d(5)] if norm else []
    return plain_module(lambda: nn.Sequential(nn.Linear(4, 5), *layers, nn.ReLU(), nn.Linear(5, 3)))


def world(net: nn.Module) -> World:
    fed = federation()
    rows = [(fed.dataset.x[fed.rows(k)].double(), fed.dataset.y[fed.rows(k)]) for k in range(fed.clients)]
    return World(deepcopy(net).double(), rows, PROBLEM["cohorts"], EPOCHS, PROBLEM["lr"], PROBLEM["decay"])


def is_head(name: str) -> bool:
    return name.startswith("2.")


def ran(method: Method, net: nn.Module, engine: str, folder: Path) -> tuple[list[fs.Result], dict[int, Any]]:
    """A run of each length, and what the clients keep after the last."""
    pace = Fixed(epochs=EPOCHS, lr=PROBLEM["lr"], decay=PROBLEM["decay"], batch_size=0)
    method = replace(method, pace=pace, selector=listed(PROBLEM["cohorts"]))
    rounds = range(1, len(PROBLEM["cohorts"]) + 1)
    options: dict[str, Any] = {"model": net, "cohort": 4, "engine": engine}
    results = [go(federation(), method, rounds=r, out=folder / str(r), **options) for r in rounds]
    content, _ = load_tree(folder / str(rounds[-1]) / "checkpoint" / "state.safetensors")
    return results, {int(k): memory for k, memory in content["memory"].items()}


def close(found: Any, want: Any, names: Any, atol: float = 1e-12) -> None:
    for n in names:
        np.testing.assert_allclose(found[n].numpy(), want[n].numpy(), rtol=0, atol=atol, err_msg=n)


SPLIT = {
    "fedbabu": (m.fedbabu(), is_head, lambda n, epoch: not is_head(n), False),
    "lgfedavg": (m.lgfedavg(), lambda n: not is_head(n), lambda n, epoch: True, False),
    "fedrep": (m.fedrep(2, 1), is_head, lambda n, epoch: is_head(n) is (epoch < 2), True),
    "fedrep of a short run": (m.fedrep(10, 1), is_head, lambda n, epoch: is_head(n) is (epoch < 2), True),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", SPLIT)
def test_what_is_shared_and_what_stays(name: str, engine: str, tmp_path: Path) -> None:
    method, stays, moving, by_size = SPLIT[name]
    method = method if by_size else replace(method, weighting=Uniform())
    net = network(norm=False)
    theirs = world(net)
    history = shared_and_kept(theirs, stays, moving, by_size)
    results, memory = ran(method, net, engine, tmp_path)
    for result, want in zip(results, history, strict=True):
        close(result.state.params, want, [n for n in want if not stays(n)])
    for k, kept in theirs.kept.items():
        if name != "fedbabu":  # whose head does not move
            close(memory[k][KEPT]["params"], kept, [n for n in kept if stays(n)])


@pytest.mark.parametrize("engine", ENGINES)
def test_fedbn(engine: str, tmp_path: Path) -> None:
    net = network(norm=True)
    theirs, norm = world(net), lambda n: n.startswith("1.")
    history = shared_and_kept(theirs, norm, lambda n, epoch: True)
    results, memory = ran(replace(m.fedbn(), weighting=Uniform()), net, engine, tmp_path)
    for result, want in zip(results, history, strict=True):
        close(result.state.params, want, [n for n in result.state.params if not norm(n)])
    for k, kept in theirs.kept.items():
        close(memory[k][KEPT]["params"], kept, memory[k][KEPT]["params"])
        close(memory[k][KEPT]["buffers"], kept, memory[k][KEPT]["buffers"], atol=1e-8)  # 0.1 of float32


@pytest.mark.parametrize("engine", ENGINES)
def test_ditto(engine: str, tmp_path: Path) -> None:
    net = network(norm=False)
    theirs = world(net)
    history = ditto(theirs, 0.3)
    results, memory = ran(replace(m.ditto(0.3), weighting=Uniform()), net, engine, tmp_path)
    for result, want in zip(results, history, strict=True):
        close(result.state.params, want, want)
    for k, v in theirs.kept.items():
        close(memory[k]["tethered"]["own"], v, v)


@pytest.mark.parametrize("engine", ENGINES)
def test_apfl(engine: str, tmp_path: Path) -> None:
    net = network(norm=False)
    theirs = world(net)
    history = apfl(theirs, 0.6)
    results, memory = ran(replace(m.apfl(0.6), weighting=Uniform()), net, engine, tmp_path)
    for result, want in zip(results, history, strict=True):
        close(result.state.params, want, want)
    for k, (v, alpha) in theirs.kept.items():
        close(memory[k]["mixed"]["own"], v, v)
        assert float(memory[k]["mixed"]["alpha"]) == pytest.approx(alpha, abs=1e-12)
    assert {alpha for _, alpha in theirs.kept.values()} != {0.6}


@pytest.mark.parametrize("engine", ENGINES)
def test_ifca(engine: str, tmp_path: Path) -> None:
    net = network(norm=False)
    theirs = world(net)
    begun: Any = m.ifca(2).parts[-1].init_server(theirs.start(), None, None)["models"]  # type: ignore[arg-type]
    history = ifca(theirs, [{n: w[j] for n, w in begun.items()} for j in range(2)])
    results, _ = ran(m.ifca(2), net, engine, tmp_path)
    for result, want in zip(results, history, strict=True):
        for j, model in enumerate(want):
            found = result.state.parts["cluster_identity"]["models"]
            close({n: w[j] for n, w in found.items()}, model, model)
    assert not torch.equal(history[-1][0]["0.weight"], history[-1][1]["0.weight"])
