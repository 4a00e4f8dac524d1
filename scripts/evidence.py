"""Print the numbers that stand in the verdicts on the papers' claims, from the committed runs and the printed numbers.

python scripts/evidence.py
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from results import rows_of

from fedskew.studies.intervals import t_interval
from fedskew.studies.papers.found import HERE, Runs, cells
from fedskew.studies.papers.printed import printed
from fedskew.studies.papers.protocol import protocol
from fedskew.studies.targets import reach

RUNS = Runs.of(Path(__file__).parents[1] / HERE)
CURVES = "fedga-figure4-figure7"
GAINS = {  # study -> (method, the method that it is compared with)
    "fedga-table1-mnist": [("FedGA", "FedAvg"), ("FedNTD", "FedAvg"), ("CLIMB", "FedAvg"), ("FedRL", "FedAvg")],
    "fedga-table1-cifar10": [("FedGA", "FedAvg")],
    "seolkim-case4": [
        *((name, "FedAvg") for name in ("proposed", "client selection", "data sampling", "dynamic batch")),
        ("proposed", "FedNova"), ("proposed", "client selection"), ("proposed, a quarter willing", "FedAvg"),
        ("client selection, a quarter willing", "FedAvg"), ("proposed, a quarter willing", "proposed"),
    ],
}  # fmt: skip


def federations() -> None:
    """Points of each system over FedAvg and over FedAvg with uniform weights: means over the sixteen federations."""
    over("federations", ("fedbal", "fedga", "seolkim", "fedgr", "fedla", "feddyn"), ("fedavg", "control"))


def cross() -> None:
    """The same on the papers' protocols, and points of the compositions over the best single method."""
    composed = ("FedGA + FedDyn", "FedGA + FedDyn + FedLA", "FedGA + FedLA", "FedGA + FedLA + KLD selection")
    over("cross", ("fedbal", "fedga", "seolkim", "fedgr", "fedla", "feddyn", *composed), ("fedavg", "control"))
    over("cross", composed, ("feddyn", "fedga"))


def over(study: str, names: Sequence[str], bases: Sequence[str]) -> None:
    """Means over the settings of a study of the difference to a base, with 95 % t intervals over settings."""
    scores: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows_of(study, Path(__file__).parents[1] / "results/studies"):
        if row["state"] == "finished":
            scores[row["setting"]][row["label"]][row["seed"]] = 100 * row["mean10_accuracy"]
    for name in names:
        for base in bases:
            each = [
                statistics.fmean(by[name][s] - by[base][s] for s in by[name] if s in by[base]) for by in scores.values()
            ]
            low, high = t_interval(np.array(each)) or (float("nan"),) * 2
            above = sum(v > 0 for v in each)
            told = f"{statistics.fmean(each):+.1f} ({low:.1f} to {high:.1f}), above 0 in {above} of {len(each)}"
            print(f"{study}: {name} less {base}: {told}")


def gains(study: str) -> None:
    """Points of one method over another, paired by seed, with a 95 % t interval."""
    held = cells(protocol(study), "paper", RUNS)
    for one, other in GAINS[study]:
        for setting in protocol(study).spec.names:
            first, second = (held.entries.get((name, setting), {}) for name in (one, other))
            seeds = sorted(set(first) & set(second))
            told = []
            for metric in ("final_accuracy", "mean10_accuracy", "best_accuracy", "total_samples"):
                factor = 100 if metric.endswith("accuracy") else 1
                each = [factor * (e[0] - e[1]) for s in seeds if None not in (e := _both(first[s], second[s], metric))]
                told += [f"{metric} {_shown(np.array(each))}"] if each else []
            if told:
                print(f"{study}, {setting}: {one} less {other} ({len(seeds)} seeds): {'; '.join(told)}")


def _both(one, other, metric: str) -> tuple[float | None, float | None]:
    return one.summary.get(metric), other.summary.get(metric)


def _shown(each: np.ndarray) -> str:
    ends = t_interval(each) if len(each) > 1 else None
    return f"{each.mean():+.2f}" + (f" ({ends[0]:+.2f} to {ends[1]:+.2f})" if ends else "")


def faster() -> None:
    """First round of each seed with a target, FedGA's and FedAvg's."""
    held = cells(protocol(CURVES), "paper", RUNS)
    for target in (0.8, 0.85, 0.88, 0.9):
        for name in ("FedGA", "FedAvg"):
            runs = held.entries[name, "alpha=0.05"]
            found = [reach(runs[seed].rows, target) for seed in sorted(runs)]
            print(f"{CURVES}, alpha=0.05, to {target}: {name} {[f.rounds if f.reached else None for f in found]}")


def from_the_papers() -> None:
    """FedLA less FedAvg in the published logs, by participation; cells of FedGA's Table 1 where another is first."""
    logs = defaultdict(dict)
    for p in printed():
        if (p.paper, p.table) == ("FedLA", "logs") and not p.setting.startswith("iid"):
            logs[p.dataset, p.setting][p.method] = p.mean
    shares = defaultdict(list)
    for (dataset, setting), found in logs.items():
        shares[dataset, setting.rpartition(", ")[2]].append(found["FedLA"] - found["FedAvg(uniform)"])
    for (dataset, share), each in sorted(shares.items()):
        above = sum(x > 0 for x in each)
        print(f"FedLA's logs, {dataset}, {share}: {statistics.fmean(each):+.2f} points, {above} of {len(each)} above 0")
    table = defaultdict(dict)
    for p in printed():
        if p.paper == "FedGA":
            table[p.dataset, p.setting, p.metric][p.method] = p.mean
    beaten = sum(cell["FedGA"] <= max(v for name, v in cell.items() if name != "FedGA") for cell in table.values())
    print(f"FedGA's Table 1 as printed: FedGA is not strictly first in {beaten} of {len(table)} cells")


if __name__ == "__main__":
    for name in GAINS:
        gains(name)
    federations()
    cross()
    faster()
    from_the_papers()
