"""Values as messages between processes: the tensors' bytes stand outside of the pickle, so that nothing copies twice.

A tensor comes out as it went in: bits, strides, and the place of its first byte within 64. Kernels choose their path by
strides and alignment, and another path rounds differently.
"""

import io
import pickle
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, Any]
Message = tuple[bytes, list[Array]]  # a pickle, and the large buffers that it refers to
LINE = 64  # bytes of a cache line, to which torch aligns what it allocates
SMALL = 4096  # bytes; a smaller buffer stands in the pickle


def pack(value: Any, *, mapped: bool = False) -> Message:
    """A value as a message.

    Args:
        value: anything that can be pickled; classes and functions of the main program go by value.
        mapped: its tensors and arrays are read where the message lies, in memory that processes share, and nobody may
            write to them. Otherwise they are copied when they are unpacked.

    Raises:
        Exception: something in the value cannot be pickled; which class it has depends on that.
    """
    from ray import cloudpickle

    buffers: list[Array] = []

    def aside(buffer: pickle.PickleBuffer) -> bool:
        raw = np.frombuffer(buffer.raw(), np.uint8)
        if raw.nbytes < SMALL:
            return True
        buffers.append(raw)
        return False

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
        def reducer_override(self, held: Any) -> Any:
            if type(held) is Tensor and held.layout is torch.strided and not held.requires_grad:
                return _tensor, (*_flat(held.cpu()), mapped)
            if type(held) is np.ndarray and not held.dtype.hasobject:
                raw = _buffer(np.ascontiguousarray(held).reshape(-1).view(np.uint8))
                return _array, (raw, held.dtype, held.shape, mapped)
            return super().reducer_override(held)

    file = io.BytesIO()
    Pickler(file, protocol=5, buffer_callback=aside).dump(value)
    return file.getvalue(), buffers


def unpack(message: Message) -> Any:
    """The inverse of `pack`."""
    head, buffers = message
    return pickle.loads(head, buffers=buffers)


def _flat(tensor: Tensor) -> tuple[pickle.PickleBuffer, torch.dtype, tuple[int, ...], tuple[int, ...], int]:
    """(the bytes that a tensor spans, dtype, shape, strides, the first byte's place within LINE)."""
    shape, strides, width = tuple(tensor.shape), tensor.stride(), tensor.element_size()
    items = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if tensor.numel() else 0
    begin = tensor.storage_offset() * width
    raw = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage(), begin, (items * width,), (1,))
    place = tensor.data_ptr() % LINE
    return _buffer(raw.numpy()), tensor.dtype, shape, strides, place - place % width


def _buffer(raw: Any) -> pickle.PickleBuffer:
    return pickle.PickleBuffer(raw)


def _tensor(
    raw: Any, dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...], place: int, mapped: bool
) -> Tensor:
    content = np.frombuffer(raw, np.uint8)
    if mapped and len(content):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the memory is read-only, and so is what we do with it
            held = torch.from_numpy(content)
    else:
        held = torch.empty(place + len(content), dtype=torch.uint8)[place:]  # torch allocates at a whole LINE
        held.numpy()[:] = content
    return held.view(dtype).as_strided(shape, strides)


def _array(raw: Any, dtype: np.dtype[Any], shape: tuple[int, ...], mapped: bool) -> Array:
    content = np.frombuffer(raw, dtype).reshape(shape)
    return content if mapped else content.copy()
