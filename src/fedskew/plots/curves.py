"""The table and the picture that compare runs. They read run folders and train nothing.

G groups of runs (one configuration under several seeds), R rounds, C classes. A megabyte (MB) is 10^6 bytes.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedskew.config.recorded import Run
from fedskew.errors import RecordError
from fedskew.plots import canvas, drawing
from fedskew.plots.canvas import Figure, Floats, readable
from fedskew.plots.drawing import Chart, Heat, Line
from fedskew.plots.groups import RunGroup, groups_of, recall_of, title_of
from fedskew.records.clients import last_clients, read_clients

SERVED = "mean10_served_accuracy"
ACROSS = {
    "rounds": "round", "megabytes": "MB uploaded by all clients", "seconds": "seconds",
    "steps": "local steps of all clients",
}  # fmt: skip


def _ranked(groups: Sequence[RunGroup]) -> tuple[list[RunGroup], bool]:
    """(the best mean accuracy of the last 10 rounds first, groups without any last; whether clients' own models count).

    They count, as what each client would use, where clients use own models alone under one of the methods.
    """
    joined = any(run.serves == "own" for g in groups for run in g.runs)
    key = SERVED if joined else "mean10_accuracy"

    def rank(group: RunGroup) -> float:
        values = [value for run in group.runs if math.isfinite(value := run.value(key))]
        return -float(np.mean(values)) if values else 1.0

    return sorted(groups, key=rank), joined


# The picture that compares runs


@canvas.styled
def comparison(folders: Iterable[str | Path]) -> Figure:
    """Compare runs in one picture.

    Panels show accuracy and macro-F1 over rounds, accuracy over MB uploaded, the final recall of each class and, where
    runs evaluated them, the accuracy of the clients' own models. Seeds of one configuration are drawn as their mean,
    with a band from the least to the greatest. The best mean accuracy of the last 10 rounds comes first; a
    configuration has one colour in every picture of the same runs.

    Args:
        folders: Run folders.

    Returns:
        The figure.

    Raises:
        RecordError: No run was evaluated yet.
        ConfigError: matplotlib is missing.

    Example:
        >>> import fedskew as fs
        >>> from fedskew.plots.curves import comparison
        >>> fed = fs.federate("digits", "iid", clients=4)
        >>> for name, method in {"avg": fs.methods.fedavg(), "prox": fs.methods.fedprox(mu=0.1)}.items():
        ...     _ = fs.run(fed, method, model="logistic", rounds=2, cohort=2, out=f"runs/{name}")
        >>> len(comparison(["runs/avg", "runs/prox"]).axes)
        4
    """
    places = list(folders)
    groups, joined = _ranked([g for g in groups_of(places) if any(run.last for run in g.runs)])
    if not groups:
        raise RecordError(f"no evaluated round yet in {', '.join(repr(str(f)) for f in places) or 'no folder'}")
    with readable("curves", [run.folder for g in groups for run in g.runs]):
        return _compared(groups, joined)


def _compared(groups: list[RunGroup], joined: bool = False) -> Figure:
    """The figure of `comparison`."""
    columns = max(1, min(len(groups), 150 // (max(len(g.label) for g in groups) + 8)))
    low = 0.9 + 0.3 * len(groups)
    figure = canvas.figure(5.0 + low + 0.22 * -(-len(groups) // columns))
    client_metric = "served_accuracy" if joined else "personal_accuracy"
    whose = "what each client would use" if joined else "clients' own models"
    charts = []
    for metric, unit, title, ylabel in (
        ("accuracy", "rounds", "accuracy over rounds", "accuracy on test rows"),
        ("macro_f1", "rounds", "macro-F1 over rounds", "macro-F1 on test rows"),
        ("accuracy", "megabytes", "accuracy over upload", "accuracy on test rows"),
        (client_metric, "rounds", whose, "accuracy on each client's test rows"),
    ):
        curves = [(g.label, g.place, curve_of(g.runs, metric)) for g in groups]
        charts += [chart] if (chart := chart_of(curves, unit, title, ylabel)).lines else []
    grid = figure.add_gridspec(2, len(charts), height_ratios=[4.2, low])
    panels = [figure.add_subplot(grid[0, i]) for i in range(len(charts))]
    for axes, chart in zip(panels, charts, strict=True):
        drawing.chart(axes, chart)
    if heat := recalls_of(
        {g.label: g.runs for g in groups}, f"final recall of each class{', global model' * joined}, %"
    ):
        drawing.heat(figure.add_subplot(grid[1, :]), heat)
    canvas.head(figure, title_of([run for g in groups for run in g.runs]))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=columns)
    return figure


@dataclass(frozen=True)
class Curve:
    """A metric over the rounds of one method under one setting. R evaluated rounds."""

    rounds: Floats  # [R]
    megabytes: Floats  # [R] uploaded until then, mean over the seeds
    seconds: Floats  # [R] until then, mean over the seeds
    steps: Floats  # [R] until then, mean over the seeds
    mean: Floats  # [R]
    low: Floats | None  # [R] the least seed; None where there is one
    high: Floats | None  # [R] the greatest seed
    evaluated: int  # rounds before thinning


def curve_of(runs: Sequence[Run], metric: str, points: int = 10**6) -> Curve | None:
    """A metric over rounds, thinned to so many points; None where none was evaluated."""
    seeds = [series for run in runs if len((series := run.series(metric))[0])]
    if not seeds:
        return None
    rounds = np.unique(np.concatenate([series[0] for series in seeds]))
    picked = rounds if len(rounds) <= points else rounds[np.rint(np.linspace(0, len(rounds) - 1, points)).astype(int)]
    whole = np.full((4, len(seeds), len(picked)), np.nan)
    for i, (evaluated, values, *spent) in enumerate(seeds):
        _, rows, columns = np.intersect1d(evaluated, picked, return_indices=True)
        whole[:, i, columns] = np.array([values, *spent])[:, rows]
    known = np.isfinite(whole).sum(1)  # none of bytes or seconds that a damaged record holds
    mean, sent, seconds, steps = np.nansum(whole, 1) / np.where(known, known, np.nan)
    low, high = (np.nanmin(whole[0], 0), np.nanmax(whole[0], 0)) if len(seeds) > 1 else (None, None)
    return Curve(picked, sent, seconds, steps, mean, low, high, len(rounds))


def chart_of(
    curves: Sequence[tuple[str, int, Curve | None]],
    unit: str,
    title: str,
    ylabel: str,
    alt: str = "",
    times: float = 1,
) -> Chart:
    """Lines over rounds, megabytes, seconds or steps of (label, place of its colour, curve), times a factor."""
    lines = tuple(
        Line(m, place, getattr(c, unit), times * c.mean, *(None if v is None else times * v for v in (c.low, c.high)))
        for m, place, c in curves if c is not None
    )  # fmt: skip
    ends = [float(line.x[-1]) for line in lines if line.x[-1] > 0]
    far = unit != "rounds" and bool(ends) and max(ends) > 20 * min(ends)
    return Chart(f"curves-{unit}", title, ACROSS[unit], ylabel, lines, alt, logarithmic=far)


def global_recall(run: Run) -> Floats:
    """Recall of each class [C] by the global model at its last evaluation, NaN without test rows; [0] if unknown."""
    return recall_of(run.last)


def served_recall(run: Run, heldout: bool = False) -> Floats:
    """The same by the model that each client would use, the test rows of all clients together.

    Args:
        run: A run; [0] where it has no rows of its clients.
        heldout: Whether those count that never train, in the place of the others.
    """
    last = [row for row in last_clients(read_clients(run.folder)) if row.get("heldout", False) == heldout]
    if not last:
        return np.empty(0)
    support = np.array([row["support"] for row in last], dtype=np.float64)  # [clients, C]
    recall = np.array([[r or 0.0 for r in row["per_class_recall"]] for row in last])
    with np.errstate(invalid="ignore"):
        return np.asarray((recall * support).sum(0) / support.sum(0))


def recalls_of(
    runs: Mapping[str, Sequence[Run]], title: str, of: Callable[[Run], Floats] = global_recall
) -> Heat | None:
    """The final recall of each class, [labels, C]: means over the seeds; NaN without test rows."""
    rows = {m: [recall for run in each if len(recall := of(run))] for m, each in runs.items()}
    shown = {m: r for m, r in rows.items() if r}
    lengths = {len(row) for r in shown.values() for row in r}
    if len(lengths) != 1:
        return None
    cells = np.array([np.mean(r, axis=0) for r in shown.values()])
    names = names_of((run for m in shown for run in runs[m]), lengths.pop())
    worst = [f"{m}: {names[int(np.nanargmin(row))]} with {np.nanmin(row):.2f}"
             for m, row in zip(shown, cells, strict=True) if not np.isnan(row).all()]  # fmt: skip
    alt = f"Worst class of each method: {'; '.join(worst[:12])}."
    return Heat("recall", title, cells, tuple(shown), names, "class", "", alt)


def names_of(runs: Iterable[Run], classes: int) -> tuple[str, ...]:
    """The recorded names of the classes; their numbers where none are recorded."""
    for run in runs:
        names = run.config.get("label_names") or ()
        if len(names) == classes:
            return tuple(str(name) for name in names)
    return tuple(map(str, range(classes)))
