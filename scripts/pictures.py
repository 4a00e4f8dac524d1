"""Draws the pictures of the README and of docs/findings.md from the recorded runs.

python scripts/pictures.py           writes docs/pictures/gains.png, skew.png and printed.png

gains: each system less FedAvg on six federations, raw and fitted (results/studies/five-systems.jsonl). skew: the same
over the label skew of natural and made clients (results/studies/natural.jsonl, and the skew of notes/natural.md).
printed: our gains over the printed ones (results/ledger.csv).
"""

from __future__ import annotations

import csv
import statistics
import textwrap
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
from natural import ARCHIVE, KINDS, PAGE, runs
from results import ROOT, rows_of

from fedskew.studies.differences import differences
from fedskew.studies.scores import WITHIN, Scores

SYSTEMS = {
    "feddyn": "FedDyn",
    "fedbal": "FedBal",
    "fedga": "FedGA",
    "seolkim": "Seol-Kim",
    "fedla": "FedLA",
    "fedgr": "FedGR",
}
METRICS = {"raw": "mean10_accuracy", "fitted": "mean10_fitted_accuracy"}
RED, BLUE, GREY = "#d1495b", "#1b6ca8", "#8a8f98"
COLOURS = {"raw": RED, "fitted": BLUE}
FLOOR = -14  # points; an arrow stands for what lies below


def gains() -> Any:
    """A column a federation and a row a system: the mean gain of five seeds and its interval at Holm's level."""
    rows = rows_of("five-systems", ROOT / "results/studies")
    places = list(dict.fromkeys(row["setting"] for row in rows))
    figure, axes = plt.subplots(1, len(places), figsize=(12, 3.7), sharey=True, sharex=True, layout="constrained")
    for column, (ax, place) in enumerate(zip(axes, places, strict=True)):
        for kind, metric in METRICS.items():
            here = Scores.of((r["label"], place, r["seed"], r[metric]) for r in rows if r["setting"] == place)
            of = {gain.method: gain for gain in differences(here, "fedavg")}
            for row, name in enumerate(SYSTEMS):
                centre, low, high = (100 * (x or 0) for x in (of[name].mean, of[name].low, of[name].high))
                at = row + (0.15 if kind == "fitted" else -0.15)
                if centre < FLOOR:
                    _below(ax, centre, at, COLOURS[kind])
                    continue
                if low < FLOOR:
                    ax.plot(FLOOR, at, marker="<", ms=4, color=COLOURS[kind], clip_on=False)
                label = kind if row == column == 0 else None
                ax.errorbar(centre, at, xerr=[[centre - low], [high - centre]], fmt="o", ms=4, color=COLOURS[kind],
                            capsize=2, label=label)  # fmt: skip
        ax.axvline(0, color="black", linewidth=0.8)
        source, _, what = place.partition(": ")
        ax.set_title(textwrap.fill(f"as in {source}'s paper: {what} clients a round", 24), fontsize=8)
        ax.set_xlim(FLOOR, 14)
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x", linewidth=0.3)
    axes[0].set_yticks(range(len(SYSTEMS)), SYSTEMS.values())
    axes[0].invert_yaxis()
    figure.supxlabel(
        "accuracy in points: raw over raw FedAvg, fitted over fitted FedAvg (mean of five seeds, 95 % at Holm's "
        f"levels; arrows: below {FLOOR})",
        fontsize=9,
    )
    figure.legend(loc="outside upper left", ncols=2, frameon=False, fontsize=9)
    return figure


def _below(ax: Any, centre: float, at: float, colour: str) -> None:
    arrow = {"arrowstyle": "->", "color": colour}
    where = {"xy": (FLOOR, at), "xytext": (FLOOR + 3, at), "va": "center", "fontsize": 7}
    ax.annotate(f"{centre:.0f}", color=colour, arrowprops=arrow, **where)


