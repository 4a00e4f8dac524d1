"""Messages between the server and a node: JSON and trees of tensors, in records of Flower. Nothing is unpickled.

A tensor comes out as it went in: bits, strides, and the place of its first byte within 64. Kernels choose their path by
strides and alignment, and another path rounds differently.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedskew import tree
from fedskew.errors import ConfigError, from_json
from fedskew.tree import Params, Tree

__all__ = ["FORMAT", "Envelope", "Packed", "pack", "packed_bytes", "read", "record", "travelling", "unpack"]

FORMAT = 1  # of messages; a node refuses another
KEY = "fedskew"  # of the record of facts
LINE = 64  # bytes of a cache line, to which torch aligns what it allocates
DTYPES = {
    str(t).removeprefix("torch."): t
    for t in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
        torch.uint8, torch.bool,
    )
}  # fmt: skip
LARGEST = 1 << 40  # bytes of a tensor


class Packed(NamedTuple):
    """Trees as a list of leaves and their bytes, one after another."""

    leaves: str  # JSON: [path, dtype, shape, strides, place] of each leaf, [path] of an empty tree
    data: bytes


class Envelope(NamedTuple):
    """What one message says."""

    facts: dict[str, Any]
    trees: dict[str, Tree]
    size: int = 0  # bytes of the trees as they travelled


def pack(trees: Mapping[str, Tree]) -> Packed:
    """Named trees as bytes."""
    listed: list[list[Any]] = []
    parts: list[bytes] = []
    for path, leaf in tree.flatten(dict(trees)):
        if leaf is None:
            listed.append([list(path)])
            continue
        plain, shape, strides = leaf.detach().cpu(), list(leaf.shape), list(leaf.stride())
        width = plain.element_size()
        raw = torch.empty(0, dtype=torch.uint8)
        span = _span(shape, strides) * width
        raw.set_(plain.untyped_storage(), plain.storage_offset() * width, (span,), (1,))
        kind = str(leaf.dtype).removeprefix("torch.")
        listed.append([list(path), kind, shape, list(plain.stride()), plain.data_ptr() % LINE // width * width])
        parts.append(raw.numpy().tobytes())
    return Packed(json.dumps(listed, separators=(",", ":")), b"".join(parts))


def unpack(packed: Packed) -> dict[str, Tree]:
    """The inverse of `pack`. Raises ConfigError where the bytes are not what `pack` gives."""
    pairs: list[tuple[tuple[str, ...], Tensor | None]] = []
    begin = 0
    try:
        for path, *told in from_json(packed.leaves):
            place = tuple(str(name) for name in path)
            if not told:
                pairs.append((place, None))
                continue
            leaf, begin = _leaf(packed.data, begin, *told)
            pairs.append((place, leaf))
        if begin != len(packed.data):
            raise ValueError(f"{len(packed.data) - begin} bytes are left over")
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
        said = (str(error).strip().splitlines() or ["no message"])[0]
        raise ConfigError(f"a message's tensors are damaged: {type(error).__name__}: {said}") from None
    found: dict[str, Tree] = tree.unflatten(pairs)
    return found


def _leaf(data: bytes, begin: int, kind: str, shape: Any, strides: Any, place: Any) -> tuple[Tensor, int]:
    """(a tensor with memory of its own, where the next one begins)."""
    dtype = DTYPES[kind]
    numbers = [*shape, *strides, place]
    if not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= LARGEST for n in numbers):
        raise ValueError("sizes must be whole numbers of at least 0")
    if len(shape) != len(strides) or place >= LINE or math.prod(shape) > LARGEST:
        raise ValueError("sizes do not fit each other")
    width = torch.empty((), dtype=dtype).element_size()
    end = begin + _span(shape, strides) * width
    if end > len(data) or place % width:
        raise ValueError("bytes are missing")
    held = torch.empty(place + end - begin, dtype=torch.uint8)[place:]  # torch allocates at a whole LINE
    if end > begin:
        held.numpy()[:] = memoryview(data)[begin:end]
    return held.view(dtype).as_strided(tuple(shape), tuple(strides)), end


def _span(shape: Any, strides: Any) -> int:
    """Numbers from the first to the last of a tensor."""
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if all(shape) else 0


def travelling(model: Params, stays: frozenset[str]) -> Params:
    """The parameters or buffers that are put into a message: all but those that ``stays`` names."""
    return {name: leaf for name, leaf in model.items() if name not in stays}


def packed_bytes(*parts: Packed) -> int:
    """Bytes of packed trees, without Flower's own envelope."""
    return sum(len(p.leaves) + len(p.data) for p in parts)


def record(facts: Mapping[str, Any], **parts: Packed) -> Any:
    """A record of Flower that holds facts and packed trees.

    Each part is an array of its own: Flower keeps one copy of an array that goes to many nodes.
    """
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    leaves = {name: part.leaves for name, part in parts.items()}
    content = {"format": FORMAT, "facts": json.dumps(dict(facts)), "leaves": json.dumps(leaves)}
    records: dict[str, Any] = {KEY: ConfigRecord(content)}
    for name, part in parts.items():
        if part.data:
            records[name] = ArrayRecord({name: Array("uint8", (len(part.data),), "fedskew.tensors", part.data)})
    return RecordDict(records)


def read(content: Any) -> Envelope:
    """What a record of Flower says. Raises ConfigError where it is none of `record`'s."""
    try:
        held = content[KEY]
        if held["format"] != FORMAT:
            raise ConfigError(f"a message must have format {FORMAT}; got {held['format']}: fedskew differs in version")
        facts, leaves = from_json(held["facts"]), from_json(held["leaves"])
        parts = {
            name: Packed(listed, content[name][name].data if name in content else b"")
            for name, listed in leaves.items()
        }
        if not isinstance(facts, dict):
            raise ValueError("facts are no table")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"a message must come from fedskew; got one that does not: {error!r}") from None
    trees: dict[str, Tree] = {}
    for part in parts.values():
        trees |= unpack(part)
    return Envelope(facts, trees, packed_bytes(*parts.values()))
