"""Awkward networks of users: trained right by every engine that takes them, or refused with the layer's name."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fedskew as fs
from fedskew.method import Method
from fedskew.method.paces import Fixed
from fedskew.records import folder as records
from support.attack import FULL, Line, some
from support.awkward import REFUSED, TRAINED, UNSTACKED, built
from support.federations import RAGGED, blobs
from support.methods import WHOLE
from support.runs import gap, same
from support.runs import measured as go

PACE = Fixed(epochs=2, lr=0.1, batch_size=8)
ENGINES = ("sequential", "threaded", "batched", "auto", "debug") if FULL else ("batched",)


def fedavg(name: str = "fedavg") -> Method:
    return replace(fs.methods.METHODS[name](), pace=PACE)


def trained(make: Any, engine: str, name: str = "fedavg", **options: Any) -> fs.Result:
    return go(blobs(RAGGED), fedavg(name), model=built(make), engine=engine, threads=2, rounds=2, **options)


def by_torch(make: Any, rows: list[list[int]]) -> dict[str, torch.Tensor]:
    """Parameters after one round of FedAvg by plain torch: one step of gradient descent on all rows of each client."""
    fed = blobs(rows)
    x, y = fed.dataset.x.double(), fed.dataset.y
    start, sizes, models = built(make).double(), [], []
    before = {n: p.detach().clone() for n, p in start.named_parameters()}
    for k in range(fed.clients):
        net = built(make).double().train()
        at = torch.from_numpy(fed.rows(k))
        loss = nn.functional.cross_entropy(net(x[at]), y[at])
        named = {n: p for n, p in net.named_parameters() if p.requires_grad}
        grads = torch.autograd.grad(loss, list(named.values()))
        models.append({n: p.detach() - WHOLE.lr * g for (n, p), g in zip(named.items(), grads, strict=True)})
        sizes.append(len(at))
    share = torch.tensor(sizes).double() / sum(sizes)
    return {n: sum(s * m[n] for s, m in zip(share, models, strict=True)) for n in before if n in models[0]}  # type: ignore[misc]


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # operators without a batching rule
def test_awkward_networks_are_trained_by_every_engine() -> None:
    with Line("networks of users", "same result by every engine") as line:
        for name, make in TRAINED.items():
            for method in ("fedavg", "scaffold")[: some(1, 2)]:
                plain = trained(make, "sequential", method)
                for engine in ENGINES:
                    other = trained(make, engine, method)
                    far = max(gap(plain.params, other.params), gap(plain.buffers, other.buffers))
                    line.check(far <= 1e-8, f"{name}, {method}, {engine}: {far}")


@pytest.mark.parametrize("kinds", ["trained", "unstacked"])
def test_awkward_networks_are_trained_as_torch_does(kinds: str) -> None:
    """One step on all rows of each client, in float64, beside plain torch."""
    makes = TRAINED if kinds == "trained" else {name: make for name, (make, _) in UNSTACKED.items()}
    with Line("networks of users", "same result as plain torch") as line:
        for name, make in makes.items():
            if name in ("dropout", "order of the rows"):  # masks and order are fedskew's own
                continue
            result = go(blobs(RAGGED), replace(fedavg(), pace=WHOLE), model=built(make), rounds=1, cohort=4)
            want = by_torch(make, RAGGED)
            far = max(float((result.params[n] - want[n]).abs().max()) for n in result.params)
            line.check(far <= 1e-9, f"{name}: {far}")


def test_networks_that_cannot_be_stacked_are_trained_without_padding(tmp_path: Path) -> None:
    with Line("networks of users", "without padding, or refused by batched") as line:
        for number, (name, (make, phrase)) in enumerate(UNSTACKED.items()):
            plain, auto = (trained(make, e, out=tmp_path / f"{number}{e}") for e in ("sequential", "auto"))
            config = records.read(tmp_path / f"{number}auto")[0]
            reason = config["engine_used"] == "threaded" and config["engine_reason"]
            line.check(same(plain.params, auto.params) and bool(reason), f"{name}: auto took {config['engine_used']}")
            line.refused(name, partial(trained, make, "batched"), phrase, kind=fs.ConfigError)


def test_auto_says_which_layer_mixes_rows(tmp_path: Path) -> None:
    make, phrase = UNSTACKED["rows mixed in the forward"]  # of layers that auto would stack
    trained(make, "auto", out=tmp_path / "a")
    assert phrase in records.read(tmp_path / "a")[0]["engine_reason"]


def test_impure_networks_are_refused_with_the_layers_name() -> None:
    with Line("networks of users", "refused with the layer's name") as line:
        for name, (make, phrase) in REFUSED.items():
            for engine in ("auto", "sequential", "batched")[: some(1, 3)]:
                line.refused(name, partial(trained, make, engine, dtype="float32"), phrase, kind=fs.ConfigError)


def test_a_stored_output_is_gone_after_the_call() -> None:
    net = built(TRAINED["stored outputs"])
    result = go(blobs(RAGGED), fedavg(), model=net, engine="sequential", cohort=1)
    held: Any = result.trained.model.module.get_submodule("mid")
    assert "last" not in vars(held) and result.trained.model.clone() is not None