def skew() -> Any:
    """A column a method: its gain over FedAvg by the divergence of clients' labels; raw above fitted."""
    names = {"fedga": "FedGA", "fedla": "FedLA", "fedbal": "FedBal", "feddyn": "FedDyn"}
    divergence = {}
    for line in PAGE.read_text(encoding="utf-8").split("<!-- skew -->")[1].split("<!-- end -->")[0].splitlines()[3:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        divergence[cells[0].split(" (alpha")[0]] = float(cells[2])
    scores: dict[tuple[str, str, str], dict[int, float]] = defaultdict(dict)
    for method, setting, seed, summary in runs(ARCHIVE):
        for kind, metric in METRICS.items():
            scores[kind, method, setting][seed] = 100 * summary[metric]
    matched = {"fmt": "o", "ms": 7, "mfc": "none", "color": GREY, "label": "Dirichlet, as skewed as natural clients"}
    marks = {
        KINDS[1]: matched, KINDS[2]: matched,
        KINDS[0]: {"fmt": "o", "ms": 4, "color": BLUE, "label": "natural clients"},
        KINDS[3]: {"fmt": "D", "ms": 4, "color": RED, "label": "Dirichlet 0.1"},
    }  # fmt: skip
    shape = len(METRICS), len(names)
    figure, axes = plt.subplots(*shape, figsize=(12, 5.6), sharex=True, sharey=True, layout="constrained")
    for row, kind in zip(axes, METRICS, strict=True):
        for ax, method in zip(row, names, strict=True):
            for group, mark in marks.items():
                for setting in (s for s in divergence if s.endswith(f", {group}")):
                    mine, base = scores[kind, method, setting], scores[kind, "fedavg", setting]
                    each = [mine[seed] - base[seed] for seed in mine if seed in base]
                    middle, x = statistics.fmean(each), divergence[setting]
                    if middle < FLOOR:
                        ax.plot(x, FLOOR, marker="v", ms=5, color=mark["color"], clip_on=False)
                        continue
                    ends = [[max(0, middle - min(each))], [max(0, max(each) - middle)]]
                    ax.errorbar(x, middle, yerr=ends, linewidth=1, **mark)
            ax.axhline(0, color="black", linewidth=0.8)
            ax.set(xscale="log", ylim=(FLOOR, 14))
            ax.spines[["top", "right"]].set_visible(False)
            ax.grid(linewidth=0.3)
        row[0].set_ylabel(f"points over FedAvg, {kind}")
    for ax, name in zip(axes[0], names.values(), strict=True):
        ax.set_title(name)
    figure.supxlabel(
        "mean Jensen-Shannon divergence of a client's labels to all rows, nats (accuracy, three seeds: mean, least, "
        f"greatest; a triangle lies below {FLOOR})",
        fontsize=9,
    )
    entries = dict(zip(*reversed(axes[0][0].get_legend_handles_labels()), strict=True))
    figure.legend(entries.values(), entries.keys(), loc="outside upper left", ncols=3, frameon=False, fontsize=9)
    return figure


def printed() -> Any:
    """A point for each printed gain in accuracy that has five seeds here, with the 90 % interval of the difference."""
    with (ROOT / "results/ledger.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["gain"] and row["gain_printed"]]
    rows = [
        row
        for row in rows
        if "accuracy" in row["metric"] and row["state"] in ("agrees", "differs", "not resolved", WITHIN)
    ]
    groups: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        other = row["paper"] == "FedGA" != row["method"]
        name = ("FedRL" if row["method"] == "FedRL" else "other methods") + " in FedGA's table"
        groups[name if other else f"{row['paper']}, {row['dataset']}"].append(row)
    colours = {
        "FedGA, MNIST": BLUE,
        "FedGA, CIFAR-10": "#7fb3d5",
        "Seol-Kim, MNIST": RED,
        "FedRL in FedGA's table": "#b0892f",
    }
    whole = (min(float(r["gain_printed"]) for r in rows) - 1, max(float(r["gain_printed"]) for r in rows) + 1)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.8), layout="constrained")
    for ax in axes:
        for label, mine in sorted(groups.items(), key=lambda group: group[0] in colours):
            x, y = ([float(row[key]) for row in mine] for key in ("gain_printed", "gain"))
            low, high = (
                [float(row[key]) + float(row["gain_printed"]) for row in mine] for key in ("apart_low", "apart_high")
            )
            ends = [[a - b for a, b in zip(y, low, strict=True)], [b - a for a, b in zip(y, high, strict=True)]]
            colour = colours.get(label, GREY)
            ax.errorbar(x, y, yerr=ends, fmt="o", ms=5, color=colour, linewidth=1, label=f"{label}: {len(mine)}")
        ax.plot(whole, whole, color="black", linewidth=0.8, label="ours = printed")
        band = ([e - 1 for e in whole], [e + 1 for e in whole])
        ax.fill_between(whole, *band, color=GREY, alpha=0.2, linewidth=0, label="within a point")
        ax.axhline(0, color="black", linewidth=0.4)
        ax.set(xlabel="printed gain over the reference, points")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set(ylabel="our gain, points (90 % interval)", title="all")
    axes[1].set(xlim=(-0.5, 5.2), ylim=(-3.5, 5.2), title="printed gains below 5 points")
    axes[0].legend(frameon=False, fontsize=9, loc="upper left")
    return figure


PICTURES: tuple[Callable[[], Any], ...] = (gains, skew, printed)

if __name__ == "__main__":
    for picture in PICTURES:
        picture().savefig(ROOT / f"docs/pictures/{picture.__name__}.png", dpi=130)
