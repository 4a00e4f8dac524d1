"""The pictures of a report, drawn by matplotlib: as figures for a paper, and as elements inside the page.

On the page a colour is a class of the page's style, so that a picture follows the reader's choice of dark or light; the
page's policy allows no style of an element.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fedskew.errors import visible
from fedskew.plots import canvas
from fedskew.plots.canvas import COLOURS, Floats
from fedskew.report.pictures import Chart, Heat, Line, Picture, Ranking

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


LEVELS = 11  # shades of a heat map
DASHES: tuple[Any, ...] = ("-", (0, (4, 2)), (0, (1, 1.8)), (0, (5, 2, 1, 2)), (0, (7, 2, 1, 2, 1, 2)))
MARKS = "os^Dv"
SHADES = (
    "#ffffff", "#eef4fa", "#dde9f5", "#ccdff1", "#adcde7", "#88b8dc", "#3877ae", "#2d6ba2", "#225e95", "#145088",
    "#073d78",
)  # fmt: skip
UNKNOWN, RULE, INK, PALE, DEEP = "#e4e4e4", "#d0d7de", "#1b1f24", "#1b1f25", "#fffffe"  # named by a class each
CLASSES = {
    **{colour.lower(): f"c{i}" for i, colour in enumerate(COLOURS)}, **{s: f"h{i}" for i, s in enumerate(SHADES)},
    UNKNOWN: "hx", RULE: "rule", PALE: "pale", DEEP: "deep",
}  # fmt: skip
PAGE = {
    **canvas.STYLE, "svg.fonttype": "none", "path.simplify": False, "axes.edgecolor": INK, "text.color": INK,
    "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "grid.color": RULE,
    **{f"{axis}tick.{kind}.size": 0.0 for axis in "xy" for kind in ("major", "minor")},
}  # fmt: skip
KEPT = {"stroke-width", "stroke-dasharray", "opacity", "text-anchor", "font-size"}
USUAL = ("0.8", "10px")  # width of a stroke and size of a letter that the page's style sets
SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}href"


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


def figure_of(picture: Picture, page: bool = False) -> Figure:
    """A picture as a figure; on a page without title and legend, which stand beside it. Within `canvas.STYLE`."""
    draw = {Chart: _chart, Heat: _heat, Ranking: _ranking}[type(picture)]
    return draw(picture, page)


def _labelled(axes: Axes, picture: Any, page: bool) -> None:
    """Title and labels; on a page the title stands above the picture."""
    labels = {"xlabel": canvas.short(picture.xlabel, 50), "ylabel": canvas.short(picture.ylabel, 30)}
    axes.set(**labels, title="" if page else picture.title)


def _chart(picture: Any, page: bool) -> Figure:
    rows = 0 if page else -(-len({line.label for line in picture.lines}) // 2)
    figure = canvas.figure(3.3 + 0.22 * rows, 5.2)
    axes = figure.add_subplot()
    for line in picture.lines:
        _line(axes, line, picture.joined)
    _labelled(axes, picture, page)
    if picture.ticks:
        tilted = sum(map(len, picture.ticks)) > 60
        names = [canvas.short(name) for name in picture.ticks]
        axes.set_xticks(range(len(names)), names, rotation=45 * tilted, ha="right" if tilted else "center")
    elif picture.logarithmic:
        canvas.logarithmic(axes.xaxis)
    elif picture.joined and picture.from_zero:
        axes.set_xlim(left=min(0.0, *(float(line.x.min()) for line in picture.lines)))
    if not page:
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
    axes.plot(line.x, line.y, **style, label=canvas.entry(name), gid=name)
    if not joined:
        axes.margins(0.08)


def _heat(picture: Any, page: bool) -> Figure:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    rows, columns = picture.cells.shape
    names = [canvas.short(n) for n in picture.columns]
    longest, wide = max(map(len, names), default=0), max((len(canvas.short(n)) for n in picture.rows), default=0)
    tilted = sum(map(len, names)) > 60
    tall = min(max(0.28 * rows, 1.4), 9)
    across = min(0.36 * columns, 10) if not page else min(max(0.36 * columns, 1.8), 5.2)
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
    _labelled(axes, picture, page)
    if picture.numbers or (not page and columns <= 12 and picture.top == 1):
        for (r, c), v in np.ndenumerate(picture.cells):
            if np.isfinite(v) and v >= 0.005:
                dark = DEEP if grid[r, c] > LEVELS // 2 else PALE
                axes.text(c, r, f"{100 * v:.0f}", ha="center", va="center", fontsize=8, color=dark)
    return figure


def _ranking(picture: Any, page: bool) -> Figure:
    order = np.argsort(picture.ranks, kind="stable").tolist()
    bars, half = picture.bars, (len(order) + 1) // 2
    longest = max(len(canvas.short(name)) for name in picture.names)
    figure = canvas.figure(1.0 + 0.3 * half + 0.12 * len(bars), 4.0 + 0.17 * longest)
    axes = figure.add_subplot(xlim=(1 - 0.02, max(2, len(order)) + 0.02))
    axes.grid(False)
    axes.spines[["left", "right", "bottom"]].set_visible(False)
    axes.spines["top"].set_visible(True)
    axes.xaxis.tick_top()
    axes.set_yticks([])
    axes.locator_params(axis="x", integer=True)
    for i, (low, high) in enumerate(bars):
        axes.plot([low, high], [-0.4 - 0.35 * i] * 2, color=INK, lw=4, solid_capstyle="round")
    for i, m in enumerate(order):
        left = i < half
        y = -0.9 - 0.35 * len(bars) - (i if left else len(order) - 1 - i)
        end, side = (axes.get_xlim()[0], "right") if left else (axes.get_xlim()[1], "left")
        axes.plot([picture.ranks[m]] * 2 + [end], [0, y, y], color=look(picture.places[m])["color"], lw=1.2)
        axes.text(end, y, f" {canvas.short(picture.names[m])} {picture.ranks[m]:.2f} ", ha=side, va="center")
    axes.set_ylim(-1.4 - 0.35 * len(bars) - half, 0)
    axes.set_title("" if page else picture.title)
    return figure


# On the page


def inline(picture: Picture, name: str) -> str:
    """A picture as an element of a page, with its title and its description in words.

    Args:
        picture: What to draw.
        name: Identifier of the picture on its page.
    """
    with canvas.matplotlib().rc_context(PAGE):
        root = _element(figure_of(picture, page=True))
    root.attrib |= {"role": "img", "aria-labelledby": f"{name}t {name}d"}
    for at, (tag, text) in enumerate((("title", picture.title), ("desc", picture.told))):
        told = ET.Element(tag, {"id": f"{name}{tag[0]}"})
        told.text = visible(text.replace("\n", " ").replace("\t", " "))
        root.insert(at, told)
    return ET.tostring(root, encoding="unicode")


@cache
def sample(place: int) -> str:
    """A piece of a method's line with its mark, for a legend."""
    with canvas.matplotlib().rc_context(PAGE):
        figure = canvas.figure(0.16, 0.6)
        figure.set_layout_engine("none")
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0), xlim=(0, 2), ylim=(-1, 1))
        axes.set_axis_off()
        axes.plot([0, 1, 2], [0, 0, 0], **look(place), lw=1.6, ms=6, markevery=[1])
        root = _element(figure)
    root.attrib |= {"class": "sample", "aria-hidden": "true"}
    return ET.tostring(root, encoding="unicode")


