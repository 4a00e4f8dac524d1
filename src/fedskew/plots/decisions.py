"""Pictures of probabilities that decide: a reliability diagram and a decision curve."""

from pathlib import Path
from typing import Any

import numpy as np

from fedskew.plots import canvas
from fedskew.plots.canvas import Figure
from fedskew.records.decisions import net_benefit, reliability, wilson

BINS = 10  # of the reliability diagram
LAST = 0.99  # the greatest threshold of a decision curve


def draw_decision(
    y: Any, p: Any, folder: str | Path, positive: str = "positive", threshold: float | None = None
) -> tuple[Path, Path]:
    """Draw ``reliability.png`` and ``decision-curve.png`` into a folder.

    Args:
        y: Whether each row is of the class, bool [n].
        p: Predicted probability of the class, [n].
        folder: Where to; it is made.
        positive: Name of the class.
        threshold: A chosen threshold, which the decision curve marks.

    Returns:
        The files.

    Raises:
        ConfigError: matplotlib is missing.
        DataError: The shapes differ, or a value is no probability.
        RecordError: A file cannot be written.

    Example:
        >>> from fedskew.plots.decisions import draw_decision
        >>> [file.name for file in draw_decision([False, True, True], [0.2, 0.4, 0.9], "ill", "ill", 0.3)]
        ['reliability.png', 'decision-curve.png']
    """
    first = canvas.save(reliability_diagram(y, p, positive), Path(folder) / "reliability.png")
    return first, canvas.save(decision_curve(y, p, positive, threshold), Path(folder) / "decision-curve.png")


@canvas.styled
def reliability_diagram(y: Any, p: Any, positive: str = "positive") -> Figure:
    """The share of positive rows over the mean probability of ten bins, with Wilson's intervals, and the rows below."""
    rows, chance, share = reliability(y, p, BINS)
    named = canvas.short(positive)
    ends = np.array([wilson(round(s * n), n) for s, n in zip(share, rows, strict=True)])
    figure = canvas.figure(6.4, 6.4)
    curve, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    curve.plot([0, 1], [0, 1], "--", color="0.5", lw=1, label="calibrated")
    spread = np.abs(ends.T - share)
    curve.errorbar(chance, share, spread, fmt="o-", color=canvas.COLOURS[0], capsize=3, label="observed, 95 % interval")
    curve.set(xlim=(0, 1), ylim=(-0.02, 1.02), ylabel=f"share of rows that are {named}")
    curve.set_title(f"reliability, {len(np.asarray(p)):,} rows")
    curve.legend(loc="upper left")
    below.hist(np.asarray(p), np.linspace(0, 1, BINS + 1).tolist(), color=canvas.COLOURS[0], alpha=0.5)
    below.set(xlabel=f"predicted probability of {named}", ylabel="rows")
    return figure


@canvas.styled
def decision_curve(y: Any, p: Any, positive: str = "positive", threshold: float | None = None) -> Figure:
    """Net benefit over threshold probabilities: of the model, of treating all and of treating none."""
    t = np.linspace(0.0, LAST, 200)
    model, everyone = net_benefit(y, p, t), net_benefit(y, np.ones(len(np.asarray(p))), t)
    figure = canvas.figure(4.8, 7.2)
    axes = figure.subplots()
    for values, look, label in ((model, "-", "model"), (everyone, "--", "treat all"), (0 * t, ":", "treat none")):
        axes.plot(t, values, look, color=canvas.COLOURS[("-", "--", ":").index(look)], lw=1.8, label=label)
    if threshold is not None and threshold <= 1:
        axes.axvline(threshold, color="0.4", lw=1)
        axes.annotate(
            f"chosen: {threshold:.3f}", (threshold, 1), xycoords=("data", "axes fraction"), ha="center", va="bottom"
        )
    top = float(everyone[0])
    axes.set(xlim=(0, 1), ylim=(-0.15 * top, 1.1 * max(top, float(model.max()))), xlabel="threshold probability")
    axes.set_ylabel("net benefit, true positives a row")
    axes.set_title(f"decision curve of {canvas.short(positive)}", pad=18)
    axes.legend(loc="upper right")
    return figure
