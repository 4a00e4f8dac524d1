"""What a page is made of: sections of sentences, tables and figures; tables are also CSV and LaTeX."""

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedskew.errors import text_of, visible
from fedskew.plots.drawing import Picture
from fedskew.records.sheets import csv_text
from fedskew.studies.scores import gain_words, in_points

TEXTS = tomllib.loads(text_of(Path(__file__).parent / "texts.toml"))  # of the sections
SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "±": r"$\pm$", "–": "--", "−": "$-$", "×": r"$\times$",
    "…": r"\dots{}", "≤": r"$\leq$", "≥": r"$\geq$", "`": r"\textasciigrave{}", "[": "{[}", "]": "{]}",
}  # fmt: skip  # brackets: after \\ one would begin an optional argument


@dataclass(frozen=True)
class TableCell:
    """A cell of a page's table."""

    text: str
    level: int = 0  # shade, -5 of much less than the baseline to 5 of much more
    mark: str = ""  # "above" or "below", of a difference that is significant
    best: bool = False  # bold in LaTeX


@dataclass(frozen=True)
class ReportTable:
    """A table. The page and LaTeX show cells; the CSV has records, in full precision and one number a column."""

    key: str  # names its file
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    words: int = 1  # leading columns that hold words; the others hold numbers
    records: tuple[dict[str, Any], ...] = field(default=())
    notes: tuple[str, ...] = ()  # what its numbers are


Side = tuple[Picture, ...]  # pictures side by side


def fixed(value: float | None, digits: int = 4) -> str:
    """A number with so many digits behind the point, a dash where there is none.

    Example:
        >>> from fedskew.report.tables import fixed
        >>> fixed(0.12345), fixed(float("nan")), fixed(-0.00001)
        ('0.1235', '–', '0.0000')
    """
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:,.{digits}f}"
    return text.replace("-", "") if float(text.replace(",", "")) == 0 else text.replace("-", "−")


def level(value: float | None, metric: str) -> str:
    """A value of a metric: a share in percent, anything else with three digits.

    Example:
        >>> from fedskew.report.tables import level
        >>> level(0.8338, "final_accuracy"), level(0.8338, "final_loss")
        ('83.4', '0.834')
    """
    return fixed(100 * value, 1) if value is not None and in_points(metric) else fixed(value, 3)


def levels(low: float | None, high: float | None, metric: str) -> str:
    """Ends of an interval of a metric, as in "78.1 to 86.0"; a dash where there is none."""
    return "–" if low is None or high is None else f"{level(low, metric)} to {level(high, metric)}"


def gain(value: float | None, metric: str) -> str:
    """A difference in the unit of its metric, with the sign of a page: "+2.3", "−0.4"."""
    return "–" if value is None else gain_words(value, metric).replace("-", "−", 1)


def unit(metric: str) -> str:
    """The unit of a metric's values after a comma: ", %"; "" where it has none."""
    return ", %" * in_points(metric)


def shade(value: float, baseline: float) -> int:
    """The shade of a share beside the baseline's: one step for ten points, at most five; 0 below two points."""
    apart = 10 * (value - baseline)
    return 0 if not abs(apart) >= 0.2 else int(math.copysign(min(5, math.ceil(abs(apart))), apart))


def amount(value: float, measured: bool = True) -> str:
    """A cost: three significant digits where it is measured and below 100; one behind the point of a mean of counts.

    Example:
        >>> from fedskew.report.tables import amount
        >>> amount(0.1318), amount(1234.5), amount(12, measured=False), amount(12.5, measured=False)
        ('0.132', '1,234', '12', '12.5')
    """
    if not math.isfinite(value) or abs(value) >= 100 or not (measured or value != int(value)):
        return fixed(value, 0)
    plain = not measured or abs(value) >= 10 or value == 0
    return fixed(value, 1 if plain else min(6, 2 - math.floor(math.log10(abs(value)))))


def titled(setting: str, what: str) -> str:
    """A caption: what is shown, after the setting where there is one."""
    return f"{setting}: {what}" if setting else f"{what[:1].upper()}{what[1:]}"


def under(setting: str) -> str:
    """The setting at the end of a title, where there is one."""
    return f", {setting}" if setting else ""


def row(*cells: TableCell | str) -> tuple[TableCell, ...]:
    """Cells of a row; a text is a cell."""
    return tuple(cell if isinstance(cell, TableCell) else TableCell(cell) for cell in cells)


