"""A report's files: the page; every table as CSV and LaTeX; every figure as PDF and SVG, for a paper."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fedskew.errors import RecordError, plural, require
from fedskew.plots import canvas
from fedskew.plots.drawing import Picture, figure_of
from fedskew.records.files import write_atomic
from fedskew.report.compared import compare
from fedskew.report.entries import Entry
from fedskew.report.figures import Detail, federation, recalls
from fedskew.report.overall import compact
from fedskew.report.page import build, sections
from fedskew.report.parts import Figure
from fedskew.report.tables import Table, to_csv, to_latex

WHOLE = Detail(points=400, settings=10**6, methods=10**6, heats=10**6, matrices=10**6)  # a paper leaves nothing out


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
    listed = list(entries)
    content = build(listed, **asked).encode()
    _folder(page.parent)
    write_atomic(page, content)
    yield f"report: {page} ({plural(len(listed), 'run')}, {max(1, len(content) // 1000):,} kB)"
    if tables is None and figures is None:
        return
    found = compare(listed, asked.get("metric"), asked.get("baseline"))
    heats = {s: federation(found, s) for s in found.settings} if figures is not None else {}
    heats = {s: heats.get(s, (None, "")) for s in found.settings}
    made = sections(found, WHOLE, trials=asked.get("trials", ()), targets=asked.get("targets", ()), heats=heats)
    if tables is not None:
        written = [_tables(Path(tables), name, table) for name, table in _numbered(
            [compact(found), *(t for s in made for t in (*s.parts, *s.folded) if isinstance(t, Table))])]  # fmt: skip
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


def picture_of(picture: Picture, out: Path) -> Path:
    """Draw a picture of the page as a file.

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
        return canvas.save(figure_of(picture), out)
