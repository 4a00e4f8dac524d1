"""pfl-research: its SimulatedBackend and FederatedAveraging on resident tensors.

A user's rows are shuffled when its data set is made, once a round: pfl does not shuffle between local epochs.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ["PFL_PYTORCH_DEVICE"] = "cuda:0" if "cuda" in sys.argv else "cpu"  # pfl reads it when it is imported

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, where common is

from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm import FederatedAveraging, NNAlgorithmParams
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data import FederatedDataset
from pfl.data.dataset import Dataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from common import ragged
from common import work as bench


class Network(nn.Module):
    """The workload's network in the form that pfl asks for: a loss and metrics of its own."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def loss(self, x: Tensor, y: Tensor, is_eval: bool = False) -> Tensor:
        return cross_entropy(self.net(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        logits = self.net(x)
        loss = cross_entropy(logits, y, reduction="sum").item()
        return {"loss": Weighted(loss, len(y)), "accuracy": Weighted((logits.argmax(1) == y).sum().item(), len(y))}


class Watch(TrainingProcessCallback):
    """The rounds' clock; stands after the evaluation in the list of callbacks, so a round ends with it."""

    def __init__(self, clock: bench.Clock) -> None:
        self.clock, self.accuracy = clock, float("nan")

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        self.clock.start()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.clock.tick()
        found = aggregate_metrics.to_simple_dict()
        self.accuracy = next(v for name, v in found.items() if name.endswith("accuracy"))
        return False, Metrics()


def arguments(parser: argparse.ArgumentParser) -> None:
    """What this peer takes beside the common options."""
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")


def main() -> None:
    """Train and report."""
    args = bench.options(__doc__, arguments)
    work, steps = args.work, bench.Steps()
    x, y, x_test, y_test = (t.to(args.device) for t in bench.make_data(work))

    def user(k: int) -> Dataset:
        rows = bench.rows_of(work, k)
        order = torch.randperm(rows.stop - rows.start, device=args.device)
        return Dataset(raw_data=[x[rows][order], y[rows][order]], user_id=str(k))

    def optimizer(params: list[Tensor], lr: float) -> torch.optim.Optimizer:
        return torch.optim.SGD(params, lr, weight_decay=work.weight_decay)

    net, clock = Network(bench.make_model(work)).to(args.device), bench.Clock()
    central = torch.optim.SGD(net.parameters(), 1.0)
    model = PyTorchModel(net, local_optimizer_create=optimizer, central_optimizer=central)
    draw = get_user_sampler("random", list(range(work.clients)))
    if work.ragged:  # the workload's own cohorts, one client a call
        draw = (k for r in range(work.rounds) for k in ragged.cohort(work.clients, work.cohort, r)).__next__
    users = FederatedDataset(user, draw)
    evaluation, watch = NNEvalHyperParams(local_batch_size=bench.EVALUATION_ROWS), Watch(clock)
    FederatedAveraging().run(
        NNAlgorithmParams(work.rounds, evaluation_frequency=1, train_cohort_size=work.cohort, val_cohort_size=0),
        SimulatedBackend(training_data=users, val_data=None),
        model,
        NNTrainHyperParams(local_batch_size=work.batch, local_num_epochs=work.epochs, local_learning_rate=work.lr),
        evaluation,
        callbacks=[CentralEvaluationCallback(Dataset(raw_data=[x_test, y_test]), evaluation), watch],
    )
    local = steps.count - work.rounds  # the server takes a step a round, too
    bench.report("pfl", work, clock, watch.accuracy, local, device=args.device)


if __name__ == "__main__":
    main()
