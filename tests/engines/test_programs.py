"""Threads and traced steps give the bits of the plain loop, for every method and every kind of model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import fedskew as fs
from fedskew import engines
from fedskew.engines.programs import program
from fedskew.engines.runtime import Workers
from fedskew.engines.stepper import MAKERS, StepMode, Stepper
from fedskew.method import Component, Method
from fedskew.models.prepare import prepare
from fedskew.types import View
from support.federations import skewed
from support.methods import MOST_HOOKS, PACE, tiny
from support.nets import CONVOLUTIONAL
from support.runs import gap, go, noted_steppers, programs_of, rows_of, same


@pytest.fixture
def tracing(monkeypatch: pytest.MonkeyPatch) -> list[Stepper]:
    """Three threads, and every step traced from the second of its shape on; the steppers that are made."""
    monkeypatch.setitem(MAKERS, StepMode.TRACED, (2, program))
    monkeypatch.setattr(Workers, "cores", staticmethod(lambda: 3))
    return noted_steppers(monkeypatch)


def run(name: str, engine: str, **options: Any) -> fs.Result:
    return go(skewed(), tiny(name), engine=engine, **options)


def same_runs(a: fs.Result, b: fs.Result) -> bool:
    return same(a.params, b.params) and same(a.buffers, b.buffers) and rows_of(a) == rows_of(b)


@pytest.mark.parametrize("name", MOST_HOOKS)
def test_threads_and_traces_change_no_bit(name: str, tracing: list[Stepper]) -> None:
    plain = run(name, "sequential")
    assert programs_of(tracing) == 0
    assert same_runs(plain, run(name, "threaded"))
    assert programs_of(tracing) > 0


def test_clients_in_a_chain_are_traced_as_well(tracing: list[Stepper]) -> None:
    run("astraea", "threaded", threads=2)
    assert programs_of(tracing) > 0


@pytest.mark.parametrize("model", CONVOLUTIONAL)
def test_convolutions_in_float32(model: str, tracing: list[Stepper]) -> None:
    options: Any = {"model": CONVOLUTIONAL[model], "dtype": "float32"}
    assert same_runs(run("moon", "sequential", **options), run("moon", "threaded", **options))
    assert programs_of(tracing) == 0  # their backward pass has arguments that the interpreter does not take


@dataclass(frozen=True)
class Peeks(Component):
    """Reads a value back: an ordinary engine lets it, a trace cannot."""

    name = "peeks"

    def loss(self, view: View) -> Tensor:
        factor = 0.1 if float(view.progress.step) > 1 else 0.0
        return factor * sum((p.square().sum() for p in view.params.values()), start=torch.zeros(()))


def test_what_cannot_be_traced_runs_untraced(tracing: list[Stepper]) -> None:
    method = Method("p", parts=(Peeks(),), pace=PACE)
    plain = go(skewed(), method, engine="sequential")
    assert same_runs(plain, go(skewed(), method, engine="threaded")) and programs_of(tracing) == 0
    assert any(None in stepper.programs.values() for stepper in tracing)


def test_a_program_of_other_bits_is_not_used() -> None:
    calls = iter(range(100))

    def step(rows: Any, fixed: Any, carry: Any, now: Any) -> Any:
        return {"w": carry["w"] + next(calls)}, carry["w"].sum()

    stepper = Stepper(step, StepMode.TRACED)
    w = {"w": torch.ones(3)}
    stepper.make((torch.ones(2),), {}, w, (torch.ones(1),))
    assert list(stepper.programs.values()) == [None]


class Fixed(NamedTuple):
    """What stays the same over a local run: shared by all clients, and a client's own."""

    shared: dict[str, Tensor]
    own: dict[str, Tensor]


