"""Local training through each hook of a client, with a method that needs it, against a computation by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fedskew as fs
from fedskew import client, tree
from fedskew.method import Component, LocalStep, Method
from fedskew.method.paces import Fixed
from fedskew.method.steps import SGD
from fedskew.methods.fedprox import Proximal
from fedskew.types import Carry, Context, Params, View
from support.by_hand import ENGINES, descend, gradient, logits_of, rows, start_of
from support.federations import RAGGED, blobs, skewed
from support.methods import BY_HOOK, WHOLE, each, spied, tiny
from support.runs import gap, go, rows_of, same

# Memory in a local step: pFedMe


# Three mini-batches a step: Per-FedAvg


@dataclass(frozen=True)
class ThreeSums(LocalStep):
    """Notes the gradient on each of a step's three mini-batches; does not move."""

    name = "three"
    batches = 3
    seen: list[list[Params]]

    def step(self, carry: Carry, ctx: Context, differentiate: Any) -> tuple[Carry, Tensor]:
        found = [differentiate(carry, i) for i in range(3)]
        self.seen.append([grads for grads, _, _ in found])
        return carry, found[0][1]


def test_a_step_on_three_mini_batches() -> None:
    fed = blobs([[8, 8]])
    seen: list[list[Params]] = []
    go(fed, Method("m", local=ThreeSums(seen), pace=Fixed(epochs=1, batch_size=4)), rounds=1, cohort=1)
    assert len(seen) == 4  # 16 rows in mini-batches of 4: D, D' and D'' go through the rows in their own orders
    x, y = rows(fed, 0)
    whole = gradient(start_of(fed), x, y)
    for i in range(3):
        mean = tree.scale(tree.add(tree.add(seen[0][i], seen[1][i]), tree.add(seen[2][i], seen[3][i])), 0.25)
        assert gap(mean, whole) <= 1e-12
    assert all(gap(a, b) > 1e-3 for a, b, _ in seen) and all(gap(b, c) > 1e-3 for _, b, c in seen)


@ENGINES
def test_the_meta_step_by_hand(engine: str) -> None:
    fed = blobs(RAGGED)
    method = replace(fs.methods.perfedavg(0.3), pace=WHOLE, selector=each(0))
    result = go(fed, method, rounds=1, cohort=1, engine=engine)
    x, y = rows(fed, 0)
    w = start_of(fed)
    ahead = descend(w, x, y, 0.3)
    outer = gradient(ahead, x, y)
    bent = tree.sub(gradient(tree.add(w, outer, 1e-3), x, y), gradient(tree.add(w, outer, -1e-3), x, y))
    meta = tree.add(outer, bent, -0.3 / 2e-3)
    assert gap(result.params, tree.add(w, meta, -0.1)) <= 1e-10
    total, seen = 0.0, 0
    for k in range(4):  # each client's own model: one step of alpha on its rows
        own = descend(result.params, *rows(fed, k), 0.3)
        at = torch.from_numpy(fed.test_rows(k))
        z = logits_of(own, fed.dataset.x_test[at].double())
        total += float(nn.functional.cross_entropy(z, fed.dataset.y_test[at], reduction="sum"))
        seen += len(at)
    assert result.rounds[0]["personal_loss"] == pytest.approx(total / seen)


# learn: Fed-GraB


# Progress in epochs, steps and rounds


@dataclass(frozen=True)
class Clock(Component):
    """A loss that adds nothing; notes the progress (sequential engine)."""

    name = "clock"
    seen: list[tuple[int, ...]]

    def loss(self, view: View) -> Tensor:
        self.seen.append(tuple(int(v) for v in view.progress))
        return view.out.logits.sum() * 0


def test_progress_counts_from_one() -> None:
    seen: list[tuple[int, ...]] = []
    method = Method("clock", parts=(Clock(seen),), pace=Fixed(epochs=3, batch_size=4), selector=each(1, 2))
    go(blobs([[1, 1], [3, 4], [2, 1]]), method)
    runs = [(e, 3, s, 6, r, 2) for r in (1, 2) for s, e in enumerate([1, 1, 2, 2, 3, 3], 1)]  # client 1: 7 rows
    short = [(e, 3, e, 3, r, 2) for r in (1, 2) for e in (1, 2, 3)]  # client 2: 3 rows
    assert seen == runs[:6] + short[:3] + runs[6:] + short[3:]


# a_norm in the report


def reach(steps: int, momentum: float = 0.0, shrink: float = 0.0) -> float:
    """||a||_1 by its definition: a unit gradient at every step, without any other force."""
    moved, velocity = 0.0, 0.0
    for _ in range(steps):
        velocity = momentum * velocity + 1 - shrink * moved
        moved += velocity
    return moved


@ENGINES
@pytest.mark.parametrize(("momentum", "mu"), [(0.0, 0.0), (0.9, 0.0), (0.0, 2.0)])
def test_the_report_says_how_far_a_rule_reaches(engine: str, momentum: float, mu: float) -> None:
    parts = (Proximal(mu),) if mu else ()
    method = Method("a", parts=parts, local=SGD(momentum=momentum), pace=Fixed(epochs=2, batch_size=4))
    method, seen = spied(method)
    go(blobs(RAGGED), method, rounds=1, engine=engine)
    report = seen[0].reports
    assert len(set(report.steps.tolist())) > 1
    expected = [reach(int(s), momentum, 0.1 * mu) for s in report.steps]
    assert report.a_norm.tolist() == pytest.approx(expected)


# Gradients in a stack


def by_torch_func(objective: Any, params: Params) -> Any:
    grads, (loss, aux) = torch.func.grad_and_value(objective, has_aux=True)(params)
    return grads, loss, aux


@pytest.mark.parametrize("name", BY_HOOK)
def test_gradients_in_a_stack_have_the_bits_of_torch_func(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    for function in (client.functorch, by_torch_func):
        monkeypatch.setattr(client, "functorch", function)
        runs.append(go(skewed(), tiny(name), engine="batched", dtype="float32", model="mlp"))
    assert same(runs[0].params, runs[1].params) and rows_of(runs[0]) == rows_of(runs[1])


def test_a_loss_without_parameters_has_gradient_zero_in_a_stack() -> None:
    params = {"w": torch.ones(3, 2), "b": torch.ones(3)}
    for loss_of in (lambda p, x: x.sum(), lambda p, x: (p["w"] * x).sum()):  # of none of them, of one

        def one(p: Params, x: Tensor, loss_of: Any = loss_of) -> Any:
            return client.functorch(lambda q: (loss_of(q, x), {"x": x, "w": q["w"]}), p)

        grads, loss, aux = torch.vmap(one)(params, torch.arange(6.0).view(3, 2))
        assert loss.tolist()[0] == 1.0 and not loss.requires_grad and not aux["w"].requires_grad
        assert grads["b"].tolist() == [0, 0, 0]
        assert grads["w"].tolist() in ([[0, 0]] * 3, [[0, 1], [2, 3], [4, 5]])


# A part of a user's own


@ENGINES
def test_a_part_of_a_users_own(engine: str) -> None:
    @dataclass(frozen=True)
    class Shrink(fs.Component):
        name = "shrink"
        mu: float = 0.1

        def loss(self, view: View) -> Tensor:
            return self.mu * sum(p.square().sum() for p in view.params.values()) / 2

    method = fs.Method("mine", parts=(Shrink(),))
    decay = replace(fs.methods.fedavg(), local=SGD(weight_decay=0.1))
    assert gap(*(go(skewed(), m, engine=engine).params for m in (method, decay))) <= 1e-12
