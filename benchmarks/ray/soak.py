"""Memory of the engine ray over many rounds: the process of the run, its workers, and Ray's object store.

    python benchmarks/ray/soak.py --rounds 2000

Every 100 rounds it prints a line; at the end, what each grew by from round 200 on. A worker of the run is a process
whose title has "ray::Worker". Needs the extra ray, and Linux.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import fedskew as fs

PAGE = os.sysconf("SC_PAGE_SIZE")


def resident(pid: int) -> float:
    """Private resident memory of a process, MB: what it shares with others, such as mapped data, is not counted."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return (int(fields[1]) - int(fields[2])) * PAGE / 1e6


def children(title: str) -> list[int]:
    """Grandchildren of this process whose command line has these words."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if title in words and parent(parent(int(folder.name))) == os.getpid():
            found.append(int(folder.name))
    return found


def parent(pid: int) -> int:
    """The parent of a process; of a worker it is Ray's daemon, whose parent is the process that began the cluster."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--method", default="scaffold")
    given = parser.parse_args()
    import ray

    os.environ |= {"RAY_worker_niceness": "0"}
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    # clients of nearly one size: every shape of a mini-batch is traced by round 200, and traces take memory once
    fed = fs.federate("digits", fs.partitioners.Iid(), clients=10, seed=0)
    seen: list[tuple[int, float, float, float]] = []
    began = time.monotonic()

    def on_round(row: dict[str, Any]) -> None:
        if row["round"] % 100:
            return
        workers = sum(map(resident, children("ray::Worker")))
        total, free = ray.cluster_resources(), ray.available_resources()
        store = (total["object_store_memory"] - free.get("object_store_memory", 0.0)) / 1e6
        seen.append((row["round"], resident(os.getpid()), workers, store))
        print("round {:5d}  driver {:7.1f} MB  workers {:7.1f} MB  store {:7.2f} MB".format(*seen[-1]), flush=True)

    method = getattr(fs.methods, given.method)()
    method = replace(method, pace=replace(method.pace, epochs=5, batch_size=16))
    fs.run(
        fed, method, model=fs.models.MLP(hidden=400), rounds=given.rounds, cohort=4, engine="ray", eval_every=100,
        on_round=on_round,
    )  # fmt: skip
    first = next(line for line in seen if line[0] >= 200)
    grown = [last - before for last, before in zip(seen[-1][1:], first[1:], strict=True)]
    print("growth from round {} on: driver {:.1f} MB, workers {:.1f} MB, store {:.2f} MB".format(first[0], *grown))
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
