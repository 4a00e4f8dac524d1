"""What clients keep between rounds: both homes give the same bits, and a checkpoint gives it back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import fedskew as fs
from fedskew import tree
from fedskew.engines.clients import ClientMemory
from fedskew.errors import RecordError
from support.federations import skewed
from support.methods import tiny
from support.resuming import dying_after, stop_after
from support.runs import go, rows_of, same

TEMPLATE = {
    "a": {"w": torch.zeros(3, 2), "flag": torch.tensor(False)},
    "bare": {},
    "b": {"n": torch.zeros((), dtype=torch.int64), "half": torch.zeros(5, dtype=torch.bfloat16)},
}


def alike(a: Any, b: Any) -> bool:
    """Equal trees."""
    return same(*({".".join(where): leaf for where, leaf in tree.flatten(t) if leaf is not None} for t in (a, b)))


def filled(value: float) -> dict[str, Any]:
    """A memory of the template's structure."""
    found: dict[str, Any] = tree.map_tree(lambda leaf: torch.full_like(leaf, value), TEMPLATE)
    return found


def test_a_checkpoint_gives_back_what_clients_kept() -> None:
    memory = ClientMemory(TEMPLATE)
    for round, value in enumerate((1, 2, 3), start=1):
        memory.begin(round)
        for client in (7, 0, 10**6):
            memory.put(client, filled(value * (client % 5 + 1)))
        memory.settle(round)
    again = ClientMemory(TEMPLATE)
    again.load(memory.dump())
    for side in (memory, again):
        for client in (7, 0, 10**6):
            assert list(side.get(client)) == list(TEMPLATE)
            assert alike(side.get(client), filled(3 * (client % 5 + 1)))
        assert side.get(8) is TEMPLATE


def test_writes_of_two_components_in_one_round_are_both_kept() -> None:
    memory = ClientMemory(TEMPLATE)
    memory.begin(1)
    for name in ("a", "b"):
        memory.put(7, {name: filled(1)[name]})
    memory.settle(1)
    assert alike(memory.get(7), filled(1))


def test_memories_in_a_file_of_an_earlier_version_are_told() -> None:
    with pytest.raises(RecordError, match=r"memory\.bin, which this version does not read"):
        ClientMemory(TEMPLATE).load({"slots": torch.zeros(0, 2)})


@pytest.mark.parametrize("engine", ["sequential", "threaded", "batched"])
@pytest.mark.parametrize("name", ["scaffold", "moon", "pfedme"])
def test_both_homes_give_the_same_run(name: str, engine: str) -> None:
    options = {"rounds": 3, "cohort": 4, "engine": engine, "dtype": "float32"}
    device, ram = (go(skewed(), tiny(name), memory=where, **options) for where in ("device", "ram"))
    assert same(device.params, ram.params) and rows_of(device) == rows_of(ram)


def test_a_run_on_the_device_goes_on_in_ram(tmp_path: Path) -> None:
    whole = go(skewed(), fs.methods.scaffold(), rounds=6, out=tmp_path / "whole")
    go(skewed(), fs.methods.scaffold(), rounds=6, out=tmp_path / "half", on_round=stop_after(3))
    rest = go(skewed(), fs.methods.scaffold(), rounds=6, out=tmp_path / "half", resume=True, memory="ram")
    assert same(whole.params, rest.params) and rows_of(whole) == rows_of(rest)


def test_who_died_between_checkpoints_goes_on_from_the_last(tmp_path: Path) -> None:
    """Rounds 3 and 4 have overwritten every client's memory before the process dies."""
    options = {"rounds": 6, "cohort": 6, "checkpoint_every": 2}
    whole = go(skewed(), fs.methods.scaffold(), out=tmp_path / "whole", **options)
    with dying_after(4, checkpoint=2) as die:
        go(skewed(), fs.methods.scaffold(), out=tmp_path / "dead", on_round=die, **options)
    again = go(skewed(), fs.methods.scaffold(), out=tmp_path / "dead", resume=True, **options)
    assert same(whole.params, again.params) and rows_of(whole) == rows_of(again)
