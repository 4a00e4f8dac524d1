"""Where the command prints. All that it says goes through here: no name of a file or a class reaches a terminal raw."""

from __future__ import annotations

import codecs
import os
import sys
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from fedskew.errors import visible

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table as View

    from fedskew.report.tables import Table


SPELT = "fedskew.spelt"  # how a stream treats what its encoding lacks
SPELLINGS = {
    "–": "-", "—": "-", "…": "...", "±": "+-", "²": "^2", "█": "#", "×": "x", "→": "->", "’": "'", "•": "*", "≥": ">=",
    "▁": "_", "▂": ".", "▃": "-", "▄": "~", "▅": "=", "▆": "+", "▇": "*",
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
    say(f"fedskew: note: {category.__name__}: {' '.join(str(message).split())}", sys.stderr)


def say(text: str, stream: TextIO | None = None, end: str = "\n") -> None:
    """Print a line at once. Where the reader has gone (``| head -1``), a run goes on in silence: it has a record."""
    stream = stream or sys.stdout
    try:
        print(visible(text), file=stream, flush=True, end=end)
    except BrokenPipeError:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, stream.fileno())  # what follows, and what Python flushes at its end, meets no error
        os.close(silent)


def console(stderr: bool = False) -> Console:
    """A console of `rich` that takes every string as it is: brackets are no markup, ``:cat:`` is no picture."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


LEFT_OUT = ("95 % interval", "p (Holm)")  # columns of results that a terminal has no room for


def table_of(table: Table, left_out: Sequence[str] = ()) -> RenderableType:
    """A table of a report as one of `rich`, but for some columns; no number in it is cut: before, names are folded."""
    from rich.console import Group
    from rich.table import Table as View

    title, notes = visible(table.caption), "\n".join(map(visible, table.notes))
    view = View(box=None, pad_edge=False, collapse_padding=True, header_style="dim", title=title, caption=notes or None)
    view.title_justify = view.caption_justify = "left"
    shown = [place for place, head in enumerate(table.head) if head not in left_out]
    cells = {
        place: max((len(line) for row in table.rows for line in row[place].text.splitlines()), default=0)
        for place in shown
    }
    narrow = sum(max(wide, len(table.head[place])) + 1 for place, wide in cells.items()) > console().width + 1
    for place, wide in cells.items():
        is_words, head = place < table.words, visible(table.head[place])
        if narrow and not is_words:
            head = "\n".join(textwrap.wrap(head, max(wide, *map(len, head.split()))))
        view.add_column(head, justify="left" if is_words else "right", overflow="fold",
                        min_width=0 if is_words else wide, no_wrap=narrow and not is_words)  # fmt: skip
    for row in table.rows:
        view.add_row(*(f"{visible(row[place].text)}{' (best)' * row[place].best}" for place in shown))
    return Group("", view)


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]], plain: bool = False) -> View:
    """A table of `rich`; a plain one has no box, and its columns after the first are numbers."""
    from rich.table import Table as View

    view = View(box=None, pad_edge=False, header_style="dim") if plain else View()
    for place, head in enumerate(heads):
        view.add_column(head, justify="right" if plain and place else "left", overflow="fold" if plain else "ellipsis")
    for row in rows:
        view.add_row(*row)
    return view


def show(body: RenderableType) -> None:
    """Print a table or a text of `rich`."""
    from rich.segment import Segment

    made = console()

    class Shown:
        """What is inside, its text without control characters."""

        def __rich_console__(self, *given: Any) -> Iterator[Segment]:
            for segment in made.render(body, given[1]):
                yield segment if segment.control else Segment(visible(segment.text), segment.style)

    made.print(Shown())
