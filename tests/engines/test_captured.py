"""A recorded step: what it is given, what it keeps apart, and every method on a real GPU."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fedskew as fs
from fedskew import engines
from fedskew.engines import stepper
from fedskew.engines.programs import Captured, captured
from fedskew.engines.stepper import StepMode
from fedskew.method.paces import Fixed
from support.federations import RAGGED, UNEVEN, blobs, skewed
from support.methods import BY_HOOK, tiny
from support.nets import CONVOLUTIONAL, dropout_net, norm_net
from support.runs import gap, noted_steppers, programs_of, rows_of, same
from support.runs import measured as go


def again(function: Callable[[], None]) -> Callable[[], None]:
    """A stand-in for a CUDA graph: the function itself, on the recording's memory."""
    function()
    return function


def swap(rows: Any, fixed: Any, carry: Any, now: Any) -> Any:
    """A step whose leaves change places."""
    shared, own = fixed
    a, b = carry["a"], carry["b"]
    return {"a": b, "b": a * shared + own["bias"] + rows[0][now[0]]}, b.sum()


FIXED = torch.tensor(2.0), {"bias": torch.ones(3)}
CARRY = {"a": torch.ones(3), "b": torch.zeros(3)}


def plainly(rows: Any, fixed: Any, carry: Any, steps: list[Any]) -> Any:
    losses = []
    for now in steps:
        carry, loss = swap(rows, fixed, carry, now)
        losses.append(loss)
    return carry, losses


@pytest.mark.parametrize("count", [2, 50])
def test_a_recording_keeps_what_it_is_given_apart(count: int) -> None:
    rows, steps = (torch.arange(2.0),), [(torch.tensor(i),) for i in (0, 1, 1)]
    made = captured(swap, rows, FIXED, CARRY, steps[0], again)
    assert made is not None
    later, other = (torch.arange(float(count)),), (torch.tensor(3.0), {"bias": torch.zeros(3)})  # more rows than it had
    losses: list[Tensor] = []
    first = made.over(later, other)(CARRY, steps, losses)
    kept = {name: leaf.clone() for name, leaf in first.items()}
    made.over(rows, FIXED)(first, steps, [])
    expected, each = plainly(later, other, CARRY, steps)
    assert same(first, expected) and same(first, kept) and torch.equal(torch.stack(losses), torch.stack(each))


