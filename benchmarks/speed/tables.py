"""The table of one workload: medians, spread, ratios against fedskew and against the floor."""

from __future__ import annotations

import statistics
from typing import Any

Row = dict[str, Any]
HEAD = "| | runs | s a round | lowest to highest | x fedskew | x floor | MB | startup s | first s | all s | accuracy |"


def table(rows: list[Row]) -> str:
    """Markdown: the last session in ``rows``; fastest first, failures last."""
    last = max(row["session"] for row in rows)
    rows = [row for row in rows if row["session"] == last]
    by: dict[str, list[Row]] = {}
    for row in (row for row in rows if "failed" not in row):
        by.setdefault(row["peer"], []).append(row)
    medians = {name: _median(runs, "round_s") for name, runs in by.items()}
    floor = min((medians[name] for name, runs in by.items() if runs[0]["floor"]), default=None)
    own = next((row["peer"] for row in rows if row["peer"].startswith("fedskew ")), "")
    lines = [_title(rows), "", HEAD, "|---|" + "---:|" * 10]
    for name in sorted(by, key=lambda n: medians[n]):
        lines.append(_line(name, by[name], medians[name], _ratios(by[name], by.get(own, [])), floor))
    lines += [f"| {row['peer']} | failed: {row['failed']} |" + " |" * 9 for row in rows if "failed" in row]
    return "\n".join(lines)


def _title(rows: list[Row]) -> str:
    first, loads = rows[0], [row["load_before"] for row in rows]
    return (
        f"**{first['workload']}**, {first['session']}, commit {first['commit']}, "
        f"{first['cores']} x {first['machine']}, load before a run {statistics.median(loads):.1f} "
        f"({min(loads):.1f} to {max(loads):.1f}); x fedskew above 1: fedskew is faster"
    )


def _median(rows: list[Row], key: str) -> float:
    return statistics.median(row[key] for row in rows)


def _ratios(runs: list[Row], own: list[Row]) -> list[float]:
    """Seconds a round over those of the fedskew run of the same pair."""
    reference = {(row["repeat"], row.get("place")): row["round_s"] for row in own}
    pairs = [(row["round_s"], reference.get((row["repeat"], row.get("place")))) for row in runs]
    return [mine / other for mine, other in pairs if other]


def _line(name: str, runs: list[Row], median: float, ratios: list[float], floor: float | None) -> str:
    spread = f"{min(r['round_min_s'] for r in runs):.3f} to {max(r['round_max_s'] for r in runs):.3f}"
    engines = sorted({r["engine"] for r in runs if "engine" in r} - {name.removeprefix("fedskew ")})
    cells = [
        name + (f" ({', '.join(engines)})" if engines else ""),
        len(runs),
        f"{median:.3f}",
        spread,
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else "",
        f"{median / floor:.2f}" if floor else "",
        f"{_median(runs, 'peak_mb'):.0f}",
        f"{_median(runs, 'startup_s'):.1f}",
        f"{_median(runs, 'first_round_s'):.1f}" if all("first_round_s" in run for run in runs) else "",
        f"{_median(runs, 'total_s'):.1f}" if all("total_s" in run for run in runs) else "",
        f"{_median(runs, 'accuracy'):.3f}",
    ]
    return "| " + " | ".join(map(str, cells)) + " |"
