"""FedLab: its standalone pipeline, FedAvg handler and serial trainer, on data loaders over resident tensors."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, where common is

from common import work as bench

bench.declare_vision_operators()

import torch
from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler
from fedlab.core.standalone import StandalonePipeline
from fedlab.utils.functional import evaluate
from torch.utils.data import DataLoader, TensorDataset


class Rows:
    """The split, in the form that FedLab's trainer asks for: a data loader a client."""

    def __init__(self, work: bench.Work, x: torch.Tensor, y: torch.Tensor) -> None:
        self.work, self.x, self.y = work, x, y

    def get_dataloader(self, k: int, batch_size: int) -> DataLoader:
        rows = bench.rows_of(self.work, k)
        return DataLoader(TensorDataset(self.x[rows], self.y[rows]), batch_size=batch_size, shuffle=True)


class Pipeline(StandalonePipeline):
    """FedLab's loop, which leaves the evaluation to its user."""

    def __init__(
        self, handler: FedAvgServerHandler, trainer: FedAvgSerialClientTrainer, test: DataLoader, clock: bench.Clock
    ) -> None:
        super().__init__(handler, trainer)
        self.test, self.clock, self.accuracy = test, clock, float("nan")

    def evaluate(self) -> None:
        self.accuracy = evaluate(self.handler.model, torch.nn.CrossEntropyLoss(), self.test)[1]
        self.clock.tick()


def main() -> None:
    """Train and report."""
    work, clock, steps = bench.options(__doc__).work, bench.Clock(), bench.Steps()
    x, y, x_test, y_test = bench.make_data(work)
    handler = FedAvgServerHandler(bench.make_model(work), work.rounds, work.cohort / work.clients)
    trainer = FedAvgSerialClientTrainer(bench.make_model(work), work.clients)
    trainer.setup_dataset(Rows(work, x, y))
    trainer.setup_optim(work.epochs, work.batch, work.lr)
    for group in trainer.optimizer.param_groups:  # FedLab's own set-up has no weight decay
        group["weight_decay"] = work.weight_decay
    pipeline = Pipeline(
        handler, trainer, DataLoader(TensorDataset(x_test, y_test), batch_size=bench.EVALUATION_ROWS), clock
    )
    clock.start()
    pipeline.main()
    bench.report("fedlab", work, clock, pipeline.accuracy, steps.count)


if __name__ == "__main__":
    main()
