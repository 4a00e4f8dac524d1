"""Draws the pictures of README and docs from recorded runs, and from two small ones. Each can be read at 400 pixels.

python scripts/pictures.py [FOLDER [NAME ...]]    writes docs/pictures, or FOLDER

The archives are found by the data of their runs, so FEDSKEW_DATA must have them.
"""

from __future__ import annotations

import csv
import json
import lzma
import math
import re
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from results import ROOT, compared, controls_by_method, ends_of

import fedskew as fs
from fedskew.advice.evidence import packaged
from fedskew.plots import canvas, decisions, drawing
from fedskew.plots.curves import chart_of, curve_of
from fedskew.report import figures
from fedskew.studies.scores import WITHIN
from fedskew.studies.shipped import shipped
from fedskew.studies.verdicts import OWN, RAW

REHEARSED = ROOT / "results/rehearse/natural.json.xz"
RARE = "rare-classes-noise"
WIDTH, DPI = 5.8, 150  # inches, dots an inch: 870 pixels
LOOK = {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}
RED, BLUE, GREY = "#d1495b", "#1b6ca8", "#8a8f98"
NAMES = {
    "scaffold": "SCAFFOLD", "feddyn": "FedDyn", "fedadagrad": "FedAdagrad", "ccvr": "CCVR", "seolkim": "Seol-Kim",
    "fedga": "FedGA", "fedla": "FedLA", "fedbal, strength 1": "FedBal", "fedgr, weight": "FedGR",
}  # fmt: skip
MODELS = {RAW: ("as trained", RED), "both": ("both averaged and fitted", BLUE)}
FLOOR = -4.0  # points; an arrow stands for what lies below


def figure(height: float, *shape: int, **more: Any) -> tuple[Any, Any]:
    """A figure of the common width, and its axes."""
    drawn, axes = plt.subplots(*shape, figsize=(WIDTH, height), dpi=DPI, layout="constrained", **more)
    return drawn, axes


def rowwise(ax: Any) -> None:
    """The look of a picture with a row a thing."""
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x", linewidth=0.3)


def gains() -> Any:
    """Nine methods over FedAvg on six federations, raw and where both are averaged and fitted."""
    by = controls_by_method(compared("five-systems"))

    def points(method: str, model: str) -> list[float]:
        return [100 * one.of[model].mean for one in by[method] if model in one.of]

    order = sorted(NAMES, key=lambda method: statistics.fmean(points(method, "both")))
    drawn, ax = figure(4.4)
    for row, method in enumerate(order):
        means = [max(FLOOR, statistics.fmean(points(method, model))) for model in MODELS]
        ax.plot(means, [row, row], color="#c4c8ce", linewidth=3, zorder=1)
        for place, (model, (label, colour)) in enumerate(MODELS.items()):
            each = points(method, model)
            at = row + (0.22 if place == 0 else -0.22)
            ax.plot([x for x in each if x >= FLOOR], [at] * sum(x >= FLOOR for x in each), "|", color=colour, ms=7)
            if low := [x for x in each if x < FLOOR]:
                ax.plot([FLOOR] * len(low), [at] * len(low), "<", color=colour, ms=5, clip_on=False)
            ax.plot(means[place], row, "o", color=colour, ms=8, zorder=3 - place, label=label * (row == 0))
        own = sum(one.verdict == OWN for one in by[method])
        ax.annotate(f"{own} of {len(by[method])}", (1.02, row), xycoords=("axes fraction", "data"), va="center")
    ax.annotate("its own in", (1.02, len(order) - 0.3), xycoords=("axes fraction", "data"), va="bottom", fontsize=10)
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_yticks(range(len(order)), [NAMES[method] for method in order], fontsize=11)
    ax.set_xlim(FLOOR - 0.5, None)
    ax.set_xlabel("points of accuracy over FedAvg", fontsize=11)
    rowwise(ax)
    ax.tick_params(axis="y", length=0)
    drawn.legend(loc="outside upper left", ncols=2, fontsize=10)
    return drawn


