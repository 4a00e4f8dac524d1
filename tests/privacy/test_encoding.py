"""Fixed-point numbers: examples by hand, the stated error, and nothing that wraps."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedskew.errors import FieldError, TrainingError
from fedskew.privacy import FixedPoint

COARSE = FixedPoint(bits=8, fraction=2, range=3.0)  # quarters modulo 256, of at most 12 in size


def test_an_example_by_hand() -> None:
    words = COARSE.encode([torch.tensor([1.3, -0.5]), torch.tensor([[3.0], [-3.0]])])
    assert words.tolist() == [5, 254, 12, 244]  # round(5.2), 256 - 2, 12, 256 - 12
    total = COARSE.wrap(words + words + words)
    assert total.tolist() == [15, 250, 36, 220]
    first, second = COARSE.decode(total, [(2,), (2, 1)])
    assert first.tolist() == [3.75, -1.5] and second.tolist() == [[9.0], [-9.0]]
    assert first.dtype == torch.float64


@pytest.mark.parametrize("bits", [3, 31, 32, 33, 63, 64])
def test_the_ends_of_the_modulus_are_read_right(bits: int) -> None:
    encoding = FixedPoint(bits=bits, fraction=0, range=1.0)
    ends = np.array([0, 2 ** (bits - 1) - 1, 2 ** (bits - 1), 2**bits - 1], dtype=encoding.word)
    (told,) = encoding.decode(ends, [(4,)])
    assert told.tolist() == [0.0, float(2 ** (bits - 1) - 1), -(2.0 ** (bits - 1)), -1.0]
    assert encoding.word.itemsize == (4 if bits <= 32 else 8)


@given(st.data())
def test_a_sum_is_within_the_stated_error(data: st.DataObject) -> None:
    clients = data.draw(st.integers(1, 20))
    largest = data.draw(st.floats(1e-3, 1e3))
    fraction = data.draw(st.integers(0, 40))
    needed = (clients * round(largest * 2.0**fraction)).bit_length() + 1
    encoding = FixedPoint(bits=data.draw(st.integers(max(needed, 2), 64)), fraction=fraction, range=largest)
    encoding.hold(clients)
    numbers = st.lists(st.floats(-largest, largest), min_size=clients, max_size=clients)
    values = data.draw(numbers)
    words = np.zeros(1, encoding.word)
    for value in values:
        words = encoding.wrap(words + encoding.encode([torch.tensor([value], dtype=torch.float64)]))
    ((total,),) = encoding.decode(words, [(1,)])
    exact = math.fsum(values)
    assert abs(float(total) - exact) <= encoding.error(clients) + 2.0**-52 * clients * largest


def test_the_stated_error_is_reached() -> None:
    """Half a unit is rounded to even, at each client."""
    words = sum(COARSE.encode([torch.tensor([0.125])]) for _ in range(4))
    assert COARSE.decode(words, [(1,)])[0].item() == 0.0
    assert COARSE.error(clients=4) == 0.5 == 4 * 0.125


def test_a_sum_that_might_wrap_is_refused() -> None:
    COARSE.hold(10)  # 10 x 12 < 128
    with pytest.raises(FieldError, match=r"FixedPoint.bits must be at least 9 for a sum over 11 inputs; got 8; set a"):
        COARSE.hold(11)
    words = COARSE.encode([torch.tensor([3.0])])
    assert COARSE.decode(COARSE.wrap(words * 10), [(1,)])[0].item() == 30.0
    assert COARSE.decode(COARSE.wrap(words * 11), [(1,)])[0].item() == -31.0, "which is why it is refused"


def test_a_modulus_that_does_not_hold_one_input_is_refused() -> None:
    with pytest.raises(FieldError, match="bits must be at least 13 for a sum over 1 inputs; got 12"):
        FixedPoint(bits=12, fraction=8, range=8.0)


@pytest.mark.parametrize("value", [3.0000001, -4.0, math.nan, math.inf, -math.inf])
def test_a_number_outside_the_range_is_one_line(value: float) -> None:
    with pytest.raises(TrainingError) as found:
        COARSE.encode([torch.zeros(2), torch.tensor([0.0, value], dtype=torch.float64)], "client 7")
    told = f"tensor 1 of client 7 must be in [-3, 3], the range of a secure sum; got {value:g}"
    assert str(found.value) == told + "; set a larger range" * math.isfinite(value)


def test_tensors_of_all_types_are_read_and_none_is_changed() -> None:
    encoding = FixedPoint()
    given_ = [torch.tensor([1.5], requires_grad=True), torch.tensor([2], dtype=torch.int64), torch.tensor(True)]
    assert (encoding.encode(given_) / 2**28).tolist() == [1.5, 2.0, 1.0]
    assert given_[0].item() == 1.5 and given_[0].grad is None
