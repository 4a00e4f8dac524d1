"""Flower: ServerApp and ClientApp with its FedAvg on the Ray simulation engine, one CPU a client.

Every actor makes the data set once and keeps it; a client's data loader is made anew each round, as in Flower's guides.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ.update(FLWR_TELEMETRY_ENABLED="0", RAY_USAGE_STATS_ENABLED="0", RAY_DISABLE_IMPORT_WARNING="1")
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")])
)

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, where common is

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from common import work as bench


def client_app(work: bench.Work) -> ClientApp:
    """Local SGD from the arrays of the message."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        x, y, *_ = bench.resident(work)
        rows = bench.rows_of(work, int(context.node_config["partition-id"]))
        net = bench.make_model(work)
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(net.parameters(), lr=work.lr, weight_decay=work.weight_decay)
        loader = DataLoader(TensorDataset(x[rows], y[rows]), batch_size=work.batch, shuffle=True)
        steps = 0
        for _ in range(work.epochs):
            for xb, yb in loader:
                optimizer.zero_grad()
                cross_entropy(net(xb), yb).backward()
                optimizer.step()
                steps += 1
        metrics = MetricRecord({"num-examples": rows.stop - rows.start, "steps": steps})
        return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)

    return app


class Cohorts(FedAvg):
    """FedAvg that counts the local steps of the replies: a client that failed is otherwise left out without a word."""

    steps = 0

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        kept = list(replies)
        self.steps += sum(int(r.content["metrics"]["steps"]) for r in kept if r.has_content())
        return super().aggregate_train(server_round, kept)


def server_app(work: bench.Work, clock: bench.Clock, found: dict[str, Any], threads: int) -> ServerApp:
    """FedAvg with central evaluation; ``found`` takes its accuracy and its steps."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        net = bench.make_model(work)

        def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
            torch.set_num_threads(threads)
            net.load_state_dict(arrays.to_torch_state_dict())
            found["accuracy"] = bench.accuracy(net, *bench.resident(work)[2:])
            clock.tick() if number else clock.start()  # number 0 is the model before any training
            return MetricRecord({"accuracy": found["accuracy"]})

        share = work.cohort / work.clients
        strategy = Cohorts(fraction_train=share, fraction_evaluate=0.0, min_available_nodes=work.clients)
        strategy.start(
            grid=grid, initial_arrays=ArrayRecord(net.state_dict()), num_rounds=work.rounds, evaluate_fn=evaluate
        )
        found["steps"] = strategy.steps

    return app


def main() -> None:
    """Train and report."""
    args = bench.options(__doc__)
    clock, found = bench.Clock(), {"accuracy": float("nan"), "steps": 0}
    server = server_app(args.work, clock, found, args.threads)
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0}}
    run_simulation(server, client_app(args.work), num_supernodes=args.work.clients, backend_config=resources)
    bench.report("flower", args.work, clock, found["accuracy"], found["steps"])


if __name__ == "__main__":
    main()
