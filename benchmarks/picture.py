"""Seconds a round of every peer, one panel a workload, from the last session of each results file.

python benchmarks/picture.py results/bench-*.jsonl --out docs/pictures/bench.png
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


def main() -> None:
    """Write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("docs/pictures/bench.png"))
    args = parser.parse_args()
    figure, axes = plt.subplots(1, len(args.files), figsize=(4.2 * len(args.files), 2.8), squeeze=False, dpi=110)
    for one, path in zip(axes[0], args.files, strict=True):
        panel(one, last(path))
    axes[0][0].set_xlabel("seconds a round (median; line: fastest to slowest round)", fontsize=8)
    figure.tight_layout()
    figure.savefig(args.out)
    print(args.out)


if __name__ == "__main__":
    main()
