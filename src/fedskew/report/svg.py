"""Pictures as inline SVG: no file, no font and no script beside them. Colours are classes of the page's style.

Coordinates are whole numbers in a box of 800 units across, so that a point of a line costs about six bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np
import numpy.typing as npt

from fedskew.errors import visible
from fedskew.report.pictures import Chart, Heat, Line, Picture, Ranking

__all__ = ["COLOURS", "LEVELS", "clean", "draw", "levels", "look", "number", "sample", "ticks", "turn"]

Floats = npt.NDArray[np.float64]
WIDTH, HEIGHT = 800, 500
LEFT, RIGHT, TOP, BOTTOM = 96, 16, 14, 84
COLOURS, DASHES = 7, 5  # of the page's style
LEVELS = 11  # shades of a heat map
NAME = 40  # characters of a name in a picture
LETTER = 12.5  # units of a letter, about


def clean(text: object, most: int = 0) -> str:
    """Text of others for a page: control characters written out, cut to a length, and escaped."""
    told = visible(str(text).replace("\n", " ").replace("\t", " "))
    return escape(told if not most or len(told) <= most else f"{told[: most - 1]}…")


def number(value: float) -> str:
    """A number of an axis, as short as can be.

    Example:
        >>> from fedskew.report.svg import number
        >>> number(0.25), number(1500.0), number(2e7), number(-0.0)
        ('0.25', '1,500', '2e7', '0')
    """
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 1e6:
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    mantissa, exponent = f"{value:.3g}".split("e") if "e" in f"{value:.3g}" else (f"{value:.3g}", "")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """At most so many round numbers from low to high.

    Example:
        >>> from fedskew.report.svg import ticks
        >>> ticks(0.0, 1.0), ticks(1, 20, 5)
        ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [5.0, 10.0, 15.0, 20.0])
    """
    if not high > low:
        return [low]
    raw = (high - low) / most
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(
        s
        for s in (unit, 2 * unit, 5 * unit, 10 * unit, 20 * unit)
        if math.floor(high / s + 1e-9) - math.ceil(low / s - 1e-9) < most
    )
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


class _Scale:
    """Data to units along an axis."""

    def __init__(self, low: float, high: float, start: float, end: float, logarithmic: bool = False) -> None:
        self.logarithmic = logarithmic and low > 0
        if not high > low:
            low, high = (low / 2, high * 2 or 1.0) if self.logarithmic else (low - 0.5, high + 0.5)
        self.low, self.high, self.start, self.end = low, high, start, end

    def __call__(self, values: Floats) -> npt.NDArray[np.int64]:
        low, high, v = self.low, self.high, np.asarray(values, dtype=np.float64)
        if self.logarithmic:
            low, high, v = math.log(low), math.log(high), np.log(np.maximum(v, low))
        return np.rint(self.start + (v - low) / (high - low) * (self.end - self.start)).astype(np.int64)

    def one(self, value: float) -> int:
        return int(self(np.array([value]))[0])

    def ticks(self, most: int) -> list[float]:
        if not self.logarithmic or self.high < 3 * self.low:
            return ticks(self.low, self.high, most)
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        steps = (1,) if len(powers) > 4 else (1, 3) if len(powers) > 3 else (1, 2, 5)
        marks = [s * 10.0**p for p in powers for s in steps]
        return [m for m in marks if self.low <= m <= self.high]


def levels(values: Floats, top: float = 1.0, root: bool = False) -> npt.NDArray[np.int64]:
    """The shade of every value: 0 of nothing to 10 of ``top``; -1 of NaN. What is not 0 has a shade of at least 1."""
    share = np.clip(np.nan_to_num(values, nan=0.0) / (top or 1.0), 0, 1)
    shade = np.rint((np.sqrt(share) if root else share) * (LEVELS - 1)).astype(np.int64)
    shade = np.where((share > 0) & (shade == 0), 1, shade)
    return np.where(np.isnan(values), -1, shade)


def turn(place: int) -> int:
    """Of a method's dashes and mark: neighbours differ, and those of one colour differ as well."""
    return (place + place // DASHES) % DASHES


def look(place: int) -> str:
    """Classes of a method's line."""
    return f"c{place % COLOURS} d{turn(place)}"


def sample(place: int) -> str:
    """A piece of a method's line, for a legend."""
    return (
        f'<svg class="sample" viewBox="0 0 80 24" aria-hidden="true"><path class="l {look(place)}" d="M2 12h76"/>'
        f'<g transform="translate(40 12)">{_mark(place)}</g></svg>'
    )


def draw(picture: Picture, name: str) -> str:
    """A picture as an SVG element.

    Args:
        picture: What to draw.
        name: Identifier of the picture on its page.

    Returns:
        The element, with its title and its description in words.
    """
    if isinstance(picture, Chart):
        width, height, body = WIDTH, HEIGHT, _chart(picture)
    elif isinstance(picture, Ranking):
        width, height, body = _ranking(picture)
    else:
        width, height, body = _heat(picture)
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-labelledby="{name}t {name}d">'
        f'<title id="{name}t">{clean(picture.title)}</title><desc id="{name}d">{clean(picture.told)}</desc>'
        f"{body}</svg>"
    )