def test_what_cannot_be_recorded_is_not() -> None:
    rows, now = (torch.arange(2.0),), (torch.tensor(0),)

    def grows(rows: Any, fixed: Any, carry: Any, now: Any) -> Any:
        return {**carry, "c": carry["a"]}, carry["a"].sum()

    def counts(rows: Any, fixed: Any, carry: Any, now: Any) -> Any:
        counts.n = getattr(counts, "n", 0) + 1  # type: ignore[attr-defined]
        return {"a": carry["a"] + counts.n, "b": carry["b"]}, carry["a"].sum()  # type: ignore[attr-defined]

    assert captured(grows, rows, FIXED, CARRY, now, again) is None
    assert captured(counts, rows, FIXED, CARRY, now, again) is None


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedgr", "moon"])
def test_stacks_are_recorded_as_they_train(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirteen clients end one after another; of nine that go on, a stack of ten holds one that has ended."""
    made: list[Captured | None] = []

    def record(*given: Any) -> Captured | None:
        made.append(captured(*given, again))
        return made[-1]

    fed = blobs([*UNEVEN, *RAGGED, [3, 3, 0]], auxiliary=3)
    method = replace(tiny(name), pace=Fixed(epochs=2, batch_size=4, lr=0.1))
    options: dict[str, Any] = {"engine": "batched", "cohort": 13, "rounds": 2, "threads": 1, "model": norm_net(3, 5)}
    exact = go(fed, method, **options)
    monkeypatch.setattr(engines.Batched, "step_mode", lambda *_: StepMode.RECORDED)
    monkeypatch.setitem(stepper.MAKERS, StepMode.RECORDED, (6, record))
    assert gap(exact.params, go(fed, method, **options).params) <= 1e-12
    assert made and None not in made


# --- on a GPU ---------------------------------------------------------------------------------------------------------

gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
EXACT = {"engine": "batched", "threads": 1, "cohort": 4, "rounds": 4}


class TestOnAGpu:
    """float64 on the GPU beside the same run on the CPU."""

    pytestmark = gpu

    @pytest.fixture(autouse=True)
    def noted(self, monkeypatch: pytest.MonkeyPatch) -> list[stepper.Stepper]:
        """Record from the second round on; the steppers that are made."""
        monkeypatch.setitem(stepper.MAKERS, StepMode.RECORDED, (6, captured))
        return noted_steppers(monkeypatch)

    @pytest.mark.parametrize("engine", ["batched", "chained", "sequential", "debug", "auto"])
    @pytest.mark.parametrize("name", BY_HOOK)
    def test_every_method_gives_the_cpus_result(self, name: str, engine: str, noted: list[stepper.Stepper]) -> None:
        options = {**EXACT, "dtype": "float64", "engine": engine}
        there = go(skewed(), tiny(name), device="cuda", **options)
        here = go(skewed(), tiny(name), **{**options, "engine": "sequential"})
        assert gap({n: p.cpu() for n, p in there.params.items()}, here.params) < 1e-8
        if engine == "batched":
            assert programs_of(noted) > 0, "no step was recorded"

    @pytest.mark.parametrize("name", BY_HOOK)
    def test_recorded_and_plain_steps_give_the_same_bits(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        recorded = go(blobs(RAGGED, auxiliary=3), tiny(name), device="cuda", **EXACT)
        monkeypatch.setitem(stepper.MAKERS, StepMode.RECORDED, (float("inf"), None))
        plain = go(blobs(RAGGED, auxiliary=3), tiny(name), device="cuda", **EXACT)
        assert gap(recorded.params, plain.params) < 1e-6

    @pytest.mark.parametrize("net", [*CONVOLUTIONAL, "batch_norm", "dropout"])
    def test_networks(self, net: str) -> None:
        made = {**CONVOLUTIONAL, "batch_norm": norm_net(), "dropout": dropout_net()}[net]
        options = {**EXACT, "dtype": "float64", "model": made}
        there, here = (go(skewed(), tiny("scaffold"), device=where, **options) for where in ("cuda", "cpu"))
        assert gap({n: p.cpu() for n, p in there.params.items()}, here.params) < 1e-8
        assert gap({n: p.cpu() for n, p in there.buffers.items()}, here.buffers) < 1e-8

    @pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
    def test_precisions(self, precision: str) -> None:
        options = {**EXACT, "dtype": "float32"}
        low = go(skewed(), tiny("fedavg"), device="cuda", precision=precision, **options)
        full = go(skewed(), tiny("fedavg"), **options)
        assert 0 < gap({n: p.cpu() for n, p in low.params.items()}, full.params) < 0.1

    @pytest.mark.parametrize("memory", ["device", "ram"])
    def test_a_run_goes_on(self, memory: str, tmp_path: Path) -> None:
        options = {**EXACT, "device": "cuda", "memory": memory}
        whole = go(skewed(), tiny("scaffold"), **options)
        go(skewed(), tiny("scaffold"), **{**options, "rounds": 2}, out=tmp_path / "run")
        rest = go(skewed(), tiny("scaffold"), **options, out=tmp_path / "run", resume=True)
        assert same(whole.params, rest.params) and rows_of(whole)[-1] == rows_of(rest)[-1]

    @pytest.mark.parametrize("engine", ["batched", "sequential"])
    def test_what_is_not_finite(self, engine: str) -> None:
        options: dict[str, Any] = {**EXACT, "engine": engine, "device": "cuda", "dtype": "float32", "model": "mlp"}
        method = tiny("fedavg")
        wild = replace(method, pace=replace(method.pace, lr=3e38))
        with pytest.raises(fs.TrainingError, match=r"client .* round 1"):
            go(skewed(), wild, **options)

    @pytest.mark.parametrize("net", [*CONVOLUTIONAL, "batch_norm"])
    def test_a_run_repeats_its_bits(self, net: str) -> None:
        made = {**CONVOLUTIONAL, "batch_norm": norm_net()}[net]
        options = {**EXACT, "device": "cuda", "model": made, "dtype": "float32"}
        a, b = (go(skewed(), tiny("scaffold"), **options) for _ in "ab")
        assert same(a.params, b.params) and same(a.buffers, b.buffers) and rows_of(a) == rows_of(b)

    def test_a_run_leaves_no_memory_behind(self) -> None:
        def held() -> int:
            go(skewed(), tiny("scaffold"), device="cuda", model=CONVOLUTIONAL["convolutions"], **EXACT)
            gc.collect()
            return torch.cuda.memory_allocated()

        first = held()
        assert held() <= first + (1 << 20) and held() <= first + (1 << 20)
