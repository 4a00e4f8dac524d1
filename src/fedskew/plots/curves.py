"""The table and the picture that compare runs. They read run folders and train nothing.

G groups of runs (one configuration under several seeds), R rounds, C classes. A megabyte (MB) is 10^6 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedskew.errors import RecordError, require, visible
from fedskew.plots import canvas
from fedskew.plots.canvas import Floats, matplotlib
from fedskew.plots.groups import Group, groups_of, recall_of, title_of
from fedskew.plots.panels import band, drawing, look_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SERVED = "mean10_served_accuracy"


def _ranked(groups: Sequence[Group]) -> tuple[list[Group], bool]:
    """(the best mean accuracy of the last 10 rounds first, groups without any last; whether clients' own models count).

    They count, as what each client would use, where clients use own models alone under one of the methods.
    """
    joined = any(run.serves == "own" for g in groups for run in g.runs)
    key = SERVED if joined else "mean10_accuracy"

    def rank(group: Group) -> float:
        found = [value for run in group.runs if math.isfinite(value := run.value(key))]
        return -float(np.mean(found)) if found else 1.0

    return sorted(groups, key=rank), joined


# The picture that compares runs


def comparison(folders: Iterable[str | Path], out: str | Path, smooth: int = 1) -> Path:
    """Compare runs in one picture.

    Panels show accuracy and macro-F1 over rounds, accuracy over MB uploaded, the final recall of each class and, where
    runs evaluated them, the accuracy of the clients' own models. Seeds of one configuration are drawn as their mean,
    with a band from the least to the greatest. The best mean accuracy of the last 10 rounds comes first; a
    configuration has one colour in every picture of the same runs.

    Args:
        folders: Run folders.
        out: File ending in .png, .svg or .pdf; no suffix means .png.
        smooth: Evaluations that a line averages, this one and those before it. 1 draws what was measured. More is named
            in the title, and a single run's own values are a thin line behind. The clients' own models, which are
            evaluated seldom, are never averaged.

    Returns:
        The file.

    Raises:
        RecordError: No run was evaluated yet, or the file cannot be written.
        ConfigError: The suffix is wrong, ``smooth`` is below 1, or matplotlib is missing.

    Example:
        >>> import fedskew as fs
        >>> from fedskew.plots.curves import comparison
        >>> fed = fs.federate("digits", "iid", clients=4)
        >>> for name, method in {"avg": fs.methods.fedavg(), "prox": fs.methods.fedprox(mu=0.1)}.items():
        ...     _ = fs.run(fed, method, model="logistic", rounds=2, cohort=2, out=f"runs/{name}")
        >>> comparison(["runs/avg", "runs/prox"], "runs.png").name
        'runs.png'
    """
    require(smooth >= 1, "smooth", "be at least 1", smooth)
    target, mpl = canvas.target(out), matplotlib()
    places = list(folders)
    groups, joined = _ranked([g for g in groups_of(places) if any(run.last for run in g.runs)])
    if not groups:
        raise RecordError(f"no evaluated round yet in {', '.join(repr(str(f)) for f in places) or 'no folder'}")
    with mpl.rc_context(canvas.STYLE):
        with drawing("curves", [run.folder for g in groups for run in g.runs]):
            drawn = _compared(groups, smooth, joined)
        return canvas.save(drawn, target)


def _compared(groups: list[Group], window: int = 1, joined: bool = False) -> Figure:
    """The figure of `comparison`."""
    columns = max(1, min(len(groups), 150 // (max(len(g.label) for g in groups) + 8)))
    low = 0.9 + 0.3 * len(groups)
    figure = canvas.figure(5.0 + low + 0.22 * -(-len(groups) // columns))
    shown = [("accuracy", False), ("macro_f1", False), ("accuracy", True)]
    own = "served_accuracy" if joined else "personal_accuracy"
    shown += [(own, False)] * any(len(run.series(own)[0]) for g in groups for run in g.runs)
    grid = figure.add_gridspec(2, len(shown), height_ratios=[4.2, low])
    panels = [figure.add_subplot(grid[0, i]) for i in range(len(shown))]
    for axes, (metric, sent) in zip(panels, shown, strict=True):
        # the clients' own models are evaluated seldom: their lines are not averaged over rounds
        _curves(axes, groups, metric, 1 if metric == own else window, sent)
    _recalls(figure, figure.add_subplot(grid[1, :]), groups)
    mean = f"; lines smoothed: mean of the last {window} evaluations" if window > 1 else ""
    figure.suptitle(title_of([run for g in groups for run in g.runs]) + mean, fontsize=12)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=columns)
    return figure


def smoothed(values: Floats, window: int) -> Floats:
    """Trailing mean of the last ``window`` values, [R]; at the beginning, of all values so far."""
    if window == 1:
        return values
    sums = np.concatenate([[0.0], np.cumsum(values)])
    end = np.arange(1, len(values) + 1)
    start = np.maximum(end - window, 0)
    return np.asarray((sums[end] - sums[start]) / (end - start))


def _stacked(group: Group, metric: str, window: int) -> tuple[Floats, Floats, Floats]:
    """(rounds [R], smoothed values [seeds, R], MB [seeds, R]); NaN where a seed was not evaluated in that round."""
    found = [run.series(metric) for run in group.runs]
    rounds = sorted({r for seen, _, _ in found for r in seen})
    out = np.full((2, len(found), len(rounds)), np.nan)
    for i, (seen, values, sent) in enumerate(found):
        out[:, i, np.searchsorted(rounds, seen)] = smoothed(values, window), sent
    return np.array(rounds, dtype=np.float64), out[0], out[1]


def _curves(axes: Axes, groups: list[Group], metric: str, window: int, sent: bool) -> None:
    """Draw one line for each group, over rounds or over the MB uploaded until then."""
    for group in groups:
        rounds, values, megabytes = _stacked(group, metric, window)
        if not len(rounds):
            continue
        x = np.nanmean(megabytes, axis=0) if sent else rounds
        look = look_of(group.place, len(rounds))
        if len(group.runs) == 1 and window > 1 and not sent:
            axes.plot(x, group.runs[0].series(metric)[1], color=look["color"], lw=0.6, alpha=0.35)
        band(axes, x, values, look, label=canvas.entry(group.label))
    name = "macro-F1" if metric == "macro_f1" else "accuracy"
    if metric in ("personal_accuracy", "served_accuracy"):
        title = "clients' own models" if metric == "personal_accuracy" else "what each client would use"
        axes.set(title=title, ylabel="accuracy on each client's test rows")
    else:
        axes.set(title=f"{name} over {'upload' if sent else 'rounds'}", ylabel=f"{name} on test rows")
    axes.set_xlabel("MB uploaded by all clients so far" if sent else "round")
    axes.margins(x=0.02)
    axes.set_ylim(max(0.0, axes.get_ylim()[0]), min(1.0, axes.get_ylim()[1]))
    if not sent:
        axes.locator_params(axis="x", integer=True, nbins=7)
    elif _spread([run.series(metric)[2] for g in groups for run in g.runs]) > 20:
        canvas.logarithmic(axes.xaxis)
    else:
        axes.set_xlim(left=0)


def _spread(sent: list[Floats]) -> float:
    """Ratio of the largest to the smallest total upload; 1 where there is none."""
    totals = [s[-1] for s in sent if len(s) and s[-1] > 0]
    return float(max(totals) / min(totals)) if totals else 1.0


def _recalls(figure: Figure, axes: Axes, groups: list[Group]) -> None:
    """Draw the final recall of each class, [G, C]: means over seeds; grey where a class has no test rows."""
    found = [[recall_of(run.last) for run in g.runs if run.last] for g in groups]
    matrix = np.full((len(groups), max(len(r) for rows in found for r in rows)), np.nan)
    for i, rows in enumerate(found):
        matrix[i, : len(rows[0])] = np.mean(rows, axis=0)  # the seeds share their test set
    shown = axes.imshow(
        matrix, vmin=0, vmax=1, cmap=matplotlib().colormaps["viridis"].with_extremes(bad="0.85"), aspect="auto"
    )
    figure.colorbar(shown, ax=axes, pad=0.01, fraction=0.02)
    axes.grid(False)
    axes.set(title="final recall of each class", xlabel="class")
    axes.set_yticks(range(len(groups)), [visible(g.label) for g in groups])
    names = [run.config.get("label_names", ()) for g in groups for run in g.runs]
    canvas.name_classes(axes.xaxis, matrix.shape[1], names[0] if all(n == names[0] for n in names) else ())
    if matrix.shape[1] <= 26 and len(groups) <= 40:
        for (i, c), v in np.ndenumerate(matrix):
            text, colour = "–" if np.isnan(v) else f"{v:.2f}", "black" if v >= 0.6 or np.isnan(v) else "white"
            axes.text(c, i, text, ha="center", va="center", fontsize=9, color=colour)
