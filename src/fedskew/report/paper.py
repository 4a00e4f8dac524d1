"""A report's files: the page; every table as CSV and LaTeX; every figure as PDF and SVG, for a paper."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fedskew.errors import plural, require
from fedskew.plots import canvas
from fedskew.plots.drawing import figure_of
from fedskew.records.files import write_atomic, writing
from fedskew.report.compared import compare
from fedskew.report.entries import LabelledRun
from fedskew.report.figures import Detail, recalls
from fedskew.report.listings import compact
from fedskew.report.page import build, sections
from fedskew.report.tables import ReportTable, to_csv, to_latex

WHOLE = Detail(points=400, settings=10**6, methods=10**6, heats=10**6, matrices=10**6)  # a paper leaves nothing out


def write(
    entries: Iterable[LabelledRun],
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
    with writing(page):
        page.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(page, content)
    yield f"report: {page} ({plural(len(listed), 'run')}, {max(1, len(content) // 1000):,} kB)"
    if tables is None and figures is None:
        return
    compared = compare(listed, asked.get("metric"), asked.get("baseline"))
    detail = WHOLE if figures is not None else WHOLE._replace(heats=0)
    page_sections = sections(compared, detail, trials=asked.get("trials", ()), targets=asked.get("targets", ()))
    if tables is not None:
        parts = (part for section in page_sections for part in (*section.parts, *section.folded))
        listing = [compact(compared), *(part for part in parts if isinstance(part, ReportTable))]
        with writing(Path(tables)):
            Path(tables).mkdir(parents=True, exist_ok=True)
        for name, table in _numbered(listing):
            write_atomic(Path(tables) / f"{name}.csv", to_csv(table).encode())
            write_atomic(Path(tables) / f"{name}.tex", to_latex(table, name).encode())
        yield f"tables: {tables} ({plural(len(listing), 'table')}, as CSV and LaTeX)"
    if figures is not None:
        shown = [p for s in page_sections for part in s.parts if isinstance(part, tuple) for p in part]
        shown += [heat for setting in compared.settings if (heat := recalls(compared, setting, compared.order))]
        for name, picture in _numbered(shown):
            for suffix in (".pdf", ".svg"):
                canvas.save(figure_of(picture), Path(figures) / f"{name}{suffix}")
        yield f"figures: {figures} ({plural(len(shown), 'figure')}, as PDF and SVG)"


def _numbered(items: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Each with the name of its files: its key and a number, since labels are no names of files."""
    count: dict[str, int] = {}
    for item in items:
        key = re.sub(r"[^a-z0-9]+", "-", item.key.lower()).strip("-")
        count[key] = count.get(key, 0) + 1
        yield f"{key}-{count[key]}", item
