"""Partitions at scale: split, count, describe, save and read back; seconds and peak memory, a JSON line each.

python benchmarks/scaling/partitions.py  # 1e3 to 1e6 clients, ten rows each, dirichlet 0.1
python benchmarks/scaling/partitions.py --clients 10000 --rows 20000,1000000,10000000
python benchmarks/scaling/partitions.py --partitioners all --clients 1000000  # every partitioner once
python benchmarks/scaling/partitions.py --partitioners dir_prior:sizes=lognormal,iid:sizes=power  # with an option

Each run is a process of its own, so that its peak is its own: ru_maxrss, less what the imports and the labels take
(base_mb). Wall and processor seconds differ on a shared machine. "describe" is the skew report, in which whatever is
quadratic in the clients is over 500 drawn ones.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from fedskew.data import load_partition, save_partition, skew
from fedskew.data.partitioners import PARTITIONERS, Natural, Partitioner

CLASSES, SEED = 10, 0
SCALE = Path("results/scaling/partitions-scale.jsonl")
LEFT_OUT = {"dirichlet", "counts", "file"}  # an alias, and two that read files


def made(name: str) -> Partitioner:
    """A partitioner at its defaults, or where these need another dataset, as near as can be; ``name:option=word``."""
    name, _, option = name.partition(":")
    options = dict([option.split("=")]) if option else {}
    return PARTITIONERS[name](**options)


def peak_mb() -> float:
    """Peak resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(name: str, clients: int, rows: int) -> dict:
    """One partitioner at one scale, in this process."""
    torch.set_num_threads(1)
    partitioner = made(name)
    labels = np.random.Generator(np.random.PCG64(SEED)).permutation(rows) % CLASSES
    columns = {"client": np.arange(rows) % clients} if isinstance(partitioner, Natural) else {}
    base, times = peak_mb(), {}

    def clock(stage, of):
        start = time.perf_counter(), time.process_time()
        found = of()
        times[f"{stage}_wall_s"] = round(time.perf_counter() - start[0], 3)
        times[f"{stage}_cpu_s"] = round(time.process_time() - start[1], 3)
        return found

    parts = clock("split", lambda: partitioner.split(labels, clients, SEED, columns))
    split_peak = peak_mb()
    counts = clock("count", lambda: parts.counts(labels, CLASSES))
    report = clock("describe", lambda: skew.summary(counts))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "p.npz"
        digest = clock("save", lambda: save_partition(file, parts, labels=labels, partitioner=partitioner, seed=SEED))
        size = file.stat().st_size
        back = clock("load", lambda: load_partition(file))
    same = np.array_equal(back.partition.rows, parts.rows) and np.array_equal(back.partition.offsets, parts.offsets)
    return {
        "convention": name, "clients": clients, "rows": rows, "classes": CLASSES, **times, "base_mb": round(base),
        "split_peak_mb": round(split_peak), "peak_mb": round(peak_mb()), "file_mb": round(size / 1e6, 1),
        "sha256": digest[:16], "same_after_load": same, "rows_used": len(parts.rows),
        "empty_clients": report["empty_clients"], "js_mean": round(report["js_mean"], 4),
        "pair_clients": report["pair_clients"],
    }  # fmt: skip


def in_a_process(name: str, clients: int, rows: int) -> dict:
    """`measure` in a process of its own; a refusal is a row, too."""
    words = [sys.executable, __file__, "--one", name, str(clients), str(rows)]
    done = subprocess.run(words, capture_output=True, text=True)
    facts = {"date": time.strftime("%Y-%m-%d"), "machine": platform.machine(), "numpy": np.__version__}
    if done.returncode:
        told = done.stderr.strip().splitlines()[-1]
        return {"convention": name, "clients": clients, "rows": rows, "failed": told, **facts}
    return {**json.loads(done.stdout), **facts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitioners", default="dirichlet", help="names, or all")
    parser.add_argument("--clients", default="1000,10000,100000,1000000")
    parser.add_argument("--rows", default="0", help="0: ten for each client")
    parser.add_argument("--out", type=Path, default=SCALE)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one[0], int(given.one[1]), int(given.one[2]))))
        return
    names = sorted(set(PARTITIONERS) - LEFT_OUT) if given.partitioners == "all" else given.partitioners.split(",")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for name in names:
        for clients in map(int, given.clients.split(",")):
            for rows in map(int, given.rows.split(",")):
                row = in_a_process(name, clients, rows or 10 * clients)
                with given.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