def _text(x: float, y: float, text: object, anchor: str = "", more: str = "") -> str:
    side = f' class="{anchor}"' if anchor else ""
    return f'<text x="{round(x)}" y="{round(y)}"{side}{more}>{clean(text, NAME)}</text>'


def _relative(x: Sequence[int], y: Sequence[int]) -> str:
    """Points as a path: the first where it is, each other by its distance to the one before."""
    if not len(x):
        return ""
    words = [f"{b - a} {d - c}" for a, b, c, d in zip(x, x[1:], y, y[1:], strict=False)]
    return f"m{x[0]} {y[0]} {' '.join(words)}".rstrip().replace(" -", "-")


# Charts


def _range(arrays: Iterable[Floats | None], positive: bool = False) -> tuple[float, float]:
    """The least and the greatest finite number; (0, 1) where there is none."""
    seen = [a[np.isfinite(a) & (a > 0 if positive else True)] for a in arrays if a is not None]
    whole = np.concatenate(seen) if seen else np.array([])
    return (float(whole.min()), float(whole.max())) if len(whole) else (0.0, 1.0)


def _chart(picture: Chart) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    left, x_high = _range((line.x for line in picture.lines), picture.logarithmic)
    low, high = _range(a for line in picture.lines for a in (line.y, line.low, line.high))
    margin = 0.04 * (high - low)
    inside = low >= 0 and high <= 1  # a share: its axis leaves [0, 1] no more than it does
    low, high = (max(0.0, low - margin), min(1.0, high + margin)) if inside else (low - margin, high + margin)
    if picture.joined:
        across = _Scale(
            left if picture.logarithmic else min(left, 0.0) if picture.from_zero else left,
            x_high,
            LEFT,
            right,
            picture.logarithmic,
        )
    else:  # points keep a distance from the frame
        wide = 0.06 * (x_high - left)
        ends = (left / 1.25, x_high * 1.25) if picture.logarithmic else (max(0.0, left - wide), x_high + wide)
        across = _Scale(*ends, LEFT, right, picture.logarithmic)
    up = _Scale(low, high, bottom, TOP)
    parts = [_axes(picture, across, up)]
    if picture.joined:
        parts += [_band(line, across, up) for line in picture.lines]
    parts += [(_joined if picture.joined else _points)(line, across, up) for line in picture.lines]
    return "".join(parts)


