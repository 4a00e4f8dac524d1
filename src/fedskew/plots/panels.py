"""What the figures of rounds share: a run to draw, panels, lines and legends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedskew.errors import RecordError
from fedskew.plots import canvas
from fedskew.plots.canvas import Floats
from fedskew.records.typed import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


DASHES: tuple[Any, ...] = ("-", (0, (4, 2)), (0, (1, 1.8)), (0, (5, 2, 1, 2)), (0, (7, 2, 1, 2, 1, 2)))
MARKS = "os^Dv"


class Shown(NamedTuple):
    """A run with its label, configuration and rounds, and the group that it stands for."""

    label: str
    folder: Path
    config: Row
    rows: list[Row]
    place: int = 0  # of the group's name among the sorted names: its colour in every figure of the same runs
    seeds: tuple[list[Row], ...] = ()  # the rounds of every seed

    def diagnosed(self, name: str) -> list[tuple[int, Row]]:
        """(round, row) of every record of a diagnostic. Raises RecordError where the run has none."""
        found = [(row["round"], row["diagnostics"][name]) for row in self.rows if name in row.get("diagnostics", {})]
        if not found:
            raise RecordError(f"{str(self.folder)!r} holds no {name!r}; record it: fedskew run ... --diagnose {name}")
        return found

    @property
    def class_names(self) -> list[str]:
        """The recorded class names, or none."""
        return [str(name) for name in self.config.get("label_names", [])]


@contextmanager
def readable(name: str, folders: Iterable[Path]) -> Iterator[None]:
    """Raise RecordError where records lack what a figure shows, or hold lists of other lengths."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        told = f"{type(error).__name__}: {' '.join(str(error).split())}"
        places = ", ".join(repr(str(folder)) for folder in folders)
        raise RecordError(f"the records of {places} cannot be drawn as {name}; are they damaged? ({told})") from error


def panels_of(rows: int, columns: int, height: float = 4.2) -> tuple[Figure, Any]:
    """A figure with rows and columns of panels."""
    figure = canvas.figure((height if rows == 1 else 3.3 * rows) + 0.6)
    return figure, figure.subplots(rows, columns)


def floats(values: Iterable[Any]) -> Floats:
    """Numbers; null becomes NaN."""
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def colour(place: int) -> str:
    """Colour of the group at a place among the sorted names."""
    return canvas.COLOURS[place % len(canvas.COLOURS)]


def look_of(place: int, points: int) -> Row:
    """Style of a group's line, by its place among the sorted names.

    Neighbours differ in colour, dashes and mark, and those of one colour in the others.
    """
    turn = (place + place // len(DASHES)) % len(DASHES)
    marker = MARKS[turn] if points <= 12 else ""
    return {"color": colour(place), "linestyle": DASHES[turn], "marker": marker, "markersize": 4, "lw": 1.7}


def lines(axes: Axes, runs: list[Shown], name: str, value: Callable[[Row], Any]) -> None:
    """A number of a diagnostic over rounds, one line for each run."""
    for run in runs:
        found = run.diagnosed(name)
        look = look_of(run.place, len(found))
        axes.plot([n for n, _ in found], floats(value(row) for _, row in found), **look, label=run.label)
    axes.set_xlabel("round")
    axes.locator_params(axis="x", integer=True, nbins=7)


def band(axes: Axes, x: Sequence[int] | Floats, values: Floats, look: Row, **more: Any) -> None:
    """The mean of the seeds [seeds, R], and their range where there are several."""
    if len(values) > 1:
        axes.fill_between(x, np.nanmin(values, 0), np.nanmax(values, 0), color=look["color"], alpha=0.15, lw=0)
    axes.plot(x, np.nanmean(values, 0), **look, **more)


def legend(figure: Figure, axes: Axes, columns: int = 0, **more: Any) -> Figure:
    """Add the legend below the panels."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        width = columns or max(1, min(len(labels), 150 // (max(map(len, labels)) + 8)))
        figure.legend(handles, labels, loc="outside lower center", ncols=width, **more)
    return figure
