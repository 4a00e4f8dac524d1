"""Messages of one registered node, altered at random: its client is left out, or one line ends the run.

Whatever comes, time and memory are bounded, and what the others trained is what it is without that client. Finite
values in the right places are no lie that anybody could see: they are not altered here.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

pytest.importorskip("flwr")

from fedskew.errors import FedskewError
from fedskew.flower.wire import Packed, pack, read, record
from support.attack import Line, some
from support.bounds import bounded, within
from support.flower_grid import bits, config, served

pytestmark = pytest.mark.flower
LIAR = 2
ROOM, SECONDS = 1 << 30, 30
METHODS = {"scaffold": ("hello", "train", "evaluate"), "creff": ("hello", "train", "ask")}
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 1 << 31, 1 << 53, 1 << 62, 1 << 63, 1 << 70, 10**4000, 0.5, 1e308, float("nan"), float("inf"),
    "", "x", "nan", "0x1p+5000", "\0", "../..", "\n\x1b[2J", "y" * 10**6, [], [[]], [0], [-1] * 10, [1 << 62] * 4,
    {}, {"a": 1}, {"client": 0},
)  # fmt: skip
Bits = list[bytes]


def content(folder: Path, method: str, **more: Any) -> dict[str, Any]:
    usual = {"rounds": 2, "cohort": 4, "local_test": 0.2, "flower__bad": "drop", "flower__missing": "drop"}
    return config(folder, method, flower__wait_s=0.2, **usual | more)


def lying(kind: str, alter: Callable[[dict[str, Any], Packed], tuple[Any, Packed]]) -> Any:
    def lie(client: int, message: Any) -> Any:
        envelope = read(message)
        if client != LIAR or envelope.facts.get("kind") != kind:
            return message
        facts, packed = alter(dict(envelope.facts), pack(envelope.trees))
        return record(facts, sent=packed)

    return lie


def result(method: str, lie: Any, **more: Any) -> Bits:
    with TemporaryDirectory() as place:
        return bits(served(Path(place), content(Path(place), method, **more), lie=lie))


@cache
def honest(method: str) -> Bits:
    return result(method, None)


@cache
def without(method: str, kind: str) -> Bits:
    """The run in which the client is left out from the start, or of each round."""
    key, value = {"hello": ("rows", -1)}.get(kind, ("turn", -1))
    if kind == "evaluate":
        return honest(method)  # it is left out of the metric alone
    return result(method, lying(kind, lambda facts, packed: ({**facts, key: value}, packed)))


def altered(value: Any, draw: random.Random) -> Any:
    """A JSON value in which one place holds something odd."""
    if isinstance(value, dict | list) and value and draw.random() < 0.8:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key, copy = draw.choice(keys), value.copy()
        copy[key] = altered(value[key], draw)
        return copy
    return draw.choice(ODD)


def alteration(draw: random.Random) -> Any:
    """What is done to each message of a kind: its facts, its list of leaves, or the number of its bytes."""
    how, seed = draw.choice(("facts", "facts", "leaves", "leaf", "twice", "bytes")), draw.random()

    def alter(facts: dict[str, Any], packed: Packed) -> tuple[dict[str, Any], Packed]:
        mine = random.Random(seed)
        leaves = json.loads(packed.leaves)
        if how == "facts":
            facts[mine.choice([*facts, "error", "trace", "fault", "spare", "fatal"])] = mine.choice(ODD)
        elif how == "leaves":
            packed = packed._replace(leaves=json.dumps(altered(leaves, mine)))
        elif how == "leaf":
            shape = [mine.choice([0, 1, 3, 1 << 20, 1 << 37]) for _ in range(mine.randrange(4))]
            path = [*mine.choice(leaves)[0], *["more"] * mine.randrange(3)]
            leaves.append([path, "float32", shape, [mine.choice([0, 1, 7]) for _ in shape], 0])
            packed = Packed(json.dumps(leaves), packed.data + bytes(4 * mine.randrange(3)))
        elif how == "twice":
            packed = Packed(json.dumps(leaves + leaves), packed.data * mine.choice([1, 2]))
        else:
            cut = packed.data[: mine.randrange(len(packed.data) + 1)]
            packed = packed._replace(data=cut + bytes(mine.choice([0, 1, 8])))
        return facts, packed

    return how, alter


def outcome(method: str, kind: str, alter: Any, bad: str) -> str:
    """What is wrong with what the lie did; "" for nothing."""
    known = honest(method), without(method, kind)
    try:
        with bounded(ROOM), within(SECONDS):
            found = result(method, lying(kind, alter), flower__bad=bad)
    except FedskewError as error:
        line = str(error)
        return "" if line.isprintable() and len(line) < 1000 else f"the line {line[:200]!r}"
    except BaseException as error:  # MemoryError and Hung among them
        return f"{type(error).__name__}: {str(error)[:200]}"
    return "" if found in known else "another result"


@pytest.mark.parametrize("method", METHODS)
def test_messages_that_were_altered_cost_their_author_alone(method: str) -> None:
    with Line("Flower", f"altered messages of one node, {method}") as line:
        for number in range(some(24, 600)):
            draw = random.Random(number)
            kind, bad = draw.choice(METHODS[method]), "stop" if draw.random() < 0.2 else "drop"
            how, alter = alteration(draw)
            wrong = outcome(method, kind, alter, bad)
            line.check(not wrong, f"lie {number}: {how} of {kind}, {bad}: {wrong}")
