"""Draws the pictures of the README and of docs/findings.md from the recorded runs.

python scripts/pictures.py           writes docs/pictures/gains.png, skew.png and printed.png

gains: each system less FedAvg on six federations, raw and fitted (results/studies/five-systems.jsonl). skew: gains over
the label skew of natural and made clients (results/studies/natural.jsonl, and the skew of notes/natural.md). printed:
our gains over the printed ones (results/ledger.csv).
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
from fedskew.studies.scores import Scores

SYSTEMS = {"fedbal": "FedBal", "fedga": "FedGA", "seolkim": "Seol-Kim", "fedla": "FedLA", "fedgr": "FedGR"}
METRICS = {"raw": "mean10_accuracy", "fitted": "mean10_fitted_accuracy"}
RED, BLUE, GREY = "#d1495b", "#1b6ca8", "#8a8f98"
COLOURS = {"raw": RED, "fitted": BLUE}
FLOOR = -14  # points; an arrow stands for what lies below


def gains() -> Any:
    """A column a federation and a row a system: the mean gain of five seeds and its 95 % t interval."""
    rows = rows_of("five-systems", ROOT / "results/studies")
    places = list(dict.fromkeys(row["setting"] for row in rows))
    figure, axes = plt.subplots(1, len(places), figsize=(12, 3.4), sharey=True, sharex=True, layout="constrained")
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
        "accuracy in points: raw over raw FedAvg, fitted over fitted FedAvg (mean of five seeds, 95 % interval)",
        fontsize=9,
    )
    figure.legend(loc="outside upper left", ncols=2, frameon=False, fontsize=9)
    return figure


def _below(ax: Any, centre: float, at: float, colour: str) -> None:
    arrow = {"arrowstyle": "->", "color": colour}
    where = {"xy": (FLOOR, at), "xytext": (FLOOR + 3, at), "va": "center", "fontsize": 7}
    ax.annotate(f"{centre:.0f}", color=colour, arrowprops=arrow, **where)


def skew() -> Any:
    """A panel a method: its gain over FedAvg by the divergence of the clients' labels, natural clients filled."""
    names = {"fedga": "FedGA", "fedla": "FedLA", "fedbal": "FedBal", "feddyn": "FedDyn"}
    divergence = {}
    for line in PAGE.read_text(encoding="utf-8").split("<!-- skew -->")[1].split("<!-- end -->")[0].splitlines()[3:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        divergence[cells[0].split(" (alpha")[0]] = float(cells[2])
    scores: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for method, setting, seed, summary in runs(ARCHIVE):
        scores[method, setting][seed] = 100 * summary["mean10_accuracy"]
    figure, axes = plt.subplots(1, len(names), figsize=(12, 3.2), sharex=True, sharey=True, layout="constrained")
    for ax, (method, name) in zip(axes, names.items(), strict=True):
        for kind, colour in sorted(zip(KINDS, (BLUE, GREY, GREY, RED), strict=True), key=lambda pair: pair[1] != GREY):
            for setting in (s for s in divergence if s.endswith(f", {kind}")):
                mine, base = scores[method, setting], scores["fedavg", setting]
                each = [mine[seed] - base[seed] for seed in mine if seed in base]
                middle = statistics.fmean(each)
                ends = [[max(0, middle - min(each))], [max(0, max(each) - middle)]]
                label = {
                    "natural": "natural clients",
                    KINDS[1]: "made, as skewed as the natural ones",
                    KINDS[3]: KINDS[3],
                }
                shown = label.get(kind) if setting.startswith("Adult") and method == "fedga" else None
                if middle < FLOOR:
                    ax.annotate(f"{middle:.0f}" * (colour != GREY), color=colour, ha="center", fontsize=7,
                                xy=(divergence[setting], FLOOR), xytext=(divergence[setting], FLOOR + 2.5),
                                arrowprops={"arrowstyle": "->", "color": colour})  # fmt: skip
                    continue
                ax.errorbar(
                    divergence[setting], middle, yerr=ends, fmt="o", ms=5, color=colour, linewidth=1, label=shown
                )
        ax.axhline(0, color="black", linewidth=0.8)
        ax.set(xscale="log", title=name, ylim=(FLOOR, 14))
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(linewidth=0.3)
    axes[0].set_ylabel("points over FedAvg")
    figure.supxlabel(
        "mean Jensen-Shannon divergence of a client's labels to all rows, nats (three seeds: mean, least, greatest)",
        fontsize=9,
    )
    figure.legend(loc="outside upper left", ncols=3, frameon=False, fontsize=9)
    return figure


def printed() -> Any:
    """A point for each printed gain in accuracy that has five seeds here, with the 90 % interval of the difference."""
    figure, ax = plt.subplots(figsize=(5.6, 5.2), layout="constrained")
    with (ROOT / "results/ledger.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["gain"] and row["gain_printed"]]
    rows = [
        row for row in rows if "accuracy" in row["metric"] and row["state"] in ("agrees", "differs", "not resolved")
    ]
    for paper, colour in (("FedGA", BLUE), ("Seol-Kim", RED), ("FedGR", GREY), ("FedBal", GREY)):
        mine = [row for row in rows if row["paper"] == paper]
        if not mine:
            continue
        x, y = ([float(row[key]) for row in mine] for key in ("gain_printed", "gain"))
        low, high = (
            [float(row[key]) + float(row["gain_printed"]) for row in mine] for key in ("apart_low", "apart_high")
        )
        ends = [[a - b for a, b in zip(y, low, strict=True)], [b - a for a, b in zip(y, high, strict=True)]]
        ax.errorbar(x, y, yerr=ends, fmt="o", ms=5, color=colour, linewidth=1, label=f"{paper}: {len(mine)} gains")
    ends = (min(float(r["gain_printed"]) for r in rows) - 1, max(float(r["gain_printed"]) for r in rows) + 1)
    ax.plot(ends, ends, color="black", linewidth=0.8)
    ax.fill_between(
        ends, [e - 1 for e in ends], [e + 1 for e in ends], color=GREY, alpha=0.2, linewidth=0, label="within a point"
    )
    ax.axhline(0, color="black", linewidth=0.4)
    ax.set(xlabel="printed gain over the reference, points", ylabel="ours, points (90 % interval)")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    return figure


PICTURES: tuple[Callable[[], Any], ...] = (gains, skew, printed)

if __name__ == "__main__":
    for picture in PICTURES:
        picture().savefig(ROOT / f"docs/pictures/{picture.__name__}.png", dpi=130)
