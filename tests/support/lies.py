"""A node that alters what it sends, and the little that its lies may cost."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fedskew.flower.wire import Packed, pack, read, record
from support.bounds import bounded, within

__all__ = ["LIAR", "Change", "alteration", "implausible", "lying", "other_facts", "small"]

LIAR = 1
ROOM = 1 << 30  # bytes beside those of an honest run
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 1 << 31, 1 << 53, 1 << 62, 1 << 63, 1 << 70, 10**4000, 0.5, 1e308, float("nan"), float("inf"),
    "", "x", "nan", "0x1p+5000", "\0", "../..", "\n\x1b[2J", "y" * 10**6, [], [[]], [0], [-1] * 10, [1 << 62] * 4,
    {}, {"a": 1}, {"client": 0},
)  # fmt: skip
NAN = b"\xff\xff\xff\x7f" * 2  # one number of 8 bytes, or two of 4
Change = Callable[[dict[str, Any], dict[str, Any]], Packed | None]


def lying(kind: str, change: Change, first: int = 0) -> Any:
    """Client 1 alters its answers of a kind, from its message ``first`` on; the change may give the bytes itself."""
    seen = [0]

    def lie(client: int, content: Any) -> Any:
        envelope = read(content)
        if client != LIAR or envelope.facts.get("kind") != kind:
            return content
        seen[0] += 1
        if seen[0] <= first:
            return content
        facts, trees = dict(envelope.facts), dict(envelope.trees)
        packed = change(facts, trees)
        return record(facts, sent=packed or pack(trees))

    return lie


def other_facts(**more: Any) -> Change:
    """Other facts."""

    def change(facts: dict[str, Any], trees: dict[str, Any]) -> None:
        facts.update(more)

    return change


@contextmanager
def small() -> Iterator[None]:
    """Little memory and time, whatever a message claims."""
    with bounded(ROOM), within(60):
        yield


def altered(value: Any, draw: random.Random) -> Any:
    """A JSON value in which one place holds something odd."""
    if isinstance(value, dict | list) and value and draw.random() < 0.8:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key, copy = draw.choice(keys), value.copy()
        copy[key] = altered(value[key], draw)
        return copy
    return draw.choice(ODD)


def alteration(draw: random.Random) -> Any:
    """What is done to each message of a kind: its facts, its list of leaves, one leaf, the number of bytes, a value."""
    how = draw.choice(("facts", "facts", "leaves", "leaf", "turned", "named", "twice", "bytes", "nan"))
    seed = draw.random()

    def alter(facts: dict[str, Any], packed: Packed) -> tuple[dict[str, Any], Packed]:
        mine = random.Random(seed)
        leaves = json.loads(packed.leaves)
        if how == "facts":
            facts[mine.choice([*facts, "error", "trace", "fault", "spare", "fatal"])] = mine.choice(ODD)
        elif how == "leaves":
            packed = packed._replace(leaves=json.dumps(altered(leaves, mine)))
        elif how == "leaf":
            shape = [mine.choice([0, 1, 3, 1 << 20, 1 << 37]) for _ in range(mine.randrange(4))]
            path = [*(mine.choice(leaves)[0] if leaves else []), *["more"] * mine.randrange(3)]
            leaves.append([path, "float32", shape, [mine.choice([0, 1, 7]) for _ in shape], 0])
            packed = Packed(json.dumps(leaves), packed.data + bytes(4 * mine.randrange(3)))
        # A square matrix that is turned has values that only its node knows: nobody can detect that.
        elif how == "turned" and (tensors := [leaf for leaf in leaves if len(leaf) > 2 and leaf[2] != leaf[2][::-1]]):
            leaf = max(tensors, key=lambda leaf: len(leaf[2]))  # its axes in another order, in the bytes that it had
            leaf[2:4] = leaf[2][::-1], leaf[3][::-1]
            packed = packed._replace(leaves=json.dumps(leaves))
        elif how == "named" and leaves:
            leaf = mine.choice(leaves)
            leaf[0] = [*leaf[0][:-1], "".join(leaf[0][-1:]) + "_"]  # the path of a tree without branches is empty
            packed = packed._replace(leaves=json.dumps(leaves))
        elif how == "twice":
            packed = Packed(json.dumps(leaves + leaves), packed.data * mine.choice([1, 2]))
        elif how == "nan":
            at = mine.randrange(max(len(packed.data) // 8, 1)) * 8
            packed = packed._replace(data=packed.data[:at] + NAN[: len(packed.data) - at] + packed.data[at + 8 :])
        else:
            cut = packed.data[: mine.randrange(len(packed.data) + 1)]
            packed = packed._replace(data=cut + bytes(mine.choice([0, 1, 8])))
        return facts, packed

    return how, alter


def implausible(content: Any) -> Any:
    """What a node measures, in the right shapes and sums: test rows of other classes, or a Hessian that bends down."""
    envelope = read(content)
    trees: dict[str, Any] = dict(envelope.trees)
    if "matrix" in trees:
        rows = sorted(trees["matrix"].tolist(), key=sum)
        trees["matrix"] = torch.tensor(rows if rows != trees["matrix"].tolist() else rows[::-1])
    else:
        trees["sums"] = {**trees["sums"], "triangle": -1e3 * trees["sums"]["triangle"]}
    return record(dict(envelope.facts), sent=pack(trees))
