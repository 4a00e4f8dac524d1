"""Pictures as plain values, charts, heat maps and forests; how matplotlib draws them: alone, in panels, on a page."""

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np

from fedskew.plots import canvas
from fedskew.plots.canvas import Axes, Figure, Floats, look_of

LEVELS = 11  # shades of a heat map
SAFE = " ='()*,/:;?@!$+"  # characters that an address within double quotes may hold as they are
FONT = {"svg.fonttype": "none", "font.family": ["DejaVu Sans"]}  # letters stay text
SHADES = (
    "#ffffff", "#eef4fa", "#dde9f5", "#ccdff1", "#adcde7", "#88b8dc", "#3877ae", "#2d6ba2", "#225e95", "#145088",
    "#073d78",
)  # fmt: skip
FOREST = (canvas.COLOURS[1], canvas.COLOURS[3], canvas.COLOURS[0], canvas.COLOURS[2], "#000000")  # by model
UNKNOWN, PALE, DEEP = "#e4e4e4", "#1b1f25", "#fffffe"


@dataclass(frozen=True)
class Line:
    """Points of a method. P points."""

    label: str
    place: int  # its colour and dashes, see `canvas.look_of`
    x: Floats  # [P]
    y: Floats  # [P]
    low: Floats | None = None  # [P] of the band
    high: Floats | None = None


@dataclass(frozen=True)
class Chart:
    """Lines with bands."""

    key: str  # names its file
    title: str
    xlabel: str
    ylabel: str
    lines: tuple[Line, ...]
    alt: str  # the same in words, for readers who do not see it
    logarithmic: bool = False  # the horizontal axis


@dataclass(frozen=True)
class Heat:
    """Cells of shares in [0, 1], or of numbers on a scale; NaN has no colour."""

    key: str
    title: str
    cells: Floats  # [R, C]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    xlabel: str
    ylabel: str
    alt: str
    numbers: bool = False  # write each share into its cell
    top: float = 1.0  # value of the darkest cell
    root: bool = False  # colour by the square root: small numbers stay visible


@dataclass(frozen=True)
class Forest:
    """Gains of methods with their intervals, a mark for each model, and a number of each method beside them."""

    key: str
    title: str
    rows: tuple[str, ...]
    marks: dict[str, tuple[tuple[float, ...] | None, ...]]  # by model: mean, low and high of each row
    places: tuple[int, ...]  # of each model: its look in every picture
    xlabel: str
    beside: tuple[str, ...]  # texts of the rows, none
    head: str  # of what stands beside
    alt: str


Picture = Chart | Heat | Forest


def levels(values: Floats, top: float = 1.0, root: bool = False) -> Any:
    """The shade of every value: 0 of nothing to 10 of ``top``; -1 of NaN. What is not 0 has a shade of at least 1."""
    share = np.clip(np.nan_to_num(values, nan=0.0) / (top or 1.0), 0, 1)
    shade = np.rint((np.sqrt(share) if root else share) * (LEVELS - 1)).astype(np.int64)
    return np.where(np.isnan(values), -1, np.where((share > 0) & (shade == 0), 1, shade))


@canvas.styled
def figure_of(picture: Picture) -> Figure:
    """A picture as a figure."""
    if isinstance(picture, Forest):
        return forest(picture)
    if isinstance(picture, Chart):
        figure = canvas.figure(max(3.4, 0.17 * len(picture.lines) + 0.9), 5.1)
        axes = figure.add_subplot()
        chart(axes, picture)
        name_ends(axes, picture)
        return figure
    rows, columns = picture.cells.shape
    longest, wide = (max((len(canvas.short(n)) for n in names), default=0) for names in (picture.columns, picture.rows))
    slant = 0.065 * longest * _tilted(picture.columns)  # of tilted names, down and to the left
    tall, across = min(max(0.28 * rows, 1.4), 9), min(max(0.36 * columns, 1.8), 10)
    width = max(1.0 + max(0.085 * wide, slant) + across, 0.085 * len(picture.title))  # the title is not cut
    figure = canvas.figure(1.0 + tall + slant, width)
    heat(figure.add_subplot(), picture)
    return figure


def _tilted(names: tuple[str, ...]) -> bool:
    return sum(len(canvas.short(name)) for name in names) > 60


def _name_places(axes: Axes, places: Any, names: tuple[str, ...]) -> None:
    """Names below the horizontal axis, tilted where they are long."""
    tilted = _tilted(names)
    shown = [canvas.short(name) for name in names]
    axes.set_xticks(places, shown, rotation=45 * tilted, ha="right" if tilted else "center")


def _label(axes: Axes, picture: Chart | Heat) -> None:
    labels = {"xlabel": canvas.short(picture.xlabel, 50), "ylabel": canvas.short(picture.ylabel, 50)}
    axes.set(**labels, title=picture.title)


def chart(axes: Axes, picture: Chart) -> None:
    """Draw lines with their bands."""
    for line in picture.lines:
        style = look_of(line.place, len(line.x))
        if line.low is not None and line.high is not None:
            axes.fill_between(line.x, line.low, line.high, color=style["color"], alpha=0.15, lw=0)
        axes.plot(line.x, line.y, **style, label=canvas.entry(canvas.short(line.label)))
    _label(axes, picture)
    axes.margins(x=0.02)
    if picture.logarithmic:
        canvas.logarithmic(axes.xaxis)
    else:
        axes.set_xlim(left=min(0.0, *(float(line.x.min()) for line in picture.lines)))
        axes.locator_params(axis="x", integer=picture.xlabel == "round", nbins=7)


