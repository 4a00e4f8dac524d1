"""A report's files: the page; every table as CSV and LaTeX; every figure as PDF and SVG, for a paper."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedskew.errors import RecordError, plural, require, visible
from fedskew.plots import canvas
from fedskew.records.files import write_atomic
from fedskew.report.compared import compare
from fedskew.report.entries import Entry
from fedskew.report.figures import Detail, federation, recalls
from fedskew.report.page import build, sections
from fedskew.report.parts import Figure
from fedskew.report.pictures import Chart, Heat, Picture, Ranking
from fedskew.report.svg import turn
from fedskew.report.tables import Table, to_csv, to_latex

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawn

__all__ = ["picture_of", "write"]

WHOLE = Detail(points=400, settings=10**6, methods=10**6, heats=10**6, matrices=10**6)  # a paper leaves nothing out
DASHES: tuple[Any, ...] = ("-", (0, (4, 2)), (0, (1, 1.8)), (0, (5, 2, 1, 2)), (0, (7, 2, 1, 2, 1, 2)))
MARKS = "os^Dv"
CUT = 40  # characters of a name in a figure


def write(
    entries: Iterable[Entry],
    out: str | Path,
    tables: str | Path | None = None,
    figures: str | Path | None = None,
    **asked: Any,
) -> Iterator[str]:
    """Write the page and, where they are asked for, its tables and figures.

    Args:
        entries: As for `fedskew.report.build`.
        out: File of the page, ending in .html.
        tables: Folder for every table as CSV and LaTeX.
        figures: Folder for every figure as PDF and SVG.
        asked: Further arguments of `fedskew.report.build`.

    Yields:
        A line for each of the three that was written.

    Raises:
        ConfigError: As `fedskew.report.build`; the page's suffix is another; matplotlib is missing.
        RecordError: As `fedskew.report.build`; a file cannot be written.
    """
    page = Path(out) if Path(out).suffix else Path(out).with_suffix(".html")
    require(page.suffix.lower() in (".html", ".htm"), "out", "end in .html", str(out))
    if figures is not None:
        canvas.matplotlib()  # refused before anything is written
    listed = list(entries)
    content = build(listed, **asked).encode()
    _folder(page.parent)
    write_atomic(page, content)
    yield f"report: {page} ({plural(len(listed), 'run')}, {max(1, len(content) // 1000):,} kB)"
    if tables is None and figures is None:
        return
    found = compare(listed, asked.get("metric", "accuracy"), asked.get("baseline"))
    heats = {s: federation(found, s) for s in found.settings} if figures is not None else {}
    heats = {s: heats.get(s, (None, "")) for s in found.settings}
    made = sections(found, WHOLE, trials=asked.get("trials", ()), targets=asked.get("targets", ()), heats=heats)
    if tables is not None:
        written = [_tables(Path(tables), name, table) for name, table in _numbered(
            [t for s in made for t in (*s.parts, *s.folded) if isinstance(t, Table)])]  # fmt: skip
        yield f"tables: {tables} ({plural(len(written), 'table')}, as CSV and LaTeX)"
    if figures is not None:
        shown = [p for s in made for part in s.parts if isinstance(part, Figure) for p in part.pictures]
        shown += [heat for setting in found.settings if (heat := recalls(found, setting, found.order))]
        for name, picture in _numbered(shown):
            for suffix in (".pdf", ".svg"):
                picture_of(picture, Path(figures) / f"{name}{suffix}")
        yield f"figures: {figures} ({plural(len(shown), 'figure')}, as PDF and SVG)"


def _numbered(items: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Each with the name of its files: its key and a number, since labels are no names of files."""
    count: dict[str, int] = {}
    for item in items:
        key = re.sub(r"[^a-z0-9]+", "-", item.key.lower()).strip("-")
        count[key] = count.get(key, 0) + 1
        yield f"{key}-{count[key]}", item


def _folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"cannot write {folder}: {error.strerror}") from None


def _tables(folder: Path, name: str, table: Table) -> Path:
    _folder(folder)
    write_atomic(folder / f"{name}.csv", to_csv(table).encode())
    write_atomic(folder / f"{name}.tex", to_latex(table, name).encode())
    return folder / name


# Figures by matplotlib


def picture_of(picture: Picture, out: Path) -> Path:
    """Draw a picture of the page by matplotlib.

    Args:
        picture: The picture.
        out: File ending in .png, .svg or .pdf.

    Returns:
        The file.

    Raises:
        ConfigError: The suffix is another, or matplotlib is missing.
        RecordError: The file cannot be written.
    """
    with canvas.matplotlib().rc_context(canvas.STYLE):
        if isinstance(picture, Chart):
            drawn = _chart(picture)
        elif isinstance(picture, Ranking):
            drawn = _ranking(picture)
        else:
            drawn = _heat(picture)
        return canvas.save(drawn, out)