def printed() -> Any:
    """A point for each printed gain in accuracy that has five seeds here, with the 90 % interval of the difference."""
    with (ROOT / "results/ledger.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["gain"] and row["gain_printed"]]
    groups: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        if "accuracy" in row["metric"] and row["state"] in ("agrees", "differs", "not resolved", WITHIN):
            other = row["paper"] == "FedGA" != row["method"]
            name = ("FedRL" if row["method"] == "FedRL" else "other methods") + " in FedGA's table"
            groups[name if other else f"{row['paper']}, {row['dataset']}"].append(row)
    drawn, ax = figure(5.2)
    for place, (label, mine) in enumerate(sorted(groups.items())):
        keys = ("gain_printed", "gain", "apart_low", "apart_high")
        x, y, low, high = np.array([[float(row[key]) for row in mine] for key in keys])
        look = {"fmt": canvas.MARKS[place], "color": canvas.COLOURS[place], "ms": 5, "linewidth": 1}
        ax.errorbar(x, y, yerr=[y - (low + x), (high + x) - y], label=f"{label}: {len(mine)}", **look)
    line = [x / 10 for x in range(-3, 300)]
    ax.plot(line, line, color="black", linewidth=0.8, label="ours = printed")
    ax.axhline(0, color="black", linewidth=0.4)
    ax.set(xlabel="printed gain over the reference, points", ylabel="our gain, points (90 % interval)")
    for axis, ticks in ((ax.xaxis, (0, 1, 2, 5, 10, 20)), (ax.yaxis, (-10, -5, -2, -1, 0, 1, 2, 5, 10, 20))):
        axis.axes.set(**{f"{axis.axis_name}scale": "symlog", f"{axis.axis_name}lim": (1.15 * ticks[0] - 0.3, 30)})
        axis.set_ticks(ticks, [str(tick).replace("-", "−") for tick in ticks])
        axis.minorticks_off()
    drawn.legend(loc="outside upper left", ncols=2, fontsize=9)
    return drawn


def skew() -> Any:
    """A row a method: gains over FedAvg by label skew, on natural clients and on those made like them."""
    known = [f for f in packaged() if f.source == "natural"]
    kinds = {  # what a name has: label, look
        " natural (": ("natural clients", {"marker": "o", "color": BLUE, "zorder": 3}),
        " dirichlet (alpha 0.1,": ("Dirichlet 0.1", {"marker": "D", "color": RED}),
        ", dir": ("Dirichlet, as skewed", {"marker": "o", "edgecolors": GREY, "facecolors": "none", "s": 60}),
    }
    drawn, axes = figure(7.4, 4, 2, sharex=True, sharey=True)
    shown = {"fedga": "FedGA", "fedla": "FedLA", "fedbal (strength 60)": "FedBal", "feddyn": "FedDyn"}
    for line, method in zip(axes, shown, strict=True):
        for ax, key in zip(line, ("accuracy", "fitted_accuracy"), strict=True):
            for one in known:
                label, look = next(told for word, told in kinds.items() if word in one.name)
                gain = 100 * one.gains[method][key].mean
                away = {"marker": "v", "clip_on": False} if gain < -14 else {}
                ax.scatter(one.descriptors["js_mean"], max(gain, -14), label=label, **{"s": 26, **look, **away})
            ax.axhline(0, color="black", linewidth=0.8)
            ax.set(xscale="log", ylim=(-14, 14))
            ax.grid(linewidth=0.3)
        line[0].set_ylabel(f"{shown[method]}, points")
    axes[0][0].set_title("raw", fontsize=11)
    axes[0][1].set_title("fitted", fontsize=11)
    drawn.supxlabel("label skew: mean Jensen-Shannon divergence, nats", fontsize=10)
    entries = dict(zip(*reversed(axes[0][1].get_legend_handles_labels()), strict=True))
    drawn.legend(entries.values(), entries.keys(), loc="outside upper left", ncols=3, fontsize=9)
    return drawn


def bench() -> Any:
    """Seconds of a round as multiples of fedskew's: other frameworks, and torch by hand without a framework."""
    others, found = {"flower": "D", "pfl": "s", "fluke": "^", "fedlab": "v"}, {}
    looks = {name: (mark, 6, canvas.COLOURS[place], name) for place, (name, mark) in enumerate(others.items())}
    looks |= dict.fromkeys(("loop", "hand", "pool", "vmap"), (".", 9, GREY, "torch without a framework"))
    for file in sorted((ROOT / "results/speed").glob("bench-*.jsonl")):
        rows = [row for row in map(json.loads, file.open(encoding="utf-8")) if "failed" not in row]
        by = defaultdict(list)
        for row in [row for row in rows if row["session"] >= "2026-11-23T04"] or rows:
            by[row["peer"].partition(" ")[0]].append(row["round_s"])
        found[file.stem.removeprefix("bench-")] = {name: statistics.median(each) for name, each in by.items()}
    drawn, ax = figure(4.2)
    for row, by in enumerate(found.values()):
        for name, (mark, ms, colour, label) in looks.items():
            if name in by:
                ax.plot(by[name] / by["fedskew"], row, mark, color=colour, ms=ms, label=label)
    ax.axvline(1, color="black", linewidth=0.8)
    ax.set_yticks(range(len(found)), [f"{name}\n{by['fedskew']:.2g} s" for name, by in found.items()], fontsize=9)
    ax.set(xscale="log", xlabel="seconds of a round, as a multiple of fedskew's", xlim=(0.3, 100))
    ax.set_xticks([0.5, 1, 2, 5, 10, 20, 50], ["0.5", "1", "2", "5", "10", "20", "50"])
    ax.minorticks_off()
    rowwise(ax)
    entries = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    drawn.legend(entries.values(), entries.keys(), loc="outside upper left", ncols=3, fontsize=9)
    return drawn


def rule() -> Any:
    """FedDyn's gain over FedAvg, both fitted, on every federation of the evidence by its label skew."""
    known = [f for f in packaged() if "feddyn" in f.gains]
    drawn, ax = figure(3.8)
    for place, data in enumerate(sorted({f.data for f in known})):
        mine = [f for f in known if f.data == data]
        x = [f.descriptors["js_mean"] / math.log(2) for f in mine]
        y = [100 * f.gains["feddyn"]["fitted_accuracy"].mean for f in mine]
        ax.scatter(x, y, s=26, label=data, color=canvas.colour(place), marker=canvas.MARKS[place % len(canvas.MARKS)])
    ax.axhline(0, color="black", linewidth=0.8)
    ax.axvline(0.3, color="black", linewidth=0.8, linestyle=":")
    ax.set(xlabel="label skew: js_mean / log 2", ylabel="gain of FedDyn over FedAvg,\nboth fitted, points")
    drawn.legend(loc="outside upper left", ncols=4, fontsize=8)
    return drawn


def balancers() -> Any:
    """The pieces of FedBal over plain training, as `Study.plot` draws them."""
    picture = figures.gains(compared("fedbal-parts"))
    assert picture is not None
    return drawing.figure_of(picture)


def noise() -> Any:
    """FedAvg's accuracy round by round, of one run on the digits, the mean of the last ten, and the best."""
    run = fs.run("digits", "fedavg", clients=20, cohort=5, rounds=20, epochs=5, batch_size=16)
    values = [100 * row["accuracy"] for row in run.rounds]
    at, mean, best = range(1, len(values) + 1), 100 * run.summary["mean10_accuracy"], max(values)
    drawn, ax = figure(3.4)
    ax.plot(at, values, color=BLUE, linewidth=1.2)
    ax.plot([at[-10], at[-1]], [mean, mean], color=RED, linewidth=3)
    ax.plot(1 + values.index(best), best, "o", color="#5c6066")
    for x, y, shift, name, colour in (
        (at[-1], mean, (10, -9 if mean < values[-1] else 9), f"mean10_accuracy\n{mean:.1f} %", RED),
        (at[-1], values[-1], (10, 9 if mean < values[-1] else -9), f"final_accuracy\n{values[-1]:.1f} %", BLUE),
        (1 + values.index(best), best, (-20, 24), f"best_accuracy {best:.1f} %,\nchosen on the test set", "#5c6066"),
    ):
        ax.annotate(name, (x, y), shift, textcoords="offset points", color=colour, fontsize=9, va="center",
                    annotation_clip=False)  # fmt: skip
    ax.set(xlabel="round", ylabel="accuracy of FedAvg, %", ylim=(0, 110), yticks=range(0, 101, 20), xticks=at[4::5])
    return drawn


def rare() -> Any:
    """Recall of the three rarest classes against epsilon, of the last model and fitted, of `RARE`."""
    found = compared(RARE)
    drawn, axes = figure(3.4, 1, 2, sharey=True)
    for ax, data in zip(axes, ("Fashion-MNIST", "MNIST"), strict=True):
        settings = [name for name in found.settings if name.startswith(data)]
        for method, colour in (("fedavg", GREY), ("fedga", RED), ("feddyn", BLUE)):
            for label, line in ((method, "o-"), (f"{method}, fitted", "s--")):
                each = [[ends_of(run)[0] for run in found.runs(label, setting)] for setting in settings]
                named = label.replace(method, NAMES.get(method, "FedAvg"))
                ax.errorbar(range(len(each)), list(map(statistics.fmean, each)), list(map(statistics.stdev, each)),
                            fmt=line, color=colour, ms=4, lw=1.2, capsize=2, label=named)  # fmt: skip
        frequent = [statistics.fmean(ends_of(run)[1] for run in found.runs("fedavg", setting)) for setting in settings]
        ax.plot(frequent, ":", color="black", lw=1.2, label="FedAvg, three most frequent classes")
        ax.set_xticks(range(len(settings)), [name.rpartition("epsilon ")[2].rpartition(", ")[2] for name in settings])
        ax.set(title=data, xlabel="epsilon")
        ax.grid(axis="y", linewidth=0.3)
    axes[0].set(ylabel="recall of the three rarest classes, %", ylim=(0, 100))
    drawn.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=9)
    return drawn