def name_ends(axes: Axes, picture: Chart) -> None:
    """The name of each line beside the axes, joined to the line's end; no two names overlap."""
    low, high = axes.get_ylim()
    ended = [line for line in picture.lines if np.isfinite([line.x[-1], line.y[-1]]).all()]
    ends = sorted(ended, key=lambda line: line.y[-1])
    step = min(0.065, 1 / max(1, len(ends) - 1))
    places, least = [], 0.0
    for line in ends:
        places.append(max((float(line.y[-1]) - low) / (high - low), least))
        least = places[-1] + step
    for i in reversed(range(len(ends))):  # those that were pushed above the axes push the others down
        places[i] = min(places[i], 1 - step * (len(ends) - 1 - i))
    for line, place in zip(ends, places, strict=True):
        tint = canvas.colour(line.place)
        end = float(line.x[-1]), float(line.y[-1])
        joined = {"arrowstyle": "-", "color": tint, "lw": 1, "ls": ":", "shrinkA": 1, "shrinkB": 1}
        axes.annotate(
            canvas.short(line.label, 26), end, (1.06, place), "data", "axes fraction", va="center", fontsize=9,
            annotation_clip=False, arrowprops=joined,
        )  # fmt: skip


def forest(picture: Forest) -> Figure:
    """A line for each method: its gains with their intervals around 0. Far ends are cut, and an arrow says so."""
    rows, models = len(picture.rows), len(picture.marks)
    figure = canvas.figure(1.05 + rows * (0.2 + 0.13 * models), 5.1)
    axes = figure.add_subplot()
    known = [interval for each in picture.marks.values() for interval in each if interval is not None]
    reach = 3 * max((abs(mean) for mean, _, _ in known), default=1.0) or 1.0
    low, high = (
        min(-reach / 9, *(max(interval[1], -reach) for interval in known)),
        max(reach / 9, *(min(interval[2], reach) for interval in known)),
    )
    pad = 0.04 * (high - low)
    axes.set(xlim=(low - pad, high + pad), ylim=(rows - 0.5, -0.5), xlabel=canvas.short(picture.xlabel, 70))
    axes.axvline(0, color="0.35", lw=1)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0, pad=8)  # an arrow stands in front of a name
    for j, (model, each) in enumerate(picture.marks.items()):
        tint, mark = FOREST[picture.places[j]], canvas.MARKS[picture.places[j]]
        at = np.array([i for i, interval in enumerate(each) if interval]) + (j - (models - 1) / 2) * 0.72 / models
        mean, left, right = np.array([interval for interval in each if interval]).T
        axes.hlines(at, left, right, color=tint, lw=1.5, zorder=2)
        axes.plot(mean, at, mark, color=tint, ms=5.5, label=canvas.entry(model), zorder=3)
        for end, sign, beyond in ((low - pad, "<", left < low), (high + pad, ">", right > high)):
            axes.plot(np.full(beyond.sum(), end), at[beyond], sign, color=tint, ms=5, clip_on=False)
    for edge in range(1, rows):
        axes.axhline(edge - 0.5, color="0.9", lw=0.8)
    axes.set_yticks(range(rows), [canvas.short(name, 26) for name in picture.rows])
    for i, text in enumerate(picture.beside):
        axes.text(1.05, i, text, transform=axes.get_yaxis_transform(), va="center")
    axes.text(1.05, 1.02, picture.head, transform=axes.transAxes, va="bottom", fontsize=9, color="0.3")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=2 if sum(map(len, labels)) > 42 else 4, fontsize=9)
    return figure


def heat(axes: Axes, picture: Heat) -> None:
    """Draw a heat map; a share is written into its cell where there is room."""
    from matplotlib.colors import ListedColormap

    rows, columns = picture.cells.shape
    shades = levels(picture.cells, picture.top, picture.root)
    colours = ListedColormap(SHADES).with_extremes(under=UNKNOWN)
    axes.imshow(shades, colours, vmin=0, vmax=LEVELS - 1, aspect="auto", interpolation="none")
    axes.grid(False)
    step = max(1, columns // 30) if all(picture.columns) else 1
    ticks = [c for c in range(0, columns, step) if picture.columns[c]]
    _name_places(axes, ticks, tuple(picture.columns[c] for c in ticks))
    every = max(1, rows // 56)
    axes.set_yticks(range(0, rows, every), [canvas.short(n) for n in picture.rows[::every]])
    _label(axes, picture)
    if picture.numbers or (columns <= 12 and picture.top == 1):
        for (r, c), v in np.ndenumerate(picture.cells):
            if np.isfinite(v) and (v >= 0.005 or picture.key in ("recall", "clients")):
                ink = DEEP if shades[r, c] > LEVELS // 2 else PALE
                axes.text(c, r, f"{100 * v:.0f}", ha="center", va="center", fontsize=8, color=ink)


def inline(picture: Picture) -> str:
    """A picture as the address of an image that holds it: the page needs no file beside it."""
    with canvas.matplotlib().rc_context(FONT):
        text = canvas.content_of(figure_of(picture), ".svg", **FONT).decode()
    tag = re.compile(r"(\.\d\d)\d+|\s+")
    fine = re.sub(r"<[^>]*>", lambda each: tag.sub(lambda match: match[1] or " ", each[0]), text)  # what a screen shows
    return f"data:image/svg+xml,{quote(fine, SAFE)}"
