"""What all pictures share: the figure, colours, class axes, and the file.

Pictures use matplotlib's object API, without pyplot and global state. Files end in .png (also without a suffix), .svg
or .pdf. Equal numbers give equal files.
"""

import io
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from fedskew.errors import ConfigError, DataError, RecordError, install, require, visible
from fedskew.records.files import write_atomic, writing
from fedskew.records.typed import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:  # imported where a picture is drawn
    Axes = Figure = Any

Floats = npt.NDArray[np.float64]
Counts = torch.Tensor | npt.NDArray[Any]

# Okabe and Ito's palette without its yellow (too light for a line on white): told apart with every colour blindness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES: tuple[Any, ...] = ("-", (0, (4, 2)), (0, (1, 1.8)), (0, (5, 2, 1, 2)), (0, (7, 2, 1, 2, 1, 2)))
MARKS = "os^Dv"
STYLE = {
    "font.size": 10, "axes.titlesize": 11, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "0.9", "axes.axisbelow": True, "legend.frameon": False, "svg.hashsalt": "fedskew",
    "text.parse_math": False,  # a $ in the name of a class is a $
}  # fmt: skip
UNDATED: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}
WIDTH, DPI = 12.8, 125  # inches, dots an inch: 1600 pixels
LONGEST, NAME = 300, 40  # characters of a text, and of the name of a class


def matplotlib() -> Any:
    """The package matplotlib. Raises ConfigError that names the extra where it is missing."""
    try:
        import matplotlib as package
    except ImportError:
        raise ConfigError(f"pictures need matplotlib, which is not installed; {install('plot')}") from None
    return package


def target(out: str | Path) -> Path:
    """The file to write; a name without a suffix gets ".png". Raises ConfigError for other suffixes."""
    path = Path(out) if Path(out).suffix else Path(out).with_suffix(".png")
    require(path.suffix.lower() in UNDATED, "out", "end in .png, .svg or .pdf", str(out))
    return path


