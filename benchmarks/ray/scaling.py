"""Seconds and bytes of the engine ray by number of workers, and a model of both from constants that are measured here.

    python benchmarks/ray/scaling.py --json results/ray/scaling-DATE.json

1. Constants, in this process, without Ray: seconds that a worker needs for a client (w: unpack, train, pack), and those
   of a round before its first client begins (t: plan, draw, pack the broadcast, unpack it). Of Ray itself: seconds of a
   call with messages of these sizes, from an actor that trains nothing (r).
2. From rounds of one worker, by /proc: processor seconds a round of the driver (D), of the worker (A) and of Ray's
   daemons (S), each with all of its threads. They say what a round costs, not how long it takes.
3. The same rounds by the engine with W workers, in turns, timed by the clock.
4. The model beside them. With K clients a round, d = (D - t) / K, and c cores for driver, workers and daemons together:

       T(W) = t + max(ceil(K / W) (w + r), K d, (D + A + S - t) / c)

   The workers' turn; the driver's; and all that is computed, shared by the cores. Only t keeps one core busy.

No round counts before the steps of its workers are traced. Every number is a median with its lowest and highest, and
the model takes medians. It prints the rows of notes/scale.md; `--json FILE` keeps all. Needs the extra ray, and
Linux.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

import fedskew as fs
from fedskew.engines.outcomes import Reduction
from fedskew.engines.planning import ClientJob
from fedskew.engines.ray.engine import Ray
from fedskew.engines.ray.packing import pack, size, unpack
from fedskew.engines.ray.worker import Kit, Sent, Turn, Worker
from fedskew.engines.sequential import Sequential, Threaded
from fedskew.engines.stepper import TRACE
from fedskew.method import Method
from fedskew.models import build
from fedskew.models.prepare import prepare
from fedskew.settings import Settings

WORKLOADS: dict[str, tuple[Any, int]] = {  # model, epochs
    "digits-logistic": (fs.models.Logistic(), 1),
    "digits-mlp": (fs.models.MLP(hidden=200), 10),
    "digits-wide": (fs.models.MLP(hidden=4000), 5),
}
COHORT, CLIENTS = 20, 40
WARM = 3  # rounds before any counts
TICK = 1 / os.sysconf("SC_CLK_TCK")  # seconds, of /proc


class Spent(NamedTuple):
    """Processor seconds of the processes of a run."""

    driver: float
    workers: float
    daemons: float

    def since(self, before: Spent, rounds: int) -> Spent:
        """A round's share of what was spent after another reading."""
        return Spent(*((now - then) / rounds for now, then in zip(self, before, strict=True)))


def parts(name: str) -> tuple[Any, Method, Any]:
    """(federation, method, model) of a workload."""
    model, epochs = WORKLOADS[name]
    fed = fs.federate("digits", fs.partitioners.Iid(), clients=CLIENTS, seed=0)
    method = fs.methods.fedavg()
    return fed, replace(method, pace=replace(method.pace, epochs=epochs, batch_size=10)), model


def length(name: str, workers: int, rounds: int) -> int:
    """Rounds of a run in which each worker traces its steps, which it does in the first.

    Each epoch ends with a smaller mini-batch, a shape of its own: TRACE of them must lie ahead of every worker.
    """
    return max(WARM + rounds, math.ceil(1.2 * TRACE * workers / (COHORT * WORKLOADS[name][1])))


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "n": len(values)}


