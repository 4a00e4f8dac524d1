"""A tensor comes out of a message as it went in."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("ray")
pytestmark = pytest.mark.ray

from fedskew.engines.ray.packing import LINE, Message, pack, unpack  # noqa: E402

LARGE = torch.arange(40_000, dtype=torch.float32)
TENSORS = {
    "plain": LARGE,
    "row": LARGE.reshape(100, 400)[3],
    "odd row": LARGE[: 99 * 401].reshape(99, 401)[5],
    "transposed": LARGE.reshape(100, 400).t(),
    "channels last": LARGE.reshape(10, 10, 20, 20).contiguous(memory_format=torch.channels_last),
    "expanded": torch.arange(3.0).expand(5000, 3),
    "column": LARGE.reshape(100, 400)[:, 7],
    "bfloat16": LARGE.bfloat16(),
    "truth": LARGE > 5,
    "integers": torch.arange(9000),
    "number": torch.tensor(3.5, dtype=torch.float64),
    "empty": torch.empty(0, 4),
}


def sent(message: Message) -> Message:
    """As a process of Ray receives it: nobody may write to the buffers."""
    for buffer in message[1]:
        buffer.flags.writeable = False
    return message


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("name", TENSORS)
def test_bits_strides_and_alignment_stay(name: str, mapped: bool) -> None:
    before = TENSORS[name].clone() if name == "plain" else TENSORS[name]
    after: Tensor = unpack(sent(pack({"x": before}, mapped=mapped)))["x"]
    assert after.dtype == before.dtype and after.shape == before.shape and after.stride() == before.stride()
    assert torch.equal(after, before)
    if not mapped and after.numel():
        assert after.data_ptr() % LINE == before.data_ptr() % LINE
