"""Aligned columns of text: they are never cut, and a line stays a line where the output is no terminal."""

from collections.abc import Iterable, Sequence
from typing import Any

from fedskew.errors import visible

SPANS = ((1 / 1440, "s", 86400), (1 / 24, "min", 1440), (2, "h", 24), (90, "d", 1), (float("inf"), "months", 1 / 30.4))


def columns(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table, its head first; numbers stand to the right."""
    from rich.cells import cell_len  # late: help must not wait for it

    shown = [[visible(text).replace("\n", " ").replace("\t", " ") for text in row] for row in [head, *rows]]
    widths = [max(map(cell_len, column)) for column in zip(*shown, strict=True)]
    right = [all(_is_number(text) for text in column[1:]) and len(column) > 1 for column in zip(*shown, strict=True)]
    lines = []
    for row in shown:
        padded = [
            " " * (width - cell_len(text)) + text if number else text + " " * (width - cell_len(text))
            for text, width, number in zip(row, widths, right, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return lines


def cell(value: Any) -> str:
    """A value as a list shows it: four digits of a fraction, nothing where there is none."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def age(days: float) -> str:
    """As in "40 s", "12 min", "3 h" or "5 d"."""
    unit, factor = next((unit, factor) for limit, unit, factor in SPANS if days < limit)
    return f"{max(days, 0) * factor:.0f} {unit}"


def _is_number(text: str) -> bool:
    return not text or text.replace(".", "").replace("/", "").replace("e-", "").replace("-", "").isdigit()
