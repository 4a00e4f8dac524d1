"""A picture of label skew: the rows of each class at each client, and the sizes of both.

It takes label histograms [N, C]. Beyond 1200 clients, a column is the mean of a block of neighbours. For files see
`fedskew.plots.canvas`.
"""

from collections.abc import Sequence

import numpy as np

from fedskew.errors import plural, require
from fedskew.plots import canvas
from fedskew.plots.canvas import COLOURS, Axes, Counts, Figure, Floats, counted

BLUE, ORANGE = COLOURS[:2]
COLUMNS = 1200


@canvas.styled
def draw(counts: Counts, title: str = "", class_names: Sequence[str] = ()) -> Figure:
    """Draw the rows of each class at each client, in colours of a logarithmic scale, and the sizes of both beside them.

    Args:
        counts: Label histograms, [N, C].
        title: Title; empty describes the picture.
        class_names: C names, or none.

    Returns:
        The figure.

    Raises:
        DataError: The counts hold no row.
        ConfigError: The number of names is wrong, or matplotlib is missing.

    Example:
        >>> from fedskew.data import federate
        >>> from fedskew.plots import canvas, skew
        >>> fed = federate("digits", "dirichlet", clients=8)
        >>> canvas.save(skew.draw(fed.counts), "skew.png").name
        'skew.png'
    """
    n = counted(counts)
    named = f"name each of the {n.shape[1]} classes"
    require(len(class_names) in (0, n.shape[1]), "class_names", named, len(class_names))
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
    label = f"{len(empty):,} without rows"
    if len(n) > COLUMNS:
        above.set_title(label, loc="right", color=ORANGE, fontsize=9)
        return
    above.plot(empty, np.zeros(len(empty)), "x", color=ORANGE, clip_on=False, label=label)
    above.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), borderpad=0.0)