def rehearsed() -> Any:
    """The accuracy that was predicted for each hospital of Heart Disease, and what three seeds measured."""
    (heart,) = [one for one in json.loads(lzma.decompress(REHEARSED.read_bytes())) if one["label"] == "Heart Disease"]
    drawn, ax = figure(2.6)
    for row, site in enumerate(heart["predicted"][-1]["sites"]):
        ends = [100 * site["accuracy"][end] for end in ("low", "mean", "high")]
        real = [100 * seed["fedavg"]["accuracy"] for seed in heart["truth"][site["site"]].values()]
        named = row == 0
        ax.plot(ends[::2], [row, row], color="#c4c8ce", linewidth=8, label="predicted, 95 %" * named, zorder=1)
        ax.plot(ends[1], row, "|", color="black", ms=14, label="predicted mean" * named)
        ax.plot(real, [row] * len(real), "o", color=RED, ms=6, alpha=0.8, label="measured" * named)
    ax.set_yticks(range(len(heart["predicted"][-1]["sites"])), [s["site"] for s in heart["predicted"][-1]["sites"]])
    ax.set(xlabel="accuracy, %", xlim=(0, 102), ylim=(-0.6, len(heart["truth"]) - 0.4))  # off the legend
    rowwise(ax)
    drawn.legend(loc="outside upper left", ncols=3, fontsize=9)
    return drawn