def programmed(step: Any, steps: list[float], now: float = 1.0) -> tuple[Any, Any, Stepper]:
    """The carry after steps of a function with and without a program made at ``now``, and its stepper."""
    rows, fixed = (torch.arange(4.0),), Fixed({}, {"counts": torch.tensor([3.0, 0.0, 5.0])})
    carry, schedule = {"w": torch.tensor([0.5, 1.0, -2.0])}, [(torch.tensor(t),) for t in steps]
    stepper = Stepper(step, StepMode.TRACED)
    plain, _ = stepper.run(rows, fixed, carry, schedule)
    stepper.make(rows, fixed, carry, (torch.tensor(now),))
    assert sum(map(bool, stepper.programs.values())) == 1
    return plain["w"], stepper.run(rows, fixed, carry, schedule)[0]["w"], stepper


def test_what_lasts_is_computed_once() -> None:
    def step(rows: Any, fixed: Any, carry: Any, now: Any) -> Any:
        share = (fixed.own["counts"] + 1).log() * torch.ones_like(carry["w"])
        w = carry["w"] * now[0].exp() + share + rows[0].sum()
        return {"w": w}, w.sum()

    plain, traced, stepper = programmed(step, [0.1, 0.2, -0.3])
    assert torch.equal(plain, traced)
    (made,) = stepper.programs.values()
    assert made is not None
    once, each = (str(getattr(made, part).graph) for part in ("once", "each"))  # type: ignore[attr-defined]
    assert [once.count(f"aten::{op}(") for op in ("log", "sum", "exp")] == [1, 1, 0]
    assert [each.count(f"aten::{op}(") for op in ("log", "sum", "exp", "ones_like")] == [0, 1, 1, 0]


def views(rows: Any, fixed: Any, carry: Any, now: Any) -> Any:
    """Writes into memory that label counts alone have made, under another name."""
    total = fixed.own["counts"] * 2
    total.view(3, 1).add_(now[0])
    w = carry["w"] + total
    return {"w": w}, w.sum()


def listed(rows: Any, fixed: Any, carry: Any, now: Any) -> Any:
    """Writes into a list of tensors that label counts alone have made."""
    sums = [fixed.own["counts"] * 0.5, fixed.own["counts"] + 1]
    torch._foreach_add_(sums, [carry["w"], carry["w"]])
    w = 0.1 * sums[0] + 0.2 * sums[1] + now[0]
    return {"w": w}, w.sum()


def read_again(rows: Any, fixed: Any, carry: Any, now: Any) -> Any:
    """Reads what it has written into under its old name."""
    twice = carry["w"] * 2
    twice.add_(now[0] + 1)
    w = 0.5 * twice + carry["w"] + rows[0].sum()
    return {"w": w}, w.sum()


def drawn(rows: Any, fixed: Any, carry: Any, now: Any) -> Any:
    """Draws numbers, which change no bit at now = 0."""
    return {"w": torch.rand(3) * now[0] + rows[0].sum()}, torch.rand(3).sum() * now[0]


@pytest.mark.parametrize("step", [views, listed, drawn])
def test_steps_that_write_or_draw_are_not_traced(step: Any) -> None:
    stepper = Stepper(step, StepMode.TRACED)
    fixed = Fixed({}, {"counts": torch.tensor([3.0, 0.0, 5.0])})
    stepper.make((torch.arange(4.0),), fixed, {"w": torch.ones(3)}, (torch.tensor(0.0),))
    assert list(stepper.programs.values()) == [None]


def filled(rows: Any, fixed: Any, carry: Any, now: Any) -> Any:
    """Writes into what nobody else reads, as the gradient of a norm does."""
    w = (carry["w"] * now[0]).masked_fill_(fixed.own["counts"] == 0, 0.5) + rows[0].sum()
    return {"w": w}, w.sum()


@pytest.mark.parametrize("step", [filled, read_again])
def test_writing_into_memory_of_its_own_is_traced(step: Any) -> None:
    plain, traced, _ = programmed(step, [0.1, 0.2, -0.3])
    assert torch.equal(plain, traced)


