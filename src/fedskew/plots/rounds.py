"""Pictures of what runs recorded, after the papers' figures. They read run folders and train nothing.

Each figure has a panel or a line for each configuration. `curves` shows the mean and the range of all seeds; the others
show one seed, the same of every configuration where there is such a seed, and name it. Commands:
docs/reference/diagnostics.md.
"""

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from fedskew.config.recorded import Run, read_run
from fedskew.errors import RecordError, require, unknown
from fedskew.plots import FIGURES, canvas
from fedskew.plots.canvas import (
    Axes,
    Figure,
    Floats,
    PlottedRun,
    colour,
    floats,
    legend,
    lines,
    look_of,
    panels_of,
    readable,
)  # fmt: skip
from fedskew.plots.groups import RunGroup, federation_of, groups_of, title_of
from fedskew.plugins import at
from fedskew.records.folder import features_file
from fedskew.records.typed import Row

GREY = "0.6"
PANELS = 4  # columns of a figure
EXPLAINED = (
    "EA of a class: mean probability that its test rows give to other classes, over what it gets from theirs;"
    " 1: it gives as much as it gets, above 1: it loses"
)


@canvas.styled
def draw(name: str, folders: Iterable[str | Path]) -> Figure:
    """Draw a figure of runs.

    Args:
        name: A name of `FIGURES`, such as "curves", "weights" or "drift".
        folders: Run folders.

    Returns:
        The figure.

    Raises:
        ConfigError: The figure is unknown, there are too many runs, or matplotlib is missing.
        RecordError: A run did not record what the figure shows.

    Example:
        >>> import fedskew as fs
        >>> from fedskew.plots.rounds import draw
        >>> fed = fs.federate("digits", "dirichlet", clients=4)
        >>> _ = fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=2, cohort=2, out="run")
        >>> len(draw("weights", ["run"]).axes)
        2
    """
    if name not in FIGURES:
        raise unknown("figure", name, FIGURES)
    places = list(folders)
    place, most = FIGURES[name]
    figure: Callable[..., Figure] = at(f"fedskew.plots.{place}")
    if not most:
        return figure(places)
    groups = groups_of(places)
    runs, seed = _shown(groups)
    require(len(runs) <= most, "fedskew plot", f"be given at most {most} configurations for {name}", len(runs))
    empty = next((run for run in runs if not run.rows), None)
    if empty:
        raise RecordError(f"{str(empty.folder)!r} holds no round yet")
    with readable(name, [run.folder for run in runs]):
        drawn = figure(runs)
    title = title_of([group.runs[0] for group in groups])
    title = f"{title}: {runs[0].label}" if len(runs) == 1 else title
    canvas.head(drawn, f"{title}{seed}")
    return drawn


def _shown(groups: list[RunGroup]) -> tuple[list[PlottedRun], str]:
    """(a run of each group, what the title says of seeds).

    The seed is the smallest that all groups have, else the smallest of each.
    """
    seeds = [{run.seeds: run for run in g.runs} for g in groups]
    both = sorted(set.intersection(*map(set, seeds)))
    chosen = [by_seed[both[0] if both else min(by_seed)] for by_seed in seeds]
    runs = []
    for g, run in zip(groups, chosen, strict=True):
        label = canvas.short(g.name if both else f"{g.name}{_seed_words(run)}", 60)
        runs.append(PlottedRun(canvas.entry(label), run.folder, run.config, run.rows, g.place))
    several = any(len(g.runs) > 1 for g in groups)
    return runs, _seed_words(chosen[0]) if both and several else ""


def _seed_words(run: Run) -> str:
    """As in ", seed 0"."""
    return "".join(f", {what} {seed}" for seed, what in run.seeds)


# Lines over rounds, one a run


def asymmetry(runs: list[PlottedRun]) -> Figure:
    """Ratio max EA / min EA over rounds, and EA of each class; with two classes EA of class 1 over rounds.

    The ratio is the mean over the round's local models, after FedGA's figure 5; a thin dashed line is the evaluated
    model's. EA of each class is that of the local models in the last round, a ring that of the evaluated model.
    """
    figure, ((left, right),) = panels_of(1, 2)
    lines(left, runs, "asymmetry", lambda row: row.get("local", {}).get("ratio"))
    for run in runs:
        records = run.diagnosed("asymmetry")
        left.plot(
            [n for n, _ in records], floats(row["ratio"] for _, row in records), "--", color=colour(run.place), lw=0.9
        )
    left.set(title="error asymmetry EA (dashed: evaluated model)", ylabel="max EA / min EA, mean of local models")
    canvas.logarithmic(left.yaxis)
    last = runs[0].diagnosed("asymmetry")[-1][1]
    binary = len(last["each"]) == 2
    (_binary if binary else _each_class)(right, runs, last)
    for axes in (left, right):
        axes.axhline(1.0, color=GREY, lw=1)
    return legend(figure, right if binary else left, title=EXPLAINED, title_fontsize=9)


