"""The pictures of a comparison. C classes, N clients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedskew.config.recorded import Run
from fedskew.errors import FedskewError, plural
from fedskew.plots import canvas
from fedskew.plots.groups import federation_of, recall_of
from fedskew.report.compared import Compared, curve_of
from fedskew.report.entries import Trial
from fedskew.report.pictures import Chart, Heat, Line, Ranking
from fedskew.report.tables import fixed, under

Floats = npt.NDArray[np.float64]
SCORED = {
    "auroc_macro": "macro AUROC", "auprc_macro": "macro AUPRC", "ece": "expected calibration error",
    "recall_at_precision_macro": "macro recall at a precision", "mix_accuracy_mean": "accuracy over the clients' mixes",
    "mix_accuracy_worst_decile": "accuracy over the worst decile of the clients' mixes",
}  # fmt: skip
COLUMNS = 60  # clients of a heat map; of more, neighbours share a column
CLASSES = 40  # most classes whose confusion matrix is drawn
WRITTEN = 12  # classes up to which the shares of a confusion matrix are written into it
TOLD = 12  # most methods that a description lists
UPLOADED = "MB uploaded by all clients"
ALIKE = 1.01  # ratio of the greatest cost to the least below which it is not drawn
WRONG = 0.005  # a smaller share of a class is not named among its mistakes


class Detail(NamedTuple):
    """How much a page shows: less of it where there are many runs."""

    points: int = 60  # of a line
    methods: int = 12  # that have a line in each picture
    settings: int = 12  # that have pictures
    heats: int = 6  # federations
    matrices: int = 24  # confusion matrices

    def halved(self, times: int) -> Detail:
        """The same with half as many pictures, so many times."""
        settings, heats, matrices = (n >> times for n in (self.settings, self.heats, self.matrices))
        return self._replace(settings=max(settings, 1), heats=heats, matrices=matrices)


def words(metric: str) -> str:
    """A metric's name in words: "macro F1"."""
    if metric in SCORED:
        return SCORED[metric]
    told = metric.replace("_", " ").replace("macro f1", "macro F1").replace("g mean", "G-mean")
    return told.replace("val ", "validation ", 1) if told.startswith("val ") else told


def names_of(runs: Iterable[Run], classes: int) -> tuple[str, ...]:
    """The recorded names of the classes; their numbers where none are recorded."""
    for run in runs:
        found = run.config.get("label_names") or ()
        if len(found) == classes:
            return tuple(str(name) for name in found)
    return tuple(map(str, range(classes)))


def curves(found: Compared, setting: str, methods: Sequence[str], points: int) -> list[Chart]:
    """The metric over rounds, megabytes and seconds."""
    shown = [(m, curve) for m in methods if (curve := curve_of(found.runs(m, setting), found.metric, points))]
    if not shown:
        return []
    name, charts = words(found.metric), []
    told = listed(f"Lines of {name}: ", [f"{m} ends at {c.mean[-1]:.3f} in round {c.rounds[-1]:.0f}" for m, c in shown])
    most = max((curve for _, curve in shown), key=lambda c: c.evaluated)
    if most.evaluated > len(most.rounds):
        told += f" Of {most.evaluated} evaluations {len(most.rounds)} are drawn."
    for unit, across in (("rounds", "round"), ("megabytes", UPLOADED), ("seconds", "seconds")):
        lines = tuple(Line(m, found.place(m), getattr(c, unit), c.mean, c.low, c.high) for m, c in shown)
        far = unit != "rounds" and _ratio([float(line.x[-1]) for line in lines]) > 20
        title = f"{name.capitalize()} over {unit}{under(setting)}"
        charts.append(Chart(f"curves-{unit}", title, across, name, lines, told, True, far))
    return charts


def _ratio(values: Sequence[float]) -> float:
    seen = [v for v in values if v > 0]
    return max(seen) / min(seen) if seen else 1.0


def listed(head: str, told: Sequence[str], most: int = TOLD, end: str = ".") -> str:
    """The first of some phrases, and how many more there are: "Lines: a ends at 0.5; and 3 more."."""
    more = f"; and {len(told) - most} more" if len(told) > most else ""
    return f"{head}{'; '.join(told[:most])}{more}{end}"


