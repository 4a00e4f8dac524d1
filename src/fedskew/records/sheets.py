"""The one writer of csv files: what a spreadsheet would run as a formula is a text to it."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

from fedskew.errors import visible

FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # also in full width
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)")


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as csv.

    Numbers, as such or as text, stay. A text that begins as a formula does gets an apostrophe before it, by which a
    spreadsheet takes it as text; characters that a terminal would obey are written out.

    Args:
        rows: The lines, the head first.

    Returns:
        The text; each line ends with a line feed.

    Example:
        >>> csv_text([("class", "change"), ("=1+1", "-0.5")])
        "class,change\\n'=1+1,-0.5\\n"
    """
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _cell(value: object) -> object:
    if not isinstance(value, str) or NUMBER.fullmatch(value):
        return value
    begins = value.lstrip(" ").startswith(FORMULAS)
    return f"'{visible(value)}" if begins else visible(value)
