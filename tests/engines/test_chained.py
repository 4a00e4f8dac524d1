"""Clients as chains: the results of one client after another, whatever recording stands behind a launch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fedskew as fs
from fedskew.config.flags import experiment_from
from fedskew.engines import chained
from fedskew.engines.programs import Captured
from fedskew.method import Component
from fedskew.method.paces import Fixed
from fedskew.studies.address import engine_of
from fedskew.types import Params, View
from support.federations import RAGGED, blobs, skewed, small_digits
from support.methods import BY_HOOK, FixedCohort, tiny
from support.nets import CONVOLUTIONAL, dropout_net, norm_net
from support.runs import gap, go, rows_of, same

NETWORKS = {**CONVOLUTIONAL, "batch_norm_dense": norm_net(), "dropout": dropout_net()}
CHAINED: dict[str, Any] = {"engine": "chained", "cohort": 4}


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Captured]:
    """What is recorded; of slots there are two."""
    made: list[Captured] = []
    init = Captured.__init__

    def note(self: Captured, *given: Any) -> None:
        init(self, *given)
        made.append(self)

    monkeypatch.setattr(Captured, "__init__", note)
    monkeypatch.setattr(chained, "SLOTS", 2)
    return made


@pytest.mark.parametrize("name", BY_HOOK)
def test_a_chain_gives_what_one_client_after_another_gives(name: str) -> None:
    a, b = go(skewed(), tiny(name), cohort=4), go(skewed(), tiny(name), **CHAINED)
    assert gap(a.params, b.params) <= 1e-8 and gap(a.buffers, b.buffers) <= 1e-8
    for one, other in zip(rows_of(a), rows_of(b), strict=True):
        assert one["clients"] == other["clients"] and one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-8)


@pytest.mark.parametrize("net", NETWORKS)
def test_networks(net: str) -> None:
    a, b = (go(skewed(), tiny("scaffold"), model=NETWORKS[net], cohort=4, engine=e) for e in ("sequential", "chained"))
    assert gap(a.params, b.params) <= 1e-8 and gap(a.buffers, b.buffers) <= 1e-8


def test_other_clients_bring_no_new_recording(recorded: list[Captured]) -> None:
    method = replace(tiny("moon"), pace=Fixed(epochs=2, batch_size=4, lr=0.1))
    a, b = go(blobs(RAGGED), method, rounds=4), go(blobs(RAGGED), method, rounds=4, engine="chained")
    assert gap(a.params, b.params) <= 1e-8
    assert len({tuple(row["clients"]) for row in b.rounds}) > 1 and len(recorded) == 2


def test_a_table_grows_with_its_clients(recorded: list[Captured], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chained, "ROOM", 1)
    method = replace(tiny("fedavg"), pace=Fixed(epochs=1, batch_size=0, lr=0.1))  # a mini-batch is a whole client
    options: dict[str, Any] = {"cohort": 1, "rounds": 6}
    fed = blobs(RAGGED[::-1])
    a, b = go(fed, method, **options), go(fed, method, engine="chained", **options)
    assert gap(a.params, b.params) <= 1e-8 and 1 < len(recorded) < 6


def test_a_run_goes_on(tmp_path: Path) -> None:
    whole = go(skewed(), tiny("scaffold"), rounds=4, **CHAINED)
    go(skewed(), tiny("scaffold"), rounds=2, **CHAINED, out=tmp_path / "run")
    rest = go(skewed(), tiny("scaffold"), rounds=4, **CHAINED, out=tmp_path / "run", resume=True)
    assert same(whole.params, rest.params) and rows_of(whole)[-1] == rows_of(rest)[-1]


def test_clients_that_begin_from_each_other(recorded: list[Captured]) -> None:
    method = replace(tiny("scaffold"), selector=FixedCohort(((0, 2), (3, 1))))
    a, b = go(blobs(RAGGED), method), go(blobs(RAGGED), method, engine="chained")
    assert gap(a.params, b.params) <= 1e-8 and len(recorded) == 1


@dataclass(frozen=True)
class Reads(Component):
    """Leaves gradients alone, in a way that a recording would not repeat."""

    name = "reads"
    act: Callable[[Tensor], float]

    def correct(self, grads: Params, view: View) -> Params:
        scale = self.act(view.progress.step)
        return {name: g * scale for name, g in grads.items()}


draws = np.random.Generator(np.random.PCG64(0))
HOST: dict[str, tuple[Callable[[Tensor], float], str]] = {
    "draws": (lambda step: float(draws.random()), "does not repeat itself"),
    "reads": (lambda step: 1.0 if int(step) > 1 else 0.5, "reads a value of a tensor"),
    "picks": (lambda step: 1.0 + len(step.reshape(1)[step.reshape(1) > 1]), "reads a value of a tensor"),
}


@pytest.mark.parametrize("how", HOST)
def test_what_a_recording_would_not_repeat_is_stacked(how: str) -> None:
    act, told = HOST[how]
    method = replace(tiny("fedavg"), parts=(*tiny("fedavg").parts, Reads(act)))
    ends = nullcontext() if how == "draws" else pytest.raises(RuntimeError, match="vmap")  # nor can it be stacked
    with pytest.warns(RuntimeWarning, match=f"'fedavg' {told}: its clients are not chained but stacked"), ends:
        go(blobs(RAGGED), method, engine="chained")


def test_a_network_that_mixes_rows_is_refused() -> None:
    class Mixing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x - x.mean(0))

    with pytest.raises(fs.ConfigError, match=r"Settings.engine must not be chained for this model"):
        go(blobs(RAGGED), tiny("fedavg"), model=Mixing(), engine="chained")


def test_the_address_says_what_rounds_otherwise() -> None:
    def named(*words: str) -> str:
        return engine_of(experiment_from(["fedavg", "--engine", "chained", "--threads", "1", *words]), small_digits())

    assert named() == named("--deterministic", "false") == "chained 1"
    assert named("--device", "cuda") == "chained 1 cuda"
    assert named("--device", "cuda", "--deterministic", "false") == "chained 1 cuda in any order"


gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


class TestOnAGpu:
    """Recorded chains beside plain steps, and beside themselves; `test_captured.py` has them beside the CPU."""

    pytestmark = gpu

    @pytest.mark.parametrize("net", NETWORKS)
    @pytest.mark.parametrize("name", ["fedavg", "scaffold"])
    def test_launches_have_the_bits_of_plain_steps(self, name: str, net: str, monkeypatch: pytest.MonkeyPatch) -> None:
        options = {**CHAINED, "device": "cuda", "dtype": "float32", "model": NETWORKS[net]}
        launched, again = (go(skewed(), tiny(name), **options) for _ in "ab")
        monkeypatch.setattr(chained, "cuda_graph", lambda function, aside: function)
        plain = go(skewed(), tiny(name), **options)
        assert same(launched.params, again.params) and same(launched.buffers, again.buffers)
        assert same(launched.params, plain.params) and same(launched.buffers, plain.buffers)

    def test_sums_in_any_order(self) -> None:
        options = {**CHAINED, "device": "cuda", "dtype": "float32", "model": CONVOLUTIONAL["convolutions"]}
        fixed, free = (go(skewed(), tiny("fedavg"), deterministic=d, **options) for d in (True, False))
        assert gap(fixed.params, free.params) < 1e-3
