"""Local training through each hook of a client, with a method that needs it, against a computation by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

import fedskew as fs
from fedskew import client
from fedskew.method import Component, Method
from fedskew.method.paces import Fixed
from fedskew.method.steps import SGD
from fedskew.types import Params, View
from support.by_hand import ENGINES
from support.federations import blobs, skewed
from support.methods import BY_HOOK, each, tiny
from support.runs import gap, go, rows_of, same

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
