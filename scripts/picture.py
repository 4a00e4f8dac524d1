"""Draws the picture of the README: the gain of each system over FedAvg, raw and fitted, from the recorded runs.

python scripts/picture.py            writes docs/pictures/gains.png from results/studies/five-systems.jsonl
"""

from __future__ import annotations

import textwrap

import matplotlib.pyplot as plt
from results import ROOT, rows_of

from fedskew.studies.differences import differences
from fedskew.studies.scores import Scores

SYSTEMS = {"fedbal": "FedBal", "fedga": "FedGA", "seolkim": "Seol-Kim", "fedla": "FedLA", "fedgr": "FedGR"}
METRICS = {"raw": "mean10_accuracy", "fitted": "mean10_fitted_accuracy"}
COLOURS = {"raw": "#d1495b", "fitted": "#1b6ca8"}
FLOOR = -14  # points; an arrow stands for what lies below


def main() -> None:
    """Draws a column a federation and a row a system: the mean gain of five seeds and its 95 % t interval."""
    rows = rows_of("five-systems", ROOT / "results/studies")
    places = list(dict.fromkeys(row["setting"] for row in rows))
    figure, axes = plt.subplots(1, len(places), figsize=(12, 3.4), sharey=True, sharex=True, layout="constrained")
    for column, (ax, place) in enumerate(zip(axes, places, strict=True)):
        for kind, metric in METRICS.items():
            here = Scores.of((r["label"], place, r["seed"], r[metric]) for r in rows if r["setting"] == place)
            gains = {gain.method: gain for gain in differences(here, "fedavg")}
            for row, name in enumerate(SYSTEMS):
                centre, low, high = (100 * (x or 0) for x in (gains[name].mean, gains[name].low, gains[name].high))
                at = row + (0.15 if kind == "fitted" else -0.15)
                if centre < FLOOR:
                    arrow = {"arrowstyle": "->", "color": COLOURS[kind]}
                    where = {"xy": (FLOOR, at), "xytext": (FLOOR + 3, at), "va": "center", "fontsize": 7}
                    ax.annotate(f"{centre:.0f}", color=COLOURS[kind], arrowprops=arrow, **where)
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
    figure.savefig(ROOT / "docs/pictures/gains.png", dpi=130)


if __name__ == "__main__":
    main()
