"""FedGA's Table 1, MNIST column: its methods, five alphas, five seeds. One line of JSON a run, resumable.

python benchmarks/accuracy/fedga_table1.py              runs what results/accuracy/fedga-table1-mnist.jsonl lacks
python benchmarks/accuracy/fedga_table1.py --table      prints ours beside the settings, mean and deviation over seeds
python benchmarks/accuracy/fedga_table1.py --trials     the same with less local work: does it give the printed level

The protocol is notes/protocols.yaml, entry fedga: MLP, 100 clients, 10 a round, 100 rounds, 2
epochs, batch 64, lr 0.1, clipped at 5, pixels in [0, 1], uniform weights.

FedGA's code has its own copies of three baselines. FedProx runs as there. CLIMB and FedRL have two rows each.

"CLIMB" is the method, with a dual step every 5 rounds. "CLIMB, FedGA's copy" multiplies the loss by weights that are
cut to whole numbers: a client with a weight below 1 sends a zero update. Its lambda is 1 at first, and a dual step
follows every round.

"FedRL" is CLIMB's copy of it: minus the gradient, the mean ratio of a class's own row, and a loss divided by the sum of
its weights. "FedRL, FedGA's copy" takes the gradient unflipped and has masks of its own. Its weights serve the round
that estimates them, and its loss is divided by the rows. Both have one auxiliary row a class; FedGA's are rows that
clients train on, ours are held out.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "results/accuracy"
OUT, LEVEL = RESULTS / "fedga-table1-mnist.jsonl", RESULTS / "fedga-level-mnist.jsonl"
METHODS = {
    "FedAvg": "fedavg --weighting uniform",
    "FedGA": "fedga --weighting uniform",
    "FedNTD": "fedntd --weighting uniform",
    "FedProx": "fedprox --parts proximal_variant --parts.proximal_variant.mu 0.001 --weighting uniform",
    "CLIMB": "climb --weighting.dual_lr 2 --weighting.eps 0.01",
    "FedRL": "fedrl --auxiliary 1 --parts.ratio_loss.estimator gradient --parts.ratio_loss.ratio row"
    " --parts.ratio_loss.divide weights --weighting uniform --momentum 0 --weight-decay 0",
    "CLIMB, FedGA's copy": "climb --weighting.dual_lr 2 --weighting.eps 0.01 --weighting.primal_rounds 1"
    " --weighting.apply loss --weighting.initial 1 --weighting.whole true",
    "FedRL, FedGA's copy": "fedrl --auxiliary 1 --parts.ratio_loss.estimator unflipped --parts.ratio_loss.by quotient"
    " --parts.ratio_loss.zeros true --parts.ratio_loss.serves same --weighting uniform --momentum 0 --weight-decay 0",
}
ALPHAS = ("0.05", "0.1", "0.5", "1", "10")
COMMON = (
    "--data mnist --data.normalize none --model mlp --partition dir_client_equal --partition.alpha {alpha}"
    " --clients 100 --cohort 10 --rounds 100 {work} --clip 5"
    " --eval.every 10 --seed {seed} --threads 1"
)
WORK = {"as published": "--epochs 2 --batch-size 64 --lr 0.1"}  # what the public code has
TRIALS = {
    **WORK,
    "1 epoch": "--epochs 1 --batch-size 64 --lr 0.1",
    "1 epoch of batch 128": "--epochs 1 --batch-size 128 --lr 0.1",
    "batch 256": "--epochs 2 --batch-size 256 --lr 0.1",
    "rate 0.03": "--epochs 2 --batch-size 64 --lr 0.03",
    "1 epoch, rate 0.05": "--epochs 1 --batch-size 64 --lr 0.05",
}
KEPT = ("final_accuracy", "final_macro_f1", "best_accuracy", "total_wall_s")


def run_one(method: str, alpha: str, seed: int, work: str = "as published") -> dict:
    """One run of the command, and its summary."""
    words = ["run", *METHODS[method].split(), *COMMON.format(alpha=alpha, seed=seed, work=TRIALS[work]).split()]
    facts = {"paper": "FedGA", "table": "1", "dataset": "MNIST", "alpha": alpha, "method": method, "seed": seed}
    facts |= {"work": work} if work not in WORK else {}
    facts |= {"command": "fedskew " + " ".join(words), "date": time.strftime("%Y-%m-%d")}
    facts["machine"] = platform.processor() or platform.machine()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        done = subprocess.run(
            [sys.executable, "-m", "fedskew", *words, "--out", str(place)], capture_output=True, text=True
        )
        if done.returncode:
            return {**facts, "failed": done.stderr.strip().splitlines()[-1]}
        summary = json.loads((place / "summary.json").read_text(encoding="utf-8"))
    return {**facts, **{name: summary[name] for name in KEPT}}


def recorded(path: Path = OUT) -> list[dict]:
    """The runs that are there."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def append(path: Path, row: dict) -> None:
    """One more run."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def trials(seeds: int) -> None:
    """FedAvg and FedGA at the ends of the table, with less local work; prints what is there."""
    done = {(r.get("work", "as published"), r["method"], r["alpha"], r["seed"]) for r in recorded(LEVEL)}
    cells = [(m, alpha) for m in ("FedAvg", "FedGA") for alpha in ("0.05", "10")]
    for seed in range(seeds):
        for work in TRIALS:
            for method, alpha in cells:
                if work not in WORK and (work, method, alpha, seed) not in done:
                    append(LEVEL, run_one(method, alpha, seed, work))
    print("| local work | " + " | ".join(f"{m}, alpha {a}" for m, a in cells) + " |\n|---|" + "---|" * len(cells))
    for work in TRIALS:
        rows = [r for r in recorded(OUT if work in WORK else LEVEL) if work in WORK or r["work"] == work]
        print(f"| {work} | " + " | ".join(mean_of(rows, m, a) for m, a in cells) + " |")


def mean_of(rows: list[dict], method: str, alpha: str) -> str:
    """Mean, deviation and number of seeds."""
    found = [r["final_accuracy"] for r in rows if (r["method"], r["alpha"]) == (method, alpha)]
    spread = f" ± {statistics.stdev(found):.3f}" if len(found) > 1 else ""
    return f"{statistics.mean(found):.3f}{spread} ({len(found)})" if found else ""


def table() -> None:
    """Mean and deviation of the last round's accuracy over the seeds."""
    print("| method | " + " | ".join(f"alpha {alpha}" for alpha in ALPHAS) + " |\n|---|" + "---|" * len(ALPHAS))
    for method in METHODS:
        print(f"| {method} | {' | '.join(mean_of(recorded(), method, alpha) for alpha in ALPHAS)} |")


def main() -> None:
    """Run what is missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--trials", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    if args.table:
        return table()
    if args.trials:
        return trials(args.seeds)
    done = {(r["method"], r["alpha"], r["seed"]) for r in recorded()}
    for seed in range(args.seeds):
        for alpha in ALPHAS:
            for method in METHODS:
                if (method, alpha, seed) not in done:
                    append(OUT, run_one(method, alpha, seed))
    return None


if __name__ == "__main__":
    main()
