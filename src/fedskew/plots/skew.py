"""Pictures of label skew: clients by classes, histograms of sizes and labels, pairs of clients.

They take label histograms [N, C]. Beyond 1200 clients, a column of a heat map is the mean of a block of neighbours.
Beyond 500 clients, the matrix of pairs shows an even selection. For files see `fedskew.plots.canvas`.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedskew.data import skew
from fedskew.errors import plural, require, unknown
from fedskew.plots import canvas
from fedskew.plots.canvas import COLOURS, Axes, Counts, Figure, Floats, counted

BLUE, ORANGE = COLOURS[:2]
COLUMNS, COMPARED = 1200, 500
OVERLAP = "overlap of label distributions"


@canvas.styled
def draw(counts: Counts, kind: str = "heatmap", title: str = "", class_names: Sequence[str] = ()) -> Figure:
    """Draw a federation.

    "heatmap" has the rows of each class at each client, in colours of a logarithmic scale, and the sizes of both
    beside it; "histograms" how many clients have how many rows, and how many labels; "pairs" the
    overlap sum_c min(q_ic, q_jc) of all pairs of clients with rows, sorted by their most frequent label.

    Args:
        counts: Label histograms, [N, C].
        kind: One of `KINDS`.
        title: Title; empty describes the picture.
        class_names: C names, or none.

    Returns:
        The figure.

    Raises:
        DataError: The counts hold no row.
        ConfigError: The kind or the number of names is wrong, or matplotlib is missing.

    Example:
        >>> from fedskew.data import federate
        >>> from fedskew.plots import canvas, skew
        >>> fed = federate("digits", "dirichlet", clients=8)
        >>> canvas.save(skew.draw(fed.counts), "skew.png").name
        'skew.png'
    """
    if kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    n = counted(counts)
    named = f"name each of the {n.shape[1]} classes"
    require(len(class_names) in (0, n.shape[1]), "class_names", named, len(class_names))
    return KINDS[kind](n, title, class_names)


def _histograms(n: Floats, title: str, _: Sequence[str]) -> Figure:
    sizes, held = n.sum(axis=1), skew.diversity(n)
    figure = canvas.figure(4.6)
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
        axes.yaxis.get_major_locator().set_params(integer=True)
    canvas.head(figure, title or f"{plural(len(n), 'client')}, {plural(int(n.sum()), 'row')}")
    return figure


def _pairs(n: Floats, title: str, _: Sequence[str]) -> Figure:
    full = np.flatnonzero(n.sum(axis=1))
    ids = full[np.linspace(0, len(full) - 1, min(len(full), COMPARED)).astype(np.intp)]
    q = n[ids] / n[ids].sum(axis=1, keepdims=True)
    order = np.lexsort((ids, -q.max(axis=1), q.argmax(axis=1)))
    ids, q = ids[order], q[order]
    figure = canvas.figure(11.2)
    axes = figure.add_subplot()
    shown = axes.imshow(skew.overlap(q), vmin=0, vmax=1, cmap="viridis", interpolation="nearest")
    figure.colorbar(shown, ax=axes, label=OVERLAP, fraction=0.05, pad=0.02)
    axes.grid(False)
    _name_clients(axes, ids, q.argmax(axis=1))
    compared = f", {len(ids):,} of {len(n):,} clients compared" * (len(ids) < len(n))
    canvas.head(figure, (title or f"{OVERLAP}, {plural(len(n), 'client')}") + compared)
    return figure


def _federation(n: Floats, title: str, class_names: Sequence[str]) -> Figure:
    blocks, _ = canvas.blocks(n, COLUMNS)
    clients, classes = blocks.shape
    figure = canvas.figure(min(max(4.0 + 0.3 * classes, 5.5), 9.0))
    grid = figure.add_gridspec(2, 2, width_ratios=[6, 1], height_ratios=[1, 3.5])
    main = figure.add_subplot(grid[1, 0])
    above = figure.add_subplot(grid[0, 0], sharex=main)
    beside = figure.add_subplot(grid[1, 1], sharey=main)
    corner = figure.add_subplot(grid[0, 1], xlim=(0, 1), ylim=(0, 1))
    corner.set_axis_off()
    _colours(figure, main, corner, blocks)
    above.bar(range(clients), blocks.sum(axis=1), width=1.0, color=BLUE, lw=0)
    beside.barh(range(classes), n.sum(axis=0), height=0.8 if classes <= 40 else 1.0, color=BLUE, lw=0)
    _mark_empty(above, n)
    edge, block = 0.5, len(n) / clients
    main.set(ylabel="class", xlim=(-edge, clients - 1 + edge), ylim=(classes - 1 + edge, -edge))
    main.set_xlabel("client" if block == 1 else f"client (means over {clients:,} blocks of {block:,.1f})")
    if clients <= 30:
        main.set_xticks(range(clients))
    else:
        main.locator_params(axis="x", integer=True, nbins=10)
    if block != 1:
        main.xaxis.set_major_formatter(lambda place, _: f"{place * block:,.0f}")
    canvas.name_classes(main.yaxis, classes, class_names)
    above.set(ylabel="rows")
    beside.set(xlabel="rows")
    above.tick_params(labelbottom=False)
    beside.tick_params(labelleft=False)
    beside.locator_params(axis="x", nbins=3)
    canvas.head(figure, title or f"{plural(len(n), 'client')}, {classes} classes")
    return figure


def _colours(figure: Figure, main: Axes, corner: Axes, n: Floats) -> None:
    """Cells are white without rows and darker for more rows, on a logarithmic scale."""
    from matplotlib.colors import ListedColormap, LogNorm

    blues = ListedColormap(canvas.matplotlib().colormaps["Blues"](np.linspace(0.2, 1, 256))).with_extremes(bad="white")
    low = min(1.0, float(n[n > 0].min()))
    top = max(2.0 * low, float(n.max()))
    cells, scale = np.where(n > 0, n, np.nan).T, LogNorm(low, top)
    shown = main.imshow(cells, norm=scale, cmap=blues, aspect="auto", interpolation="nearest")
    main.grid(False)
    figure.colorbar(
        shown, cax=corner.inset_axes((0.02, 0.35, 0.9, 0.16)), orientation="horizontal", format="{x:g}",
        ticks=[10.0**d for d in range(int(np.ceil(np.log10(low))), int(np.log10(top)) + 1)],
    )  # fmt: skip
    corner.text(0.47, 0.62, "rows (white: none)", ha="center")


def _mark_empty(above: Axes, n: Floats) -> None:
    """Mark clients without rows by crosses; beyond 1200 clients say how many there are."""
    empty = np.flatnonzero(n.sum(axis=1) == 0)
    if not len(empty):
        return
    told = f"{len(empty):,} without rows"
    if len(n) > COLUMNS:
        above.set_title(told, loc="right", color=ORANGE, fontsize=9)
        return
    above.plot(empty, np.zeros(len(empty)), "x", color=ORANGE, clip_on=False, label=told)
    above.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), borderpad=0.0)


def _name_clients(axes: Axes, ids: npt.NDArray[np.intp], main_class: npt.NDArray[np.intp]) -> None:
    """Label clients by number up to 60, else blocks of clients by their most frequent class, with borders."""
    if len(ids) <= 60:
        axes.set_xticks(range(len(ids)), [str(k) for k in ids], fontsize=8, rotation=90 if len(ids) > 40 else 0)
        axes.set_yticks(range(len(ids)), [str(k) for k in ids], fontsize=8)
        axes.set(xlabel="client, by most frequent class", ylabel="client, by most frequent class")
        return
    found, starts, sizes = np.unique(main_class, return_index=True, return_counts=True)
    told = sizes >= len(ids) / 45  # narrower blocks have no room for a label
    ticks, labels = (starts + sizes / 2 - 0.5)[told], [str(c) for c in found[told]]
    axes.set_xticks(ticks, labels)
    axes.set_yticks(ticks, labels)
    axes.set(xlabel="clients, by most frequent class", ylabel="clients, by most frequent class")
    for border in {*starts[told], *(starts + sizes)[told]} - {0, len(ids)}:
        axes.axvline(border - 0.5, color="white", lw=0.7)
        axes.axhline(border - 0.5, color="white", lw=0.7)


def _sizes(axes: Axes, sizes: Floats) -> None:
    """A histogram of sizes, logarithmic where they differ by more than a factor of 50."""
    full = sizes[sizes > 0]
    spread = full.max() > 50 * full.min()
    low, high = float(sizes.min()), float(sizes.max())
    low, high = (low, high) if high > low else (0.8 * low, 1.2 * high)
    bins = np.geomspace(full.min(), full.max(), 31) if spread else np.linspace(low, high, 31)
    axes.hist(full if spread else sizes, bins=bins.tolist(), color=BLUE)
    axes.axvline(float(np.median(sizes)), color=ORANGE, lw=1.5)
    if spread:
        canvas.logarithmic(axes.xaxis)
    empty = int((sizes == 0).sum())
    told = f", {empty:,} without rows{' not shown' if spread else ''}" if empty else ""
    axes.set(xlabel=f"rows of a client (median {np.median(sizes):,.0f}{told})", ylabel="clients")


KINDS = {"heatmap": _federation, "histograms": _histograms, "pairs": _pairs}
