"""Networks that are written out: which are, and that they give what the tape gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import fedskew as fs
from fedskew.engines import written
from fedskew.engines.dense import Dense
from fedskew.method.paces import Fixed
from fedskew.method.steps import SGD
from fedskew.models.prepare import prepare
from support.federations import UNEVEN, blobs
from support.nets import DENSE, norm_net, plain_module
from support.runs import gap, go


@pytest.fixture
def descents(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Widths of the stacks that were written out."""
    widths: list[int] = []

    def noted(*args: Any) -> Any:
        widths.append(args[3].at.shape[1])
        return written.descend(*args)

    monkeypatch.setattr("fedskew.engines.batched.descend", noted)
    return widths


@pytest.mark.parametrize(("net", "decay"), [("logistic", 0.0), *((net, 0.1) for net in DENSE)])
def test_written_steps_agree_with_the_reference(net: str, decay: float, descents: list[int]) -> None:
    pace = Fixed(epochs=3, batch_size=4, lr=0.3, decay=0.9)
    method = replace(fs.methods.fedavg(), pace=pace, local=SGD(weight_decay=decay))
    model = plain_module(DENSE[net])
    runs = [
        go(blobs(UNEVEN), method, model=model, engine=engine, cohort=n, threads=2, rounds=3)
        for n in (8, 1)
        for engine in ("sequential", "batched")
    ]
    assert gap(runs[0].params, runs[1].params) <= 1e-10 and gap(runs[2].params, runs[3].params) <= 1e-10
    assert sum(descents) == 3 * 8 + 3
    for one, two in zip(runs[0].rounds, runs[1].rounds, strict=True):
        assert one["train_loss"] == pytest.approx(two["train_loss"], abs=1e-10)


class Branches(nn.Module):
    """Not a chain of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.fc = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.fc(x + self.a(x))
        return out


def tied() -> nn.Module:
    one = nn.Linear(5, 5)
    return nn.Sequential(one, nn.ReLU(), one, nn.Linear(5, 3))


def hooked() -> nn.Module:
    net = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 3))
    net[0].register_forward_hook(lambda module, args, out: out * 2)
    return net


class Doubled(nn.Linear):
    """A layer of a user's own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


def test_only_chains_of_known_layers_are_written_out() -> None:
    for build in DENSE.values():
        assert Dense.of(prepare(build(), None, (5,), 3)) is not None
    frozen = DENSE["activations"]()
    frozen[2].weight.requires_grad_(False)  # type: ignore[index,union-attr]
    others = [
        Branches(), tied(), hooked(), frozen, nn.Sequential(Doubled(5, 5), nn.Linear(5, 3)), norm_net(3, 5),
        nn.Sequential(nn.Linear(5, 3), nn.Tanh()), nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.1), nn.Linear(4, 3)),
        nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 3)),
        nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)),
    ]  # fmt: skip
    for net in others:
        assert Dense.of(prepare(net, None, (5,), 3)) is None, net
    assert Dense.of(prepare(nn.Linear(5, 3), None, (5,), 3, narrow=torch.bfloat16)) is None
    assert Dense.of(prepare(nn.Linear(5, 3), None, (5,), 3).to(torch.bfloat16)) is None
