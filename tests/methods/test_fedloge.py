"""FedLoGe: its authors' numbers, what stands still, and what is served."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fedskew as fs
from fedskew import functional as F
from fedskew import rng
from fedskew.client import PRIVATE
from fedskew.errors import FieldError
from fedskew.method import Method
from fedskew.method.keeping import Frozen
from fedskew.method.parts import InitialHead
from fedskew.method.steps import SGD
from fedskew.methods.fedloge import RealignedHeads
from fedskew.types import Task
from support.authors import CODE, ENGINES, close, filled, ran
from support.federations import blobs, skewed
from support.methods import tiny
from support.runs import go, same

PROBLEM, TOLD = CODE["problem"], CODE["fedloge"]
NAMES = [f"realigned_heads.{whose}.{part}" for whose in ("shared", "own") for part in ("weight", "bias")]


def tensor(rows: Any) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


# ---------------------------------------------------------------------------------------------------------------------
# The authors' code


@dataclass(frozen=True)
class Told(RealignedHeads):
    """Begins with the heads of the problem."""

    def init_params(self, params: Any, task: Any, key: Tensor) -> Any:
        values = (tensor(v).to(params[task.weight]) for whose in ("shared", "own") for v in TOLD["start"][whose])
        return dict(zip(NAMES, values, strict=True))


@ENGINES
def test_the_authors_code_gives_the_same_rounds(engine: str) -> None:
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    net = filled(net, (*TOLD["start"]["hidden"], TOLD["start"]["frame"], [0.0] * 3))
    method = Method("told", (Frozen(), Told()), local=SGD(momentum=TOLD["momentum"]))
    cohorts = PROBLEM["cohorts"][: len(TOLD["rounds"])]
    replay = ran(method, engine, net, cohorts, epochs=TOLD["epochs"], lr=TOLD["lr"])
    for done, wanted in zip(replay.rounds, TOLD["rounds"], strict=True):
        close(done.after, wanted["hidden"], ("0.",))
        close(done.after, wanted["shared"], NAMES[:2])
    result = replay.result
    for k, (own, personal) in enumerate(zip(TOLD["own"], TOLD["personal"], strict=True)):
        kept = replay.memory(k, PRIVATE)["params"]
        close(kept, own, NAMES[2:])
        ctx: Any = type("C", (), {"task": result.task})
        close(RealignedHeads().personalize({**result.state.params, **kept}, ctx, lambda p: p), personal, ("2.",))
    close(result.params, TOLD["served"], ("2.",))


def test_the_authors_code_gives_the_same_frame() -> None:
    frame = TOLD["frame"]
    found = F.sparse_frame(
        tensor(frame["start"]), tensor(frame["kept"]), frame["length"], frame["rate"], frame["steps"]
    )
    close({"frame": found}, frame["weight"])


# ---------------------------------------------------------------------------------------------------------------------
# The fixed classifier


def test_the_frame_is_sparse_and_wide_and_stands_still() -> None:
    options: dict[str, Any] = {"model": fs.models.MLP(hidden=20), "rounds": 2}
    part = RealignedHeads(serves="fixed")
    method = replace(tiny("fedloge"), parts=(InitialHead(norm=0.1, sparsity=0.6), Frozen(), part))
    one, other = (go(skewed(), method, seed_model=s, **options) for s in (0, 1))
    weight = one.params["fc.weight"]
    assert weight.shape == (10, 20) and not one.params["fc.bias"].any()
    assert (weight == 0).sum(1).tolist() == [12] * 10
    assert torch.allclose(torch.linalg.vector_norm(weight, dim=1), torch.tensor(0.1, dtype=torch.float64))
    cosines = F.cosine_logits(weight, weight).fill_diagonal_(-1)
    bare = go(skewed(), method.with_("initial_head", steps=0), **options).params["fc.weight"]
    assert torch.equal(bare == 0, weight == 0)
    assert cosines.max() < F.cosine_logits(bare, bare).fill_diagonal_(-1).max() - 0.2
    assert same({"w": weight}, {"w": go(skewed(), method, **(options | {"rounds": 1})).params["fc.weight"]})
    assert not torch.equal(weight == 0, other.params["fc.weight"] == 0)


def test_orthogonal_rows_have_no_zeros() -> None:
    method = replace(tiny("fedloge"), parts=(InitialHead("orthogonal", sparsity=0.5),))
    with pytest.raises(FieldError, match=r"InitialHead.sparsity must be 0 for orthogonal rows; got 0.5"):
        go(skewed(), method, model="mlp")


# ---------------------------------------------------------------------------------------------------------------------
# The heads


def test_what_is_served() -> None:
    method = tiny("fedloge")
    runs = {
        which: go(skewed(), method.with_("realigned_heads", serves=which), model="mlp")
        for which in ("realigned", "trained", "fixed")
    }
    sent = runs["fixed"].state.params
    assert all(same(sent, run.state.params) for run in runs.values()) and same(runs["fixed"].params, sent)
    shared = sent[NAMES[0]]
    assert torch.equal(runs["trained"].params["fc.weight"], shared)
    realigned = runs["realigned"].params["fc.weight"]
    assert torch.allclose(torch.linalg.vector_norm(realigned, dim=1), torch.tensor(1.7, dtype=torch.float64))
    assert torch.allclose(F.cosine_logits(realigned, shared).diagonal(), torch.ones(10, dtype=torch.float64))
    for which in ("realigned", "trained"):
        assert torch.equal(runs[which].params["fc.bias"], sent[NAMES[1]])
    assert len({run.rounds[-1]["loss"] for run in runs.values()}) == 3


@pytest.mark.parametrize("bias", [True, False])
def test_the_clients_own_model(bias: bool) -> None:
    task: Any = type("T", (), {"weight": "w", "bias": "b"})
    ctx: Any = type("C", (), {"task": task})
    params = {
        "w": torch.zeros(2, 2), NAMES[0]: torch.tensor([[1.0, 2.0], [0.0, 1.0]]),
        NAMES[2]: torch.tensor([[3.0, 4.0], [0.0, 0.5]]),
    }  # fmt: skip
    if bias:
        params |= {"b": torch.zeros(2), NAMES[1]: torch.tensor([1.0, 2.0]), NAMES[3]: torch.tensor([10.0, 20.0])}
    wanted = {
        "own": ([[8.0, 14.0], [0.0, 1.0]], [11.0, 22.0]),
        "shared": ([[6.0, 12.0], [0.0, 1.5]], [11.0, 22.0]),
        "none": ([[5.0, 10.0], [0.0, 0.5]], [1.0, 2.0]),
    }
    for beside, (weight, shift) in wanted.items():
        found = RealignedHeads(beside=beside).personalize(params, ctx, lambda p: p)  # type: ignore[arg-type]
        assert found["w"].tolist() == weight and set(found) == set(params)
        assert not bias or found["b"].tolist() == shift


def test_the_heads_of_a_model_without_a_bias_have_none() -> None:
    net = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3, bias=False))
    fed = blobs([[5, 3, 0], [2, 7, 0], [4, 4, 3]])
    result = go(fed, tiny("fedloge"), model=net, cohort=2, rounds=2)
    assert set(NAMES) & set(result.params) == {NAMES[0], NAMES[2]}


def test_only_the_shared_head_is_sent_and_the_frame_is_not() -> None:
    """As many bytes as FedAvg's: the frame's place is taken by the shared head."""
    fedavg, loge = (go(skewed(), tiny(name), model="mlp", rounds=1).rounds[0] for name in ("fedavg", "fedloge"))
    assert fedavg["upload_bytes"] == loge["upload_bytes"]


@pytest.mark.parametrize("features", [4, 400])
def test_its_heads_begin_within_one_over_the_root_of_the_features(features: int) -> None:
    params = {"fc.weight": torch.zeros(3, features), "fc.bias": torch.zeros(3)}
    drawn = RealignedHeads().init_params(params, Task("fc", 3, features, 5, 9), rng.key(0))
    reach = features**-0.5
    widest = max(float(draw.abs().max()) for draw in drawn.values())
    assert 0.5 * reach < widest <= reach
    assert all(float(drawn[name].min()) < 0 < float(drawn[name].max()) for name in drawn if name.endswith("weight"))