def constants(name: str, rounds: int) -> dict[str, Any]:
    """Seconds of a client and of a round, and bytes, by the engine's own functions in this process."""
    fed, method, architecture = parts(name)
    shape = tuple(fed.dataset.x.shape[1:])
    model = prepare(build(architecture, shape, fed.dataset.classes, 0), None, shape, fed.dataset.classes)
    task, settings = model.task(fed.clients, length(name, 1, rounds)), Settings(cohort=COHORT, threads=1)
    worker, engine = Worker(), Sequential(model, fed, task, settings)
    engine.init_clients(method, model.params, model.buffers)
    kit = pack(Kit(model, replace(fed, partitioner=fs.partitioners.Iid()), task, "cpu", "float32", {}), mapped=True)
    held = unpack(kit)
    worker.engine, worker.precision = Threaded(held.model, held.fed, task, settings), "float32"
    state = fs.server.init(method, model.params, model.buffers, fed, task)
    found: dict[str, list[float]] = {"w": [], "t": []}
    sizes: dict[str, float] = {"kit": size(kit), "P": sum(p.nbytes for p in model.params.values())}
    for turn in range(WARM + rounds):
        start = time.process_time()
        state = state._replace(round=turn)
        nobody: Any = None
        opened = fs.server.open_round(method, state, COHORT, 0, 0, nobody)
        plans = engine.planner.plans(method, opened.assignment, opened.broadcast, engine.clients.own)
        cohort = engine.planner.cohort(method, plans, opened.broadcast)
        cohort = cohort._replace(weights=method.weighting.weigh({}, cohort))
        given = engine.runtime.laid_out(opened.broadcast)
        reduction = Reduction(given.params, cohort.weights, False)
        places: list[ClientJob] = engine.jobs.of(method, [g[0] for g in plans], given, engine.memory, {})
        message = pack(Turn(pack(method), places[0].job.shared, reduction.settle, True))
        worker.turn, worker.given = turn, unpack(message)
        if turn >= WARM:
            found["t"].append(time.process_time() - start)
        for at, place in enumerate(places):
            sent = pack([Sent(place.job.own, place.plan, place.keys)])
            start = time.process_time()
            back = worker.train(turn, [], at, False, sent)
            if turn >= WARM:
                found["w"].append(time.process_time() - start)
        sizes |= {"turn": size(message), "sent": size(sent), "back": size(back)}
    return {**{n: spread(v) for n, v in found.items()}, "bytes": sizes}


