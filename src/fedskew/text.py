"""Text that others wrote: shown without its control characters, and read as JSON within bounds."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

__all__ = ["DEEPEST", "from_json", "json_file", "visible"]

DEEPEST = 64  # nested lists and objects; what fedskew writes has less than ten
JOINERS = "\u200c\u200d"  # they change how letters of some scripts join, and nothing else
TAKEN = "\n\t"


def visible(text: str) -> str:
    r"""Text as a terminal or a picture may show it: control characters are written out, as ``\x1b``.

    Names of classes, columns and files come from others. An escape code in one could clear the screen or forge a line,
    and half a character of a file name that is no UTF-8 could not be printed at all.

    Args:
        text: Any string.

    Returns:
        The string, with backslash escapes for control and format characters, lone surrogates and line separators. Line
        feeds, tabs and joiners stay.

    Example:
        >>> from fedskew.text import visible
        >>> print(visible("cat\x1b[2J"))
        cat\x1b[2J
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(char: str) -> str:
    plain = char.isprintable() or char in TAKEN or char in JOINERS or unicodedata.category(char) == "Zs"
    return char if plain else char.encode("unicode_escape").decode("ascii")


def from_json(text: str | bytes) -> Any:
    """The content of a JSON text.

    Args:
        text: The text; bytes are UTF-8.

    Returns:
        Plain values.

    Raises:
        ValueError: It is not JSON, not UTF-8, holds a number of thousands of digits, or is nested deeper than 64.

    Example:
        >>> from fedskew.text import from_json
        >>> from_json('{"name": ["mlp"]}')
        {'name': ['mlp']}
    """
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {DEEPEST}") from None
    level, depth = [found], 1
    while level := [value for node in level for value in _inside(node)]:
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"it is nested deeper than {DEEPEST}")
    return found


def _inside(node: Any) -> list[Any]:
    values = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [value for value in values if isinstance(value, dict | list)]


def json_file(path: Path) -> Any:
    """The content of a JSON file. Raises OSError where it cannot be read, ValueError as `from_json`."""
    return from_json(path.read_bytes())
