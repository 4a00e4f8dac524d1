"""Steppers know trees of tensors, and nothing of a federated round."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from fedskew.engines.base import LocalEngine
from fedskew.engines.stepper import TRACE, StepMode, Stepper


def test_a_stepper_finds_its_program_by_what_is_shared_and_what_is_own() -> None:
    """Nothing of a federated round is needed: ``fixed`` is any pair of trees."""

    def step(rows: Any, fixed: Any, carry: Tensor, now: Any) -> Any:
        shared, own = fixed
        moved = carry * shared + own["bias"] + rows[0].sum() * now[0]
        return moved, moved.sum()

    stepper, rows, now = Stepper(step, StepMode.TRACED), (torch.ones(2),), (torch.tensor(0.5),)
    fixed = torch.tensor(2.0), {"bias": torch.ones(3)}
    stepper.make(rows, fixed, torch.ones(3), now)
    assert sum(map(bool, stepper.programs.values())) == 1
    carry, losses = stepper.run(rows, fixed, torch.ones(3), [now, now])
    assert torch.equal(carry, torch.full((3,), 10.0)) and [float(x) for x in losses] == [12.0, 30.0]
    other = fixed[0], {"bias": torch.ones(1)}  # the same object for all, another shape of the client's own
    assert torch.equal(stepper.run(rows, other, torch.ones(3), [now])[0], torch.full((3,), 4.0))


def test_steppers_are_made_once_a_method_that_needs_no_hash() -> None:
    asked: list[Any] = []
    engine: Any = SimpleNamespace(
        steppers=[], device=torch.device("cpu"), model=None, store=SimpleNamespace(augmentation=()),
        step_mode=lambda *_: StepMode.TRACED, step_function=lambda method, mode: asked.append((method, mode)),
    )  # fmt: skip
    one, two = ({"lr": rate} for rate in (1, 2))
    stepper = LocalEngine.stepper(engine, one)  # type: ignore[arg-type]
    assert LocalEngine.stepper(engine, {**one}) is stepper is not LocalEngine.stepper(engine, two)  # type: ignore[arg-type]
    assert asked == [(one, StepMode.TRACED), (two, StepMode.TRACED)] and stepper.after == TRACE
