"""Where the command prints. All that it says goes through here: no name of a file or a class reaches a terminal raw."""

from __future__ import annotations

import codecs
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from fedskew.errors import visible

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table as View

    from fedskew.report.tables import ReportTable


SPELT = "fedskew.spelt"  # how a stream treats what its encoding lacks
SPELLINGS = {
    "–": "-", "—": "-", "−": "-", "…": "...", "±": "+-", "²": "^2", "█": "#", "×": "x", "→": "->", "’": "'", "•": "*",
    "≥": ">=", "▁": "_", "▂": ".", "▃": "-", "▄": "~", "▅": "=", "▆": "+", "▇": "*",
}  # fmt: skip


def _spelt(error: UnicodeError) -> tuple[str, int]:
    """Other words for characters that a stream's encoding lacks: on an ASCII terminal ± is +-."""
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    plain = (SPELLINGS.get(char) or char.encode("unicode_escape").decode("ascii") for char in lacking)
    return "".join(plain), error.end


codecs.register_error(SPELT, _spelt)


@contextmanager
def speaking() -> Iterator[None]:
    """While the command runs: no character is unprintable, and a warning of a package is one line of its own."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=SPELT)
    with warnings.catch_warnings():
        warnings.showwarning = _warned
        yield


def _warned(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    note(f"{category.__name__}: {' '.join(str(message).split())}")


def say(text: str, stream: TextIO | None = None, end: str = "\n") -> None:
    """Print a line at once. Where the reader has gone (``| head -1``), a run goes on in silence: it has a record."""
    stream = stream or sys.stdout
    try:
        print(visible(text), file=stream, flush=True, end=end)
    except BrokenPipeError:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, stream.fileno())  # what follows, and what Python flushes at its end, meets no error
        os.close(silent)


def note(text: str) -> None:
    """Print what is good to know, on the stream of errors."""
    say(f"fedskew: note: {text}", sys.stderr)


def console(stderr: bool = False) -> Console:
    """A console of `rich` that takes every string as it is: brackets are no markup, ``:cat:`` is no picture."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


def table_of(table: ReportTable, left_out: Sequence[str] = ()) -> RenderableType:
    """A table of a report as one of `rich`, but for some columns."""
    from rich.console import Group
    from rich.text import Text

    shown = [place for place, head in enumerate(table.head) if head not in left_out]
    rows = ([f"{row[place].text}{' (best)' * row[place].best}" for place in shown] for row in table.rows)
    view = grid([table.head[place] for place in shown], rows, words=sum(place < table.words for place in shown))
    notes = [Text(visible(note)) for note in table.notes]
    return Group("", Text(visible(table.caption), style="bold"), view, *notes)


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]], words: int | None = None, width: int = 0) -> View:
    """A table of `rich`: no word and no number is cut while the terminal has room for the longest of each column.

    Args:
        heads: Of the columns.
        rows: Their cells.
        words: Leading columns of words, before those of numbers; None: all.
        width: Columns of the terminal; 0: those that it has.
    """
    from rich.table import Table as View

    cells = [list(map(visible, row)) for row in rows]
    words = len(heads) if words is None else words
    least, most = list[int](), list[int]()
    for place, head in enumerate(heads):
        lines = [line for row in cells for line in row[place].splitlines()]
        parts = lines if place >= words else [word for line in lines for word in line.split()]
        least.append(max(map(len, [*head.split(), *parts]), default=0))
        most.append(max(map(len, [head, *lines])))
    width = width or console().width
    gap = 2 if sum(least) + 2 * (len(heads) - 1) <= width else 1
    room, widths = width - gap * (len(heads) - 1), list(least)
    while sum(widths) < min(room, sum(most)):  # to the column that takes most lines
        widths[max(range(len(heads)), key=lambda i: most[i] / max(1, widths[i]))] += 1
    view = View(box=None, pad_edge=False, collapse_padding=gap == 1, header_style="dim")
    for place, head in enumerate(heads):
        fixed = widths[place] if cells and sum(widths) <= room else None
        view.add_column(head, justify="right" if place >= words else "left", overflow="fold", width=fixed)
    for row in cells:
        view.add_row(*row)
    return view


def show(body: RenderableType, width: int = 0) -> None:
    """Print a table or a text of `rich`, as wide as the terminal unless a width is given."""
    from rich.segment import Segment

    target = console()
    target.width = width or target.width

    class PrintableBody:
        """What is inside, its text without control characters."""

        def __rich_console__(self, *given: Any) -> Iterator[Segment]:
            for segment in target.render(body, given[1]):
                yield segment if segment.control else Segment(visible(segment.text), segment.style)

    target.print(PrintableBody())
