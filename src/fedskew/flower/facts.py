"""Facts of a message, read by somebody who does not trust its author: each has a type and a range, each text a length.

Every function takes the table of facts and the name of one. It raises ConfigError, in one line, where the fact is none.
"""

import math
from collections.abc import Mapping
from typing import Any

from fedskew.errors import ConfigError, one_line

EXACT = (1 << 53) - 1  # whole numbers up to here are exact in float64, too
MOST_ROWS = 10_000_000  # of one node, unless the server's options say otherwise
NAME = 60  # characters of a name
NUMBER = 40  # characters of a number that travels as a text
HEX = frozenset("0123456789abcdef")

Facts = Mapping[str, Any]


def quoted(value: object) -> str:
    """A value that somebody sent, in a message of ours."""
    return one_line(repr(value), 80)


def echoed(facts: Facts) -> dict[str, Any]:
    """The facts of a message that its answer repeats."""
    return {name: facts.get(name) for name in ("kind", "session", "turn", "client")}


def count(facts: Facts, what: str, least: int = 0, most: int = EXACT) -> int:
    """A whole number from ``least`` to ``most``."""
    value = facts.get(what)
    if type(value) is not int or not least <= value <= most:  # True is no number here
        raise ConfigError(f"{what} must be a whole number from {least} to {most}; got {quoted(value)}")
    return value


def real(facts: Facts, what: str) -> float:
    """A finite number that travelled as text, by ``float.hex`` or ``repr``."""
    value = facts.get(what)
    if isinstance(value, str) and len(value) <= NUMBER:
        try:
            found = float.fromhex(value)
        except (ValueError, OverflowError):
            found = math.nan
        if math.isfinite(found):
            return found
    raise ConfigError(f"{what} must be a finite number as float.hex writes it; got {quoted(value)}")


def flag(facts: Facts, what: str) -> bool:
    """True or False."""
    value = facts.get(what)
    if not isinstance(value, bool):
        raise ConfigError(f"{what} must be true or false; got {quoted(value)}")
    return value


def short(facts: Facts, what: str) -> str:
    """A text as one short line; "" where there is none."""
    value = facts.get(what)
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{what} must be a text; got {quoted(value)}")
    return one_line(value or "", NAME)


def table(facts: Facts, what: str) -> Facts:
    """A table of further facts."""
    value = facts.get(what)
    if not isinstance(value, dict):
        raise ConfigError(f"{what} must be a table; got {quoted(value)}")
    return value


def receipt(value: object) -> str:
    """A receipt: 32 hex digits, or "" of a client that has not taken part."""
    if isinstance(value, str) and (not value or (len(value) == 32 and set(value) <= HEX)):
        return value
    raise ConfigError(f"a receipt has 32 hex digits; got {quoted(value)}")


def session(facts: Facts) -> str:
    """The name of a server's session: 32 hex digits."""
    value = facts.get("session")
    if value and receipt(value):
        return str(value)
    raise ConfigError(f"session must be 32 hex digits; got {quoted(value)}")