def test_it_is_due_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MAKERS, StepMode.TRACED, (10, program))
    stepper = Stepper(lambda *_: None, StepMode.TRACED)  # type: ignore[arg-type,return-value]
    assert [stepper.due("a", 4, left) for left in (2, 1)] == [False, False], "8 steps lie ahead, and tracing pays at 10"
    assert [stepper.due("b", 4, left) for left in (5, 4)] == [True, False]
    assert not stepper.due("c", 3, 3) and stepper.due("c", 15, 2), "9 and 18 steps ahead by the average of its rounds"
    assert not stepper.due("d", 0, 3) and not stepper.due("d", 4, 2), "half of 4 a round, for 2 rounds"


@pytest.mark.parametrize("engine", ["sequential", "threaded"])
def test_the_number_of_threads_changes_no_bit(engine: str) -> None:
    one, three = (go(skewed(), tiny("fedla"), engine=engine, threads=n, dtype="float32") for n in (1, 3))
    assert same_runs(one, three)


def test_auto_looks_at_device_model_and_method() -> None:
    small, large, conv = (
        prepare(net, None, (1, 8, 8), 10)
        for net in (
            nn.Sequential(nn.Flatten(), nn.Linear(64, 10)),
            nn.Sequential(nn.Flatten(), nn.Linear(64, 400), nn.ReLU(), nn.Linear(400, 10)),
            CONVOLUTIONAL["convolutions"],
        )
    )
    ours, own = fs.methods.fedavg(), Method("p", parts=(Peeks(),))
    chosen = {n: engines.choose("auto", "cpu", m, ours)[0].name for n, m in (("s", small), ("l", large), ("c", conv))}
    assert chosen == {"s": "batched", "l": "batched", "c": "threaded"}
    for looks_at_gradients in (fs.methods.scaffold(), fs.methods.fedprox(), fs.methods.perfedavg()):
        assert engines.choose("auto", "cpu", large, looks_at_gradients)[0].name == "threaded"
    assert engines.choose("auto", "cpu", large, ours, augmented=True)[0].name == "threaded"
    assert engines.choose("auto", "cpu", small, own)[0].name == "threaded"
    assert engines.choose("auto", "cuda", conv, own)[0].name == "batched"


def test_a_stack_that_does_not_fit_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = go(skewed(), tiny("scaffold"), engine="batched", cohort=5, threads=1)
    run, sizes = engines.Batched.run_stack, list[int]()

    def small(self: Any, method: Method, places: list[Any], *options: Any) -> Any:
        sizes.append(len(places))
        if len(places) > 2:
            raise torch.OutOfMemoryError("no more")
        return run(self, method, places, *options)

    monkeypatch.setattr(engines.Batched, "run_stack", small)
    halved = go(skewed(), tiny("scaffold"), engine="batched", cohort=5, threads=1)
    assert sizes[:4] == [5, 2, 3, 1] and gap(whole.params, halved.params) < 1e-12
    assert max(sizes[-3:]) <= 2, "smaller stacks from then on"


def test_another_error_is_not_taken_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, method: Method, places: list[Any], *options: Any) -> Any:
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(engines.Batched, "run_stack", broken)
    with pytest.raises(RuntimeError, match="shapes differ"):
        go(skewed(), tiny("fedavg"), engine="batched")


def test_the_chunk_keeps_to_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    import fedskew.engines.batched as batched

    sizes = list[int]()
    run, estimate = engines.Batched.run_stack, engines.Batched.client_bytes

    def noted(self: Any, method: Method, places: list[Any], *options: Any) -> Any:
        sizes.append(len(places))
        assert estimate(self, method, places[0]) > 6 * 8 * 650  # 650 parameters of eight bytes, some copies of them
        return run(self, method, places, *options)

    monkeypatch.setattr(engines.Batched, "run_stack", noted)
    monkeypatch.setattr(batched, "BUDGET", 250_000)
    go(skewed(), tiny("fedavg"), engine="batched", cohort=6, threads=1, rounds=1)
    assert len(sizes) > 1 and max(sizes) < 6
