"""Narrow products inside the network, wide parameters and losses around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fedskew as fs
from fedskew.engines.programs import program
from fedskew.engines.stepper import MAKERS, StepMode, Stepper
from fedskew.errors import ConfigError
from fedskew.method import Component, Method
from fedskew.models.precision import arithmetic, flushed
from fedskew.models.prepare import prepare
from fedskew.settings import Settings
from fedskew.types import View
from support.federations import RAGGED, blobs, skewed
from support.methods import MOST_HOOKS, tiny
from support.nets import CONVOLUTIONAL, keyed
from support.runs import gap, go, rows_of, same

SMALL = keyed(nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10)))


def run(name: str, **options: Any) -> fs.Result:
    settings: dict[str, Any] = {"dtype": "float32", "model": SMALL, "threads": 1}
    return go(skewed(), tiny(name), **(settings | options))


@pytest.mark.parametrize("engine", ["sequential", "batched"])
@pytest.mark.parametrize("name", MOST_HOOKS)
def test_every_method_trains_wide_parameters_by_narrow_products(name: str, engine: str) -> None:
    narrow, wide = (run(name, engine=engine, precision=p) for p in ("bfloat16", "float32"))
    assert all(p.dtype == torch.float32 for p in narrow.params.values())
    # Adagrad without a first moment takes steps of nearly the rate, 0.1, and a sign may differ in the first round
    apart = gap(narrow.params, wide.params)
    if name == "localonly":  # whose global model stays as it is
        apart = abs(narrow.rounds[-1]["personal_loss"] - wide.rounds[-1]["personal_loss"])
    # FedDecorr's correlations divide by deviations of features that are nearly dead, of either sign
    assert 0 < apart < {"fedadagrad": 0.2, "feddecorr": 0.4}.get(name, 0.1)
    assert abs(narrow.rounds[-1]["loss"] - wide.rounds[-1]["loss"]) < 0.1


@pytest.mark.parametrize("net", CONVOLUTIONAL)
def test_convolutions_are_narrow_too(net: str) -> None:
    narrow, wide = (run("fedavg", model=CONVOLUTIONAL[net], precision=p) for p in ("bfloat16", "float32"))
    assert 0 < gap(narrow.params, wide.params) < 0.05
    assert (
        gap(narrow.params, run("fedavg", model=CONVOLUTIONAL[net], precision="bfloat16", engine="batched").params)
        < 0.05
    )


@pytest.mark.thorough
def test_traces_and_threads_are_as_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MAKERS, StepMode.TRACED, (2, program))
    made, make = [], Stepper.make

    def noted(self: Stepper, *given: Any) -> None:
        make(self, *given)
        made.append(sum(map(bool, self.programs.values())))

    monkeypatch.setattr(Stepper, "make", noted)
    plain = run("fedavg", engine="sequential", precision="bfloat16", model="mlp")
    threads = run("fedavg", engine="threaded", precision="bfloat16", model="mlp", threads=3)
    assert same(plain.params, threads.params) and rows_of(plain) == rows_of(threads)
    assert made and made[-1] > 0


def test_outputs_are_wide_and_inputs_of_products_are_not() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    model, other = (prepare(net, None, (1, 8, 8), 10, narrow=dtype) for dtype in (None, torch.bfloat16))
    x, mask, key = torch.rand(4, 1, 8, 8), torch.ones(4), torch.zeros((), dtype=torch.int64)
    wide, _ = model.forward(model.params, {}, x, mask, train=True, key=key)
    narrow, _ = other.clone().forward(model.params, {}, x, mask, train=True, key=key)
    expected = x.flatten(1).bfloat16() @ model.params["1.weight"].bfloat16().T + model.params["1.bias"].bfloat16()
    assert narrow.logits.dtype == narrow.features.dtype == torch.float32
    assert torch.allclose(narrow.logits, expected.float(), atol=1e-2) and not torch.equal(narrow.logits, wide.logits)


def test_the_settings_of_the_process_come_back() -> None:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    with arithmetic("tf32"):
        assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("high", True)
        with arithmetic("float32"):
            assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("highest", False)
    assert before == (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("bf16", "float32", "cpu"), "Settings.precision must be one of float32, tf32, bfloat16; got 'bf16'"),
        (("tf32", "float32", "cpu"), "Settings.precision must be float32 or bfloat16 without a GPU"),
        (("tf32", "float64", "cuda"), "Settings.precision must be float32 with dtype float64"),
        (("bfloat16", "bfloat16", "cpu"), "Settings.precision must be float32 with dtype bfloat16"),
    ],
)
def test_mistakes(given: tuple[str, str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Settings(**dict(zip(("precision", "dtype", "device"), given, strict=True)))  # type: ignore[arg-type]


def test_tf32_is_for_gpus_and_float32_parameters() -> None:
    assert Settings(precision="tf32", device="cuda:1").dtype == "float32"
    assert Settings(precision="float32", dtype="float64").device == "cpu"


@pytest.mark.parametrize("engine", ["sequential", "threaded", "batched"])
def test_denormals_are_zero_while_a_run_trains(engine: str) -> None:
    """In every thread that trains; the caller's thread is left as it was."""

    @dataclass(frozen=True)
    class Asks(Component):
        name = "asks"

        def loss(self, view: View) -> Tensor:
            found.append(flushed())
            return view.out.logits.sum() * 0

    for before in (False, True):
        found: list[bool] = []
        torch.set_flush_denormal(before)
        try:
            go(blobs(RAGGED), Method("a", parts=(Asks(),)), engine=engine, threads=2)
            assert found and all(found) and flushed() is before
        finally:
            torch.set_flush_denormal(False)