def figure(height: float, width: float = WIDTH, dpi: int = DPI) -> Figure:
    """A figure that pyplot does not know. A notebook shows it where it is the last line of a cell.

    Args:
        height: Inches.
        width: Inches.
        dpi: Dots an inch.

    Returns:
        The figure, with constrained layout.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    class NotebookFigure(Figure):
        """A figure that a notebook shows."""

        def _repr_png_(self) -> bytes:
            return content_of(self, ".png")

    drawn = NotebookFigure(figsize=(width, height), dpi=dpi, layout=ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.07))
    FigureCanvasAgg(drawn)
    return drawn


def styled(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    """A function that draws, in the style of all pictures. Where matplotlib is missing, the extra is named."""

    @wraps(draw)
    def drawn(*given: Any, **options: Any) -> Figure:
        with matplotlib().rc_context(STYLE):
            return draw(*given, **options)

    return drawn


def head(drawn: Figure, text: str) -> None:
    """Write the head of a figure, in lines that it has room for."""
    drawn.suptitle(textwrap.fill(text, int(12 * drawn.get_figwidth())), fontsize=12)


def save(drawn: Figure, out: str | Path) -> Path:
    """Write a figure to a file.

    Args:
        drawn: The figure.
        out: File ending in .png, .svg or .pdf; no suffix means .png.

    Returns:
        The file.

    Raises:
        ConfigError: The file has another suffix.
        RecordError: The file cannot be written.
    """
    path = target(out)
    content = content_of(drawn, path.suffix.lower())
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, content)
    return path


def content_of(drawn: Figure, kind: str, **style: Any) -> bytes:
    """The content of a figure's file with this suffix."""
    content = io.BytesIO()
    _clean_texts(drawn)
    with matplotlib().rc_context({**STYLE, **style}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a letter that the font lacks is drawn as a box
        drawn.savefig(content, format=kind[1:], metadata=UNDATED[kind])
    return content.getvalue()


def _clean_texts(drawn: Figure) -> None:
    """Write out the control characters of every text, and cut one that no picture can hold."""
    from matplotlib.text import Text

    texts: list[Any] = drawn.findobj(Text)
    for text in texts:
        content = text.get_text()
        if not content.isprintable() or len(content) > LONGEST:
            text.set_text(short(content, LONGEST))


def short(text: str, most: int = NAME) -> str:
    """A text without control characters, cut to a length."""
    printable = visible(text)
    return printable if len(printable) <= most else f"{printable[: most - 1]}…"


def entry(label: str) -> str:
    """A label that a legend shows: matplotlib takes a leading underscore for "not in the legend"."""
    return f" {label}" if label.startswith("_") else label


def logarithmic(axis: Any) -> None:
    """A logarithmic axis with ticks such as 0.5, 2 and 20, without exponents."""
    from matplotlib.ticker import LogFormatter

    class DecimalFormatter(LogFormatter):
        """The ticks that matplotlib chooses, without exponents: 0.6 and not 6e-01."""

        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""

    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(DecimalFormatter(minor_thresholds=(2, 0.5)))


def name_classes(axis: Any, classes: int, names: Sequence[str]) -> None:
    """Label a class axis: names up to 40 classes, else every tenth number."""
    step = 1 if classes <= 40 else 10
    ticks = range(0, classes, step)
    labels = [short(str(names[c])) if len(names) == classes and step == 1 else str(c) for c in ticks]
    tilt = axis.axis_name == "x" and sum(map(len, labels)) > 110
    axis.set_ticks(ticks, labels, **({"rotation": 30, "ha": "right"} if tilt else {}))


def blocks(n: Floats, columns: int) -> tuple[Floats, npt.NDArray[np.int64]]:
    """(means over at most so many blocks of neighbouring rows, the first row of each)."""
    count = min(len(n), columns)
    starts = np.arange(count) * len(n) // count
    return np.add.reduceat(n, starts, axis=0) / np.diff(np.append(starts, len(n)))[:, None], starts


def counted(counts: Counts) -> Floats:
    """Label histograms [N, C] as float64. Raises DataError unless they hold a row."""
    raw = counts.detach().cpu().numpy() if isinstance(counts, torch.Tensor) else counts
    n = np.asarray(raw, dtype=np.float64)
    if n.ndim != 2 or not n.size or not (np.isfinite(n) & (n >= 0)).all() or not n.any():
        raise DataError(f"counts must be a matrix [clients, classes] of numbers >= 0, not all 0; got {n.shape}")
    return n


# Runs: one to draw, panels, lines and legends


class PlottedRun(NamedTuple):
    """A run with its label, configuration and rounds."""

    label: str
    folder: Path
    config: Row
    rows: list[Row]
    place: int = 0  # of the group: its look in every figure of the same runs

    def diagnosed(self, name: str) -> list[tuple[int, Row]]:
        """(round, row) of every record of a diagnostic. Raises RecordError where the run has none."""
        records = [(row["round"], row["diagnostics"][name]) for row in self.rows if name in row.get("diagnostics", {})]
        if not records:
            raise RecordError(f"{str(self.folder)!r} holds no {name!r}; record it: fedskew run ... --diagnose {name}")
        return records

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
        cause = f"{type(error).__name__}: {' '.join(str(error).split())}"
        places = ", ".join(repr(str(folder)) for folder in folders)
        raise RecordError(f"the records of {places} cannot be drawn as {name}; are they damaged? ({cause})") from error


def panels_of(rows: int, columns: int, height: float = 4.2) -> tuple[Figure, Any]:
    """A figure and its panels, [rows, columns]."""
    drawn = figure((height if rows == 1 else 3.3 * rows) + 0.6)
    return drawn, drawn.subplots(rows, columns, squeeze=False)


def floats(values: Iterable[Any]) -> Floats:
    """Numbers; null becomes NaN."""
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def colour(place: int) -> str:
    """Colour of the group at a place."""
    return COLOURS[place % len(COLOURS)]


def look_of(place: int, points: int) -> Row:
    """Style of a group's line, by its place.

    Neighbours differ in colour, dashes and mark, and those of one colour in the others.
    """
    turn = _turn(place)
    marker = MARKS[turn] if points <= 12 else ""
    return {"color": colour(place), "linestyle": DASHES[turn], "marker": marker, "markersize": 4, "lw": 1.7}


def _turn(place: int) -> int:
    return (place + place // len(DASHES)) % len(DASHES)


def place_of(ink: int, turn: int) -> int:
    """The first place that has one of the 7 colours and one of the 5 dashes, each by its number from 0."""
    return next(place for place in count() if place % len(COLOURS) == ink and _turn(place) == turn)


def lines(axes: Axes, runs: list[PlottedRun], name: str, value: Callable[[Row], Any]) -> None:
    """A number of a diagnostic over rounds, one line for each run."""
    for run in runs:
        records = run.diagnosed(name)
        look = look_of(run.place, len(records))
        axes.plot([n for n, _ in records], floats(value(row) for _, row in records), **look, label=run.label)
    axes.set_xlabel("round")
    axes.locator_params(axis="x", integer=True, nbins=7)


def legend(figure: Figure, axes: Axes, columns: int = 0, **more: Any) -> Figure:
    """Add the legend below the panels."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        width = columns or max(1, min(len(labels), 150 // (max(map(len, labels)) + 8)))
        figure.legend(handles, labels, loc="outside lower center", ncols=width, **more)
    return figure
