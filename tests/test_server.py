"""A round at the server through each of its hooks, with a method that needs it, against a computation by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fedskew as fs
from fedskew import server
from fedskew.method import Component, Weighting
from fedskew.method.paces import Fixed
from fedskew.methods.fednova import FedNova
from fedskew.types import Cohort, LocalRun, Params, Weights
from support.by_hand import ENGINES, kept, logits_of
from support.federations import RAGGED, blobs, skewed
from support.methods import each, tiny
from support.runs import gap, go, same

# Memories written back by the server, private heads: FedGC


def test_private_heads_make_the_personal_models(tmp_path: Path) -> None:
    fed = blobs(RAGGED)
    method = replace(fs.methods.fedgc(3.0), selector=each(0, 2))
    result = go(fed, method, out=tmp_path / "a", personal_every=1)
    assert all("personal_accuracy" in row for row in result.rounds)
    memory, total, seen = kept(tmp_path / "a"), 0.0, 0
    for k in range(4):
        at = torch.from_numpy(fed.test_rows(k))
        head = memory[k]["private_head"]["head"] if k in memory else result.params
        z = logits_of(head, fed.dataset.x_test[at].double())
        total += float(nn.functional.cross_entropy(z, fed.dataset.y_test[at], reduction="sum"))
        seen += len(at)
    assert result.rounds[-1]["personal_loss"] == pytest.approx(total / seen)
    assert result.rounds[-1]["personal_loss"] != pytest.approx(result.rounds[-1]["loss"])


# serve: CReFF


def test_the_evaluated_model_is_not_the_broadcast_one() -> None:
    fed = skewed()
    result, plain = (go(fed, tiny(name)) for name in ("creff", "fedavg"))
    assert same(result.state.params, plain.params)
    assert gap(result.params, result.state.params) > 1e-3
    head = result.state.parts["federated_features"]["head"]
    assert same(result.params, head)
    data = fed.dataset
    z = logits_of(head, ((data.x_test.double() / 255 - 0.3) / 0.4).flatten(1))
    assert result.rounds[-1]["accuracy"] == pytest.approx(float((z.argmax(1) == data.y_test).double().mean()))
    assert result.rounds[-1]["loss"] == pytest.approx(float(nn.functional.cross_entropy(z, data.y_test)))


# Weightings


def test_a_users_own_weighting() -> None:
    @dataclass(frozen=True)
    class Rarest(Weighting):
        name = "rarest"

        def weigh(self, state: Any, cohort: Cohort) -> Weights:
            p = 1.0 / cohort.reports.samples.double()
            return Weights(p / p.sum(), p / p.sum())

    fed = blobs(RAGGED)
    result = go(fed, fs.Method("mine", weighting=Rarest()), cohort=4)
    p = 1 / fed.sizes.double()
    assert result.rounds[0]["weights"] == pytest.approx((p / p.sum()).tolist())
    nova = go(fed, fs.Method("mine", weighting=FedNova(Rarest()), pace=Fixed(batch_size=4)), cohort=4)
    steps = 2 * torch.ceil(fed.sizes / 4).double()
    expected = (p / p.sum()) / steps * (p / p.sum() * steps).sum()
    assert nova.rounds[0]["weights"] == pytest.approx(expected.tolist())


# A share of the broadcast for each client, memories written back


@dataclass(frozen=True)
class Turns(Component):
    """The server counts each client's turns and sends it the count; the client returns it doubled; the server writes
    back the count as memory."""

    name = "turns"

    def init_client(self, params: Params, buffers: Params, task: Any) -> Any:
        return {"told": torch.zeros(()), "written": torch.zeros(2)}

    def init_server(self, params: Params, fed: Any, task: Any) -> Any:
        return {"turns": torch.zeros(fed.clients), "echo": torch.zeros(fed.clients)}

    def broadcast(self, state: Any, ids: Tensor | None) -> tuple[Any, Any]:
        common = {"total": state["turns"].sum()}
        return common, None if ids is None else {"mine": 10.0 * ids + state["turns"][ids]}

    def finish(self, local: LocalRun) -> tuple[Any, Any]:
        told = local.ctx.shared[self.name]["mine"] + 100.0 * local.ctx.shared[self.name]["total"]
        return {"twice": 2 * told}, {**local.memory[self.name], "told": told}

    def absorb(self, state: Any, cohort: Cohort, key: Tensor) -> tuple[Any, Any]:
        echo = state["echo"].index_copy(0, cohort.ids, cohort.uploads[self.name]["twice"])
        turns = state["turns"].index_add(0, cohort.ids, torch.ones(len(cohort.ids)))
        told = cohort.uploads[self.name]["twice"] / 2
        written = torch.stack([turns[cohort.ids], cohort.ids.float()], 1)
        return {"turns": turns, "echo": echo}, {"told": told, "written": written}


@ENGINES
def test_each_client_gets_its_own_share(engine: str, tmp_path: Path) -> None:
    fed = blobs(RAGGED)
    method = replace(fs.methods.fedavg(), parts=(Turns(),), selector=each(3, 1))  # not in the order of the ids
    result = go(fed, method, rounds=3, engine=engine, out=tmp_path / "a")
    state = result.state.parts["turns"]
    assert state["turns"].tolist() == [0, 3, 0, 3]
    # round 3: a client was told 10 id + its turns before (2) + 100 * all turns before (4)
    assert state["echo"].tolist() == [0, 2 * (10 + 2 + 400), 0, 2 * (30 + 2 + 400)]
    memory = kept(tmp_path / "a")
    assert {k: m["turns"]["written"].tolist() for k, m in memory.items()} == {1: [3, 1], 3: [3, 3]}
    assert {k: float(m["turns"]["told"]) for k, m in memory.items()} == {1: 412, 3: 432}
    plain = go(fed, replace(fs.methods.fedavg(), selector=each(3, 1)), rounds=3)
    for name, leaf in result.params.items():  # a plain stack runs written-out steps, whose last bits are others
        torch.testing.assert_close(leaf, plain.params[name], rtol=1e-12, atol=1e-12 if engine == "batched" else 0.0)
    assert engine == "batched" or same(result.params, plain.params)
    for row, other in zip(result.rounds, plain.rounds, strict=True):
        assert row["upload_bytes"] - other["upload_bytes"] == 2 * 4
        assert row["download_bytes"] - other["download_bytes"] == 2 * 4 + 2 * 4


# ask, of clients that join


@dataclass(frozen=True)
class Asked(Component):
    """Notes the rounds of its questions, and asks nothing."""

    name = "asked"
    rounds: list[int]

    def ask(self, state: Any, round: int, key: Tensor) -> None:
        self.rounds.append(round)


def test_clients_that_join_are_asked_what_the_next_round_asks() -> None:
    rounds: list[int] = []
    method = replace(fs.methods.fedavg(), parts=(Asked(rounds),))
    state = go(blobs(RAGGED), method, rounds=3).state
    assert rounds == [1, 2, 3]
    server.joined(method, state, torch.tensor([0]), 0, lambda *_: pytest.fail("nothing was asked"))
    assert rounds == [1, 2, 3, 4]
