"""Curves and bars of characters: blocks and braille, or plain ASCII where the terminal lacks them."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import TextIO

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille character, by row and column
EIGHTHS = " ▏▎▍▌▋▊▉█"
LONGEST = 24  # characters of a name beside its bar


def plain(stream: TextIO | None = None) -> bool:
    """Whether a stream lacks braille and blocks."""
    try:
        "⣿█▏".encode((stream or sys.stdout).encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def curve(
    rounds: Sequence[int], values: Sequence[float], width: int = 64, height: int = 8, ascii_only: bool = False
) -> list[str]:
    """Lines of a curve with its axes.

    Args:
        rounds: where it was measured, increasing.
        values: what was measured; what is not finite is left out.
        width: characters of the curve.
        height: lines of the curve.
        ascii_only: draw with "*".

    Returns:
        The lines; none where no value is finite.

    Example:
        >>> print("\\n".join(curve([1, 2, 3], [0.0, 0.5, 1.0], width=9, height=3, ascii_only=True)))
               1 |      ***
                 |   ***
               0 |***
                 +---------
                  1       3
    """
    points = [(r, v) for r, v in zip(rounds, values, strict=True) if math.isfinite(v)]
    if not points:
        return []
    low, high = min(v for _, v in points), max(v for _, v in points)
    first, last = points[0][0], points[-1][0]
    wide, tall = (1, 1) if ascii_only else (2, 4)  # dots of a character
    columns, rows = width * wide, height * tall
    dots: set[tuple[int, int]] = set()
    before: tuple[int, int] | None = None
    for r, v in points:
        x = round((r - first) / max(last - first, 1) * (columns - 1))
        y = round((high - v) / (high - low) * (rows - 1)) if high > low else rows // 2
        dots |= {(x, y)} if before is None else _line(before, (x, y))
        before = x, y
    drawn = [[_character(dots, x, y, ascii_only) for x in range(width)] for y in range(height)]
    bar, corner, dash = "|+-" if ascii_only else "│└─"
    ends = {0: f"{high:.4g}", height - 1: f"{low:.4g}"} if high > low else {height // 2: f"{high:.4g}"}
    lines = [f"{ends.get(i, ''):>8} {bar}{''.join(row)}".rstrip() for i, row in enumerate(drawn)]
    gap = width - len(str(first)) - len(str(last))
    foot = f"{first}{' ' * gap}{last}" if gap > 0 and last > first else str(first)
    return [*lines, f"{'':>8} {corner}{dash * width}", f"{'':>8}  {foot}"]


def _line(one: tuple[int, int], two: tuple[int, int]) -> set[tuple[int, int]]:
    """The dots between two dots."""
    steps = max(abs(two[0] - one[0]), abs(two[1] - one[1]), 1)
    return {
        (round(one[0] + (two[0] - one[0]) * i / steps), round(one[1] + (two[1] - one[1]) * i / steps))
        for i in range(steps + 1)
    }


def _character(dots: set[tuple[int, int]], x: int, y: int, ascii_only: bool) -> str:
    if ascii_only:
        return "*" if (x, y) in dots else " "
    bits = sum(DOTS[j][i] for j in range(4) for i in range(2) if (2 * x + i, 4 * y + j) in dots)
    return chr(0x2800 + bits) if bits else " "


def bars(names: Sequence[str], values: Sequence[float | None], width: int = 40, ascii_only: bool = False) -> list[str]:
    """A line with a bar for each value between 0 and 1; None has no bar.

    Example:
        >>> print("\\n".join(bars(["cat", "dog"], [0.5, None], width=10, ascii_only=True)))
        cat  #####      0.5000
        dog             none
    """
    from rich.cells import cell_len  # late: help must not wait for it

    shown = [name if cell_len(name) <= LONGEST else f"{name[: LONGEST - 3]}..." for name in names]
    longest = max(map(cell_len, shown), default=0)
    lines = []
    for name, value in zip(shown, values, strict=True):
        share = 0.0 if value is None or not math.isfinite(value) else min(max(value, 0.0), 1.0)
        bar = "#" * round(share * width) if ascii_only else _bar(share * width)
        told = "none" if value is None else f"{value:.4f}"
        lines.append(f"{name}{' ' * (longest - cell_len(name))}  {bar:<{width}} {told}")
    return lines


def _bar(length: float) -> str:
    whole, rest = divmod(round(length * 8), 8)
    return "█" * whole + (EIGHTHS[rest] if rest else "")
