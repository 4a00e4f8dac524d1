"""A run of 10 000 rounds: memory, descriptors and the cost of a round stay as they were; the folder grows by its rows.

This file is also the script of the run, so that nothing else lives in its process.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import fedskew as fs
from support.attack import Line, some
from support.federations import skewed
from support.lives import script

ROUNDS = some(200, 10_000)
TENTH = ROUNDS // 10
HOMES = ["ram", "device"]
ONCE = ("rounds.jsonl", "clients.jsonl")  # what grows with rounds, and what the last round alone writes

if sys.platform != "linux":
    pytest.skip("/proc tells what a process holds", allow_module_level=True)


def held() -> dict[str, Any]:
    """What this process holds: bytes in memory that are its own, descriptors, seconds of processors used."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    anonymous = int(status.partition("RssAnon:")[2].split()[0]) << 10
    return {"bytes": anonymous, "descriptors": len(os.listdir("/proc/self/fd")), "seconds": time.process_time()}


def deep(value: Any) -> int:
    """Bytes of a row in memory: the result holds the rows of all rounds."""
    inner = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return sys.getsizeof(value) + sum(map(deep, inner))


def main(home: str, out: Path) -> None:
    seen: list[dict[str, Any]] = []
    lasted: list[float] = []

    def on_round(row: dict[str, Any]) -> None:
        lasted.append(row["wall_s"])
        if row["round"] % TENTH == 0:
            gc.collect()
            files = {p.relative_to(out).as_posix(): p.stat().st_size for p in out.rglob("*") if p.is_file()}
            now, middle = held(), statistics.median(lasted[-TENTH:])
            spent = (now["seconds"] - (seen[-1]["seconds"] if seen else 0.0)) / TENTH
            seen.append(
                {**now, "round": row["round"], "files": files, "median_s": middle, "spent": spent, "row": deep(row)}
            )

    options = {"model": "logistic", "rounds": ROUNDS, "cohort": 3, "engine": "threaded", "threads": 2, "memory": home}
    fs.run(skewed(), fs.methods.scaffold(), out=out, on_round=on_round, **options)
    print(json.dumps(seen))


@pytest.mark.parametrize("home", HOMES[: some(1, 2)])
def test_a_long_run_stays_as_it_was(home: str, tmp_path: Path) -> None:
    first, *_, last = seen = script(__file__, home, tmp_path / "run")[1:]  # caches fill in the first tenth
    rounds = last["round"] - first["round"]
    grown = (last["bytes"] - first["bytes"]) / rounds
    rows = [sample["files"]["rounds.jsonl"] for sample in seen]
    steps = [b - a for a, b in pairwise(rows)]
    rest = [{name: size for name, size in sample["files"].items() if name not in ONCE} for sample in (first, last)]
    fast = min(sample["spent"] for sample in seen[:4])  # seconds of processors: those of a clock depend on others
    with Line("soak", f"{ROUNDS} rounds, memory {home}") as line:
        times = [round(1000 * sample["median_s"], 2) for sample in seen]
        print(f"{grown:.0f} bytes a round, a row has {last['row']}; a round takes {times} ms; files {rest[1]}")
        line.check(grown < 1.5 * last["row"], f"memory grows by {grown:.0f} bytes a round, a row has {last['row']}")
        line.check(last["descriptors"] == first["descriptors"], f"descriptors: {[s['descriptors'] for s in seen]}")
        line.check(min(sample["spent"] for sample in seen[-4:]) < 1.5 * fast, f"{[sample['spent'] for sample in seen]}")
        line.check(max(steps) < 1.1 * min(steps), f"rounds.jsonl grows by {steps}")
        line.check(set(rest[0]) == set(rest[1]), f"files {set(rest[0]) ^ set(rest[1])}")
        more = {name: (rest[0][name], size) for name, size in rest[1].items() if size > 1.02 * rest[0][name] + 256}
        line.check(not more, f"files grow: {more}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
