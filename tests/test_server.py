"""A round at the server through each of its hooks, with a method that needs it, against a computation by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fedskew as fs
from fedskew import functional as F
from fedskew import server
from fedskew.method import Component, Weighting
from fedskew.method.paces import Fixed
from fedskew.methods import METHODS
from fedskew.methods.fedbal import AggregationBalancer
from fedskew.methods.fednova import FedNova
from fedskew.types import Cohort, Context, LocalRun, Params, Weights
from support.by_hand import ENGINES, kept, logits_of
from support.federations import RAGGED, blobs, skewed
from support.methods import each, spied, tiny
from support.runs import gap, go, same

# combine: FedGR, FedGC


@ENGINES
def test_combine_moves_the_classifier_before_averaging(engine: str) -> None:
    fed, strength = blobs(RAGGED), 3.0
    plain, parted = fs.methods.fedgr(strength=0.0), fs.methods.fedgr(strength=strength)
    (plain, before), (parted, after) = spied(plain), spied(parted)
    go(fed, plain, rounds=1, engine=engine)
    result = go(fed, parted, rounds=1, engine=engine)
    a, b = before[0], after[0]
    assert gap(a.trained, b.trained) <= 1e-12  # clients know nothing of it
    trained = b.before["fc.weight"] + b.trained["fc.weight"]
    step = strength * float(b.reports.lr.mean())
    expected = F.gravitation_step(trained, b.used > 0, step) - b.before["fc.weight"]
    assert torch.allclose(b.deltas["fc.weight"], expected) and gap(a.deltas, b.deltas) > 1e-4
    assert torch.equal(b.deltas["fc.bias"], b.trained["fc.bias"])
    share = b.weights.update[:, None, None]
    assert torch.allclose(result.params["fc.weight"], b.before["fc.weight"] + (share * expected).sum(0))


# Memories written back by the server, private heads: FedGC


@dataclass(frozen=True)
class Starts(Component):
    """Notes the parameters with which each local run starts (sequential engine)."""

    name = "starts"
    seen: list[Params]

    def start(self, params: Params, ctx: Context) -> tuple[Params, Any]:
        self.seen.append(params)
        return params, ctx.memory[self.name]


def test_private_heads_are_corrected_and_written_back(tmp_path: Path) -> None:
    fed, strength = blobs(RAGGED), 3.0
    method, seen = spied(replace(fs.methods.fedgc(strength), selector=each(0, 2)))
    starts: list[Params] = []
    method = replace(method, parts=(*method.parts, Starts(starts)))
    first = go(fed, method, rounds=1, out=tmp_path / "a")
    (cohort,) = seen
    heads = cohort.before["fc.weight"] + cohort.trained["fc.weight"]
    corrected = F.fedgc_step(heads, cohort.used > 0, strength * 0.1)
    assert not torch.allclose(corrected, heads)
    memory = kept(tmp_path / "a")
    assert sorted(memory) == [0, 2]
    for i, k in enumerate((0, 2)):
        assert torch.allclose(memory[k]["private_head"]["head"]["fc.weight"], corrected[i])
    owned, p = cohort.used > 0, cohort.weights.average
    for c in range(3):  # the global row is the mean over its owners
        rows_c, share = corrected[owned[:, c], c], p[owned[:, c]]
        assert torch.allclose(first.params["fc.weight"][c], (share @ rows_c) / share.sum())

    starts.clear()
    second = go(fed, method, rounds=2)
    for i in (0, 1):  # in round 2 a client starts from its corrected head
        assert torch.allclose(starts[2 + i]["fc.weight"], corrected[i])
        assert not torch.allclose(starts[2 + i]["fc.weight"], second.state.params["fc.weight"])


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


@ENGINES
def test_fednova_over_the_aggregation_balancer(engine: str) -> None:
    fed = blobs(RAGGED)
    method, seen = spied(replace(fs.methods.fednova(AggregationBalancer()), pace=Fixed(batch_size=4)))
    result = go(fed, method, rounds=1, engine=engine)
    (cohort,) = seen
    before = torch.cat([cohort.before[n].flatten() for n in ("fc.weight", "fc.bias")])
    after = before + torch.cat([cohort.trained[n].flatten(1) for n in ("fc.weight", "fc.bias")], 1)
    v = nn.functional.cosine_similarity(after, before.expand_as(after))
    p = torch.softmax(v, 0)  # three clients: nothing is clipped at beta = 3
    tau = cohort.reports.steps.double()
    assert len(set(tau.tolist())) > 1
    assert torch.allclose(cohort.weights.average, p) and torch.allclose(cohort.weights.update, (p @ tau) * p / tau)
    for n, delta in cohort.trained.items():
        moved = torch.tensordot((p @ tau) * p / tau, delta, 1)
        assert torch.allclose(result.params[n], cohort.before[n] + moved)


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


# absorb


def test_the_round_is_absorbed_with_the_new_parameters() -> None:
    method, seen = spied(METHODS["fedavgm"]())
    result = go(blobs([[4, 2, 3], [1, 5, 2]]), method, cohort=2, rounds=1)
    (cohort,) = seen
    assert cohort.after is not None and same(cohort.after, result.params)
    assert gap(cohort.after, cohort.before) > 0 and cohort.weights is not None and cohort.trained is not None


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