def to_csv(table: ReportTable) -> str:
    """The table's records, or its cells, as csv; a number that is not known is empty.

    Example:
        >>> from fedskew.report.tables import ReportTable, TableCell, to_csv
        >>> print(to_csv(ReportTable("t", "", ("class", "rows"), ((TableCell("=1+1"), TableCell("3")),))))
        class,rows
        '=1+1,3
        <BLANKLINE>
    """
    records = table.records or tuple(
        dict(zip(table.head, (cell.text for cell in row), strict=True)) for row in table.rows
    )
    names = list(dict.fromkeys(name for record in records for name in record)) or list(table.head)
    return csv_text([names, *([_known(record.get(name, "")) for name in names] for record in records)])


def _known(value: object) -> object:
    return "" if isinstance(value, float) and math.isnan(value) else value


def to_latex(table: ReportTable, label: str) -> str:
    r"""The table for a paper that uses the package booktabs. Its label is "tab:" and ``label``.

    Example:
        >>> from fedskew.report.tables import ReportTable, TableCell, to_latex
        >>> cells = ((TableCell("a_b"), TableCell("3")),)
        >>> print(to_latex(ReportTable("t", "Recall of 5 %", ("class", "rows"), cells), "t"))
        % needs \usepackage{booktabs} and \usepackage[T1]{fontenc}
        \begin{table}
        \centering
        \caption{Recall of 5 \%}
        \label{tab:t}
        \begin{tabular}{lr}
        \toprule
        class & rows \\
        \midrule
        a\_b & 3 \\
        \bottomrule
        \end{tabular}
        \end{table}
        <BLANKLINE>
    """
    caption = f"{table.caption}. {' '.join(table.notes)}" if table.notes else table.caption
    columns = "l" * table.words + "r" * (len(table.head) - table.words)
    lines = [
        r"% needs \usepackage{booktabs} and \usepackage[T1]{fontenc}", r"\begin{table}", r"\centering",
        rf"\caption{{{_escaped(caption)}}}", rf"\label{{tab:{label}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule", _line(table.head), r"\midrule", *map(_line, table.rows),
        r"\bottomrule", r"\end{tabular}", r"\end{table}", "",
    ]  # fmt: skip
    return "\n".join(lines)


def to_text(table: ReportTable) -> str:
    """The table as plain text, its numbers to the right.

    Example:
        >>> from fedskew.report.tables import ReportTable, row, to_text
        >>> print(to_text(ReportTable("t", "Rows", ("class", "rows"), (row("a", "3"), row("b", "12")))))
        Rows
        class  rows
        a         3
        b        12
    """
    lines = [table.head, *([_inline(cell.text) for cell in row] for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    body = (
        "  ".join(f"{text:{'<' if at < table.words else '>'}{widths[at]}}" for at, text in enumerate(line))
        for line in lines
    )
    return "\n".join(visible(line.rstrip()) for line in (table.caption, *body, *table.notes))


def _inline(text: str) -> str:
    """A cell of two lines as one, the second in brackets."""
    first, _, second = text.partition("\n")
    return f"{first} ({second})" if second else first


def _line(cells: Sequence[TableCell | str]) -> str:
    return f"{' & '.join(map(_printed, cells))} \\\\"


def _printed(cell: TableCell | str) -> str:
    if isinstance(cell, str):
        return _escaped(cell)
    text = _escaped(f"{_inline(cell.text)}{' *' * bool(cell.mark)}")
    return rf"\textbf{{{text}}}" if cell.best else text


def _escaped(text: str) -> str:
    """Text as LaTeX prints it: nothing in it is a command."""
    plain = visible(text).replace("\n", " ").replace("\t", " ")
    apart = {i for i in range(1, len(plain)) if plain[i - 1 : i + 1] == "--"}  # two hyphens would print as a dash
    return "".join("{}-" if i in apart else SPECIAL.get(char, char) for i, char in enumerate(plain))


# Sections of a page


@dataclass(frozen=True)
class Section:
    """A section of the page."""

    key: str
    title: str
    text: tuple[str, ...] = ()
    parts: tuple[ReportTable | Side, ...] = ()
    listed: tuple[str, ...] = ()
    code: str = ""
    folded: tuple[ReportTable, ...] = ()
