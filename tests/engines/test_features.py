"""Where only the head is trained, rows are features: the numbers are those of the whole network."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fedskew as fs
from fedskew.engines import base
from fedskew.engines.network import head_alone
from fedskew.models.prepare import prepare
from support.methods import cases


class Probe(nn.Module):
    def __init__(self, dropout: float = 0.0, scale: float = 1.0, moved: bool = False) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(1)
        self.body = nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Dropout(dropout),
            nn.Linear(384, 20), nn.Tanh(),
        )  # fmt: skip
        self.top = nn.ModuleDict({"fc": nn.Linear(20, 10)})
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=draw) / max(p[0].numel(), 1) ** 0.5)
        self.body.requires_grad_(False).eval()
        if moved:
            self.body[5].weight.requires_grad_()
        self.scale = scale

    def forward(self, x: Any) -> Any:
        return self.scale * self.top["fc"](self.body(x))


@cache
def fed(**options: Any) -> fs.data.Federation:
    return fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.3), clients=6, seed=0, **options)


def go(method: str = "fedavg", engine: str = "sequential", **options: Any) -> fs.Result:
    given = {"rounds": 3, "cohort": 4, "threads": 1, "fit_logits": "none"} | options
    return fs.run(fed(), fs.methods.METHODS[method](), model=Probe(), head="top.fc", engine=engine, **given)


QUICK = {("sequential", "moon"), ("sequential", "fedper"), ("batched", "fedlc"), ("batched", "scaffold")}


ENGINES, METHODS = ("sequential", "batched", "threaded", "debug"), ("fedavg", "fedlc", "scaffold", "moon", "fedper")


@pytest.mark.parametrize(("engine", "method"), cases(QUICK, ENGINES, METHODS))
def test_a_probe_is_the_run_of_the_whole_network(
    engine: str, method: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = go(method, engine, out=tmp_path / "kept")
    monkeypatch.setattr(base, "head_alone", lambda *_: None)
    whole = go(method, "sequential")
    assert kept.params.keys() == whole.params.keys()
    assert all(torch.allclose(kept.params[n], whole.params[n], atol=1e-6) for n in whole.params)
    assert kept.client_rows and kept.rounds[0]["train_loss"] != kept.rounds[-1]["train_loss"]
    for mine, other in zip(kept.client_rows, whole.client_rows, strict=True):
        assert abs(mine["loss"] - other["loss"]) < 1e-4
    for a, b in zip(kept.rounds, whole.rounds, strict=True):
        assert a["upload_bytes"] == b["upload_bytes"] and abs(a["accuracy"] - b["accuracy"]) < 0.01
    x = fed().dataset.x_test
    assert torch.allclose(kept.probabilities(x), whole.probabilities(x), atol=1e-6)
    again = fs.load_model(tmp_path / "kept", model=Probe())
    assert torch.equal(again.probabilities(x), kept.probabilities(x))
    twice = Probe()
    twice.body[0].weight.data.mul_(2)
    with pytest.raises(fs.ConfigError, match="frozen weights that the run had"):
        fs.load_model(tmp_path / "kept", model=twice)


def test_the_body_sees_each_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    forward = nn.Tanh.forward
    monkeypatch.setattr(nn.Tanh, "forward", lambda self, x: seen.append(len(x)) or forward(self, x))
    go(rounds=5)
    rows = len(fed().dataset.y) + len(fed().dataset.y_test)
    assert rows <= sum(seen) < rows + 100  # and some rows by which a network is tried


@pytest.mark.parametrize("options", [{"dropout": 0.5}, {"scale": 2.0}, {"moved": True}])
def test_other_networks_are_trained_whole(options: dict[str, Any]) -> None:
    model = prepare(Probe(**options), "top.fc", (1, 8, 8), 10)
    assert head_alone(model) is None
    plain = prepare(Probe(), "top.fc", (1, 8, 8), 10)
    assert head_alone(plain) is not None and head_alone(plain, augmented=True) is None
