"""Secure sums beside plain ones: any shapes, drop-outs in each phase, down to the threshold and below; bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedskew import rng
from fedskew.errors import ConfigError, FieldError, TrainingError
from fedskew.privacy import PHASES, FixedPoint
from fedskew.privacy.simulation import SecureSum, secure_sum

pytest.importorskip("cryptography", reason="cryptography is not installed: pip install -e '.[secure]'")

KEY = rng.key(0, 1, "sum")
NARROW = FixedPoint(bits=32, fraction=20, range=8.0)


def some(clients: int, *shapes: tuple[int, ...], seed: int = 0, largest: float = 8.0) -> dict[int, list[Tensor]]:
    """Inputs in the range, of clients with numbers that are neither sorted nor in a row."""
    numbers = [(7 * c + 3) % 101 for c in range(clients)]
    return {
        c: [(2 * rng.uniform(rng.key(seed, c, i), shape) - 1) * largest for i, shape in enumerate(shapes)]
        for c in numbers
    }


def plain(inputs: dict[int, list[Tensor]], among: tuple[int, ...]) -> list[Tensor]:
    return [torch.stack([t.double() for t in own]).sum(0) for own in zip(*(inputs[c] for c in among), strict=True)]


def added(inputs: dict[int, list[Tensor]], among: tuple[int, ...], encoding: FixedPoint) -> list[Tensor]:
    """Encoded, added and decoded, without any mask."""
    words = sum(encoding.encode(inputs[c]) for c in among)
    return encoding.decode(encoding.wrap(np.asarray(words)), [t.shape for t in inputs[among[0]]])


def agrees(done: SecureSum, inputs: dict[int, list[Tensor]], encoding: FixedPoint) -> bool:
    most = encoding.error(len(done.survivors)) + 1e-12
    own, free = plain(inputs, done.survivors), added(inputs, done.survivors, encoding)
    near = all(bool(((a - b).abs() <= most).all()) for a, b in zip(done.total, own, strict=True))
    return near and all(map(torch.equal, done.total, free))


@given(st.data())
def test_a_secure_sum_is_the_plain_sum_to_the_stated_error(data: st.DataObject) -> None:
    clients = data.draw(st.integers(2, 6))
    shapes = data.draw(st.lists(st.lists(st.integers(0, 3), max_size=3).map(tuple), min_size=1, max_size=3))
    encoding = data.draw(st.sampled_from([NARROW, FixedPoint(), FixedPoint(bits=45, fraction=30, range=8.0)]))
    threshold = data.draw(st.integers(2, clients))
    inputs = some(clients, *shapes, seed=data.draw(st.integers(0, 9)))
    lost = data.draw(st.lists(st.sampled_from(sorted(inputs)), unique=True, max_size=clients - threshold))
    drops = {c: data.draw(st.sampled_from(PHASES)) for c in lost}
    done = secure_sum(inputs, threshold=threshold, encoding=encoding, key=KEY, drops=drops)
    assert done.survivors == tuple(sorted(c for c in inputs if drops.get(c, "unmask") == "unmask"))
    assert [t.shape for t in done.total] == [torch.Size(shape) for shape in shapes]
    assert agrees(done, inputs, encoding)


@pytest.mark.parametrize("phase", PHASES)
def test_drop_outs_in_each_phase_down_to_the_threshold_and_below(phase: str) -> None:
    inputs = some(5, (3,))
    lost = sorted(inputs)[1:4]
    done = secure_sum(inputs, threshold=3, encoding=NARROW, key=KEY, drops=dict.fromkeys(lost[:2], phase))
    assert agrees(done, inputs, NARROW)
    assert set(lost[:2]) & set(done.survivors) == (set(lost[:2]) if phase == "unmask" else set())
    with pytest.raises(TrainingError) as found:
        secure_sum(inputs, threshold=3, encoding=NARROW, key=KEY, drops=dict.fromkeys(lost, phase))
    told = f"phase {phase!r} of a secure sum must have the answers of at least 3 clients, its threshold; got 2"
    assert str(found.value) == told


@pytest.mark.parametrize(("bits", "width"), [(32, 4), (64, 8)])
@pytest.mark.parametrize("clients", [2, 5])
def test_bytes_are_those_of_the_formula(bits: int, width: int, clients: int) -> None:
    """w M + 131 K - 10 up and 170 K - 90 down, which docs/guide/privacy.md prints."""
    encoding = FixedPoint(bits=bits, fraction=16, range=8.0)
    done = secure_sum(some(clients, (3, 5), (6,)), threshold=2, encoding=encoding, key=KEY)
    assert set(done.bytes_up.values()) == {width * 21 + 131 * clients - 10}
    assert set(done.bytes_down.values()) == {170 * clients - 90}


def test_a_client_that_is_lost_costs_nothing_more() -> None:
    inputs = some(3, (2,))
    lost = max(inputs)
    done = secure_sum(inputs, threshold=2, encoding=NARROW, key=KEY, drops={lost: "advertise"})
    assert done.bytes_up[lost] == done.bytes_down[lost] == 0
    assert {done.bytes_up[c] for c in done.survivors} == {4 * 2 + 131 * 2 - 10}


def test_the_same_key_gives_the_same_bytes_and_another_one_the_same_sum() -> None:
    inputs = some(3, (4,))
    one, same, other = (secure_sum(inputs, threshold=2, encoding=NARROW, key=k) for k in (KEY, KEY, rng.key(1)))
    assert one.view == same.view and one.view["masked"] != other.view["masked"]
    assert torch.equal(one.total[0], other.total[0])
    assert "view" not in repr(one), "a record of a run does not hold it by accident"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "one client": ({"inputs": some(1, (2,))}, "clients must be at least 2 in a secure sum; got 1"),
    "threshold above": ({"threshold": 4}, r"threshold must be in \[2, 3\], as 3 clients take part; got 4"),
    "threshold of one": ({"threshold": 1}, r"threshold must be in \[2, 3\]"),
    "negative": ({"inputs": {-1: [torch.zeros(1)], 1: [torch.zeros(1)]}}, r"number must be in \[0, 2\^64\); got -1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_one_line(case: str) -> None:
    given_: dict[str, Any] = {"inputs": some(3, (2,)), "threshold": 2, "encoding": NARROW, "key": KEY}
    changed, told = WRONG[case]
    words = given_ | changed
    with pytest.raises(ConfigError, match=told):
        secure_sum(words.pop("inputs"), **words)


def test_a_sum_that_might_wrap_is_refused_before_any_input_is_masked() -> None:
    tight = FixedPoint(bits=6, fraction=0, range=8.0)  # 3 x 8 < 32, and 4 x 8 is not
    assert secure_sum(some(3, (2,)), threshold=2, encoding=tight, key=KEY).survivors
    with pytest.raises(FieldError, match="bits must be at least 7 for a sum over 4 inputs; got 6"):
        secure_sum(some(4, (2,)), threshold=2, encoding=tight, key=KEY)