def _binary(axes: Axes, runs: list[PlottedRun], last: Row) -> None:
    """EA of class 1: cross-entropy tends to N0/N1, aligned gradients to 1."""
    lines(axes, runs, "asymmetry", lambda row: row["each"][1])
    negative, positive = last["train_counts"]
    axes.axhline(negative / max(positive, 1), color="0.3", ls=":", label="N0 / N1 of the training rows")
    axes.set(title="error asymmetry of class 1", ylabel="EA of class 1")


def _each_class(axes: Axes, runs: list[PlottedRun], last: Row) -> None:
    """EA of each class in the last round: mean of the local models, and the evaluated model as a ring."""
    for run in runs:
        number, row = run.diagnosed("asymmetry")[-1]
        axes.plot(floats(row.get("local", {}).get("each", ())), "o", color=colour(run.place))
        axes.plot(floats(row["each"]), "o", color=colour(run.place), markerfacecolor="none")
    canvas.name_classes(axes.xaxis, len(last["each"]), runs[0].class_names)
    title = f"EA of each class, round {number} (ring: evaluated model)"
    axes.set(title=title, xlabel="class", ylabel="EA, mean of local models")
    canvas.logarithmic(axes.yaxis)


def drift(runs: list[PlottedRun]) -> Figure:
    """Norms of the clients' updates and of their weighted sum, and the share that cancels."""
    figure, ((each, update, cancelled),) = panels_of(1, 3)
    for run in runs:
        records, tint = run.diagnosed("drift"), colour(run.place)
        rounds, norms = [n for n, _ in records], [row["norms"] for _, row in records]
        each.fill_between(rounds, list(map(min, norms)), list(map(max, norms)), color=tint, alpha=0.15, lw=0)
        each.plot(rounds, [float(np.mean(n)) for n in norms], **look_of(run.place, len(rounds)), label=run.label)
    lines(update, runs, "drift", lambda row: row["update"])
    lines(cancelled, runs, "drift", lambda row: row["cancellation"])
    each.set(title="a client's update", ylabel="norm: mean, least and greatest", xlabel="round")
    update.set(title="the aggregated update", ylabel="norm")
    cancelled.set(title="what cancels", ylabel="1 - ||sum p d|| / sum p ||d||", ylim=(0, 1))
    return legend(figure, each)


def selection(runs: list[PlottedRun]) -> Figure:
    """Training rows read so far, clients of each round, and accuracy over the rows read."""
    figure, ((used, clients, accuracy),) = panels_of(1, 3)
    for run in runs:
        rounds, rows = [row["round"] for row in run.rows], np.cumsum([row["samples"] for row in run.rows])
        count, score = [_count(row["clients"]) for row in run.rows], floats(row.get("accuracy") for row in run.rows)
        look, scored = look_of(run.place, len(rounds)), ~np.isnan(score)
        label = f"{run.label} ({rows[-1]:,.0f} rows, {np.mean(count):.1f} clients a round)"
        used.plot(rounds, rows, **look, label=label)
        clients.plot(rounds, count, **look)
        accuracy.plot(rows[scored], score[scored], **look_of(run.place, int(scored.sum())))
    used.set(title="training rows used", ylabel="rows so far, each once an epoch", xlabel="round", ylim=(0, None))
    clients.set(title="clients selected", ylabel="clients of a round", xlabel="round")
    clients.set_ylim(0, 1.08 * clients.get_ylim()[1])
    accuracy.set(title="accuracy over rows used", ylabel="accuracy on test rows", xlabel="rows so far")
    accuracy.locator_params(axis="x", nbins=4)
    return legend(figure, used)


def _count(clients: Sequence[int | list[int]]) -> int:
    """Clients of a round, those of chains too."""
    return sum(len(c) if isinstance(c, list) else 1 for c in clients)