def cost(found: Compared, setting: str, methods: Sequence[str]) -> list[Chart]:
    """The metric over the megabytes and the seconds of a whole run, a point for each method.

    A cost that all methods share has no picture.
    """
    charts = []
    for key, across, name in (("total_upload_bytes", UPLOADED, "megabytes"),
                              ("total_wall_s", "seconds of a run", "seconds")):  # fmt: skip
        spent = dict(zip(found.methods, found.values(setting, key), strict=True))
        lines = []
        for method in methods:
            value, seen = found.summary(method, setting), spent[method][np.isfinite(spent[method])]
            if value.runs and len(seen):
                ends = [None if e is None else np.array([e]) for e in (value.low, value.high)]
                x = np.array([seen.mean() / (1e6 if key.endswith("bytes") else 1)])
                lines.append(Line(method, found.place(method), x, np.array([found.mean(method, setting)]), *ends))
        if not lines or _ratio([float(li.x[0]) for li in lines]) < ALIKE:
            continue  # all points would stand above each other
        told = "; ".join(f"{li.label}: {li.y[0]:.3f} for {li.x[0]:,.1f}" for li in lines[:TOLD])
        far = _ratio([float(li.x[0]) for li in lines]) > 20
        title = f"{words(found.metric).capitalize()} against {name}{under(setting)}"
        charts.append(
            Chart(f"cost-{name}", title, across, words(found.metric), tuple(lines), f"{told} {across}.", False, far)
        )
    return charts


def recalls(found: Compared, setting: str, methods: Sequence[str]) -> Heat | None:
    """The final recall of each class, [methods, C]: means over the seeds; NaN without test rows."""
    rows = {
        m: [recall_of(run.last) for run in found.runs(m, setting) if run.last.get("per_class_recall")] for m in methods
    }
    shown = {m: r for m, r in rows.items() if r}
    lengths = {len(row) for r in shown.values() for row in r}
    if len(lengths) != 1:
        return None
    cells = np.array([np.mean(r, axis=0) for r in shown.values()])
    names = names_of((run for m in shown for run in found.runs(m, setting)), lengths.pop())
    worst = [f"{m}: {names[int(np.nanargmin(row))]} with {np.nanmin(row):.2f}"
             for m, row in zip(shown, cells, strict=True) if not np.isnan(row).all()]  # fmt: skip
    told = f"Worst class of each method: {'; '.join(worst[:TOLD])}."
    return Heat("recall", f"Final recall of each class{under(setting)}", cells, tuple(shown), names, "class", "", told)


