"""Fields of frozen dataclasses as options: their types, how a value is checked, what they mean in words."""

from __future__ import annotations

import dataclasses
import numbers
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from fedskew.errors import ConfigError

__all__ = ["check_fields", "choices", "documented", "fits", "hints_of", "kind_of"]

LARGEST, INFINITY = 3.4e38, float("inf")  # of float32


def check_fields(kind: type, values: Mapping[str, Any], place: str) -> None:
    """Raise ConfigError for a value that is not of its field's type, or a number that float32 cannot hold."""
    hints: dict[str, Any] = hints_of(kind)
    for name, hint in hints.items():
        if name in values and not fits(values[name], hint):
            raise ConfigError(f"--{place}.{name} must be {kind_of(hint)}; got {values[name]!r}")
        if is_dataclass(value := values.get(name)) and not isinstance(value, type):
            check_fields(type(value), vars(value), f"{place}.{name}")


@cache
def hints_of(kind: type) -> dict[str, Any]:
    """The types of a dataclass's fields; Any where a user's own annotations cannot be resolved."""
    try:
        found = typing.get_type_hints(kind)
    except (NameError, TypeError):
        found = {}
    return {f.name: found.get(f.name, Any) for f in fields(kind)}


def fits(value: object, hint: Any) -> bool:
    """Whether a value is of a field's type; NaN is no number, nor is what float32 cannot hold."""
    if hint is Any:
        return True
    if (inner := typing.get_args(hint)) and typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(fits(value, one) for one in inner)
    if typing.get_origin(hint) is typing.Literal:
        return any(type(value) is type(one) and value == one for one in inner)
    if hint in (int, float):
        if isinstance(value, bool) or not isinstance(value, numbers.Integral if hint is int else numbers.Real):
            return False
        most = 2**63 - 1 if hint is int else LARGEST
        number: Any = value
        return bool(-most <= number <= most) or number in (INFINITY, -INFINITY)
    kind = type(None) if hint is None else typing.get_origin(hint) or hint
    return not isinstance(kind, type) or isinstance(value, kind)


def kind_of(hint: Any) -> str:
    """What a value of this type is called in an error: "a whole number", "one of a, b"."""
    if typing.get_origin(hint) is typing.Literal:
        return "one of " + ", ".join(map(str, typing.get_args(hint)))
    kinds = [k for k in (typing.get_args(hint) or (hint,)) if k is not type(None)]
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
    return " or ".join(words.get(k, getattr(k, "__name__", str(k))) for k in kinds)


def documented(kind: type) -> dict[str, str]:
    """Field docstrings, base classes first."""
    from docstring_parser import parse_from_object

    found: dict[str, str] = {}
    for cls in reversed(kind.__mro__):
        if cls is not object and dataclasses.is_dataclass(cls):
            found |= {p.arg_name: p.description for p in parse_from_object(cls).params if p.description}
    return found


def choices(kind: Any) -> str:
    """ "; one of a, b" for a field that takes names."""
    return f" ({kind_of(kind)})" if typing.get_origin(kind) is typing.Literal else ""
