"""What the server asks before training, of candidates, of all, of the cohort and of its own rows, by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fedskew as fs
from fedskew import functional as F
from fedskew import tree
from fedskew.method import Component, Method
from fedskew.method.paces import Fixed
from fedskew.types import Params, Query, View
from support.by_hand import ENGINES, Asked, descend, kept, logits_of, rows, start_of
from support.federations import RAGGED, blobs, skewed
from support.methods import WHOLE, changed, tiny
from support.resuming import stop_after
from support.runs import gap, go, rows_of, same


def mean_loss(fed: Any, params: Params, k: int) -> float:
    x, y = rows(fed, k)
    return float(nn.functional.cross_entropy(logits_of(params, x), y))


def test_ask_of_candidates_before_selection(asked: Asked) -> None:
    fed = blobs([*RAGGED, [3, 3, 0], [0, 0, 7]])
    method = fs.methods.powerofchoice(4)
    result = go(fed, method, rounds=1, cohort=2)
    ((_, query, answers),) = asked
    assert query.what == "loss" and len(answers.ids) == 4
    losses = {int(k): mean_loss(fed, start_of(fed), int(k)) for k in answers.ids}
    assert answers.values.tolist() == pytest.approx(list(losses.values()))
    assert result.rounds[0]["clients"] == sorted(sorted(losses, key=lambda k: -losses[k])[:2])
    plain = go(fed, fs.methods.fedavg(), rounds=1, cohort=2).rounds[0]
    model = tree.size_bytes(start_of(fed))
    assert result.rounds[0]["download_bytes"] == plain["download_bytes"] + 4 * model  # every candidate gets the model
    assert result.rounds[0]["upload_bytes"] == plain["upload_bytes"] + 4 * 8  # and sends a loss


def test_ask_of_all_in_some_rounds(asked: Asked) -> None:
    fed = blobs(RAGGED)
    method = changed(fs.methods.climb(dual_lr=8.0, eps=0.0), "dual", primal_rounds=2)
    result = go(fed, method, rounds=4, cohort=2)
    assert [r for r, _, _ in asked] == [1, 3]
    assert all(q.ids == "all" and len(a.ids) == 4 for _, q, a in asked)
    losses = asked[0][2].values
    assert losses.tolist() == pytest.approx([mean_loss(fed, start_of(fed), k) for k in range(4)])
    duals = (8.0 / 4 * (losses - losses.mean())).clamp(0, 100)
    ids = result.rounds[2]["clients"]
    assert result.rounds[2]["weights"] == pytest.approx(((1 + duals - duals.mean())[ids] / 2).tolist())
    assert result.rounds[1]["weights"] == [0.5, 0.5]
    up = [row["upload_bytes"] for row in result.rounds]
    assert up[0] - up[1] == up[2] - up[3] == 4 * 8


def test_ask_of_the_cohort(asked: Asked) -> None:
    fed = skewed()
    result = go(fed, tiny("creff"))
    assert [a.ids.tolist() for _, _, a in asked] == [row["clients"] for row in result.rounds]
    values = asked[0][2].values
    assert values["gradients"].shape == (3, 10, 10, 65)  # the last column is the bias
    assert torch.equal(values["present"], (fed.counts[asked[0][2].ids] > 0).double())


@dataclass(frozen=True)
class Anchor(Component):
    """Keeps, on the client, its mean logits under the model of round 1; later the loss pulls towards them."""

    name = "anchor"
    mu: float = 0.5

    def init_client(self, params: Params, buffers: Params, task: Any) -> Any:
        zero = params[task.weight].new_zeros(())
        return {"mean": zero.expand(task.classes).clone(), "seen": zero}

    def ask(self, state: Any, round: int, key: Tensor) -> Query | None:
        return Query("all", self.mean_logits, keep=True) if round == 1 else None

    def mean_logits(self, view: View) -> Any:
        return {"mean": view.out.logits.mean(0), "seen": view.out.logits.new_ones(())}

    def loss(self, view: View) -> Tensor:
        own = view.memory[self.name]
        return self.mu * own["seen"] * view.batch.mean((view.out.logits - own["mean"]).square().sum(1))


def test_an_answer_kept_on_the_client(tmp_path: Path) -> None:
    fed = blobs(RAGGED)
    method = replace(fs.methods.fedavg(), parts=(Anchor(),), pace=WHOLE)
    a, b = (go(fed, method, rounds=3, engine=e, out=tmp_path / e) for e in ("sequential", "batched"))
    assert gap(a.params, b.params) <= 1e-12
    assert gap(a.params, go(fed, replace(fs.methods.fedavg(), pace=WHOLE), rounds=3).params) > 1e-3
    memory, first = kept(tmp_path / "sequential"), start_of(fed)
    for k in range(4):  # also of clients that never took part
        assert torch.allclose(memory[k]["anchor"]["mean"], logits_of(first, rows(fed, k)[0]).mean(0))
    plain = go(fed, fs.methods.fedavg(), rounds=3)
    assert [r["upload_bytes"] for r in a.rounds] == [r["upload_bytes"] for r in plain.rounds]  # nothing came back

    go(fed, method, rounds=3, out=tmp_path / "stopped", on_round=stop_after(2))
    again = go(fed, method, rounds=3, out=tmp_path / "stopped", resume=True)
    assert same(again.params, a.params) and rows_of(again) == rows_of(a)


def test_a_kept_answer_without_a_place_is_an_error() -> None:
    @dataclass(frozen=True)
    class Forgetful(Component):
        name = "forgetful"

        def ask(self, state: Any, round: int, key: Tensor) -> Query | None:
            return Query("all", lambda view: {"n": view.out.logits.sum()}, keep=True)

    with pytest.raises(fs.ConfigError, match="init_client"):
        go(blobs(RAGGED), Method("f", parts=(Forgetful(),)))


# Data at the server: FedRL


@ENGINES
def test_the_server_trains_on_its_own_rows(engine: str, asked: Asked) -> None:
    fed = skewed()
    method = replace(fs.methods.fedrl(), pace=Fixed(epochs=2, lr=0.3, batch_size=0), local=fs.steps.SGD())
    result = go(fed, method, engine=engine)
    question, answers = asked[0][1:]
    assert question.rows == "auxiliary" and question.what == "delta"
    data, at = fed.dataset, torch.from_numpy(fed.auxiliary_rows)
    x, y = ((data.x[at].double() / 255 - 0.3) / 0.4).flatten(1), data.y[at]
    w = start_of(fed)
    for c in range(10):
        moved = tree.sub(descend(w, x[y == c], y[y == c], 0.3, steps=2), w)
        assert gap(tree.row(answers.values, c), moved) <= 1e-12
    ratios = F.ratio_of_changes(asked[1][2].values["fc.weight"], 0.8)
    assert torch.allclose(result.state.parts["ratio_loss"]["weights"], 1 + 0.1 * ratios)
    plain = go(fed, fs.methods.fedavg()).rounds[0]
    assert result.rounds[0]["upload_bytes"] == plain["upload_bytes"]  # it costs no traffic
    assert result.rounds[0]["download_bytes"] == plain["download_bytes"] + 3 * 10 * 8  # but C weights a client


def test_without_rows_at_the_server() -> None:
    with pytest.raises(fs.ConfigError, match="auxiliary must be at least 1"):
        go(blobs(RAGGED), fs.methods.fedrl())
