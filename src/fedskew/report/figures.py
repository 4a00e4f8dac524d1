"""The pictures of a comparison. C classes, N clients."""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedskew.errors import FedskewError, plural
from fedskew.plots import canvas
from fedskew.plots.curves import ACROSS, chart_of, curve_of, names_of, recalls_of, served_recall
from fedskew.plots.drawing import Chart, Forest, Heat
from fedskew.plots.groups import federation_of
from fedskew.records.summary import MEANS, metric_words
from fedskew.report.compared import Compared
from fedskew.report.controls import controlled, model_words, models_of
from fedskew.report.tables import fixed, level, under
from fedskew.studies.scores import in_points
from fedskew.studies.verdicts import RAW, UNDONE

Floats = npt.NDArray[np.float64]
COLUMNS = 60  # clients of a heat map; of more, neighbours share a column
CLASSES = 40  # most classes whose confusion matrix is drawn
WRITTEN = 12  # classes up to which the shares of a confusion matrix are written into it
MOST_LISTED = 12  # methods that a description lists
MISTAKES = 5  # that a description names
WRONG = 0.005  # a smaller share of a class is not named among its mistakes


class Detail(NamedTuple):
    """How much of many methods and settings a page draws: its tables hold all."""

    points: int = 60  # of a line
    methods: int = 12  # that have a line in each picture
    settings: int = 6  # that have pictures
    heats: int = 3  # federations
    matrices: int = 12  # confusion matrices


def words(metric: str) -> str:
    """A metric's name in words: "macro F1", "accuracy of what each client would use"."""
    return metric_words(metric).partition(" (")[0]


def further_key(compared: Compared, name: str) -> str:
    """The number of a summary that stands beside the metric; "" for the metric itself, and without one like it."""
    span = compared.key.partition("_")[0]
    key = f"{span}_{compared.whose}{name}"
    return "" if key == compared.key or span not in ("final", *MEANS) else key


def curves(compared: Compared, setting: str, methods: Sequence[str], points: int) -> list[Chart]:
    """The metric over rounds, megabytes, seconds and steps."""
    shown = [(m, curve) for m in methods if (curve := curve_of(compared.runs(m, setting), compared.metric, points))]
    if not shown:
        return []
    name, share = words(compared.metric), in_points(compared.key)
    ends = [f"{m} ends at {level(c.mean[-1], compared.key)} in round {c.rounds[-1]:.0f}" for m, c in shown]
    alt = listed(f"Lines of {name}: ", ends)
    most = max((curve for _, curve in shown), key=lambda c: c.evaluated)
    if most.evaluated > len(most.rounds):
        alt += f" Of {most.evaluated} evaluations {len(most.rounds)} are drawn."
    lines = [(m, compared.place(m), curve) for m, curve in shown]
    title, ylabel, times = f"{name[:1].upper()}{name[1:]}", f"{name}{', %' * share}", 100 if share else 1
    return [chart_of(lines, across, f"{title} over {across}{under(setting)}", ylabel, alt, times) for across in ACROSS]


def gains(compared: Compared) -> Forest | None:
    """The gain of each method by model, over all settings, with its worst recall; None of a single method."""
    judged, points = controlled(compared, compared.whole), in_points(compared.key)
    if not any(control.of for control in judged):
        return None
    key, times = further_key(compared, "worst_class_recall"), 100 if points else 1
    marks = {
        f"{model}{f': {model_words(compared, model)}' * (model == RAW)}": tuple(
            tuple(times * end for end in (of[model][:3] if of[model].pairs > 1 else [of[model].mean] * 3))
            if model in of else None for of in (control.of for control in judged)
        )
        for model in (*models_of(compared), "work") if any(model in control.of for control in judged)
    }  # fmt: skip
    methods = (compared.baseline, *(control.method for control in judged))
    worst = {m: fixed(100 * _mean(compared, m, key), 0) for m in methods}
    known = worst.pop(compared.baseline)
    head = f"worst recall, %\n({canvas.short(compared.baseline, 16)}: {known})"
    over = f"gain over {canvas.short(compared.baseline, 20)}"  # a long name does not push the label out of the picture
    xlabel = f"{over} in {words(compared.metric)}{', points' * points}, 95 % interval"
    alt = "The table of results has the numbers."
    beside, head = (tuple(worst.values()), head) if known != fixed(None) else ((), "")
    title = f"Gain over {compared.baseline} of each method by model"
    places = tuple((RAW, *UNDONE).index(name.partition(":")[0]) for name in marks)
    return Forest("gains", title, tuple(worst), marks, places, xlabel, beside, head, alt)


