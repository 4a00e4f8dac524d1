"""Adapters under every method of the table, and averages of them that are right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import fedskew as fs
from fedskew.method.adapters import AlternateAdapters, AverageProducts, factors
from fedskew.methods import METHODS
from fedskew.server import close_round, init
from fedskew.types import Cohort, Report, Results, Task, Weights


class Low(nn.Module):
    """A layer with an adapter, under the names of peft."""

    def __init__(self, rank: int = 2) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(3)
        self.base = nn.Linear(64, 9)
        self.lora_A, self.lora_B = nn.ModuleDict(), nn.ModuleDict()
        self.lora_A["default"], self.lora_B["default"] = nn.Linear(64, rank, False), nn.Linear(rank, 9, False)
        self.fc = nn.Linear(9, 10)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=draw) / p.shape[-1] ** 0.5)
        self.base.requires_grad_(False)

    def forward(self, x: Any) -> Any:
        x = x.flatten(1)
        return self.fc(torch.relu(self.base(x) + self.lora_B["default"](self.lora_A["default"](x))))


class Whole(nn.Module):
    """`Low` inside, so that names have a dot in front."""

    def __init__(self, rank: int = 2) -> None:
        super().__init__()
        self.net = Low(rank)

    def forward(self, x: Any) -> Any:
        return self.net(x)


NAMES = ("net.lora_A.default.weight", "net.lora_B.default.weight")


def go(*parts: Any, rounds: int = 3, rank: int = 2, **options: Any) -> fs.Result:
    fed = fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.3), clients=6, seed=0)
    method = fs.methods.fedavg().with_(parts=parts) if parts else fs.methods.fedavg()
    given = {"engine": "sequential", "cohort": 4} | options
    return fs.run(fed, method, model=Whole(rank), rounds=rounds, **given)


def test_one_factor_moves_in_a_round() -> None:
    start = dict(Whole().named_parameters())
    one, two = go(AlternateAdapters(), rounds=1), go(AlternateAdapters(), rounds=2)
    assert torch.equal(one.params[NAMES[0]], start[NAMES[0]]) and not torch.equal(one.params[NAMES[1]], start[NAMES[1]])
    assert torch.equal(two.params[NAMES[1]], one.params[NAMES[1]])
    assert not torch.equal(two.params[NAMES[0]], one.params[NAMES[0]])
    assert not torch.equal(two.params["net.fc.weight"], one.params["net.fc.weight"])


def test_a_frozen_factor_is_not_sent() -> None:
    found, plain = go(fs.parts.Frozen(("*lora_A*",))), go()
    assert torch.equal(found.params[NAMES[0]], dict(Whole().named_parameters())[NAMES[0]])
    missing = 4 * found.params[NAMES[0]].nbytes
    assert found.rounds[0]["upload_bytes"] == plain.rounds[0]["upload_bytes"] - missing


def products(rank: int, clients: int) -> tuple[Any, Any, Any]:
    """The server's half of a round with `AverageProducts`: the state after it, the mean of products, the cut part."""
    draw = torch.Generator().manual_seed(1)
    shapes = {NAMES[0]: (rank, 64), NAMES[1]: (9, rank), "net.fc.weight": (10, 9)}
    before = {n: torch.randn(s, generator=draw, dtype=torch.float64) for n, s in shapes.items()}
    deltas = {n: torch.randn((clients, *s), generator=draw, dtype=torch.float64) for n, s in shapes.items()}
    weights = torch.tensor([0.5, 0.2, 0.3][:clients], dtype=torch.float64)
    weights = weights / weights.sum()
    method = fs.methods.fedavg().with_(parts=(AverageProducts(),))
    fed, task = fs.federate("digits", "iid", clients=clients), Task("net.fc", 10, 9, clients, 1)
    zero, counts = torch.zeros(clients), torch.ones(clients, 10)
    ids = torch.arange(clients)
    cohort = Cohort(
        task, ids, counts, counts, counts, Report(zero, zero, zero, zero, zero), before, 1, ids[:, None], {},
        deltas=deltas, weights=Weights(weights, weights),
    )  # fmt: skip
    state = init(method, before, {}, fed, task)
    after, _, _ = close_round(method, state, Results(cohort, None, {}), 0)
    a, b = ((before[n] + deltas[n]) for n in NAMES)
    mean = (weights[:, None, None] * (b @ a)).sum(0)
    fc = before["net.fc.weight"] + (weights[:, None, None] * deltas["net.fc.weight"]).sum(0)
    assert torch.allclose(after.params["net.fc.weight"], fc)
    assert torch.allclose(after.params[NAMES[0]].norm(), before[NAMES[0]].norm())
    return after, mean, after.parts["average_products"]["cut"]


@pytest.mark.parametrize(("rank", "clients"), [(2, 1), (2, 3), (9, 3)])
def test_the_mean_of_products_is_kept_up_to_its_rank(rank: int, clients: int) -> None:
    after, mean, cut = products(rank, clients)
    found = after.params[NAMES[1]] @ after.params[NAMES[0]]
    singular = torch.linalg.svdvals(mean)
    assert torch.allclose(torch.linalg.norm(found - mean), singular[rank:].norm(), atol=1e-9)
    assert abs(float(cut) - float(singular[rank:].norm() / singular.norm())) < 1e-9
    assert (float(cut) < 1e-9) == (rank == 9 or clients == 1)


def test_it_is_recorded_and_engines_agree() -> None:
    found = go(AverageProducts())
    cut = [row["components"]["average_products"]["cut"] for row in found.rounds]
    assert all(0 < one < 0.7 for one in cut)
    other = go(AverageProducts(), engine="threaded")
    assert all(torch.equal(found.params[n], other.params[n]) for n in found.params)
    assert factors(found.params) == [NAMES]


REFUSED = {("fedcurv", "bert"): "no: vmap"}  # its Fisher matrix; the masks of text models read values


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of FedCurv: attention has no batching rule
@pytest.mark.parametrize("family", ["bert", "vit"])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_adapters(name: str, family: str) -> None:
    pytest.importorskip("peft")
    from support.adapters import tried

    row = tried(name, family)
    assert row.error == REFUSED.get((name, family), ""), row
    assert row.error or (row.same and row.moved), row
