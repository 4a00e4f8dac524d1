"""Components of a user's own: they have a name, their decorator, and hooks that are spelt right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import fedskew as fs
from support.command import refused


def test_a_component_needs_a_name_and_its_decorator() -> None:
    @dataclass(frozen=True)
    class Nameless(fs.Component):
        mu: float = 0.1

    class Plain(fs.Component):
        name = "plain_of_mine"
        mu: float = 0.1

    refused(lambda: fs.Method("m", parts=(Nameless(),)), "the class Nameless must have its own name")
    refused(lambda: fs.Method("m", parts=(Plain(),)), "@dataclass(frozen=True)", "'mu' is not a field")


@pytest.mark.parametrize(
    ("base", "name", "meant"),
    [
        (fs.Component, "los", "loss"),
        (fs.Component, "brodcast", "broadcast"),
        (fs.Component, "init_clients", "init_client"),
        (fs.Sampler, "plans", "plan"),
        (fs.samplers.Shuffle, "offers", "offer"),
        (fs.Weighting, "weight", "weigh"),
        (fs.LocalStep, "steps", "step"),
    ],
)
def test_a_misspelt_hook_is_told_where_the_class_is_first_used(base: type, name: str, meant: str) -> None:
    refused(lambda: type("Mine", (base,), {name: lambda self: None})(), f"got {name!r}; did you mean {meant!r}?")
    type("Mine", (base,), {f"_{name}": lambda self: None, "helper": lambda self: None, meant: lambda self: None})()


def test_a_part_of_which_no_function_is_a_hook_is_refused() -> None:
    """None would be called, and FedAvg would be reported under the method's name."""
    made = type("Mine", (fs.Component,), {"compute_loss": lambda self: None})
    refused(made, "got 'compute_loss'; none of them is; let a helper's name begin with an underscore")


def gap(a: float, b: float) -> float:
    return a - b


def test_a_field_may_hold_a_function_and_a_helper_may_be_a_property() -> None:
    @dataclass(frozen=True)
    class Mine(fs.Component):
        name = "mine_with_a_distance"
        distance: Any = gap

        @property
        def twice(self) -> float:
            return 2.0

    assert fs.Method("m", parts=(Mine(),)).parts[-1].name == "mine_with_a_distance"
