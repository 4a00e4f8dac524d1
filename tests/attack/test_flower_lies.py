"""Messages of one registered node, altered at random: its client is left out, or one line ends the run.

Whatever comes, time and memory are bounded, and what the others trained is what it is without that client. Finite
values in the right places are no lie that anybody could see: they are not altered here.
"""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from fedskew.errors import FedskewError
from fedskew.flower.wire import pack
from support.attack import Line, some
from support.bounds import bounded, within
from support.flower_grid import bits, config, served
from support.lies import alteration, lying

pytestmark = pytest.mark.flower
ROOM, SECONDS = 1 << 30, 30
METHODS = {"scaffold": ("hello", "train", "evaluate"), "creff": ("hello", "train", "ask")}
Bits = list[bytes]


def content(folder: Path, method: str, **more: Any) -> dict[str, Any]:
    usual = {"rounds": 2, "cohort": 4, "local_test": 0.2, "flower__bad": "drop", "flower__missing": "drop"}
    return config(folder, method, flower__wait_s=0.2, **usual | more)


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
    return result(method, lying(kind, lambda facts, trees: facts.update({key: value})))


def outcome(method: str, kind: str, alter: Any, bad: str) -> str:
    """What is wrong with what the lie did; "" for nothing."""
    known = honest(method), without(method, kind)
    try:
        with bounded(ROOM), within(SECONDS):
            lie = lying(kind, lambda facts, trees: alter(facts, pack(trees))[1])
            recorded = result(method, lie, flower__bad=bad)
    except FedskewError as error:
        line = str(error)
        return "" if line.isprintable() and len(line) < 1000 else f"the line {line[:200]!r}"
    except BaseException as error:  # MemoryError and Hung among them
        return f"{type(error).__name__}: {str(error)[:200]}"
    return "" if recorded in known else "another result"


@pytest.mark.parametrize("method", METHODS)
def test_messages_that_were_altered_cost_their_author_alone(method: str) -> None:
    with Line("Flower", f"altered messages of one node, {method}") as line:
        for number in range(some(24, 600)):
            draw = random.Random(number)
            kind, bad = draw.choice(METHODS[method]), "stop" if draw.random() < 0.2 else "drop"
            how, alter = alteration(draw)
            wrong = outcome(method, kind, alter, bad)
            line.check(not wrong, f"lie {number}: {how} of {kind}, {bad}: {wrong}")
