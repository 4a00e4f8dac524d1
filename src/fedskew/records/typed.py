"""Types of what is read from JSON files, which may come from anybody and may be damaged: msgspec checks them."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Required, TypedDict

from msgspec import Meta, ValidationError, convert

from fedskew.errors import RecordError, json_file

Row = dict[str, Any]  # an object of JSON
LARGEST = 2**63 - 1
Whole = Annotated[int, Meta(ge=-LARGEST - 1, le=LARGEST)]
Natural = Annotated[int, Meta(ge=0, le=LARGEST)]
Real = Whole | float
Number = Real | None
KINDS = {
    "int": "a whole number", "float": "a number", "str": "a word", "array": "a list", "object": "an object",
    "bool": "true or false",
}  # fmt: skip
MISSING = "Object missing required field "
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
        As in "'weights' must be a list; got 3".

    Example:
        >>> from fedskew.records.typed import entries, fault_of
        >>> fault_of({"round": "one"}, entries("Round", {"round": int}))
        "'round' must be a whole number; got 'one'"
    """
    try:
        convert(value, kind)
        return ""
    except UnicodeEncodeError as error:  # half of a pair of UTF-16, which JSON can spell
        return f"its text must be Unicode; got {error.object!r:.60}"
    except ValidationError as error:
        message, _, path = str(error).replace("`", "").partition(" - at $")
    entry = path.lstrip(".")
    if message.startswith(MISSING):
        return f"{f'{entry}.{message.removeprefix(MISSING)}'.lstrip('.')!r} is missing"
    expected, _, got = message.removeprefix("Expected ").partition(", got ")
    if "[...]" not in path:  # else the key is not told
        for key, number in PLACE.findall(path):
            value = value[key or int(number)]  # type: ignore[index]
        got = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]}..."
    kinds = expected.replace("int | float", "float").split(" | ")
    return f"{entry or 'its content'!r} must be {' or '.join(KINDS.get(kind, kind) for kind in kinds)}; got {got}"


def object_of(file: Path, kind: Any, name: str = "") -> Any:
    """The content of a JSON file of a kind.

    Args:
        file: The file.
        kind: Its type.
        name: What it is called in a message; its path unless given.

    Raises:
        RecordError: It cannot be read, or is no such thing.
    """
    try:
        content = json_file(file)
    except (OSError, ValueError) as error:
        raise RecordError(f"{name or file} is damaged: {getattr(error, 'strerror', None) or error}") from None
    if fault := fault_of(content, kind):
        raise RecordError(f"{name or file} is damaged: {fault}")
    return content
