"""What a hostile server can make a node do: no path, no allocation and no loop follows what it says."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fedskew.errors import ConfigError
from fedskew.flower import serve
from fedskew.flower.options import node_options, server_options
from fedskew.flower.wire import pack, read, record
from support.bounds import bounded, within
from support.flower_grid import Grid, config

pytestmark = pytest.mark.flower
SESSION = "f" * 32
TURNS = count(1)


def heard(
    tmp_path: Path, method: str = "scaffold", **more: Any
) -> tuple[Grid, dict[str, tuple[dict[str, Any], dict[str, Any]]]]:
    """(a grid after a run, the last message of each kind that node 1 was sent)."""
    content = config(tmp_path, method, cohort=4, rounds=1, local_test=0.2, **more)
    kept: dict[str, Any] = {}

    def keep(messages: list[Any]) -> None:
        for envelope in (read(m.content) for m in messages if m.metadata.dst_node_id == 1001):
            kept[envelope.facts["kind"]] = (dict(envelope.facts), dict(envelope.trees))

    grid = Grid(4, content, tmp_path, watch=keep)
    serve.serve(grid, content)
    return grid, kept


def answer(grid: Grid, facts: dict[str, Any], trees: dict[str, Any]) -> dict[str, Any]:
    """What node 1 says to a message, in a session of its own, with little memory and time."""
    own = {"client": 1, "allow": "all", "state": str(grid.folder / "state")}
    context: Any = SimpleNamespace(run_config=grid.config, node_config=own)
    with bounded(1 << 30), within(30):
        parts = {name: pack({name: tree}) for name, tree in trees.items() if name == "shared"}
        rest = {name: tree for name, tree in trees.items() if name != "shared"}
        content = record(facts, **parts, own=pack(rest))
        return read(serve._answer(SimpleNamespace(content=content), context, serve.experiment_of, grid.app)).facts


LIES: dict[str, tuple[str, dict[str, Any], str]] = {
    "epochs": ("train", {"pace": [64, 10**12, 0, 0.1, 0]}, "epochs must be a whole number"),
    "batch": ("train", {"pace": [-1, 1, 0, 0.1, 0]}, "batch size must be a whole number"),
    "rate": ("train", {"pace": [64, 1, 0, float("nan"), 0]}, "the rate of a pace must be a finite number"),
    "pace": ("train", {"pace": [[]] * 5}, "batch size must be a whole number"),
    "paces": ("train", {"pace": [1] * 10**5}, "a pace must have 5 numbers"),
    "member": ("train", {"member": 1 << 80}, "member must be a whole number"),
    "receipt": ("train", {"receipt": "../../../etc/x"}, "a receipt must have 32 hex digits"),
    "nul": ("train", {"receipt": "\0" * 32}, "a receipt must have 32 hex digits"),
    "held": ("train", {"held": ["a" * 32] * 10**4}, "held must be a list of at most 3 receipts"),
    "held path": ("train", {"held": ["../x"]}, "a receipt must have 32 hex digits"),
    "session": ("train", {"session": "s" * 10**6}, "a receipt must have 32 hex digits"),
    "no session": ("train", {"session": ""}, "session must be 32 hex digits"),
    "turn": ("train", {"turn": 10**4000}, "turn must be a whole number"),
    "client": ("train", {"client": "1\n\x1b[2J"}, "client must be a whole number"),
    "kind": ("train", {"kind": "x\n" * 10**5}, "the kind of a message must be one of"),
    "kinds": ("train", {"kind": ["train"]}, "the kind of a message must be one of"),
    "contract": ("train", {"contract": "x"}, "contract must be a table"),
    "draws": ("ask", {"draws": 10**15}, "draws must be a whole number"),
    "function": ("ask", {"what": "__class__"}, "a question must name a function"),
    "field": ("ask", {"what": "name"}, "a question must name a function"),
    "part": ("ask", {"part": "x\x1b" * 10**5}, "must have the component that asks"),
    "keep": ("ask", {"keep": 1}, "keep must be true or false"),
    "logits": ("fit", {"logits": "../" * 10}, "a receipt must have 32 hex digits"),
}  # fmt: skip


@pytest.fixture(scope="module")
def grids(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return {
        "train": heard(tmp_path_factory.mktemp("train")),
        "ask": heard(tmp_path_factory.mktemp("ask"), "creff"),
    }


@pytest.mark.parametrize("name", LIES)
def test_facts_that_cannot_be_are_one_line(name: str, grids: dict[str, Any]) -> None:
    kind, change, reason = LIES[name]
    grid, kept = grids["ask" if kind == "ask" else "train"]
    facts, trees = kept[kind]
    told = answer(grid, {**facts, "session": SESSION, "turn": next(TURNS), **change}, trees)["error"]
    assert reason in told and told.isprintable() and len(told) < 700
    assert sorted(path.name for path in grid.folder.iterdir()) == ["run", "state"], "nothing is written elsewhere"


LEAVES: dict[str, tuple[str, str, str, Callable[[Any], Any], str]] = {
    "wide": ("train", "own", "used", lambda used: torch.full_like(used, 1 << 60), "used must be numbers from 0 to"),
    "below": ("train", "own", "offered", lambda offered: -offered - 1, "offered must be numbers from 0 to"),
    "memory": ("train", "own", "written", lambda _: {"scaffold": {"control": torch.zeros(1 << 20)}},
               "what is written to a client must be of its memory"),
    "model": ("train", "shared", "params", lambda _: torch.zeros(3), "must be named tensors"),
    "round": ("train", "shared", "round", lambda _: torch.tensor([1, 2]), "round of a message must be a whole number"),
    "point": ("fit", "own", "point", lambda point: point + torch.inf, "point must be numbers from -1.79769e+308 to"),
    "length": ("fit", "own", "point", lambda point: point[:1].repeat(1 << 20), "point must be 11 numbers of"),
    "type": ("fit", "own", "point", lambda point: point.float(), "point must be 11 numbers of torch.float64"),
    "weights": ("fit", "own", "weights", lambda weights: -weights - 1, "weights must be numbers from 0 to"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEAVES)
def test_tensors_that_cannot_be_are_one_line(name: str, grids: dict[str, Any]) -> None:
    kind, tree, leaf, change, reason = LEAVES[name]
    grid, kept = grids["train"]
    facts, trees = kept[kind]
    trees = {**trees, tree: {**trees[tree], leaf: change(trees[tree][leaf])}}
    told = answer(grid, {**facts, "session": SESSION, "turn": next(TURNS)}, trees)["error"]
    assert reason in told and told.isprintable()


@pytest.mark.parametrize("out", ["..", "a/..", "x\n", "\x1b[2J", "n" * 300])
def test_a_run_whose_folder_has_no_plain_name_is_refused(out: str) -> None:
    """A node calls the folder of its memory by the last part of it."""
    with pytest.raises(ConfigError, match=r"flower.out must end in a plain name"):
        server_options({"flower.out": out})


def test_a_nodes_memory_lies_below_its_state(tmp_path: Path) -> None:
    for out in ("run", "/x/run", "", "/", "."):
        folder = node_options({"client": 0, "state": str(tmp_path)}, out).folder(0)
        assert folder.resolve().is_relative_to(tmp_path) and len(folder.relative_to(tmp_path).parts) == 2
