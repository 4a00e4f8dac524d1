"""Local runs of so many steps, of a part of an epoch, and rates that follow a schedule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import fedskew as fs
from fedskew.config.flags import experiment_from
from fedskew.method.paces import Cosine, Drops, Fixed, Part, Steps
from fedskew.methods import METHODS
from support.command import refused
from support.federations import blobs
from support.runs import gap, go, same

SIZES = [[1, 0, 0], [3, 2, 0], [9, 4, 4], [20, 20, 7]]


def steps_of(result: fs.Result) -> list[int]:
    return [row["steps"] for row in result.rounds]


@pytest.mark.parametrize("name", ["fedavg", "fedga", "scaffold", "perfedavg", "moon"])
def test_every_client_takes_the_same_number_of_steps(name: str) -> None:
    method = replace(METHODS[name](), pace=Steps(lr=0.05, batch_size=4, steps=7))
    fed = blobs(SIZES, auxiliary=1)
    found = {e: go(fed, method, engine=e, cohort=4, rounds=2) for e in ("sequential", "threaded", "batched")}
    assert steps_of(found["sequential"]) == [4 * 7] * 2
    assert same(found["sequential"].params, found["threaded"].params)
    assert gap(found["sequential"].params, found["batched"].params) <= 1e-8


def test_whole_epochs_are_those_of_the_fixed_pace() -> None:
    fed, method = blobs([[6, 6, 0], [4, 4, 4]]), METHODS["fedavg"]()
    runs = [
        go(fed, replace(method, pace=pace), cohort=2, rounds=2)
        for pace in (
            Fixed(lr=0.1, epochs=2, batch_size=4),
            Steps(lr=0.1, batch_size=4, steps=6),
            Part(2, 0.1, 1.0, 4, 2.0),
        )
    ]
    assert same(runs[0].params, runs[1].params) and same(runs[0].params, runs[2].params)


@pytest.mark.parametrize(("part", "wanted"), [(0.5, [1, 1, 2, 6]), (1.5, [2, 3, 8, 18]), (0.01, [1, 1, 1, 1])])
def test_a_part_of_an_epoch_is_rounded_to_steps_and_is_at_least_one(part: float, wanted: list[int]) -> None:
    plan = Part(batch_size=4, part=part).of(torch.tensor([1, 5, 17, 47]), 1, 5)
    assert plan.total is not None and plan.total.tolist() == wanted
    fed = blobs(SIZES)
    result = go(fed, replace(METHODS["fedavg"](), pace=Part(lr=0.1, batch_size=4, part=part)), cohort=4, rounds=1)
    assert steps_of(result) == [sum(wanted)]


def test_all_rows_at_once_are_one_step_an_epoch() -> None:
    plan = Steps(batch_size=0, steps=3).of(torch.tensor([1, 50, 0]), 1, 5)
    assert plan.epochs.tolist() == [3, 3, 3]


def test_a_user_names_steps_and_gets_the_pace() -> None:
    pace: Any = experiment_from(["fedprox", "--steps", "5", "--batch-size", "7", "--lr", "0.2"]).method.pace
    assert pace == Steps(lr=0.2, batch_size=7, steps=5)
    pace = experiment_from(["fedavg", "--preset", "authors", "--pace", "cosine"]).method.pace
    fixed: Any = experiment_from(["fedavg", "--preset", "authors"]).method.pace
    assert pace == Cosine(fixed.epochs, fixed.lr, fixed.decay, fixed.batch_size)
    part: Any = experiment_from(["fedavg", "--epochs", "0.5", "--batch-size", "7"]).method.pace
    assert part == Part(batch_size=7, part=0.5)
    refused(lambda: experiment_from(["fedavg", "--steps", "5", "--epochs", "2"]), "--epochs must not go with the pace")
    refused(lambda: experiment_from(["seolkim", "--steps", "5"]), "--steps must go with a pace without a schedule")
    refused(lambda: experiment_from(["seolkim", "--epochs", "0.5"]), "add --pace part to replace it")
    assert experiment_from(["seolkim", "--pace", "steps", "--steps", "5"]).method.pace.name == "steps"
    refused(lambda: experiment_from(["fedavg", "--epochs", "0.0"]), "--pace.part must be positive")
    refused(
        lambda: experiment_from(["fedavg", "--pace", "fixed", "--epochs", "0.5"]), "--epochs must be a whole number"
    )
    refused(lambda: experiment_from(["fedavg", "--pace", "cosine", "--steps", "5"]), "--steps")
    refused(lambda: experiment_from(["fedavg", "--steps", "0"]), "--steps must be at least 1")


def test_rates_drop_and_follow_a_cosine() -> None:
    def rates(pace: Fixed, rounds: int) -> list[float]:
        return [float(pace.of(torch.tensor([9]), t, rounds).lr) for t in range(1, rounds + 1)]

    assert rates(Drops(lr=0.4, decay=0.5, every=2, factor=0.1), 4) == pytest.approx([0.4, 0.2, 0.01, 0.005])
    assert rates(Cosine(lr=1.0, warmup=2, floor=0.2), 6) == pytest.approx([0.5, 1.0, 1.0, 0.8828427, 0.6, 0.3171573])
    assert not Drops().reads_rounds and Cosine().reads_rounds
    assert rates(Cosine(lr=1.0, warmup=9), 3) == pytest.approx([1 / 9, 2 / 9, 3 / 9])


@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_adamw_is_that_of_torch(clip: float) -> None:
    fed = blobs([[9, 4, 4]])
    local, pace = fs.steps.AdamW(0.8, 0.95, 1e-4, 0.1, clip), Fixed(lr=0.05, epochs=4, batch_size=0)
    result = go(
        fed, replace(METHODS["fedavg"](), local=local, pace=pace), cohort=1, rounds=2, model=fs.models.Logistic()
    )
    layer = torch.nn.Linear(fed.dataset.x[0].numel(), 3).double()
    names = list(result.params)
    fresh = go(
        fed, replace(METHODS["fedavg"](), pace=replace(pace, lr=1e-300)), cohort=1, rounds=1, model=fs.models.Logistic()
    )
    with torch.no_grad():
        for name, p in zip(names, layer.parameters(), strict=True):
            p.copy_(fresh.params[name])
    rows = fed.rows(0)
    x, y = fed.dataset.x[rows].double().flatten(1), fed.dataset.y[rows]
    for _ in range(2):
        adam = torch.optim.AdamW(layer.parameters(), lr=0.05, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1)
        for _ in range(4):
            adam.zero_grad()
            torch.nn.functional.cross_entropy(layer(x), y).backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(layer.parameters(), clip)
            adam.step()
    for name, p in zip(names, layer.parameters(), strict=True):
        assert torch.allclose(result.params[name], p, atol=1e-10)