def _axes(picture: Chart, across: _Scale, up: _Scale) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    horizontal, vertical = across.ticks(6), up.ticks(5)
    grid = "".join(f"M{LEFT} {up.one(t)}H{right}" for t in vertical)
    marks = "".join(f"M{across.one(t)} {bottom}v8" for t in horizontal)
    told = [_text(across.one(t), bottom + 34, number(t), "m") for t in horizontal]
    told += [_text(LEFT - 10, up.one(t) + 8, number(t), "e") for t in vertical]
    told += [_text((LEFT + right) / 2, HEIGHT - 10, picture.xlabel, "m")]
    middle = (TOP + bottom) / 2
    told += [_text(22, middle, picture.ylabel, "m", f' transform="rotate(-90 22 {round(middle)})"')]
    return f'<path class="g" d="{grid}"/><path class="a" d="M{LEFT} {bottom}H{right}{marks}"/>{"".join(told)}'


def _band(line: Line, across: _Scale, up: _Scale) -> str:
    if line.low is None or line.high is None or len(line.x) < 2:
        return ""
    x = [*across(line.x), *across(line.x)[::-1]]
    y = [*up(line.high), *up(line.low)[::-1]]
    return f'<path class="b c{line.place % COLOURS}" d="{_relative(x, y)}z"/>'


def _joined(line: Line, across: _Scale, up: _Scale) -> str:
    title = f"<title>{clean(line.label, NAME)}</title>"
    x, y = across(line.x).tolist(), up(line.y).tolist()
    if len(x) == 1:
        return f'<g transform="translate({x[0]} {y[0]})">{title}{_mark(line.place)}</g>'
    return f'<path class="l {look(line.place)}" d="{_relative(x, y)}">{title}</path>'


def _points(line: Line, across: _Scale, up: _Scale) -> str:
    parts = []
    ends = (None, None) if line.low is None or line.high is None else (up(line.low), up(line.high))
    for i, (x, y) in enumerate(zip(across(line.x).tolist(), up(line.y).tolist(), strict=True)):
        whisker = ""
        if ends[0] is not None and ends[1] is not None:
            whisker = f'<path class="w c{line.place % COLOURS}" d="M0 {ends[0][i] - y}V{ends[1][i] - y}"/>'
        title = f"<title>{clean(line.label, NAME)}</title>"
        parts.append(f'<g transform="translate({x} {y})">{title}{whisker}{_mark(line.place)}</g>')
    return "".join(parts)


_MARKS = (
    "M-9 0a9 9 0 1 0 18 0a9 9 0 1 0-18 0z",  # circle
    "M-8-8h16v16h-16z",  # square
    "M0-11l11 19h-22z",  # triangle
    "M0-12l12 12l-12 12l-12-12z",  # diamond
    "M0 11l11-19h-22z",  # triangle, point down
)


def _mark(place: int) -> str:
    """A mark of a shape and colour of its own; its centre is the origin."""
    return f'<path class="p c{place % COLOURS}" d="{_MARKS[turn(place)]}"/>'


# Heat maps