def _mean(compared: Compared, method: str, key: str) -> float:
    """Of a number of the summaries, over the settings that have it."""
    means = [compared.summary(method, setting, key).mean for setting in compared.settings if key]
    numbers = [value for value in means if value is not None]
    return sum(numbers) / len(numbers) if numbers else math.nan


def listed(head: str, phrases: Sequence[str], most: int = MOST_LISTED) -> str:
    """The first of some phrases, and how many more there are: "Lines: a ends at 0.5; and 3 more."."""
    more = f"; and {len(phrases) - most} more" if len(phrases) > most else ""
    return f"{head}{'; '.join(phrases[:most])}{more}."


def recalls(compared: Compared, setting: str, methods: Sequence[str]) -> Heat | None:
    """The final recall of each class, [methods, C], by the models that are compared; None where it is not on record."""
    runs = {m: compared.runs(m, setting) for m in methods if compared.summary(m, setting).runs}
    if not compared.served:
        return recalls_of(runs, f"Final recall of each class by the global model{under(setting)}")
    of = partial(served_recall, heldout=compared.whose.startswith("heldout_"))
    return recalls_of(runs, f"Final recall of each class by the model that each client would use{under(setting)}", of)


def confusion(compared: Compared, method: str, setting: str) -> Heat | None:
    """Shares of each true class, [C, C], of the last evaluation: the rows of all seeds together."""
    counts = [m for run in compared.runs(method, setting) if (m := run.summary.get("final_confusion"))]
    if len({len(m) for m in counts}) != 1 or len(counts[0]) > CLASSES:
        return None
    whole = np.array(counts, dtype=np.float64).sum(axis=0)
    rows = whole.sum(1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.where(rows > 0, whole / rows, np.nan)
    names = names_of(compared.runs(method, setting), len(whole))
    alt, title, numbers = mixed_up(shares, names), f"{method}{under(setting)}", len(names) <= WRITTEN
    return Heat("confusion", title, shares, names, names, "predicted", "true class", alt, numbers)


def mixed_up(shares: Floats, names: Sequence[str]) -> str:
    """The most frequent mistakes, as in "Shirt is taken for Coat in 31 % of its rows"."""
    wrong = np.nan_to_num(np.where(np.eye(len(shares), dtype=bool), 0.0, shares))
    cells = [divmod(int(i), len(shares)) for i in np.argsort(-wrong, axis=None, kind="stable")[:MISTAKES]]
    mistakes = [f"{names[a]} is predicted as {names[b]} in {100 * wrong[a, b]:.0f} % of its rows" for a, b in cells
                if wrong[a, b] >= WRONG]  # fmt: skip
    return f"{'; '.join(mistakes)}." if mistakes else "No class is predicted as another in more than 0.5 % of its rows."


def federation(compared: Compared, setting: str) -> tuple[Heat | None, str]:
    """(rows of each class at each client, of the first seed; what to say of it)."""
    run, seed = next((entry.run, entry.seed) for entry in compared.entries if entry.setting == setting)
    try:
        split = federation_of(run)
    except FedskewError as error:
        return None, f"The counts of the partition are not recorded, and it cannot be made again here: {error}"
    counts = np.asarray(split.counts, dtype=np.float64)
    names = names_of([run], counts.shape[1])
    sizes, classes = counts.sum(1), (counts > 0).sum(1)
    blocks, starts = canvas.blocks(counts, COLUMNS)
    columns = len(blocks)
    labels = tuple(str(s) if columns == len(counts) or i % 10 == 0 else "" for i, s in enumerate(starts.tolist()))
    mean = f" (a column is the mean of about {len(counts) / columns:.0f})" if columns < len(counts) else ""
    alt = (
        f"{plural(len(counts), 'client')} hold {plural(int(sizes.sum()), 'training row')}: {int(sizes.min()):,} to "
        f"{int(sizes.max()):,} each, of {int(classes.min())} to {int(classes.max())} of {counts.shape[1]} classes, "
        f"{fixed(float(classes.mean()), 1)} on average. The strongest colour is {blocks.max():,.4g} rows."
    )
    title = f"Training rows of each class at each client{under(setting)}, seed {seed}"
    xlabel = f"client{mean}"
    heat = Heat("federation", title, blocks.T, names, labels, xlabel, "class", alt, top=float(blocks.max()), root=True)
    return heat, alt
