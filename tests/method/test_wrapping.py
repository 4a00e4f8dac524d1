"""A weighting around another one forwards every hook, under its own name, by one mechanism."""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import fedskew as fs
from fedskew.method import component
from fedskew.method.component import Component, Weighting, hooks_of, overrides
from fedskew.method.weightings import Wrapping
from support.federations import skewed
from support.resuming import stop_after
from support.runs import rows_of

w = fs.weightings
HOOKS = [n for n in hooks_of(Weighting) if inspect.isfunction(getattr(Weighting, n))]
FACTS = [n for n in hooks_of(Weighting) if n not in HOOKS]


@dataclass(frozen=True)
class Thin(Wrapping):
    """Defines nothing, so that all is the base's."""

    name = "thin"


def test_the_list_of_hooks_is_that_of_the_source() -> None:
    """A hook added to Component or Weighting appears in it, and so is forwarded."""
    public = {n for kind in (Component, Weighting) for n in vars(kind) if n[0] != "_" and callable(vars(kind)[n])}
    assert set(HOOKS) == public
    assert {"broadcast", "correct", "record", "learn", "weigh", "check"} <= set(HOOKS)
    assert set(FACTS) == {
        "proximal", "reads_deltas", "projects", "reads_rounds", "needs_two_classes", "reads", "stages", "normed",
    }  # fmt: skip
    assert len(HOOKS) == len(set(HOOKS)) >= 18


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


def test_facts_are_those_of_the_base() -> None:
    @dataclass(frozen=True)
    class Odd(Weighting):
        name = "odd"
        auxiliary = 3
        proximal = 0.25  # type: ignore[assignment]
        reads_deltas = True  # type: ignore[assignment]

        def finish(self, local: Any) -> Any:
            return {}, {}

    wrapper = Thin(Odd())
    assert (wrapper.auxiliary, wrapper.proximal, wrapper.reads_deltas) == (3, 0.25, True)
    assert overrides(wrapper, "finish") and not overrides(wrapper, "init_client")
    plain = Thin(w.Size())
    assert (plain.auxiliary, plain.proximal, plain.reads_deltas) == (0, 0.0, False)


@pytest.mark.parametrize("hook", [n for n in HOOKS if hasattr(Component, n)])
def test_a_method_sees_what_the_base_fills_and_nothing_more(hook: str) -> None:
    for base in (w.Size(), w.Uniform(), w.Dual(), w.AggregationBalancer(), w.LabelAware()):
        method = fs.Method("m", weighting=Thin(base))
        assert (method.weighting in method.having(hook)) == overrides(base, hook), (hook, base.name)
    own = fs.Method("m", weighting=w.FedNova())
    assert (own.weighting in own.having(hook)) == (hook == "check")


def test_a_new_hook_is_forwarded_without_a_line_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def greet(self: Any) -> str:
        return f"hello from {self.name}"

    monkeypatch.setattr(Weighting, "greet", greet, raising=False)

    @component.forwarding("inner", Weighting)
    @dataclass(frozen=True)
    class Fresh(Thin):
        name = "fresh"

    assert Fresh(w.Size()).greet() == "hello from fresh"  # type: ignore[attr-defined]


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
    assert all("dual_max" in str(row) for row in rows_of(b))


def test_wrapped_weightings_resume(tmp_path: Any) -> None:
    method = fs.methods.fednova(w.Dual(primal_rounds=1, apply="loss"))
    whole = run(method)

    assert run(method, out=tmp_path / "run", on_round=stop_after(2)).stopped
    again = run(method, out=tmp_path / "run", resume=True)
    assert rows_of(again) == rows_of(whole)
    assert all(torch.equal(again.params[n], whole.params[n]) for n in whole.params)
