"""What the server asks before training, and answers that clients keep, by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fedskew as fs
from fedskew import tree
from fedskew.method import Component, Method
from fedskew.types import Params, Query, View
from support.by_hand import kept, logits_of, rows, start_of
from support.federations import RAGGED, blobs
from support.methods import WHOLE
from support.resuming import stop_after
from support.runs import gap, go, rows_of, same


def mean_loss(fed: Any, params: Params, k: int) -> float:
    x, y = rows(fed, k)
    return float(nn.functional.cross_entropy(logits_of(params, x), y))


def test_ask_of_candidates_before_selection() -> None:
    fed = blobs([*RAGGED, [3, 3, 0], [0, 0, 7]])
    result, plain = (
        go(fed, m, rounds=1, cohort=2).rounds[0] for m in (fs.methods.powerofchoice(6), fs.methods.fedavg())
    )
    losses = [mean_loss(fed, start_of(fed), k) for k in range(6)]
    assert result["clients"] == sorted(sorted(range(6), key=lambda k: -losses[k])[:2])
    model = tree.size_bytes(start_of(fed))
    assert result["download_bytes"] == plain["download_bytes"] + 6 * model  # every candidate gets the model
    assert result["upload_bytes"] == plain["upload_bytes"] + 6 * 8  # and sends a loss


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


def test_without_rows_at_the_server() -> None:
    with pytest.raises(fs.ConfigError, match="auxiliary must be at least 1"):
        go(blobs(RAGGED), fs.methods.fedrl())
