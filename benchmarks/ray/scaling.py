"""Seconds and bytes of the engine ray by number of workers, and a model of both from constants that are measured here.

    python benchmarks/ray/scaling.py --workers 1,2 --rounds 12 --repeats 3

1. Constants, in this process, without Ray: seconds that a worker needs for a client (unpack, train, pack), that the
   driver needs for a round. Of Ray itself: seconds of a call with messages of these sizes, from an actor that trains
   nothing. From the rounds of one worker: processor seconds of the driver for a client.
2. The same rounds by the engine with W workers, in turns.
3. The model beside them. With K clients a round, w, d and r seconds of a client at the worker, the driver and in Ray,
   and t of a round:  T(W) = t + max(ceil(K / W) (w + r), K d).

Every number is a median with its lowest and highest. `--json FILE` keeps them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

import fedskew as fs
from fedskew.engines.jobs import Place
from fedskew.engines.outcomes import Reduction
from fedskew.engines.ray.engine import Ray
from fedskew.engines.ray.packing import pack, size, unpack
from fedskew.engines.ray.worker import Kit, Sent, Turn, Worker
from fedskew.method import Method
from fedskew.models import build
from fedskew.models.prepare import prepare
from fedskew.settings import Settings

WORKLOADS: dict[str, tuple[Any, int, dict[str, Any]]] = {  # model, epochs, data
    "digits-logistic": (fs.models.Logistic(), 1, {}),
    "digits-mlp": (fs.models.MLP(hidden=200), 10, {}),
    "digits-wide": (fs.models.MLP(hidden=4000), 5, {}),
}
COHORT, CLIENTS = 20, 40


def parts(name: str) -> tuple[Any, Method, Any]:
    """(federation, method, model) of a workload."""
    model, epochs, _ = WORKLOADS[name]
    fed = fs.federate("digits", fs.partitioners.Iid(), clients=CLIENTS, seed=0)
    method = fs.methods.fedavg()
    return fed, replace(method, pace=replace(method.pace, epochs=epochs, batch_size=10)), model


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "n": len(values)}


def constants(name: str, repeats: int) -> dict[str, Any]:
    """Seconds of a client and of a round, and bytes, by the engine's own functions in this process."""
    from fedskew.engines.sequential import Sequential, Threaded

    fed, method, architecture = parts(name)
    network = build(architecture, tuple(fed.dataset.x.shape[1:]), fed.dataset.classes, 0)
    model = prepare(network, None, tuple(fed.dataset.x.shape[1:]), fed.dataset.classes)
    task, settings = model.task(fed.clients, 10), Settings(cohort=COHORT, threads=1)
    worker, engine = Worker(), Sequential(model, fed, task, settings)
    engine.birth(method, model.params, model.buffers)
    kit = pack(Kit(model, replace(fed, partitioner=fs.partitioners.Iid()), task, settings, {}), mapped=True)
    kit_held = unpack(kit)
    worker.engine, worker.precision = (
        Threaded(kit_held.model, kit_held.fed, task, replace(settings, threads=1)),
        "float32",
    )
    state = fs.server.init(method, model.params, model.buffers, fed, task)
    found: dict[str, list[float]] = {"w": [], "d": [], "t": []}
    sizes: dict[str, float] = {"kit": size(kit)}
    for turn in range(repeats):
        start = time.perf_counter()
        state = state._replace(round=turn)
        nobody: Any = None
        opened = fs.server.open_round(method, state, COHORT, 0, 0, nobody)
        plans = engine.planner.plans(method, opened.assignment, opened.broadcast, engine.clients.own)
        cohort = engine.planner.cohort(method, plans, opened.broadcast)
        cohort = cohort._replace(weights=method.weigh({}, cohort))
        given = engine.runtime.laid_out(opened.broadcast)
        reduction = Reduction(given.params, cohort.weights, False)
        places: list[Place] = engine.jobs.places(method, [g[0] for g in plans], given, engine.memory, {})
        message = pack(Turn(pack(method), places[0].job.shared, reduction.settle, False, True))
        found["t"].append(time.perf_counter() - start)
        sizes["turn"] = size(message)
        worker.turn, worker.given = turn, unpack(message)
        outcomes = []
        for at, place in enumerate(places):
            one = time.perf_counter()
            sent = pack([Sent(place.job.own, place.plan, place.keys)])
            two = time.perf_counter()
            back = worker.train(turn, [], at, False, sent)
            three = time.perf_counter()
            outcome = unpack(back)
            watches = tuple(watch._replace(places=[place]) for watch in outcome.watches)
            outcomes.append(outcome._replace(watches=watches))
            four = time.perf_counter()
            if turn >= repeats // 2:  # the step is traced by then
                found["w"].append(three - two)
                found["d"].append(two - one + four - three)
            sizes["sent"], sizes["back"] = size(sent), size(back)
        start = time.perf_counter()
        reduction.collect(cohort, outcomes)
        if turn:
            found["d"] = [d + (time.perf_counter() - start) / COHORT if i >= len(found["d"]) - COHORT else d
                          for i, d in enumerate(found["d"])]  # fmt: skip
    return {**{n: spread(v) for n, v in found.items()}, "bytes": sizes}


