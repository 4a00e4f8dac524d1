"""Pictures of label skew: clients x classes as circles or colours, histograms of sizes and labels, pairs of clients.

They take label histograms [N, C] and need the extra ``plot`` (matplotlib), through its object API: no global state.
Beyond 1200 clients a column of a heat map is the mean of a block of neighbours; beyond 300 clients the matrix of pairs
shows a drawn sample of them. Files end in .png, .svg or .pdf; equal counts give equal files.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from fedskew import records
from fedskew.data import skew
from fedskew.errors import ConfigError, DataError, RecordError, require, unknown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["example", "heatmap", "histograms", "pairs", "scaling"]

Floats = npt.NDArray[np.float64]
Counts = torch.Tensor | npt.NDArray[Any]

BLUE, ORANGE = "#0072B2", "#D55E00"  # of Okabe and Ito: told apart with every colour blindness
STYLE = {
    "font.size": 10, "axes.titlesize": 11, "axes.spines.top": False, "axes.spines.right": False, "grid.color": "0.9",
    "axes.axisbelow": True, "legend.frameon": False, "svg.hashsalt": "fedskew",
}  # fmt: skip
UNDATED: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}
COLUMNS, COMPARED = 1200, 300
MEASURES = {
    "js": "Jensen-Shannon divergence (nats)", "tv": "total variation", "emd": "sum of absolute differences",
    "hellinger": "Hellinger distance", "overlap": "overlap of label distributions",
}  # fmt: skip


def heatmap(
    counts: Counts,
    out: str | Path,
    *,
    style: Literal["auto", "circles", "colours"] = "auto",
    title: str = "",
    class_names: Sequence[str] = (),
) -> Path:
    """Rows of each class at each client: circles whose area is the number of rows, or a logarithmic colour scale.

    "auto" takes circles up to 30 clients and 26 classes. Clients' sizes stand above. Returns the file. Raises DataError
    unless the counts hold a row, ConfigError for another suffix, a wrong number of names, or without matplotlib.
    """
    n = _counted(counts)
    require(style in ("auto", "circles", "colours"), "style", "be auto, circles or colours", style)
    require(len(class_names) in (0, n.shape[1]), "class_names", f"name each of {n.shape[1]} classes", len(class_names))
    circles = style == "circles" or (style == "auto" and n.shape[0] <= 30 and n.shape[1] <= 26)
    with _matplotlib().rc_context(STYLE):
        figure = _figure(10.0, min(max(3.4 + 0.24 * n.shape[1], 4.6), 9.0))
        above, main = figure.subplots(2, 1, sharex=True, height_ratios=[1, 4])
        _cells(figure, above, main, n, circles, class_names)
        figure.suptitle(title or f"{n.shape[0]:,} clients, {n.shape[1]} classes", fontsize=12)
        return _save(figure, out)


def histograms(counts: Counts, out: str | Path, *, title: str = "") -> Path:
    """How many clients have how many rows, and how many labels. Returns the file; errors as `heatmap`."""
    n = _counted(counts)
    sizes, held = n.sum(axis=1), skew.diversity(n)
    with _matplotlib().rc_context(STYLE):
        figure = _figure(10.0, 3.8)
        left, right = figure.subplots(1, 2)
        _sizes(left, sizes)
        labels, clients = np.unique(held, return_counts=True)
        right.bar(labels, clients, width=0.8, color=BLUE)
        right.axvline(float(held.mean()), color=ORANGE, lw=1.5)
        right.set(xlabel=f"labels held (mean {held.mean():.1f} of {n.shape[1]})", ylabel="clients")
        right.set_xlim(-0.6, held.max() + 0.6)
        right.locator_params(axis="x", integer=True)
        for axes in (left, right):
            axes.grid(True, axis="y")
        figure.suptitle(title or f"{len(n):,} clients, {int(n.sum()):,} rows", fontsize=12)
        return _save(figure, out)


def pairs(counts: Counts, out: str | Path, *, measure: str = "overlap", title: str = "") -> Path:
    """Pairs of clients, sorted by their most frequent label: their overlap sum_c min(q_ic, q_jc), or a distance.

    ``measure`` is overlap, js, tv, emd or hellinger (`skew.pairwise`). Clients without rows are left out. Returns the
    file; errors as `heatmap`.
    """
    if measure not in MEASURES:
        raise unknown("measure", measure, MEASURES)
    n = skew.sample(_counted(counts), COMPARED)
    main_class = n.argmax(axis=1)
    order = np.lexsort((-n.max(axis=1) / n.sum(axis=1), main_class))
    q = n[order] / n[order].sum(axis=1, keepdims=True)
    values = skew.overlap(q) if measure == "overlap" else skew.pairwise(q, measure)
    with _matplotlib().rc_context(STYLE):
        figure = _figure(8.0, 7.0)
        axes = figure.add_subplot()
        colours = "viridis" if measure == "overlap" else "viridis_r"
        top = {"js": float(np.log(2)), "emd": 2.0}.get(measure, 1.0)
        figure.colorbar(axes.imshow(values, vmin=0, vmax=top, cmap=colours), ax=axes, label=MEASURES[measure])
        starts = np.searchsorted(main_class[order], np.unique(main_class))
        axes.set_xticks(starts, [str(c) for c in np.unique(main_class)])
        axes.set_yticks(starts, [str(c) for c in np.unique(main_class)])
        axes.set(xlabel="clients, by most frequent label", ylabel="clients, by most frequent label")
        sampled = f", {len(n)} of {len(counts):,} clients" if len(n) < len(counts) else f", {len(n)} clients"
        figure.suptitle((title or MEASURES[measure]) + sampled, fontsize=12)
        return _save(figure, out)


def example(counts: Counts, out: str | Path) -> Path:
    """A small heat map for a page: classes down, clients across, the darker the more rows, sizes above; about 10 kB."""
    n = _counted(counts)
    with _matplotlib().rc_context({**STYLE, "font.size": 7}):
        figure = _figure(4.4, 2.6, dpi=100)
        above, main = figure.subplots(2, 1, sharex=True, height_ratios=[1, 3])
        above.bar(range(len(n)), n.sum(axis=1), color=BLUE, width=0.8)
        above.set_ylabel("rows")
        main.imshow(np.sqrt(n.T), cmap="Blues", aspect="auto", vmin=0, interpolation="nearest")
        main.set(xlabel="client", ylabel="class", yticks=range(0, n.shape[1], 3))
        main.locator_params(axis="x", integer=True)
        return _save(figure, out)


def scaling(series: Mapping[str, Sequence[dict[str, Any]]], out: str | Path) -> Path:
    """Processor seconds of each stage and peak memory of measured series, each over the field that is its key.

    A row has ``<stage>_cpu_s`` and ``peak_mb``; see benchmarks.
    """
    with _matplotlib().rc_context(STYLE):
        figure = _figure(10.0, 3.8 * len(series))
        panels = figure.subplots(len(series), 2, squeeze=False)
        for (over, rows), (left, right) in zip(series.items(), panels, strict=True):
            at = [row[over] for row in rows]
            for stage, mark in zip([n for n in rows[0] if n.endswith("_cpu_s")], "osv^D", strict=False):
                left.plot(at, [max(row[stage], 1e-3) for row in rows], marker=mark, label=stage.removesuffix("_cpu_s"))
            right.plot(at, [row["peak_mb"] for row in rows], marker="o", color=BLUE)
            left.set(ylabel="processor seconds")
            right.set(ylabel="peak memory of the process (MB)", ylim=(0, None))
            left.set_yscale("log")
            for axes in (left, right):
                axes.set(xlabel=over, xscale="log")
                axes.grid(True)
            left.legend()
        return _save(figure, out)


# what pictures are made of


def _cells(figure: Figure, above: Axes, main: Axes, n: Floats, circles: bool, class_names: Sequence[str]) -> None:
    blocks = _blocks(n)
    clients, classes = blocks.shape
    above.bar(range(clients), blocks.sum(axis=1), width=0.8 if clients <= 60 else 1.0, color=BLUE, lw=0)
    empty = np.flatnonzero(n.sum(axis=1) == 0)
    if len(empty):
        above.set_title(f"{len(empty):,} clients without rows", loc="right", color=ORANGE, fontsize=9)
    above.set_ylabel("rows")
    (_circles if circles else _colours)(figure, main, blocks)
    block = len(n) / clients
    main.set(
        xlabel="client" if block == 1 else f"client (means over {clients:,} blocks of {block:,.1f})", ylabel="class"
    )
    if block != 1:
        main.xaxis.set_major_formatter(lambda place, _: f"{place * block:,.0f}")
    main.set(xlim=(-0.7, clients - 0.3), ylim=(classes - 0.3, -0.7))
    main.locator_params(axis="x", integer=True)
    step = 1 if classes <= 40 else 10
    names = [class_names[c] if class_names and step == 1 else str(c) for c in range(0, classes, step)]
    main.set_yticks(range(0, classes, step), names)


def _blocks(n: Floats) -> Floats:
    """Means over blocks of neighbouring clients, at most COLUMNS of them."""
    count = min(len(n), COLUMNS)
    starts = np.arange(count) * len(n) // count
    sizes = np.diff(np.append(starts, len(n)))
    return np.asarray(np.add.reduceat(n, starts, axis=0) / sizes[:, None])


def _circles(figure: Figure, main: Axes, n: Floats) -> None:
    """Area in proportion to the rows; the largest fills its cell, the smallest can still be seen."""
    width, height = figure.get_size_inches() * 72  # points
    largest = min(0.82 * width / n.shape[0], 0.62 * height / n.shape[1], 40.0)
    k, c = np.nonzero(n)
    main.scatter(k, c, s=np.maximum(n[k, c] * largest**2 / n.max(), 3.0), color=BLUE, lw=0)
    main.grid(True)
    main.annotate(
        f"largest circle: {n.max():,.0f} rows", (1, 1), (0, 4), xycoords="axes fraction", textcoords="offset points",
        ha="right", fontsize=9,
    )  # fmt: skip


def _colours(figure: Figure, main: Axes, n: Floats) -> None:
    """White without rows, else the darker the more rows, on a logarithmic scale."""
    from matplotlib.colors import ListedColormap, LogNorm

    blues = ListedColormap(_matplotlib().colormaps["Blues"](np.linspace(0.2, 1, 256))).with_extremes(bad="white")
    low = min(1.0, float(n[n > 0].min()))
    norm = LogNorm(low, max(2.0 * low, float(n.max())))
    shown = main.imshow(np.where(n > 0, n, np.nan).T, norm=norm, cmap=blues, aspect="auto", interpolation="nearest")
    figure.colorbar(shown, ax=main, label="rows (white: none)", format="{x:g}", pad=0.01, location="bottom", aspect=60)


def _sizes(axes: Axes, sizes: Floats) -> None:
    """A histogram of the sizes; logarithmic where they span more than a factor of 50."""
    full = sizes[sizes > 0]
    spread = full.max() > 50 * full.min()
    low, high = float(sizes.min()), float(sizes.max())
    low, high = (low, high) if high > low else (0.8 * low, 1.2 * high)
    bins = np.geomspace(full.min(), full.max(), 31) if spread else np.linspace(low, high, 31)
    axes.hist(full if spread else sizes, bins=bins.tolist(), color=BLUE)
    axes.axvline(float(np.median(sizes)), color=ORANGE, lw=1.5)
    if spread:
        axes.set_xscale("log")
    empty = int((sizes == 0).sum())
    told = f", {empty:,} without rows{' not shown' if spread else ''}" if empty else ""
    axes.set(xlabel=f"rows of a client (median {np.median(sizes):,.0f}{told})", ylabel="clients")


def _counted(counts: Counts) -> Floats:
    raw = counts.detach().cpu().numpy() if isinstance(counts, torch.Tensor) else counts
    n = np.asarray(raw, dtype=np.float64)
    if n.ndim != 2 or not n.size or not (np.isfinite(n) & (n >= 0)).all() or not n.any():
        raise DataError(f"counts must be a matrix [clients, classes] of numbers >= 0, not all 0; got {n.shape}")
    return n


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise ConfigError("pictures need matplotlib, which is not installed; pip install 'fedskew[plot]'") from None
    return matplotlib


def _figure(width: float, height: float, dpi: int = 125) -> Figure:
    """A figure of its own canvas, unknown to pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(width, height), dpi=dpi, layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.05))
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Figure, out: str | Path) -> Path:
    target = Path(out) if Path(out).suffix else Path(out).with_suffix(".png")
    kind = target.suffix.lower()
    require(kind in UNDATED, "--out", "end in .png, .svg or .pdf", str(out))
    content = io.BytesIO()
    figure.savefig(content, format=kind[1:], metadata=UNDATED[kind])
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"cannot write {target}: {error.strerror}") from None
    records.write_atomic(target, content.getvalue())
    return target
