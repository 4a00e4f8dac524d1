"""What clients keep between rounds: both homes give the same bits, and a checkpoint gives it back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import fedskew as fs
from fedskew.engines.clients import ClientMemory
from support.federations import skewed
from support.methods import tiny
from support.resuming import stop_after
from support.runs import go, rows_of, same


@pytest.mark.parametrize(("name", "engine"), [("scaffold", "batched"), ("moon", "threaded"), ("pfedme", "sequential")])
def test_both_homes_give_the_same_run(name: str, engine: str) -> None:
    options = {"rounds": 3, "cohort": 4, "engine": engine, "dtype": "float32"}
    device, ram = (go(skewed(), tiny(name), memory=where, **options) for where in ("device", "ram"))
    assert same(device.params, ram.params) and rows_of(device) == rows_of(ram)


def test_a_run_on_the_device_goes_on_in_ram(tmp_path: Path) -> None:
    whole = go(skewed(), fs.methods.scaffold(), rounds=6, out=tmp_path / "whole")
    go(skewed(), fs.methods.scaffold(), rounds=6, out=tmp_path / "half", on_round=stop_after(3))
    rest = go(skewed(), fs.methods.scaffold(), rounds=6, out=tmp_path / "half", resume=True, memory="ram")
    assert same(whole.params, rest.params) and rows_of(whole) == rows_of(rest)


def test_memories_in_a_file_of_an_earlier_version_are_told() -> None:
    with pytest.raises(fs.RecordError, match=r"memory\.bin, which this version does not read"):
        ClientMemory({}).load({"slots": torch.zeros(0, 2)})
