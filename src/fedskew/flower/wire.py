"""Messages between the server and a node: JSON and trees of tensors, in records of Flower. Nothing is unpickled.

A tensor comes out as it went in: bits, strides, and the place of its first byte within 64. Kernels choose their path by
strides and alignment, and another path rounds differently.

What comes in was written by somebody else. Its list of leaves is read whole, and held against the leaves that were
asked for, before any tensor is built. No two elements of a tensor share bytes, so memory is bounded by what came. Each
fact has a type and a range, each text a length.
"""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from itertools import accumulate
from typing import Annotated, Any, NamedTuple, cast

import msgspec
import numpy as np
import torch
from torch import Tensor

from fedskew import tree
from fedskew.errors import ConfigError, from_json, one_line
from fedskew.privacy import Message
from fedskew.tree import Params, Tree

FORMAT = 3  # of messages; a node refuses another
KEY = "fedskew"  # of the record of facts
ANSWER = "sent"  # the part of an answer
LINE = 64  # bytes of a cache line, to which torch aligns what it allocates
NUMBERS = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool"
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in NUMBERS.split()}
LARGEST = 1 << 40  # of a size or a stride
EMPTY = 1 << 20  # product of the other sizes of a tensor without elements
DEEPEST = 16  # names of a path
LONGEST = 200  # characters of a name
AXES = 16  # of a tensor
EXACT = (1 << 53) - 1  # whole numbers up to here are exact in float64, too
MOST_ROWS = 10_000_000  # of one node, unless the server's options say otherwise
NAME = 60  # characters of a name
DIGITS = 18  # of a client's number in a secure sum
NUMBER = 40  # characters of a number that travels as a text
HEX = frozenset("0123456789abcdef")

Facts = Mapping[str, Any]
Path = tuple[str, ...]
Size = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
Layout = Mapping[Path, tuple[torch.dtype, tuple[int, ...]] | None]  # leaves by path; None: an empty tree


# Facts: a function takes their table and the name of one, and raises ConfigError, in one line, where the fact is none


def quoted(value: object) -> str:
    """A value that somebody sent, in a message of ours."""
    return one_line(repr(value), 80)


def expect(holds: bool, what: str, rule: str, got: object) -> None:
    """Raise ConfigError unless a rule holds for what somebody sent."""
    if not holds:
        raise ConfigError(f"{what} must {rule}; got {quoted(got)}")


def echoed(facts: Facts) -> dict[str, Any]:
    """The facts of a message that its answer repeats."""
    return {name: facts.get(name) for name in ("kind", "session", "turn", "client")}


def count(facts: Facts, what: str, least: int = 0, most: int = EXACT) -> int:
    """A whole number from ``least`` to ``most``."""
    value: Any = facts.get(what)  # True is no number here
    expect(type(value) is int and least <= value <= most, what, f"be a whole number from {least} to {most}", value)
    return int(value)


def real(facts: Facts, what: str) -> float:
    """A finite number that travelled as text, by ``float.hex`` or ``repr``."""
    value, number = facts.get(what), math.nan
    if isinstance(value, str) and len(value) <= NUMBER:
        with suppress(ValueError, OverflowError):
            number = float.fromhex(value)
    expect(math.isfinite(number), what, "be a finite number as float.hex writes it", value)
    return number


def flag(facts: Facts, what: str) -> bool:
    """True or False."""
    value = facts.get(what)
    expect(isinstance(value, bool), what, "be true or false", value)
    return bool(value)


def short(facts: Facts, what: str) -> str:
    """A text as one short line; "" where there is none."""
    value = facts.get(what)
    expect(value is None or isinstance(value, str), what, "be a text", value)
    return one_line(value or "", NAME)


def table(facts: Facts, what: str) -> Facts:
    """A table of further facts."""
    value: Any = facts.get(what)
    expect(isinstance(value, dict), what, "be a table", value)
    return dict(value)


def receipt(value: Any) -> str:
    """A receipt: 32 hex digits, or "" of a client that has not taken part."""
    holds = isinstance(value, str) and (not value or (len(value) == 32 and set(value) <= HEX))
    expect(holds, "a receipt", "have 32 hex digits", value)
    return str(value)


def session(facts: Facts) -> str:
    """The name of a server's session: 32 hex digits."""
    value = facts.get("session")
    expect(bool(value), "session", "be 32 hex digits", value)
    return receipt(value)


def numbers(trees: Mapping[str, Any], what: str, dtype: torch.dtype, size: int, least: float, most: float) -> Tensor:
    """A tensor [size] of numbers from ``least`` to ``most``."""
    value: Any = trees.get(what)
    holds = isinstance(value, Tensor) and value.dtype == dtype and tuple(value.shape) == (size,)
    expect(holds, what, f"be {size} numbers of {dtype}", type(value).__name__)
    holds = bool(((value >= least) & (value <= most)).all())
    expect(holds, what, f"be numbers from {least:g} to {most:g}", value.tolist())
    return cast(Tensor, value)