def confusion(found: Compared, method: str, setting: str) -> Heat | None:
    """Shares of each true class, [C, C], of the last evaluation: the rows of all seeds together."""
    counts = [
        m for run in found.runs(method, setting) if (m := _matrix(run.summary.get("final_confusion"))) is not None
    ]
    if not counts or len({m.shape for m in counts}) != 1 or len(counts[0]) > CLASSES:
        return None
    whole = np.sum(counts, axis=0)
    rows = whole.sum(1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.where(rows > 0, whole / rows, np.nan)
    names = names_of(found.runs(method, setting), len(whole))
    told, title, numbers = mixed_up(shares, names), f"{method}{under(setting)}", len(names) <= WRITTEN
    return Heat("confusion", title, shares, names, names, "predicted", "true class", told, numbers)


def _matrix(value: Any) -> Floats | None:
    """A recorded confusion matrix; None where it is none."""
    try:
        found = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    square = found.ndim == 2 and found.shape[0] == found.shape[1] > 0
    return found if square and bool((np.isfinite(found) & (found >= 0)).all()) else None


def mixed_up(shares: Floats, names: Sequence[str], most: int = 5) -> str:
    """The most frequent mistakes, as in "Shirt is taken for Coat in 31 % of its rows"."""
    wrong = np.nan_to_num(np.where(np.eye(len(shares), dtype=bool), 0.0, shares))
    cells = [divmod(int(i), len(shares)) for i in np.argsort(-wrong, axis=None, kind="stable")[:most]]
    told = [f"{names[a]} is predicted as {names[b]} in {100 * wrong[a, b]:.0f} % of its rows" for a, b in cells
            if wrong[a, b] >= WRONG]  # fmt: skip
    return f"{'; '.join(told)}." if told else "No class is predicted as another in more than 0.5 % of its rows."


def ranking(found: Compared) -> Ranking | None:
    """Average ranks over the settings; None below two settings or methods."""
    ranks = found.ranks
    if ranks is None or len(ranks.settings) < 2:
        return None
    rank = dict(zip(ranks.methods, ranks.ranks, strict=True))
    bars = () if ranks.p is None else tuple((rank[group[0]], rank[group[-1]]) for group in ranks.groups)
    title = f"Average rank over {plural(len(ranks.settings), 'setting')}"
    told = f"{'; '.join(f'{method} {at:.2f}' for method, at in rank.items())}. {ranks.conclusion}"
    return Ranking("ranks", title, ranks.methods, tuple(map(found.place, rank)), ranks.ranks, bars, told)


def federation(found: Compared, setting: str) -> tuple[Heat | None, str]:
    """(rows of each class at each client, of the first seed; what to say of it)."""
    run, seed = next((entry.run, entry.seed) for entry in found.entries if entry.setting == setting)
    try:
        split = federation_of(run)
    except FedskewError as error:
        return None, f"The counts of the partition are not recorded, and it cannot be made again here: {error}"
    counts = np.asarray(split.counts, dtype=np.float64)
    names = names_of([run], counts.shape[1])
    sizes, held = counts.sum(1), (counts > 0).sum(1)
    blocks, starts = canvas.blocks(counts, COLUMNS)
    columns = len(blocks)
    labels = tuple(str(s) if columns == len(counts) or i % 10 == 0 else "" for i, s in enumerate(starts.tolist()))
    mean = f" (a column is the mean of about {len(counts) / columns:.0f})" if columns < len(counts) else ""
    told = (
        f"{plural(len(counts), 'client')} hold {plural(int(sizes.sum()), 'training row')}: {int(sizes.min()):,} to "
        f"{int(sizes.max()):,} each, of {int(held.min())} to {int(held.max())} of {counts.shape[1]} classes, "
        f"{fixed(float(held.mean()), 1)} on average. The strongest colour is {blocks.max():,.4g} rows."
    )
    title = f"Training rows of each class at each client{under(setting)}, seed {seed}"
    xlabel = f"client{mean}"
    heat = Heat("federation", title, blocks.T, names, labels, xlabel, "class", told, top=float(blocks.max()), root=True)
    return heat, told


def sensitivity(trials: Sequence[Trial], place: dict[str, int], metric: str) -> list[Chart]:
    """The score of every trial over each option that was tuned: lines, or points where other options vary too."""
    options = dict.fromkeys(name for trial in trials for name in trial.options)
    charts = []
    for setting in dict.fromkeys(trial.setting for trial in trials):
        for option in options:
            tried = [t for t in trials if t.setting == setting and _number(t.options.get(option))]
            lines = []
            for method in dict.fromkeys(t.method for t in tried):
                pairs = sorted((float(t.options[option]), t.score) for t in tried
                               if t.method == method and math.isfinite(t.score))  # fmt: skip
                if pairs:
                    x, y = np.array(pairs, dtype=np.float64).T
                    lines.append(Line(method, place.get(method, 0), x, y))
            if not lines:
                continue
            low = min(float(line.x.min()) for line in lines)
            far = low > 0 and max(float(line.x.max()) for line in lines) / low > 5
            told = "; ".join(f"{li.label}: best {li.y.max():.3f} at {li.x[li.y.argmax()]:.3g}" for li in lines[:TOLD])
            title = f"Validation score over {option}{under(setting)}"
            score = f"{words(metric)}, validation rows"
            charts.append(
                Chart(f"tuning-{option}", title, option, score, tuple(lines), f"{told}.", len(options) == 1, far)
            )
    return charts


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