def weights(runs: list[PlottedRun]) -> Figure:
    """Histograms of the aggregation weights of all rounds, of all runs together and of each run on its own scale.

    A run's own scale is the multiple of the uniform share 1/K: many methods stay within a few per cent of it.
    """
    figure, (panels,) = panels_of(1, 1 + len(runs))
    for run, axes in zip(runs, panels[1:], strict=True):
        multiples = np.concatenate([floats(row["weights"]) * len(row["weights"]) for row in run.rows])
        _histogram(axes, [(run.label, multiples, run.place)])
        axes.axvline(1.0, color="0.3", ls=":")
        axes.set(title=run.label, xlabel="weight x clients of the round")
    plain = [(run.label, np.concatenate([floats(row["weights"]) for row in run.rows]), run.place) for run in runs]
    _histogram(panels[0], plain)
    panels[0].set(title="all", xlabel="aggregation weight of a client", ylabel="share of all weights")
    return legend(figure, panels[0])


def _histogram(axes: Axes, series: list[tuple[str, Floats, int]]) -> None:
    """Outlines over common bins, each with sum 1: (label, values, place of the colour)."""
    low, high = min(v.min() for _, v, _ in series), max(v.max() for _, v, _ in series)
    pad = max(0.02 * (high - low), 1e-3 * abs(high), 1e-9)
    bins = np.linspace(low - pad, high + pad, 41).tolist()
    for label, values, place in series:
        share, tint = np.full(len(values), 1 / len(values)), colour(place)
        axes.hist(values, bins, weights=share, histtype="stepfilled", alpha=0.2, color=tint)
        axes.hist(values, bins, weights=share, histtype="step", lw=1.6, color=tint, label=label)
    axes.locator_params(axis="x", nbins=5)


# One row of panels a run


def cosine(runs: list[PlottedRun]) -> Figure:
    """Cosine of each layer between successive global models, and between local models and the one they started from."""
    figure, panels = panels_of(len(runs), 2)
    for run, (whole, local) in zip(runs, panels, strict=True):
        records = run.diagnosed("cosine")
        rounds = [n for n, _ in records]
        for i, layer in enumerate(records[0][1]["layers"]):
            look = look_of(i, len(rounds))
            whole.plot(rounds, floats([row["global"][i] for _, row in records]), **look, label=canvas.entry(layer))
            low, mean, high = (floats([row["local"][n][i] for _, row in records]) for n in ("min", "mean", "max"))
            local.fill_between(rounds, low, high, color=look["color"], alpha=0.12, lw=0)
            local.plot(rounds, mean, **look)
        suffix = f" ({run.label})" if len(runs) > 1 else ""
        whole.set(title=f"successive global models{suffix}", ylabel="cosine", xlabel="round")
        local.set(title=f"local and global model{suffix}", ylabel="cosine: mean, least, greatest", xlabel="round")
        for axes in (whole, local):
            axes.locator_params(axis="x", integer=True, nbins=7)
    return legend(figure, panels[0, 0])


def per_class(runs: list[PlottedRun]) -> Figure:
    """Accuracy of each class before and after local training: single clients, the mean of all, and the aggregate."""
    records = [run.diagnosed("per_class")[-1] for run in runs]
    figure, panels = panels_of(len(runs), min(PANELS, 2 + max(len(row["clients"]) for _, row in records)))
    for run, (number, row), line in zip(runs, records, panels, strict=True):
        mean = row.get("local") or [np.nan] * len(row["before"])
        ids = list(row["clients"])[: len(line) - 2]
        shown = [
            *((f"client {k}, round {number}", row["clients"][k], row["owned"][k]) for k in ids),
            (f"mean of {row.get('models', 0)} clients", mean, []),
            (f"aggregated, round {number}", row["after"], []),
        ]
        for (text, after, owned), axes in zip(shown, line, strict=False):
            _pair(axes, row["before"], after, owned)
            xlabel = f"class{', rows owned above it' * bool(owned)}"
            axes.set(title=_titled(runs, run, text), xlabel=xlabel)
        for axes in line[len(shown) :]:
            axes.set_axis_off()
        line[0].set_ylabel("accuracy of the class on test rows")
    return legend(figure, panels[0, 0])


