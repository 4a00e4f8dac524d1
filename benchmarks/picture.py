"""Seconds a round of every peer, one panel a workload, from the last session of each results file; growth curves.

python benchmarks/picture.py results/speed/bench-*.jsonl --out docs/pictures/bench.png
python benchmarks/picture.py results/scaling/curves.jsonl --out docs/pictures/curves.png
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

Row = dict[str, Any]
COLOURS = {"fedskew": "#1b6ca8", "floor": "#9aa5ad", "peer": "#d98032"}


def last(path: Path) -> list[Row]:
    """Good rows of the file's last session."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    session = max(row["session"] for row in rows)
    return [row for row in rows if row["session"] == session and "failed" not in row]


def panel(axes: Any, rows: list[Row]) -> None:
    """Bars of medians with the range of all rounds, fastest at the top."""
    by: dict[str, list[Row]] = {}
    for row in rows:
        by.setdefault(row["peer"], []).append(row)
    order = sorted(by, key=lambda name: -median(r["round_s"] for r in by[name]))
    limit = 1.25 * max(median(r["round_s"] for r in runs) for runs in by.values())
    for y, name in enumerate(order):
        runs = by[name]
        value = median(r["round_s"] for r in runs)
        low, high = min(r["round_min_s"] for r in runs), max(r["round_max_s"] for r in runs)
        kind = "fedskew" if name.startswith("fedskew") else "floor" if runs[0]["floor"] else "peer"
        axes.barh(y, value, color=COLOURS[kind], height=0.6)
        axes.plot([low, min(high, limit)], [y, y], color="black", linewidth=0.8)
        axes.text(min(high, limit) + 0.02 * limit, y, f"{value:.3g} s", va="center", fontsize=8)
    axes.set_yticks(range(len(order)), [n.removesuffix(" auto") for n in order], fontsize=8)
    axes.set_xlim(0, 1.25 * limit)
    axes.set_title(rows[0]["workload"], fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def growth(axes: Any, curve: str, rows: list[Row]) -> None:
    """Milliseconds of a round and of its parts over what grows, both logarithmic, and peak memory."""
    at = [int(row["value"]) for row in rows]
    parts = {"round": "wall_s", "training": "train_s", "evaluation": "evaluate_s"}
    for (name, stage), mark in zip(parts.items(), "os^", strict=True):
        axes.plot(at, [1e3 * row[stage] for row in rows], marker=mark, markersize=4, label=f"{name}, ms")
    ends = [1e3 * (row["select_s"] + row["aggregate_s"] + row["record_s"]) for row in rows]
    axes.plot(at, ends, marker="v", markersize=4, label="all else, ms")
    axes.plot(at, [row["peak_mb"] for row in rows], color="black", linestyle=":", label="peak memory, MB")
    axes.set(xscale="log", yscale="log")
    axes.set_xlabel({"model": "hidden units of the MLP"}.get(curve, curve), fontsize=8)
    axes.tick_params(labelsize=8)
    axes.grid(True, color="0.9")


def costs(axes: Any, rows: list[Row]) -> None:
    """Seconds of a round of each method over FedAvg's."""
    rows = sorted(rows, key=lambda row: -row["x_fedavg"])
    for y, row in enumerate(rows):
        axes.barh(y, row["x_fedavg"], color=COLOURS["fedskew"], height=0.7)
        axes.text(row["x_fedavg"] + 0.05, y, f"{row['x_fedavg']:.2f}", va="center", fontsize=7)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [row["value"] for row in rows], fontsize=7)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel("seconds a round over FedAvg's, without evaluation", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def curves(plt: Any, rows: list[Row]) -> Any:
    """A panel a growth curve, and the methods' costs below."""
    by: dict[str, list[Row]] = {}
    for row in rows:
        by.setdefault(row["curve"], []).append(row)
    methods = by.pop("methods", [])
    low = 0.17 * len(methods)
    figure = plt.figure(figsize=(12.6, 3.2 + low), dpi=110)
    grid = figure.add_gridspec(1 + bool(methods), max(len(by), 1), height_ratios=[3.2, low] if methods else [1])
    for i, (curve, mine) in enumerate(by.items()):
        axes = figure.add_subplot(grid[0, i])
        growth(axes, curve, mine)
        if i == 0:
            axes.legend(fontsize=7, frameon=False, loc=(0.02, 0.37))
    if methods:
        costs(figure.add_subplot(grid[1, :]), methods)
    return figure


def bars(plt: Any, tables: list[list[Row]]) -> Any:
    """Three panels a line."""
    columns = min(3, len(tables))
    lines = -(-len(tables) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(4.2 * columns, 2.8 * lines), squeeze=False, dpi=110)
    for one, rows in zip(axes.flat, tables, strict=False):
        panel(one, rows)
    for one in axes.flat[len(tables) :]:
        one.set_axis_off()
    axes[-1][0].set_xlabel("seconds a round (median; line: fastest to slowest round)", fontsize=8)
    return figure


def main() -> None:
    """Write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("docs/pictures/bench.png"))
    args = parser.parse_args()
    tables = [last(path) for path in args.files]
    figure = curves(plt, tables[0]) if "curve" in tables[0][0] else bars(plt, tables)
    figure.tight_layout()
    figure.savefig(args.out)
    print(args.out)


if __name__ == "__main__":
    main()
