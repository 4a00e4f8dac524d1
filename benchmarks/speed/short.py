"""What small steps cost, each against what it could be instead, in turns in one process on one thread.

python benchmarks/speed/short.py                     # all parts, about three minutes
python benchmarks/speed/short.py --parts seeds,around

- ``seeds``: the written-out steps of five runs' clients in one stack, over those of one run five times.
- ``eager``: a step of the engine ``sequential`` over one of a bare loop of torch with its SGD; the lowest of four.
- ``around``: training of a round with steps written out around the method's loss, over steps by vmap; eight rounds.
- ``methods``: training of a round of the 2NN by ``batched`` over that by ``threaded``, and over FedAvg's; eight rounds,
  and rounds 3 to 14 of a run of 400, where steps of ``threaded`` are traced. Two threads.

Made-up pixels; the median of the ratios with the lowest and the highest.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import fedskew as fs
from fedskew.data import from_arrays
from fedskew.engines import Batched
from fedskew.engines.dense import Dense
from fedskew.engines.stepper import StepMode
from fedskew.engines.written import Steps, descend
from fedskew.method import Method
from fedskew.models import build
from fedskew.models.prepare import prepare

BATCH, CLASSES = 10, 10
IMAGE, TABLE = (1, 28, 28), (1, 8, 8)
NETS: dict[str, Callable[[], nn.Module]] = {
    "logistic": lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 10)),
    "2nn": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)
    ),
    "lenet": lambda: nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    ),
}  # fmt: skip


def told(name: str, ratios: list[float]) -> None:
    print(f"{name}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


def paced(method: Method) -> Method:
    return replace(method, pace=replace(method.pace, epochs=1, batch_size=BATCH, lr=0.05))


def pixels(rows: int, clients: int) -> Any:
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(rows, *IMAGE, generator=g), torch.randint(0, CLASSES, (rows,), generator=g)
    return x, y, fs.federate(from_arrays(x, y, x[:100], y[:100]), "iid", clients=clients, seed=0)


def seeds() -> None:
    """Five runs' clients in one stack."""
    two = NETS["2nn"]()
    cases = (
        ("logistic regression, 10 clients", IMAGE, fs.models.Logistic(), 10, 150),
        ("tabular MLP of 64, 100 clients", TABLE, fs.models.MLP(hidden=64), 100, 12),
        ("tabular MLP of 64, 10 clients", TABLE, fs.models.MLP(hidden=64), 10, 60),
        ("2NN, 10 clients", IMAGE, two, 10, 30),
    )
    for name, shape, net, clients, steps in cases:
        module = net if isinstance(net, nn.Module) else build(net, shape, CLASSES, 0)
        model = prepare(module, None, shape, CLASSES)
        dense = Dense.of(model)
        assert dense is not None

        def once(count: int, model: Any = model, dense: Dense = dense, shape: Any = shape, steps: int = steps) -> float:
            at = torch.randint(0, 60 * count, (steps, count, BATCH))
            y = torch.randint(0, CLASSES, (steps, count, BATCH, 1))
            plan = Steps(at, y, torch.full(at.shape, 1 / BATCH), [count] * steps)
            params = {n: p.expand(count, *p.shape).contiguous() for n, p in model.params.items()}
            x, lr = torch.randn(60 * count, *shape), torch.full((count,), 0.03)
            start = time.perf_counter()
            descend(dense, params, x, plan, lr, 0.0)
            return time.perf_counter() - start

        once(clients), once(5 * clients)
        told(f"seeds, {name}", [once(5 * clients) / sum(once(clients) for _ in range(5)) for _ in range(15)])


def eager() -> None:
    """A step of the reference over a bare one."""
    x, y, fed = pixels(3000, 50)
    for name, made in NETS.items():
        ours, bare = [], []
        for _ in range(4):
            result = fs.run(
                fed, paced(fs.methods.fedavg()), model=made(), rounds=3, cohort=50, threads=1, eval_every=9,
                engine="sequential",
            )  # fmt: skip
            ours.append(min(row["train_s"] for row in result.rounds[1:]) / 300)
            net = made()
            optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
            start = time.perf_counter()
            for i in range(300):
                at = torch.arange(BATCH * i, BATCH * (i + 1))
                optimizer.zero_grad()
                cross_entropy(net(x[at]), y[at]).backward()
                optimizer.step()
            bare.append((time.perf_counter() - start) / 300)
        a, b = 1e3 * min(ours), 1e3 * min(bare)
        print(f"eager, {name}: {a / b:.2f} ({a:.2f} ms for {b:.2f})", flush=True)


def around() -> None:
    """Steps around the method's loss over the general step."""
    _, _, fed = pixels(6000, 100)
    plain = Batched.step_mode

    def trained(method: Method, net: str) -> float:
        options = {"rounds": 8, "cohort": 20, "threads": 1, "eval_every": 9, "engine": "batched"}
        result = fs.run(fed, method, model=NETS[net](), **options)
        return statistics.median(row["train_s"] for row in result.rounds[2:])

    for net in ("logistic", "2nn"):
        for name in ("fedlc", "fedga", "fedbal", "scaffold", "fedprox"):
            method, ratios = paced(getattr(fs.methods, name)()), []
            for _ in range(3):
                mine = trained(method, net)
                Batched.step_mode = lambda *_: StepMode.VMAP  # type: ignore[method-assign,assignment]
                ratios.append(mine / trained(method, net))
                Batched.step_mode = plain  # type: ignore[method-assign]
            told(f"around, {net}, {name}", ratios)


def methods() -> None:
    """What a method costs over FedAvg, and by the engine that ``auto`` takes over the other."""
    _, _, fed = pixels(6000, 100)

    def trained(name: str, engine: str, rounds: int) -> float:
        seen: list[float] = []

        def noted(row: dict[str, Any]) -> None:
            seen.append(row["train_s"])
            if len(seen) == 14:
                raise KeyboardInterrupt

        options = {"rounds": rounds, "cohort": 20, "threads": 2, "eval_every": rounds + 1, "engine": engine}
        with contextlib.suppress(KeyboardInterrupt):
            fs.run(fed, paced(getattr(fs.methods, name)()), model=NETS["2nn"](), on_round=noted, **options)
        return statistics.median(seen[2:])

    for rounds in (8, 400):
        for name in ("fedavg", "fedlc", "fedga", "fedbal", "fedprox", "scaffold"):
            engines, over = [], []
            for _ in range(3):
                plain, mine = trained("fedavg", "batched", rounds), trained(name, "batched", rounds)
                over.append(mine / plain)
                engines.append(mine / trained(name, "threaded", rounds))
            told(f"methods, {rounds} rounds, {name} by batched over threaded", engines)
            told(f"methods, {rounds} rounds, {name} over fedavg", over)


PARTS = {part.__name__: part for part in (seeds, eager, around, methods)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}, with commas between")
    chosen = parser.parse_args().parts.split(",")
    if wrong := [name for name in chosen if name not in PARTS]:
        parser.error(f"--parts must be of {', '.join(PARTS)}; got {wrong[0]!r}")
    torch.set_num_threads(1)
    print(f"load {os.getloadavg()[0]:.1f}, torch {torch.__version__}")
    for name in chosen:
        PARTS[name]()


if __name__ == "__main__":
    main()
