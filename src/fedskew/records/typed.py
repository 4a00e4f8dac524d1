"""Types of what is read from JSON files, which may come from anybody and may be damaged: msgspec checks them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Required, TypedDict

from msgspec import Meta, ValidationError, convert

from fedskew.errors import RecordError, json_file

__all__ = ["Natural", "Number", "Real", "Row", "Whole", "entries", "fault_of", "object_of"]

Row = dict[str, Any]  # an object of JSON
LARGEST = 2**63 - 1
Whole = Annotated[int, Meta(ge=-LARGEST - 1, le=LARGEST)]
Natural = Annotated[int, Meta(ge=0, le=LARGEST)]
Real = Whole | float
Number = Real | None
PLACE = re.compile(r"\.(\w+)|\[(\d+)\]")


def entries(name: str, needed: Mapping[str, Any], further: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """A type of JSON objects: entries that must be there, and entries that may be."""
    return TypedDict(name, {**{key: Required[kind] for key, kind in needed.items()}, **further}, total=False)  # type: ignore[operator]


def fault_of(value: object, kind: Any) -> str:
    """What is wrong with the content of a JSON file; "" where it is of its type.

    Args:
        value: The content.
        kind: Its type.

    Returns:
        As in "'weights' must be array; got 3".

    Example:
        >>> from fedskew.records.typed import entries, fault_of
        >>> fault_of({"round": "one"}, entries("Round", {"round": int}))
        "'round' must be int; got 'one'"
    """
    try:
        convert(value, kind)
        return ""
    except ValidationError as error:
        rule, _, path = str(error).replace("`", "").partition(" - at $")
    place = path.lstrip(".") or "its content"
    if rule.startswith("Object missing required field "):
        return f"{'.'.join([*filter(None, [path[1:]]), rule.rpartition(' ')[2]])!r} is missing"
    if "[...]" not in path:  # else the key is not told
        for key, number in PLACE.findall(path):
            value = value[key or int(number)]  # type: ignore[index]
        shown = repr(value)
        rule = f"{rule.partition(', got ')[0]}, got {shown if len(shown) <= 60 else f'{shown[:60]}...'}"
    return f"{place!r} must be {rule.removeprefix('Expected ').replace(', got ', '; got ', 1)}"


def object_of(file: Path, kind: Any, name: str = "") -> Row:
    """The content of a JSON file of a kind.

    Args:
        file: The file.
        kind: Its type.
        name: What it is called in a message; its path unless given.

    Raises:
        RecordError: It cannot be read, or is no such thing.
    """
    try:
        found = json_file(file)
    except (OSError, ValueError) as error:
        raise RecordError(f"{name or file} is damaged: {getattr(error, 'strerror', None) or error}") from None
    if fault := fault_of(found, kind):
        raise RecordError(f"{name or file} is damaged: {fault}")
    return dict(found)