def _element(figure: Figure) -> ET.Element:
    """The figure as an element without what a page must not hold: styles, references, identifiers and metadata."""
    figure.patch.set_visible(False)
    for axes in figure.axes:
        axes.patch.set_visible(False)
    root = ET.fromstring(canvas.content_of(figure, ".svg"))
    defined = {element.attrib["id"]: element for element in root.iter() if "id" in element.attrib}
    whole = ET.Element("svg", {"viewBox": root.attrib["viewBox"]})
    for child in root:
        _copy(child, whole, defined)
    return whole


def _copy(element: ET.Element, into: ET.Element, defined: dict[str, ET.Element]) -> None:
    """Put an element into another one. A group without a label is left out, and a reference is what it refers to."""
    tag, old = element.tag.removeprefix(SVG), dict(element.attrib)
    if tag in ("defs", "metadata", "clipPath", "style"):
        return
    label = old.get("id", "")
    if tag == "g" and re.fullmatch(r"([\w.]+_\d+)?", label):
        for child in element:
            _copy(child, into, defined)
        return
    if tag == "use":
        tag, place = "path", f"translate({old.pop('x', '0')} {old.pop('y', '0')})"
        old |= {"d": defined[old[XLINK][1:]].attrib["d"], "transform": place}
    made = ET.SubElement(into, tag, _given(old))
    if tag == "g":
        ET.SubElement(made, "title").text = label
    made.text = element.text if tag == "text" else None
    for child in element:
        _copy(child, made, defined)


def _given(old: dict[str, str]) -> dict[str, str]:
    """Attributes as the page has them: a style is classes and attributes, and what is usual is not said."""
    style = dict(part.strip().split(": ", 1) for part in old.get("style", "").split(";") if ": " in part)
    if size := re.match(r"[\d.]+(?=px)", style.get("font", "")):
        style["font-size"] = f"{size[0]}px"
    classes = [
        f"{kind[0]}-{CLASSES[c]}" for kind in ("fill", "stroke") if (c := style.get(kind, "").lower()) in CLASSES
    ]
    classes += ["line"] if style.get("fill") == "none" else []
    given = {"class": " ".join(classes)} if classes else {}
    given |= {name: _rounded(old[name]) for name in ("transform", "x", "y") if name in old}
    given |= {n: told for n, value in style.items() if n in KEPT and (told := _rounded(value, 2)) not in USUAL}
    given |= {"d": _relative(old["d"])} if "d" in old else {}
    if given.get("transform", "").startswith("rotate(-0 "):
        del given["transform"]
    return given


def _rounded(text: str, digits: int = 1) -> str:
    return re.sub(r"-?\d+\.\d+", lambda m: f"{round(float(m[0]), digits):g}", " ".join(text.split()))


def _relative(path: str) -> str:
    """A path by tenths of a unit, a point by its distance to the one before; one with curves is rounded alone."""
    if re.search("[CQ]", path):
        return _rounded(path)
    told, at, start = [], (0, 0), (0, 0)
    for command, x, y in re.findall(r"([MLz])(?: (-?[\d.]+) (-?[\d.]+))?", " ".join(path.split())):
        if command == "z":
            told.append("z")
            at = start
            continue
        point = (round(10 * float(x)), round(10 * float(y)))
        dx, dy = (f"{(now - before) / 10:g}" for now, before in zip(point, at, strict=True))
        told.append(f"{'m' * (command == 'M')}{dx} {dy}")
        at, start = point, point if command == "M" else start
    return " ".join(told).replace(" -", "-")