def _titled(runs: list[PlottedRun], run: PlottedRun, text: str) -> str:
    """The text, below the run's label where there are several runs, in lines that a panel has room for."""
    return f"{textwrap.fill(run.label, 38)}\n{text}" if len(runs) > 1 else text


def _pair(axes: Axes, before: Sequence[float], after: Sequence[float], owned: Sequence[int]) -> None:
    """Two bars for each class, before and after, below the rows that a client owns."""
    _bars(axes, {"before": before, "after": after})
    axes.set(ylim=(0, 1.12))
    for c, n in enumerate(owned if len(owned) <= 26 else ()):
        axes.text(c, 1.03, str(n), ha="center", fontsize=7, color="black" if n else canvas.COLOURS[1])


def _bars(axes: Axes, bars: Mapping[str, Sequence[float]]) -> None:
    """Bars side by side for each class."""
    width = 0.8 / len(bars)
    for j, (label, values) in enumerate(bars.items()):
        at = np.arange(len(values)) + width * (j - (len(bars) - 1) / 2)
        axes.bar(at, values, width, color=(GREY, *canvas.COLOURS)[j], label=label)
        canvas.name_classes(axes.xaxis, len(values), ())


def oversampling(runs: list[PlottedRun]) -> Figure:
    """Rows of each class that clients own, that their sampler offers, and that they train on.

    It shows the first round in which one of the clients took part, because oversampling decays.
    """
    records = [next((r for r in run.diagnosed("oversampling") if r[1]), (0, {})) for run in runs]
    columns = min(PANELS, max(len(row) for _, row in records))
    require(columns > 0, "diagnose.clients", "name clients that took part; use none to see each cohort's first", 0)
    figure, panels = panels_of(len(runs), columns)
    for run, (number, row), line in zip(runs, records, panels, strict=True):
        for axes in line[len(row) :]:
            axes.set_axis_off()
        for (k, counts), axes in zip(row.items(), line, strict=False):
            _bars(axes, {"before": counts["owned"], "after": counts["offered"], "used": counts["used"]})
            axes.set(title=_titled(runs, run, f"client {k}, round {number}"), xlabel="class")
        line[0].set_ylabel("rows")
    return legend(figure, panels[0, 0])


def heatmap(folders: list[str | Path]) -> Figure:
    """Rows of each class at each client: those on record, or of the split made again from the configuration."""
    from fedskew.plots import skew as skewplots

    require(len(folders) == 1, "fedskew plot", "be given one run for heatmap", len(folders))
    counted = federation_of(read_run(folders[0]))
    return skewplots.draw(counted.counts, title=counted.title, class_names=counted.class_names)


def tsne(runs: list[PlottedRun]) -> Figure:
    """Features of test rows in two dimensions by scikit-learn's t-SNE from a fixed start, coloured by class."""
    from sklearn.manifold import TSNE

    figure, (panels,) = panels_of(1, len(runs), 6.4 if len(runs) < 3 else 4.6)
    last = [run.diagnosed("features")[-1] for run in runs]
    rows = [_features(run, row) for run, (_, row) in zip(runs, last, strict=True)]
    classes = np.unique(np.concatenate([y for _, y in rows]))  # a class has one colour in all panels
    colours = canvas.matplotlib().colormaps["tab10" if len(classes) <= 10 else "tab20"]
    for run, axes, (number, _), (x, y) in zip(runs, panels, last, rows, strict=True):
        wide = min(30.0, max(2.0, (len(x) - 1) / 3))
        place = TSNE(2, perplexity=wide, init="pca", random_state=0).fit_transform(x)
        for i, c in enumerate(classes):
            name = run.class_names[c] if c < len(run.class_names) else str(c)
            axes.scatter(*place[y == c].T, s=7, color=colours(i % colours.N), label=canvas.entry(name), lw=0)
        axes.set(title=f"{run.label}, round {number}", xticks=[], yticks=[])
        axes.grid(False)
    if len(classes) > 40:
        return figure
    return legend(figure, panels[0], columns=10, markerscale=3)


def _features(run: PlottedRun, row: Row) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Features and labels of a recorded file. Raises RecordError where it is not the one that the round wrote."""
    file = features_file(run.folder, row)
    try:
        with safe_open(file, framework="np") as content:
            return content.get_tensor("features"), content.get_tensor("labels")
    except (OSError, SafetensorError) as error:
        raise RecordError(f"{file} cannot be read: {error}") from None