def call_seconds(up: int, down: int, calls: int = 400) -> dict[str, float]:
    """Seconds of a call of an actor that trains nothing, with messages of these sizes, two under way at a time."""
    import numpy as np

    import ray

    class Echo:
        def answer(self, sent: Any) -> Any:
            return b"", [np.empty(down, np.uint8)]

    actor = ray.remote(Echo).options(num_cpus=1).remote()
    found: list[float] = []
    message = (b"", [np.zeros(up, np.uint8)])
    for _ in range(9):
        start, flying = time.perf_counter(), []
        for _ in range(calls // 8):
            flying.append(actor.answer.remote(message))
            if len(flying) == 2:
                ray.get(flying.pop(0))
        ray.get(flying)
        found.append((time.perf_counter() - start) / (calls // 8))
    ray.kill(actor)
    return spread(found[1:])


def spent() -> Spent:
    """Processor seconds so far of this process, of the workers, and of the other processes of its cluster."""
    parents, seconds, titles = dict[int, int](), dict[int, float](), dict[int, bytes]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            titles[int(folder.name)] = (folder / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        parents[int(folder.name)] = int(fields[1])
        seconds[int(folder.name)] = TICK * (int(fields[11]) + int(fields[12]))

    def ours(pid: int) -> bool:
        while pid and pid != os.getpid():
            pid = parents.get(pid, 0)
        return bool(pid)

    cluster = [pid for pid in seconds if pid != os.getpid() and ours(pid)]
    workers = [pid for pid in cluster if titles[pid].startswith(b"ray::Worker")]
    daemons = [pid for pid in cluster if pid not in workers]
    return Spent(time.process_time(), *(sum(seconds[pid] for pid in some) for some in (workers, daemons)))


def waiting() -> None:
    """Let every run wait for all of its workers: a short one would end before the last has begun."""
    plain = Ray.init_clients

    def init_clients(self: Any, *given: Any, **named: Any) -> None:
        plain(self, *given, **named)
        while any(member.hello is not None for member in self.pool.members):
            self.pool._take({})

    Ray.init_clients = init_clients  # type: ignore[method-assign]


def rounds_of(name: str, workers: int, rounds: int) -> tuple[list[float], Spent]:
    """(seconds of training of each round, processor seconds of a round) by the engine, once the steps are traced."""
    fed, method, model = parts(name)
    total = length(name, workers, rounds)
    before = total - rounds
    read: dict[int, Spent] = {}

    def note(row: dict[str, Any]) -> None:
        if row["round"] in (before, total):
            read[row["round"]] = spent()

    options = {"rounds": total, "cohort": COHORT, "eval_every": 1000}
    result = fs.run(fed, method, model=model, engine="ray", ray_workers=workers, on_round=note, **options)
    rows = result.rounds[before:]
    # what the driver does between the rounds' training is none of it
    between = sum(row["wall_s"] - row["train_s"] - row["record_s"] for row in rows) / rounds
    found = read[total].since(read[before], rounds)
    return [row["train_s"] for row in rows], found._replace(driver=found.driver - between)


def predicted(found: dict[str, Any], workers: int, cores: int) -> float:
    """T(W) of the model, seconds, where driver, workers and daemons share so many cores."""
    w, t, r, *processor = (found[n]["median"] for n in ("w", "t", "r", "D", "A", "S"))
    driver, everyone = processor[0] - t, sum(processor) - t
    return float(t + max(math.ceil(COHORT / workers) * (w + r), driver, everyone / cores))


def tables(table: dict[str, Any], counts: list[int]) -> None:
    """Print the rows of notes/scale.md."""

    def shown(value: dict[str, float], unit: float = 1.0, digits: int = 3) -> str:
        middle, low, high = (f"{value[n] / unit:.{digits}f}" for n in ("median", "low", "high"))
        return f"{middle} ({low} to {high})"

    print("\n| workload | workers | measured, s | model, s | model against measured |\n|---|---:|---:|---:|---:|")
    for name, found in table.items():
        for n in counts:
            measured, model = found["measured"][n], found["predicted"][n]
            off = f"{100 * (model / measured['median'] - 1):+.0f} %"
            print(f"| {name} | {n} | {shown(measured)} | {model:.3f} | {off} |")
    print("\n| workload | w, ms | r, ms | t, ms | D, ms | A, ms | S, ms |\n|---|---:|---:|---:|---:|---:|---:|")
    for name, found in table.items():
        print("|", " | ".join([name, *(shown(found[n], 1e-3, 2) for n in "wrtDAS")]), "|")
    print("\n| workload | parameters | data | broadcast | share | answer |\n|---|---:|---:|---:|---:|---:|")
    for name, found in table.items():
        print("|", " | ".join([name, *(f"{found['bytes'][n]:,}" for n in ("P", "kit", "turn", "sent", "back"))]), "|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--workloads", default="digits-mlp,digits-wide")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    import ray

    cores = len(os.sched_getaffinity(0))
    counts = sorted({1, *(int(n) for n in given.workers.split(","))})
    torch.set_num_threads(1)
    os.environ |= {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    ray.init(address="local", num_cpus=max(counts), include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    waiting()
    table: dict[str, Any] = {}
    for name in given.workloads.split(","):
        with torch.no_grad():
            found = constants(name, 10)
        found["r"] = call_seconds(int(found["bytes"]["sent"]), int(found["bytes"]["back"]))
        seen: dict[int, list[float]] = {n: [] for n in counts}
        costs: dict[int, list[Spent]] = {n: [] for n in counts}
        loads = []
        for _ in range(given.repeats):
            for n in counts:
                loads.append(os.getloadavg()[0])
                seconds, cost = rounds_of(name, n, given.rounds)
                seen[n] += seconds
                costs[n].append(cost)
        for letter, column in zip("DAS", zip(*costs[1], strict=True), strict=True):
            found[letter] = spread(list(column))
        found["measured"] = {n: spread(seen[n]) for n in counts}
        found["spent"] = {n: costs[n] for n in counts}
        found["predicted"] = {n: predicted(found, n, cores) for n in counts}
        found["apart"] = {n: predicted(found, n, n + 1) for n in (16, 128, 1024)}  # a core for each
        found["load"], found["cores"] = spread(loads), cores
        table[name] = found
        print(name, json.dumps(found, default=float), flush=True)
    tables(table, counts)
    if given.json:
        given.json.write_text(json.dumps({"date": time.strftime("%Y-%m-%dT%H:%M:%S"), **table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
