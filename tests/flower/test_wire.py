"""Tensors travel with bits, strides and place; bytes that make no sense are refused in one line."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedskew import tree
from fedskew.errors import ConfigError
from fedskew.flower.wire import DTYPES, Packed, pack, unpack


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_a_tensor_comes_out_as_it_went_in(dtype: torch.dtype) -> None:
    base = torch.arange(240).to(dtype).reshape(2, 3, 5, 8)
    for leaf in (base, base[1], base[:, 1:, ::2], base.contiguous(memory_format=torch.channels_last), base[0, 0, 0, 3]):
        found = unpack(pack({"a": leaf}))["a"]
        assert torch.equal(found, leaf)
        assert (found.dtype, found.shape, found.stride()) == (leaf.dtype, leaf.shape, leaf.stride())
        assert found.data_ptr() % 64 == leaf.data_ptr() % 64
        found.fill_(1)  # it has memory of its own


def test_a_tree_comes_out_as_it_went_in() -> None:
    given_trees = {"a": {"b": {}, "c.d": torch.zeros(0, 3)}, "e": torch.tensor(3), "f": {}}
    found = unpack(pack(given_trees))
    assert [path for path, _ in tree.flatten(found)] == [path for path, _ in tree.flatten(given_trees)]
    assert found["a"]["c.d"].shape == (0, 3)


@given(st.data())
def test_bytes_that_were_altered_are_refused_in_one_line(data: st.DataObject) -> None:
    packed = pack({"a": torch.arange(6.0).reshape(2, 3), "b": {"c": torch.ones(2, dtype=torch.int64)}})
    text = bytearray(packed.leaves.encode())
    for _ in range(data.draw(st.integers(0, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(32, 126))
    raw = packed.data[: data.draw(st.integers(0, len(packed.data)))]
    try:
        for leaf in tree.leaves(unpack(Packed(text.decode(), raw))):
            leaf.sum()
    except ConfigError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    "leaf",
    [
        [["a"], "float32", [2], [1], 64], [["a"], "float32", [2], [-1], 0], [["a"], "float32", [1 << 41], [0], 0],
        [["a"], "object", [2], [1], 0], [["a"], "float32", [2], [1, 1], 0], [["a"], "float32", [4], [1], 0],
        [["a"], "float32", [1 << 20, 1 << 21], [0, 0], 0], ["a", "float32", [2], [1]], 3,
        [["a"], "float32", [2], [1], 2],
    ],
)  # fmt: skip
def test_sizes_that_make_no_sense_are_refused(leaf: object) -> None:
    with pytest.raises(ConfigError, match="a message's tensors are damaged"):
        unpack(Packed(json.dumps([leaf]), bytes(8)))
