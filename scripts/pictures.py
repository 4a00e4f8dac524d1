"""Draws docs/pictures/gains.png from the archive of `five-systems`.

PYTHONPATH=scripts python scripts/pictures.py

Each method of `five-systems` over FedAvg: raw, and where both models are averaged and fitted. A dot is the mean over
the federations, a tick one of them. At the right: in how many federations the gain is the method's own.
"""

from __future__ import annotations

import statistics
import sys
from itertools import chain
from pathlib import Path

import matplotlib.pyplot as plt
from results import ROOT, compared

from fedskew.report.compared import Compared
from fedskew.report.controls import Controlled, controlled
from fedskew.studies.verdicts import OWN, RAW

NAMES = {
    "scaffold": "SCAFFOLD", "feddyn": "FedDyn", "fedadagrad": "FedAdagrad", "ccvr": "CCVR", "seolkim": "Seol-Kim",
    "fedga": "FedGA", "fedla": "FedLA", "fedbal, strength 1": "FedBal", "fedgr, weight": "FedGR",
}  # fmt: skip
MODELS = {RAW: ("as trained", "#d1495b"), "both": ("both averaged and fitted", "#1b6ca8")}
FLOOR = -4.0  # points; an arrow stands for what lies below


def gains(found: Compared) -> plt.Figure:
    """A row for each method, the largest gain that is left above."""
    by: dict[str, list[Controlled]] = {}
    for one in chain.from_iterable(controlled(found, setting) for setting in found.settings):
        by.setdefault(one.method, []).append(one)
    values = {
        (method, model): [100 * one.of[model].mean for one in by[method] if model in one.of]
        for method in NAMES
        for model in MODELS
    }
    order = sorted(NAMES, key=lambda method: statistics.fmean(values[method, "both"]))
    figure, ax = plt.subplots(figsize=(8.7, 4.4), dpi=100, layout="constrained")
    for row, method in enumerate(order):
        means = [max(FLOOR, statistics.fmean(values[method, model])) for model in MODELS]
        ax.plot(means, [row, row], color="#c4c8ce", linewidth=3, zorder=1)
        for place, (model, (label, colour)) in enumerate(MODELS.items()):
            each = values[method, model]
            at = row + (0.22 if place == 0 else -0.22)
            ax.plot([x for x in each if x >= FLOOR], [at] * sum(x >= FLOOR for x in each), "|", color=colour, ms=7)
            if low := [x for x in each if x < FLOOR]:
                ax.plot([FLOOR] * len(low), [at] * len(low), "<", color=colour, ms=5, clip_on=False)
            named = {"label": label} if row == 0 else {}
            ax.plot(means[place], row, "o", color=colour, ms=10, zorder=3 - place, **named)
        own = sum(one.verdict == OWN for one in by[method])
        ax.annotate(f"{own} of {len(by[method])}", (1.02, row), xycoords=("axes fraction", "data"), va="center")
    ax.annotate("its own in", (1.02, len(order) - 0.3), xycoords=("axes fraction", "data"), va="bottom", fontsize=10)
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_yticks(range(len(order)), [NAMES[method] for method in order], fontsize=12)
    ax.set_xlim(FLOOR, None)
    ax.set_xlabel("points of accuracy over FedAvg", fontsize=11)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", linewidth=0.3)
    figure.legend(loc="outside upper left", ncols=2, frameon=False, fontsize=11)
    return figure


def main() -> int:
    """Draw it."""
    file = ROOT / "docs/pictures/gains.png"
    gains(compared("five-systems", Path(ROOT / "results/studies"))).savefig(file, metadata={"Software": None})
    return 0


if __name__ == "__main__":
    sys.exit(main())
