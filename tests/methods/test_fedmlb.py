"""The hybrid paths of FedMLB: their blocks, and what they leave alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from fedskew.errors import FieldError
from fedskew.method import Component, Method
from fedskew.method.paces import Fixed
from fedskew.methods.fedmlb import HybridPaths
from fedskew.models.architectures import TwoNN
from support.replay import federation
from support.runs import gap, go, same

DEEP = TwoNN(hidden=5)
ONE_STEP: dict[str, Any] = {"rounds": 1, "cohort": 5}


def having(part: Component, *more: Component) -> Method:
    return Method("mine", parts=(part, *more), pace=Fixed(epochs=2, lr=0.1, batch_size=5))


def stepping(part: Component | None = None) -> Method:
    return Method("mine", parts=() if part is None else (part,), pace=Fixed(epochs=1, lr=0.1, batch_size=0))


def test_a_wrong_cut_is_an_error_before_the_first_round(tmp_path: Any) -> None:
    with pytest.raises(FieldError, match=r"HybridPaths.cuts must name layers of the model; did you mean 'hidden2'"):
        go(federation(), having(HybridPaths(cuts=("hiden2",))), model=DEEP, out=tmp_path / "run")
    assert not list(tmp_path.rglob("rounds*"))


@pytest.mark.parametrize("engine", ["sequential", "batched"])
def test_parameters_of_other_components_are_in_no_block(engine: str) -> None:
    @dataclass(frozen=True)
    class Beside(Component):
        name = "beside"

        def init_params(self, params: Any, task: Any, key: Any) -> Any:
            return {"beside.unused": torch.ones(2, dtype=torch.float64)}

    method = having(HybridPaths(), Beside())
    found = go(federation(), method, model=DEEP, engine=engine).params
    plain = go(federation(), having(HybridPaths()), model=DEEP, engine=engine).params
    beside = {name: found[name] for name in plain}
    assert (
        gap(beside, plain) < 1e-12 if engine == "batched" else same(beside, plain)
    )  # stacked by vmap, not written out


@pytest.mark.parametrize("engine", ["sequential", "batched"])
def test_at_the_broadcast_model_the_paths_do_not_differ_from_the_main_one(engine: str) -> None:
    """The same dropout, and the statistics of the same mini-batch: no divergence, and no gradient of it."""
    net = nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)
    )
    plain = go(federation(), stepping(), model=net, engine=engine, **ONE_STEP)
    found = go(federation(), stepping(HybridPaths(0.0, 50.0)), model=net, engine=engine, **ONE_STEP)
    assert gap(found.params, plain.params) < 1e-12
    pushed = go(federation(), stepping(HybridPaths(0.5, 0.0)), model=net, engine=engine, **ONE_STEP)
    assert gap(pushed.params, plain.params) > 1e-4
    assert same(pushed.state.buffers, plain.state.buffers), "only the main path moves the running statistics"