def place_of(facts: Facts) -> list[int | str]:
    """The round, and which sum of the round it is. Raises ConfigError."""
    place: Any = facts.get("place")
    holds = isinstance(place, list) and 2 <= len(place) <= 3 and type(place[0]) is int
    holds = holds and all(isinstance(name, str) or (type(name) is int and name >= 0) for name in place)
    expect(holds, "the place of a secure sum", "be a round and the names of a sum", place)
    return list(place)


# Tensors


class Packed(NamedTuple):
    """Trees as a list of leaves and their bytes, one after another."""

    leaves: str  # JSON: [path, dtype, shape, strides, place] of each leaf, [path] of an empty tree
    data: bytes


class Envelope(NamedTuple):
    """What one message says."""

    facts: dict[str, Any]
    trees: dict[str, Tree]


class Sealed(NamedTuple):
    """A message whose facts are read, and whose trees are bytes yet."""

    facts: dict[str, Any]
    parts: dict[str, Packed]

    def unsealed(self, expected: Layout | None = None) -> Envelope:
        """The message with its trees; those that are expected come in one part. Raises ConfigError as `unpack`."""
        holds = expected is None or set(self.parts) == {ANSWER}
        expect(holds, "an answer", f"have the one part {ANSWER!r}", sorted(self.parts))
        trees: dict[str, Tree] = {}
        for part in self.parts.values():
            named = unpack(part, expected)
            expect(not trees.keys() & named.keys(), "a message", "name a tree once", sorted(named))
            trees |= named
        return Envelope(self.facts, trees)


class _Leaf(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """A leaf as a message lists it; without dtype an empty tree."""

    path: Annotated[tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST)], ...],
                    msgspec.Meta(max_length=DEEPEST)]  # fmt: skip
    kind: str = ""
    shape: tuple[Size, ...] = ()
    strides: tuple[Size, ...] = ()
    place: Size = 0

    def __post_init__(self) -> None:
        if not self.kind:
            return
        shape, strides, place = self.shape, self.strides, self.place
        expect(bool(self.path), "a tensor", "have a name", self.path)
        holds = len(shape) == len(strides) <= AXES and place < LINE and not place % DTYPES[self.kind].itemsize
        holds = holds and _without_overlap(shape, strides)
        holds = holds and (0 not in shape or math.prod(n for n in shape if n) <= EMPTY)
        expect(holds, "a tensor", "have its own bytes for each element", (shape, strides, place))

    @property
    def layout(self) -> tuple[torch.dtype, tuple[int, ...]] | None:
        """What a `Layout` says of it."""
        return (DTYPES[self.kind], self.shape) if self.kind else None

    @property
    def span(self) -> int:
        """Bytes from the first to the last."""
        return _span(self.shape, self.strides) * DTYPES[self.kind].itemsize if self.kind else 0


def pack(trees: Mapping[str, Tree]) -> Packed:
    """Named trees as bytes."""
    listed: list[list[Any]] = []
    parts: list[bytes] = []
    for path, leaf in tree.flatten(dict(trees)):
        if leaf is None:
            listed.append([list(path)])
            continue
        plain = leaf.detach().cpu()
        if not _without_overlap(plain.shape, plain.stride()):  # expanded: the other side takes no element twice
            plain = plain.contiguous()
        shape, strides = list(plain.shape), list(plain.stride())
        width = plain.element_size()
        raw = torch.empty(0, dtype=torch.uint8)
        span = _span(shape, strides) * width
        raw.set_(plain.untyped_storage(), plain.storage_offset() * width, (span,), (1,))
        place = plain.data_ptr() % LINE // width * width
        listed.append([list(path), str(leaf.dtype).removeprefix("torch."), shape, strides, place])
        parts.append(raw.numpy().tobytes())
    return Packed(json.dumps(listed, separators=(",", ":")), b"".join(parts))


def unpack(packed: Packed, expected: Layout | None = None) -> dict[str, Tree]:
    """The inverse of `pack`.

    Args:
        packed: what came.
        expected: the leaves that were asked for, all of them and no others; None takes any.

    Raises:
        ConfigError: the bytes are not what `pack` gives, or the leaves are not those that were asked for.
    """
    try:
        listed = _listed(packed)
    except (ConfigError, msgspec.DecodeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"a message's tensors are damaged: {type(error).__name__}: {one_line(error)}") from None
    if expected is not None and (difference := differing({leaf.path: leaf.layout for leaf in listed}, expected)):
        raise ConfigError(difference)
    begins = accumulate((leaf.span for leaf in listed), initial=0)
    pairs = [(leaf.path, _built(packed.data, begin, leaf)) for leaf, begin in zip(listed, begins, strict=False)]
    trees: dict[str, Tree] = tree.unflatten(pairs)
    return trees