def _heat(picture: Heat) -> tuple[int, int, str]:
    rows, columns = picture.cells.shape
    left = min(380.0, 50 + LETTER * max((min(NAME, len(visible(n))) for n in picture.rows if n), default=0))
    longest = max((min(NAME, len(visible(n))) for n in picture.columns if n), default=0)
    wide = max(1, int((WIDTH - left - RIGHT) / max(1, columns)))
    wide = min(wide, 90)
    tall = min(max(wide, 26), 60)
    tall = tall if rows * tall <= 900 else max(8, 900 // rows)
    tilted = all(picture.columns) and longest * LETTER > wide
    below = 44 + (min(NAME, longest) * LETTER * 0.72 + 14 if tilted else 30)
    grid = levels(picture.cells, picture.top, picture.root)
    start, width = round(left), round(left) + wide * columns + RIGHT
    parts = [f'<path class="frame" d="M{start} {TOP}h{wide * columns}v{tall * rows}h-{wide * columns}z"/>']
    parts += [_cells(grid, level, start, wide, tall) for level in (-1, *range(1, LEVELS))]
    every = max(1, math.ceil(26 / tall))
    for r in range(0, rows, every):
        parts.append(_text(left - 10, TOP + (r + 0.5) * tall + 8, picture.rows[r], "e"))
    base = TOP + rows * tall
    step = max(1, math.ceil((30 if tilted else longest * LETTER + 8) / wide))
    for c in range(0, columns, step) if all(picture.columns) else (c for c, n in enumerate(picture.columns) if n):
        x = round(start + (c + 0.5) * wide)
        turn = f' transform="rotate(-45 {x} {base + 26})"' if tilted else ""
        parts.append(_text(x, base + 26 + 6 * (not tilted), picture.columns[c], "e" if tilted else "m", turn))
    if picture.numbers:
        parts += _shares(picture.cells, grid, start, wide, tall)
    height = round(base + below)
    parts.append(_text(start + wide * columns / 2, height - 10, picture.xlabel, "m"))
    middle = TOP + rows * tall / 2
    parts.append(_text(22, middle, picture.ylabel, "m", f' transform="rotate(-90 22 {round(middle)})"'))
    return max(width, 300), height, "".join(parts)


def _cells(grid: npt.NDArray[np.int64], level: int, left: int, wide: int, tall: int) -> str:
    """All cells of one shade as one path; neighbours in a row are one rectangle."""
    boxes = []
    for r, row in enumerate(grid):
        edges = np.flatnonzero(np.diff(np.concatenate([[False], row == level, [False]]).astype(np.int8)))
        for a, b in edges.reshape(-1, 2).tolist():
            boxes.append(f"M{left + a * wide} {TOP + r * tall}h{(b - a) * wide}v{tall}h-{(b - a) * wide}z")
    return f'<path class="h{level if level >= 0 else "x"}" d="{"".join(boxes)}"/>' if boxes else ""


def _shares(cells: Floats, grid: npt.NDArray[np.int64], left: int, wide: int, tall: int) -> list[str]:
    """Shares as hundredths; nothing for 0."""
    return [
        f'<text x="{round(left + (c + 0.5) * wide)}" y="{round(TOP + (r + 0.5) * tall + 7)}" '
        f'class="m n{int(grid[r, c] > LEVELS // 2)}">{100 * v:.0f}</text>'
        for (r, c), v in np.ndenumerate(cells)
        if np.isfinite(v) and v >= 0.005
    ]


# Ranks


def _ranking(picture: Ranking) -> tuple[int, int, str]:
    """Ranks on a line, names at both sides; a bar joins methods that are not told apart."""
    methods = len(picture.ranks)
    order = np.argsort(picture.ranks, kind="stable")
    scale = _Scale(1, max(2, methods), 230, WIDTH - 230)
    first = 60
    names = first + 36 + 18 * len(picture.bars)
    half = (methods + 1) // 2
    parts = [f'<path class="a" d="M230 {first}H{WIDTH - 230}']
    parts += [f"M{scale.one(t)} {first}v-8" for t in range(1, methods + 1)]
    parts += ['"/>']
    parts += [_text(scale.one(t), first - 16, number(t), "m") for t in ticks(1, max(2, methods), 10) if t == int(t)]
    for i, m in enumerate(order.tolist()):
        x, left = scale.one(picture.ranks[m]), i < half
        y = names + 34 * (i if left else methods - 1 - i)
        end = 220 if left else WIDTH - 220
        parts.append(f'<path class="l c{picture.places[m] % COLOURS}" d="M{x} {first}V{y}H{end}"/>')
        label = f"{clean(picture.names[m], 18)} {picture.ranks[m]:.2f}"
        side = "e" if left else ""
        parts.append(f'<text x="{end - 8 if left else end + 8}" y="{y + 8}" class="{side}">{label}</text>')
    for i, (low, high) in enumerate(picture.bars):
        y = first + 20 + 18 * i
        parts.append(f'<path class="clique" d="M{scale.one(low) - 6} {y}H{scale.one(high) + 6}"/>')
    return WIDTH, names + 34 * half + 10, "".join(parts)
