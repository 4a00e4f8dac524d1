"""A/A studies: FedAvg against itself under other seeds. A test of a difference at 5 % should find one in 5 % of them.

python benchmarks/accuracy/aa.py          trains what is missing of 8,000 short runs on the digits: 12 minutes of a core
python benchmarks/accuracy/aa.py --table  what the tests find in the recorded runs, and how often intervals cover

Two runs of a pair share the federation (the seed of the partition), as two methods of a study do, and have different
seeds for everything else. Each study of ten pairs has runs of its own, so the outcomes of the studies are independent.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import fedskew as fs
from fedskew import rng
from fedskew.data.sources.table import load

sys.path.insert(0, str(Path(__file__).parents[1]))
from common.session import setting
from fedskew.studies.statistics import Scores, average_ranks, critical_difference, differences, t_interval
from fedskew.studies.verdicts import verdict

OUT = Path(__file__).parents[2] / "results/accuracy/aa-digits.jsonl"
STUDIES, PAIRS = 400, 10
OPTIONS = {"model": "logistic", "rounds": 5, "cohort": 5, "eval_every": 5, "engine": "sequential", "threads": 1}
PACE = fs.paces.Fixed(1, 0.1, batch_size=64)
ALPHA, CLIENTS = 0.1, 10
TEST_ROWS = 359


def trained(pairs: range) -> Iterator[dict]:
    """How many test rows both runs of each pair predict correctly, as they are and after the fit of their logits."""
    data, method = load("digits"), fs.methods.fedavg().with_(pace=PACE)
    for pair in pairs:
        fed = fs.federate(data, fs.partitioners.Dirichlet(alpha=ALPHA, rounding="cut"), clients=CLIENTS, seed=pair)
        seeds = [2 * pair, 2 * pair + 1]
        last = [fs.run(fed, method, seed=seed, **OPTIONS).summary for seed in seeds]
        names = {"right": "final_accuracy", "fitted": "final_fitted_accuracy"}
        yield {"seeds": seeds, **{key: [round(one[name] * TEST_ROWS) for one in last] for key, name in names.items()}}


def record(out: Path, pairs: int) -> None:
    """Train the pairs that are missing. The file has a line on the session, and one for each pair."""
    torch.set_num_threads(1)
    head, *lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else ["{}"]
    began = time.process_time()
    lines += [json.dumps(row) for row in trained(range(len(lines), pairs))]
    spent = json.loads(head).get("cpu_s", 0) + round(time.process_time() - began)
    facts = {"clients": CLIENTS, "alpha": ALPHA, "batch": 64, "epochs": 1, "lr": 0.1, **OPTIONS}
    head = json.dumps({**setting(), "cpu_s": spent, "test_rows": TEST_ROWS, "options": facts})
    out.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")


def recorded(path: Path = OUT, which: str = "right") -> np.ndarray:
    """The recorded accuracies, float64 [pairs, 2]; those of the fitted models are "fitted"."""
    _, *lines = path.read_text(encoding="utf-8").splitlines()
    return np.array([json.loads(line)[which] for line in lines]) / TEST_ROWS


def studies(pairs: np.ndarray, size: int = PAIRS) -> Iterator[Scores]:
    """The pairs [P, 2] as studies of two methods with ``size`` seeds; each pair is used once."""
    for at in range(0, len(pairs) - size + 1, size):
        values = pairs[at : at + size].T[:, None]
        yield Scores("accuracy", ("first", "second"), ("digits",), tuple(range(size)), values)


def _apart(values: np.ndarray) -> bool:
    """Whether the 95 % t interval leaves out 0, which is p <= 0.05 of the t test."""
    ends = t_interval(np.array(values))
    return ends is not None and not ends[0] < 0 < ends[1]


def found(pairs: np.ndarray, size: int = PAIRS) -> dict[str, tuple[int, int]]:
    """(studies that find a difference at 5 %, studies) by test."""
    told = [differences(scores, "first")[0] for scores in studies(pairs, size)]
    by = {
        "signed rank, exact": [d.significant for d in told],
        "paired t": [_apart(d.values) for d in told],
    }
    return {name: (sum(said), len(said)) for name, said in by.items()}


def verdicts(size: int) -> Counter[str]:
    """How many studies of ``size`` pairs get each verdict; raw and fitted models are on record, mean models are not."""
    both = zip(*(studies(recorded(which=which), size) for which in ("right", "fitted")), strict=True)
    gaps = ([differences(scores, "first")[0].gain for scores in pair] for pair in both)
    return Counter(verdict({"raw": raw, "fitted": fitted}) for raw, fitted in gaps)


def exchanged(pairs: np.ndarray, times: int = 100) -> list[float]:
    """The share that the signed-rank test finds where either run of a pair may be called the first, drawn anew."""
    g, shares = rng.generator(0, "exchange"), []
    for _ in range(times):
        turned = np.where(g.random(len(pairs))[:, None] < 0.5, pairs, pairs[:, ::-1])
        hits, of = found(turned)["signed rank, exact"]
        shares.append(hits / of)
    return shares


def covered(runs: int, studies: int = 1000) -> float:
    """How often 95 % intervals of the mean of normal scores hold the true mean."""
    g = rng.generator(0, "coverage", runs, 1)
    ends = (t_interval(g.normal(size=runs)) or (0.0, 0.0) for _ in range(studies))
    return sum(low <= 0 <= high for low, high in ends) / studies


def separated(methods: int, settings: int, studies: int = 2000) -> tuple[float, float]:
    """Share of studies of equal methods that find two a critical difference apart: Nemenyi alone, after Friedman."""
    g, cd = rng.generator(0, "ranks", methods, settings), critical_difference(methods, settings)
    ranks = g.permuted(np.broadcast_to(np.arange(1.0, methods + 1), (studies, settings, methods)), axis=2)
    apart = np.ptp(ranks.mean(axis=1), axis=1) >= cd
    names, places = tuple(map(str, range(methods))), tuple(map(str, range(settings)))
    both = [
        average_ranks(Scores("rank", names, places, (0,), one.T[:, :, None], False), permutations=1000).significant
        for one in ranks[apart]
    ]
    return float(apart.mean()), sum(both) / studies


def tables() -> None:
    """What the tests find where nothing is, and how often intervals cover."""
    for which in ("right", "fitted"):
        pairs = recorded(which=which)
        correlation, spread = np.corrcoef(pairs.T)[0, 1], np.diff(pairs).std()
        print(f"\n{which}: correlation within pairs {correlation:.2f}, standard deviation of differences {spread:.3f}")
        print("| pairs a study | test | finds a difference | of | share |")
        print("|---|---|---|---|---|")
        for size, used in ((PAIRS, pairs[:2000]), (PAIRS, pairs), (5, pairs), (6, pairs), (20, pairs)):
            for name, (hits, of) in found(used, size).items():
                print(f"| {size} | {name} | {hits} | {of} | {100 * hits / of:.1f} % |")
        shares = [100 * share for share in exchanged(pairs)]
        print(f"runs exchanged within pairs: {np.mean(shares):.1f} %, {min(shares):.1f} to {max(shares):.1f} %")
    for size in (3, 5, PAIRS):
        print(f"\nverdicts of studies of {size} pairs: {verdicts(size).most_common()}")
    print("\n| runs a setting | share |\n|---|---|")
    for runs in (3, 5, 10, 20):
        print(f"| {runs} | {100 * covered(runs):.1f} % |")
    print("\n| methods | settings | Nemenyi alone | after Friedman |\n|---|---|---|---|")
    for methods in (3, 5, 10):
        for settings in (2, 3, 5, 10, 20):
            alone, both = separated(methods, settings)
            print(f"| {methods} | {settings} | {100 * alone:.1f} % | {100 * both:.1f} % |")


def main() -> None:
    """Train, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=STUDIES * PAIRS)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    tables() if args.table else record(args.out, args.pairs)


if __name__ == "__main__":
    main()