def layout_of(trees: Mapping[str, Tree]) -> Layout:
    """What messages with trees like these hold."""
    pairs = tree.flatten(dict(trees))
    return {path: None if leaf is None else (leaf.dtype, tuple(leaf.shape)) for path, leaf in pairs}


def _listed(packed: Packed) -> list[_Leaf]:
    """The leaves of a message, checked; nothing is allocated for them. Raises ValueError and the like."""
    leaves = msgspec.json.decode(packed.leaves, type=list[_Leaf])
    if [leaf.path for leaf in leaves] == [()]:
        leaves = []  # no tree at all
    known = {leaf.path for leaf in leaves}
    above = {path[:n] for path in known for n in range(len(path))}
    if len(known) < len(leaves) or known & above:
        raise ValueError("a leaf is named twice, or stands below another")
    if (size := sum(leaf.span for leaf in leaves)) != len(packed.data):
        raise ValueError(f"{len(packed.data)} bytes came for tensors of {size}")
    return leaves


def _without_overlap(shape: Any, strides: Any) -> bool:
    """Whether no two elements of a tensor share memory: each axis steps over all that those inside it reach."""
    reach = 1
    for step, n in sorted((s, n) for n, s in zip(shape, strides, strict=True) if n > 1):
        if step < reach:
            return 0 in shape
        reach += (n - 1) * step
    return True


def differing(sent: Layout, expected: Layout) -> str:
    """The first leaf that is not as it was asked for, in words; "" where all are."""
    for path in {**sent, **expected}:
        wanted, got = (_told(leaves, path) for leaves in (expected, sent))
        if wanted != got:
            return f"{one_line('.'.join(path), 80)} must be {wanted}; got {got}"
    return ""


def _told(leaves: Layout, path: Path) -> str:
    leaf = leaves.get(path)
    return f"{leaf[0]} {leaf[1]}" if leaf else "an empty tree" if path in leaves else "nothing"


def _built(data: bytes, begin: int, leaf: _Leaf) -> Tensor | None:
    """A tensor with memory of its own."""
    if not leaf.kind:
        return None
    memory = torch.empty(leaf.place + leaf.span, dtype=torch.uint8)[leaf.place :]  # torch allocates at a whole LINE
    if leaf.span:
        memory.numpy()[:] = memoryview(data)[begin : begin + leaf.span]
    return memory.view(DTYPES[leaf.kind]).as_strided(leaf.shape, leaf.strides)


def _span(shape: Any, strides: Any) -> int:
    """Numbers from the first to the last of a tensor."""
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if all(shape) else 0


def travelling(given: Any, stays: frozenset[str]) -> dict[str, Params]:
    """The parameters and buffers that are put into a message: all but those that ``stays`` names."""
    kinds = {"params": given.params, "buffers": given.buffers}
    return {kind: {n: leaf for n, leaf in model.items() if n not in stays} for kind, model in kinds.items()}


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
    return opened(content).unsealed()


def opened(content: Any) -> Sealed:
    """A record of Flower whose trees are not looked at. Raises ConfigError where it is none of `record`'s."""
    try:
        plain = content[KEY]
        expect(plain["format"] == FORMAT, "a message", f"have format {FORMAT} of this version", plain["format"])
        facts, leaves = from_json(plain["facts"]), from_json(plain["leaves"])
        parts = {
            name: Packed(listed, content[name][name].data if name in content else b"")
            for name, listed in leaves.items()
        }
        if not isinstance(facts, dict) or not all(isinstance(p.data, bytes) for p in parts.values()):
            raise ValueError("facts are no table, or tensors no bytes")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"a message must come from fedskew; got one that does not: {quoted(error)}") from None
    return Sealed(facts, parts)


# Messages of secure sums


def leaves_of(message: Message) -> dict[str, Tensor]:
    """A message of the protocol as a tree of bytes."""
    return {str(k): torch.from_numpy(np.frombuffer(content, np.uint8).copy()) for k, content in message.items()}


def message_of(trees: Facts) -> Message:
    """The inverse of `leaves_of`. Raises ConfigError where it is no such tree."""
    sent = trees.get("message")
    expect(isinstance(sent, dict), "a message of a secure sum", "be bytes by client", type(sent).__name__)
    message: Message = {}
    for name, leaf in sent.items() if isinstance(sent, dict) else ():
        holds = name.isascii() and name.isdigit() and len(name) <= DIGITS and str(int(name)) == name
        holds = holds and isinstance(leaf, Tensor) and leaf.dtype == torch.uint8 and leaf.dim() == 1
        expect(holds, "a message of a secure sum", "be bytes by client", name)
        message[int(name)] = leaf.numpy().tobytes()
    return message