def _cut(text: str) -> str:
    told = visible(text)
    return told if len(told) <= CUT else f"{told[: CUT - 1]}…"


def _look(place: int) -> dict[str, Any]:
    return {"color": canvas.COLOURS[place % len(canvas.COLOURS)], "linestyle": DASHES[turn(place)], "lw": 1.6}


def _chart(picture: Chart) -> Drawn:
    names = dict.fromkeys(line.label for line in picture.lines)
    figure = canvas.figure(3.6 + 0.22 * -(-len(names) // 2), 5.2)
    axes = figure.add_subplot()
    for line in picture.lines:
        (_joined if picture.joined else _points)(axes, line)
    axes.set(title=picture.title, xlabel=picture.xlabel, ylabel=picture.ylabel)
    if picture.logarithmic:
        canvas.logarithmic(axes.xaxis)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


def _joined(axes: Axes, line: Any) -> None:
    look = _look(line.place)
    if line.low is not None and line.high is not None:
        axes.fill_between(line.x, line.low, line.high, color=look["color"], alpha=0.15, lw=0)
    dots: dict[str, Any] = {"marker": MARKS[turn(line.place)]} if len(line.x) <= 12 else {}
    axes.plot(line.x, line.y, **look, **dots, label=canvas.entry(_cut(line.label)))


def _points(axes: Axes, line: Any) -> None:
    ends = None if line.low is None or line.high is None else np.array([line.y - line.low, line.high - line.y])
    mark = MARKS[turn(line.place)]
    colour = _look(line.place)["color"]
    axes.errorbar(line.x, line.y, ends, fmt=mark, color=colour, label=canvas.entry(_cut(line.label)))


def _heat(picture: Heat) -> Drawn:
    rows, columns = picture.cells.shape
    wide = max((len(n) for n in picture.rows), default=0) * 0.07
    tilted = sum(map(len, picture.columns)) > 60
    below = 0.05 * max(map(len, picture.columns), default=0) if tilted else 0.0
    figure = canvas.figure(1.6 + min(0.3 * rows, 9) + min(below, 2), 2.4 + min(wide, 3) + min(0.36 * columns, 10))
    axes = figure.add_subplot()
    shades = canvas.matplotlib().colormaps["Blues"].with_extremes(bad="0.85")
    cells = np.sqrt(picture.cells) if picture.root else picture.cells
    top = math.sqrt(picture.top) if picture.root else picture.top
    axes.imshow(cells, vmin=0, vmax=top, cmap=shades, aspect="auto", interpolation="nearest")
    axes.grid(False)
    step = max(1, columns // 30)
    axes.set_xticks(range(0, columns, step), [_cut(n) for n in picture.columns[::step]], rotation=45 * tilted,
                    ha="right" if tilted else "center")  # fmt: skip
    axes.set_yticks(range(rows), [_cut(n) for n in picture.rows])
    axes.set(title=picture.title, xlabel=picture.xlabel, ylabel=picture.ylabel)
    if columns <= 12 and picture.top == 1:
        for (r, c), v in np.ndenumerate(picture.cells):
            if np.isfinite(v) and v >= 0.005:
                axes.text(c, r, f"{100 * v:.0f}", ha="center", va="center", fontsize=8, color="w" if v > 0.55 else "k")
    return figure


def _ranking(picture: Ranking) -> Drawn:
    order = np.argsort(picture.ranks, kind="stable").tolist()
    bars, half = picture.bars, (len(order) + 1) // 2
    figure = canvas.figure(1.2 + 0.3 * half + 0.12 * len(bars), 7.5)
    axes = figure.add_subplot(xlim=(1 - 0.02, max(2, len(order)) + 0.02))
    axes.grid(False)
    axes.spines[["left", "right", "bottom"]].set_visible(False)
    axes.spines["top"].set_visible(True)
    axes.xaxis.tick_top()
    axes.set_yticks([])
    axes.locator_params(axis="x", integer=True)
    for i, (low, high) in enumerate(bars):
        axes.plot([low, high], [-0.4 - 0.35 * i] * 2, color="k", lw=4, solid_capstyle="round")
    for i, m in enumerate(order):
        left = i < half
        y = -0.9 - 0.35 * len(bars) - (i if left else len(order) - 1 - i)
        end, side = (axes.get_xlim()[0], "right") if left else (axes.get_xlim()[1], "left")
        colour = canvas.COLOURS[picture.places[m] % len(canvas.COLOURS)]
        axes.plot([picture.ranks[m]] * 2 + [end], [0, y, y], color=colour, lw=1.2)
        axes.text(end, y, f" {_cut(picture.names[m])} {picture.ranks[m]:.2f} ", ha=side, va="center")
    axes.set_ylim(-1.4 - 0.35 * len(bars) - half, 0)
    axes.set_title(picture.title)
    return figure