def call_seconds(up: int, down: int, calls: int = 200) -> dict[str, float]:
    """Seconds of a call of an actor that trains nothing, with messages of these sizes, two under way at a time."""
    import numpy as np

    import ray

    class Echo:
        def answer(self, sent: Any) -> Any:
            return b"", [np.empty(down, np.uint8)]

    actor = ray.remote(Echo).options(num_cpus=1).remote()
    found: list[float] = []
    message = (b"", [np.zeros(up, np.uint8)])
    for _ in range(5):
        start, flying = time.perf_counter(), []
        for _ in range(calls // 5):
            flying.append(actor.answer.remote(message))
            if len(flying) == 2:
                ray.get(flying.pop(0))
        ray.get(flying)
        found.append((time.perf_counter() - start) / (calls // 5))
    ray.kill(actor)
    return spread(found[1:])


def waiting() -> None:
    """Let every run wait for all of its workers: a short one would end before the last has begun."""
    plain = Ray.birth

    def birth(self: Any, *given: Any, **named: Any) -> None:
        plain(self, *given, **named)
        while any(member.hello is not None for member in self.pool.members):
            self.pool._take({})

    Ray.birth = birth  # type: ignore[method-assign]


def rounds_of(name: str, workers: int, rounds: int) -> tuple[list[float], list[float]]:
    """(seconds of training, processor seconds of the driver) of each round but the first three, by the engine."""
    fed, method, model = parts(name)
    options = {"rounds": rounds + 3, "cohort": COHORT, "eval_every": 1000}
    spent = [time.process_time()]
    note = lambda row: spent.append(time.process_time())
    result = fs.run(fed, method, model=model, engine="ray", ray_workers=workers, on_round=note, **options)
    return [row["train_s"] for row in result.rounds[3:]], [b - a for a, b in pairwise(spent)][3:]


def predicted(found: dict[str, Any], workers: int) -> float:
    """T(W) of the model, seconds: of the lowest values, those that other programs on the machine disturbed least."""
    w, d, t, r = (found[n]["low"] for n in ("w", "d", "t", "r"))
    return float(t + max(math.ceil(COHORT / workers) * (w + r), COHORT * d))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    import ray

    counts = [int(n) for n in given.workers.split(",")]
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
        loads, driver = [], list[float]()
        for _ in range(given.repeats):
            for n in counts:
                loads.append(os.getloadavg()[0])
                seconds, spent = rounds_of(name, n, given.rounds)
                seen[n] += seconds
                if n == 1:
                    driver += spent
        # all that the driver does for a client, Ray's threads in its process among it
        found["d"] = spread([(s - found["t"]["median"]) / COHORT for s in driver])
        found["measured"] = {n: spread(seen[n]) for n in counts}
        found["predicted"] = {n: predicted(found, n) for n in (*counts, 16, 128, 1024)}
        found["load"] = spread(loads)
        table[name] = found
        print(name, json.dumps(found, default=float), flush=True)
    if given.json:
        given.json.write_text(json.dumps({"date": time.strftime("%Y-%m-%dT%H:%M:%S"), **table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
