"""The pictures of a report, drawn by matplotlib: the same ones on the page and for a paper."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from fedskew.plots import canvas
from fedskew.plots.canvas import COLOURS, Floats
from fedskew.report.pictures import Chart, Line, Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


LEVELS = 11  # shades of a heat map
SAFE = " ='()*,/:;?@!$+"  # characters that an address within double quotes may hold as they are
DASHES: tuple[Any, ...] = ("-", (0, (4, 2)), (0, (1, 1.8)), (0, (5, 2, 1, 2)), (0, (7, 2, 1, 2, 1, 2)))
MARKS = "os^Dv"
PAGE = {**canvas.STYLE, "svg.fonttype": "none", "font.family": ["DejaVu Sans"]}  # letters stay text
SHADES = (
    "#ffffff", "#eef4fa", "#dde9f5", "#ccdff1", "#adcde7", "#88b8dc", "#3877ae", "#2d6ba2", "#225e95", "#145088",
    "#073d78",
)  # fmt: skip
UNKNOWN, INK, PALE, DEEP = "#e4e4e4", "#1b1f24", "#1b1f25", "#fffffe"


def levels(values: Floats, top: float = 1.0, root: bool = False) -> Any:
    """The shade of every value: 0 of nothing to 10 of ``top``; -1 of NaN. What is not 0 has a shade of at least 1."""
    share = np.clip(np.nan_to_num(values, nan=0.0) / (top or 1.0), 0, 1)
    shade = np.rint((np.sqrt(share) if root else share) * (LEVELS - 1)).astype(np.int64)
    return np.where(np.isnan(values), -1, np.where((share > 0) & (shade == 0), 1, shade))


def look(place: int) -> dict[str, Any]:
    """Colour, dashes and mark of a method: neighbours differ in all three, and those of one colour in the others."""
    turn = (place + place // len(DASHES)) % len(DASHES)
    return {"color": COLOURS[place % len(COLOURS)], "linestyle": DASHES[turn], "marker": MARKS[turn]}


# Figures


def figure_of(picture: Picture) -> Figure:
    """A picture as a figure. Within `canvas.STYLE`."""
    return _chart(picture) if isinstance(picture, Chart) else _heat(picture)


def _labelled(axes: Axes, picture: Any) -> None:
    """Title and labels."""
    labels = {"xlabel": canvas.short(picture.xlabel, 50), "ylabel": canvas.short(picture.ylabel, 30)}
    axes.set(**labels, title=picture.title)


def _chart(picture: Any) -> Figure:
    rows = -(-len({line.label for line in picture.lines}) // 2)
    figure = canvas.figure(3.3 + 0.22 * rows, 5.2)
    axes = figure.add_subplot()
    for line in picture.lines:
        _line(axes, line, picture.joined)
    _labelled(axes, picture)
    if picture.ticks:
        tilted = sum(map(len, picture.ticks)) > 60
        names = [canvas.short(name) for name in picture.ticks]
        axes.set_xticks(range(len(names)), names, rotation=45 * tilted, ha="right" if tilted else "center")
    elif picture.logarithmic:
        canvas.logarithmic(axes.xaxis)
    elif picture.joined and picture.from_zero:
        axes.set_xlim(left=min(0.0, *(float(line.x.min()) for line in picture.lines)))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _line(axes: Axes, line: Line, joined: bool) -> None:
    """Points with a band where they are joined, else each with its whisker."""
    from matplotlib.patches import Polygon

    style = look(line.place) | ({"lw": 1.6, "ms": 4} if joined else {"linestyle": "", "ms": 7})
    if line.low is not None and line.high is not None and joined and len(line.x) > 1:
        outline = np.c_[[*line.x, *line.x[::-1]], [*line.high, *line.low[::-1]]]
        axes.update_datalim(outline)
        axes.add_artist(Polygon(outline, color=style["color"], alpha=0.15, lw=0))
    elif line.low is not None and line.high is not None and not joined:
        axes.plot([line.x, line.x], [line.low, line.high], color=style["color"], lw=1.6)
    if joined and len(line.x) > 12:
        style["marker"] = ""
    name = canvas.short(line.label)
    axes.plot(line.x, line.y, **style, label=canvas.entry(name))
    if not joined:
        axes.margins(0.08)


def _heat(picture: Any) -> Figure:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    rows, columns = picture.cells.shape
    names = [canvas.short(n) for n in picture.columns]
    longest, wide = max(map(len, names), default=0), max((len(canvas.short(n)) for n in picture.rows), default=0)
    tilted = sum(map(len, names)) > 60
    tall = min(max(0.28 * rows, 1.4), 9)
    across = min(max(0.36 * columns, 1.8), 10)
    slant = 0.065 * longest * tilted  # of tilted names, down and to the left
    figure = canvas.figure(1.0 + tall + slant, 1.0 + max(0.085 * wide, slant) + across)
    axes = figure.add_subplot(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
    grid = levels(picture.cells, picture.top, picture.root)
    for level, colour in ((-1, UNKNOWN), *enumerate(SHADES)):
        corners: list[tuple[float, float]] = []
        for r, row in enumerate(grid):  # neighbours in a row are one rectangle
            edges = np.flatnonzero(np.diff(np.concatenate([[False], row == level, [False]]).astype(np.int8)))
            for a, b in (edges.reshape(-1, 2) - 0.5).tolist():
                corners += [(a, r - 0.5), (b, r - 0.5), (b, r + 0.5), (a, r + 0.5), (a, r - 0.5)]
        if corners and level:
            codes = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY] * (len(corners) // 5)
            axes.add_patch(PathPatch(Path(corners, codes), facecolor=colour, lw=0))
    axes.grid(False)
    step = max(1, columns // 30) if all(picture.columns) else 1
    ticks = [c for c in range(0, columns, step) if names[c]]
    axes.set_xticks(ticks, [names[c] for c in ticks], rotation=45 * tilted, ha="right" if tilted else "center")
    every = max(1, round(0.16 * rows / tall))
    axes.set_yticks(range(0, rows, every), [canvas.short(n) for n in picture.rows[::every]])
    _labelled(axes, picture)
    if picture.numbers or (columns <= 12 and picture.top == 1):
        for (r, c), v in np.ndenumerate(picture.cells):
            if np.isfinite(v) and v >= 0.005:
                dark = DEEP if grid[r, c] > LEVELS // 2 else PALE
                axes.text(c, r, f"{100 * v:.0f}", ha="center", va="center", fontsize=8, color=dark)
    return figure


# On the page


def inline(picture: Picture) -> str:
    """A picture as the address of an image that holds it: the page needs no file beside it."""
    with canvas.matplotlib().rc_context(PAGE):
        text = canvas.content_of(figure_of(picture), ".svg").decode()
    fine = re.sub(r"(\.\d\d)\d+|\s+", lambda found: found[1] or " ", text)  # what a screen shows
    return f"data:image/svg+xml,{quote(fine, SAFE)}"