def federation() -> Any:
    """Rows of each class at each client: the federation of the first run."""
    return fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.1), clients=20, seed=0).plot()


def decision() -> Any:
    """The decision curve of the page from a CSV to a decision, of the page's own code."""
    code = re.findall(r"^```python\n(.+?)^```", (ROOT / "docs/guide/decisions.md").read_text("utf-8"), re.M | re.S)
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        exec(code[0], {})
        fed = fs.federate("csv", "natural", path="patients.csv", y_column="outcome", columns="hospital",
                          categories="sex", validation=0.2)  # fmt: skip
    trained = fs.run(fed, "fedavg", model="logistic", rounds=20).trained
    threshold = trained.decide(fed, "recall@specificity=0.8", positive="ill").threshold
    ill = fed.dataset.label_names.index("ill")
    chance = trained.probabilities(fed.dataset.x_test, encoded=True)[:, ill]
    return decisions.decision_curve(fed.dataset.y_test == ill, chance, "ill", threshold)


def curves(study: str, settings: Mapping[str, str], methods: Mapping[str, str]) -> Any:
    """Accuracy over rounds, a panel a setting by its title: the mean of the seeds, and what lies between them."""
    found, wide = compared(study, "" if shipped(study) else "paper"), min(len(settings), 3)
    high = len(settings) // wide
    drawn, axes = figure(1.6 + 1.4 * high, high, wide, sharey=True, squeeze=False)
    for ax, (title, setting) in zip(axes.flat, settings.items(), strict=True):
        lines = [
            (label, place, curve_of(found.runs(method, setting), "accuracy"))
            for place, (method, label) in enumerate(methods.items())
        ]
        drawing.chart(ax, chart_of(lines, "rounds", "", "", times=100))
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("")
        ax.grid(axis="y", linewidth=0.3)
    drawn.supxlabel("round", fontsize=10)
    drawn.supylabel("accuracy, %", fontsize=10)
    drawn.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside upper left", ncols=3, fontsize=9)
    return drawn


