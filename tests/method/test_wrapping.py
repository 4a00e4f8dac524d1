"""A weighting around another one forwards every hook, under its own name, by one mechanism."""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass
from typing import Any

import pytest

import fedskew as fs
from fedskew.method.component import Component, Weighting, hooks_of, overrides
from fedskew.method.weightings import Wrapping
from support.federations import skewed

w = fs.weightings
HOOKS = [n for n in hooks_of(Weighting) if inspect.isfunction(getattr(Weighting, n))]


@dataclass(frozen=True)
class Thin(Wrapping):
    """Defines nothing, so that all is the base's."""

    name = "thin"


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_is_forwarded_to_the_base_under_the_name_of_the_wrapper(hook: str) -> None:
    def answer(self: Weighting, *args: Any, **named: Any) -> Any:
        return self.name, self.marker, args, named  # type: ignore[attr-defined]

    kind = dataclass(frozen=True)(
        type("Marked", (Weighting,), {hook: answer, "name": "marked", "marker": 5, "__module__": __name__})
    )
    parameters = list(inspect.signature(getattr(Weighting, hook)).parameters)[1:]
    given = [object() for _ in parameters]
    for wrapper in (Thin(kind()), Thin(Thin(kind()))):
        assert getattr(wrapper, hook)(*given) == ("thin", 5, tuple(given), {})
        assert getattr(wrapper, hook)(**dict(zip(parameters, given, strict=True))) == (
            "thin", 5, (), dict(zip(parameters, given, strict=True)),
        )  # fmt: skip


@pytest.mark.parametrize("hook", [n for n in HOOKS if hasattr(Component, n)])
def test_a_method_sees_what_the_base_fills_and_nothing_more(hook: str) -> None:
    for base in (w.Size(), w.Uniform(), w.Dual(), w.AggregationBalancer(), w.LabelAware()):
        method = fs.Method("m", weighting=Thin(base))
        assert (method.weighting in method.having(hook)) == overrides(base, hook), (hook, base.name)
    own = fs.Method("m", weighting=w.FedNova())
    assert (own.weighting in own.having(hook)) == (hook == "check")


def test_values_stay_values() -> None:
    """The base that a user gave is neither changed nor part of what is compared."""
    base = w.Dual()
    wrapper = Thin(base)
    assert wrapper.inner.name == "thin" and base.name == "dual" and "name" not in vars(base)
    assert wrapper == Thin(w.Dual()) and hash(wrapper) == hash(Thin(w.Dual()))
    outer = dataclasses.replace(w.FedNova(wrapper))
    assert outer.inner.inner.name == "fednova"  # type: ignore[attr-defined]
    assert wrapper.inner.name == "thin"


def run(method: fs.Method, **options: Any) -> fs.Result:
    return fs.run(
        skewed(), method, model="logistic", cohort=3, rounds=4, dtype="float64", engine="sequential", **options
    )


def test_fednova_over_climb_trains_on_weighted_losses() -> None:
    """Clients that take the same number of steps make FedNova's weights those of its base: it must equal CLIMB."""
    dual = w.Dual(dual_lr=20.0, eps=0.01, primal_rounds=1, apply="loss")
    climb, unweighted = fs.methods.climb().with_(weighting=dual), fs.methods.climb().with_(weighting=w.Uniform())
    pace = fs.paces.Fixed(epochs=1, batch_size=0)
    nova = fs.methods.fednova(dual).with_(pace=pace)
    a, b, c = run(climb.with_(pace=pace)), run(nova), run(unweighted.with_(pace=pace))
    gap = {n: float((a.params[n] - b.params[n]).abs().max()) for n in a.params}
    assert max(gap.values()) < 1e-12
    assert any(float((b.params[n] - c.params[n]).abs().max()) > 1e-4 for n in b.params)
    assert all("dual_max" in str(row) for row in b.rounds)
