"""Code of the user's that is no method's: whatever it does with what it is given, run and record are the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedskew as fs
from fedskew.data import from_arrays
from fedskew.errors import DataError, TrainingError
from fedskew.methods import METHODS
from fedskew.track import Several
from support.lives import unlike
from support.resuming import stop_after

GIVEN = {"rounds": 4, "cohort": 3, "model": "logistic", "engine": "sequential", "monitor": "val_accuracy"}


def wreck(value: Any) -> int:
    """Change everything that can be changed; how many things there were."""
    if isinstance(value, Tensor):
        value.zero_()
        return 1
    if isinstance(value, np.ndarray):
        value[...] = 0
        return 1
    if isinstance(value, dict | list):
        inner = sum(map(wreck, list(value.values() if isinstance(value, dict) else value)))
        value.clear()
        return inner + 1
    return 0


class Vandal:
    """A tracker that changes all that it is told."""

    def __init__(self, *held: Any) -> None:
        self.held, self.calls = held, dict.fromkeys(("begin", "again", "round", "end"), 0)

    def begin(self, config: dict[str, Any]) -> None:
        assert config["rounds"] == GIVEN["rounds"]
        self.calls["begin"] += wreck(config)

    def again(self, row: dict[str, Any]) -> None:
        self.calls["again"] += wreck(row)

    def __call__(self, row: dict[str, Any]) -> None:
        assert row["round"] and row["clients"]
        self.calls["round"] += wreck(row) + sum(map(wreck, self.held))

    def end(self, summary: dict[str, Any]) -> None:
        assert "stopped" in summary
        self.calls["end"] += wreck(summary)


def made(copy: bool = True) -> tuple[fs.data.Federation, nn.Module, list[Any]]:
    """A federation, a network, and all objects that a user gave or was given for them."""
    gen = np.random.Generator(np.random.PCG64(0))
    x, y = gen.normal(size=(240, 5)).astype(np.float32), np.arange(240) % 3
    test, site = gen.normal(size=(60, 5)).astype(np.float32), np.arange(240) % 6
    net = nn.Linear(5, 3)
    torch.nn.init.constant_(net.weight, 0.01)
    torch.nn.init.zeros_(net.bias)
    fed = fs.federate(from_arrays(x, y, test, y[:60], columns={"site": site}, copy=copy), "natural", validation=0.2)
    given = [x, y, test, site, net.weight.data, net.bias.data, fed.rows(0), fed.sizes, fed.report(), fed.test_rows(0)]
    return fed, net, given


def lasting(content: dict[str, Any]) -> dict[str, Any]:
    """What of a file two equal runs have in common: no seconds."""
    return {name: value for name, value in content.items() if not name.endswith("_s") and name != "run"}


@pytest.mark.parametrize("name", ["scaffold", "fedgrab", "pow_d", "fedrep"])
def test_user_code_that_changes_what_it_is_given_changes_nothing(name: str, tmp_path: Path) -> None:
    method = METHODS[name]() if name in METHODS else METHODS["fedavg"]()
    folders, results, listened = [], [], []
    for vandal in (None, Vandal()):
        fed, net, given = made()
        out = tmp_path / f"run-{len(folders)}"
        how = {**GIVEN, "model": net, "head": "", "dtype": "float32"}
        heard: list[Any] = []
        on_round = None if vandal is None else Several([Vandal(*given), lambda row, heard=heard: heard.append(row)])
        results.append(fs.run(fed, method, out=out, on_round=on_round, **how))
        folders.append(out)
        listened = heard
    assert unlike(*folders) == "" and listened == results[1].rounds
    for file in ("config.json", "summary.json", "model.json"):
        plain, vandalised = (lasting(json.loads((folder / file).read_text())) for folder in folders)
        assert plain == vandalised, file
    assert lasting(results[0].summary) == lasting(results[1].summary)
    assert torch.equal(results[0].params["weight"], results[1].params["weight"])


def test_a_run_ends_without_a_result_whose_borrowed_arrays_were_changed(tmp_path: Path) -> None:
    fed, net, given = made(copy=False)
    with pytest.raises(DataError, match="must not change after from_arrays, nor in a run; they did"):
        fs.run(fed, METHODS["fedavg"](), out=tmp_path, on_round=Vandal(*given), **{**GIVEN, "model": net, "head": ""})


def test_a_tracker_of_a_resumed_run_changes_nothing(tmp_path: Path) -> None:
    folders = []
    for vandal in (None, Vandal()):
        fed, net, _ = made()
        out = tmp_path / f"run-{len(folders)}"
        fs.run(fed, METHODS["scaffold"](), out=out, on_round=stop_after(2), **{**GIVEN, "model": net, "head": ""})
        fs.run(fed, METHODS["scaffold"](), out=out, on_round=vandal, resume=True, **{**GIVEN, "model": net, "head": ""})
        folders.append(out)
    assert unlike(*folders) == "" and vandal is not None and min(vandal.calls.values()) > 0


@pytest.mark.parametrize("what", ["counts", "x", "y", "x_test", "y_test"])
def test_a_callback_that_writes_into_the_federation_is_named(what: str) -> None:
    fed, net, _ = made()

    def writes(row: dict[str, Any]) -> None:
        (fed.counts if what == "counts" else getattr(fed.dataset, what)).zero_()

    with pytest.raises(TrainingError, match=f"on_round must not change its inputs; it changed '{what}', round 1"):
        fs.run(fed, METHODS["fedavg"](), on_round=writes, **{**GIVEN, "model": net, "head": ""})