def fedgr1() -> Any:
    """FedGR's figure 1: rows of each class at ten clients of CIFAR-10, darker where more, under three imbalances."""
    kinds = {"label": {"labels": 3, "exponent": 0.0}, "quantity": {"labels": 10}, "double": {"labels": 3}}
    drawn, axes = figure(2.6, 1, 3, sharey=True)
    for ax, (name, options) in zip(axes, kinds.items(), strict=True):
        fed = fs.federate("cifar10", fs.partitioners.Double(**options), clients=10, seed=0)
        ax.imshow(fed.counts.T, cmap="Blues", aspect="auto")
        ax.set(title=f"{name} imbalance", xlabel="client", xticks=range(0, 10, 3), yticks=range(0, 10, 3))
    axes[0].set_ylabel("class")
    return drawn


def fedgr4() -> Any:
    """FedGR's figure 4: accuracy over that of lambda 0, one seed at the small scale."""
    found = compared("fedgr-figure4", "small")
    values = {float(name.partition("=")[2]): name for name in found.methods}
    drawn, ax = figure(3.2)
    for place, setting in enumerate(found.settings):
        each = [100 * found.runs(values[x], setting)[0].summary["final_accuracy"] for x in sorted(values)]
        ax.plot(sorted(values), [y - each[0] for y in each], "o-", color=canvas.colour(place), label=setting)
    ax.axhline(0, color="black", linewidth=0.6)
    ax.set(xlabel="lambda", ylabel="over lambda 0, points", xticks=sorted(values))
    drawn.legend(loc="outside upper left", ncols=2, fontsize=9)
    return drawn


GA = {"FedAvg": "FedAvg", "FedGA": "FedGA"}
CURVES: dict[str, tuple[str, Mapping[str, str], Mapping[str, str]]] = {  # a study, settings by title, methods
    "seolkim-figure3": ("seolkim-case4", {"Case 4": "Case 4"},
                        {"proposed": "Seol-Kim", "FedAvg": "FedAvg", "client selection": "client selection alone"}),
    "fedga-figure4": ("fedga-table1-cifar10", {f"alpha {a}": f"alpha={a}" for a in (0.1, 10)}, GA),  # as far as run
    "fedga-figure7": ("fedga-figure7-mnist", {"alpha 0.05": "alpha=0.05"}, GA),  # SVHN is not at hand
    "fedla-figure5": ("fedla-labels47", {  # and 6
        f"{unique} unique, share {share}": f"model emnist_cnn, partition.unique_c {unique}, partition.noniid_s {share}"
        for unique, share in ((1, 0.3), (3, 0.3), (6, 0.3), (1, 0.1), (1, 0.5), (1, 0.7))
    }, {"uniform": "FedAvg, uniform", "fedla": "FedLA"}),
}  # fmt: skip
PICTURES: dict[str, Callable[[], Any]] = {
    "gains": gains, "printed": printed, "skew": skew, "bench": bench, "rule": rule, "balancers": balancers,
    "noise": noise, "rehearsed": rehearsed, "federation": federation, "decision": decision, "rare": rare,
    "paper-fedgr-figure1": fedgr1, "paper-fedgr-figure4": fedgr4,
    **{f"paper-{name}": partial(curves, *given) for name, given in CURVES.items()},
}  # fmt: skip


def write(folder: Path, names: Sequence[str] = tuple(PICTURES)) -> Iterator[Path]:
    """Draw them, in 256 colours: a third of the bytes, and nothing that one sees. Yields the files."""
    for name in names:
        with plt.rc_context(LOOK):
            file = canvas.save(PICTURES[name](), folder / f"{name}.png")
        with Image.open(file) as drawn:
            few = drawn.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        few.save(file, optimize=True)
        yield file


if __name__ == "__main__":
    for file in write(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "docs/pictures", sys.argv[2:] or tuple(PICTURES)):
        print(file)
