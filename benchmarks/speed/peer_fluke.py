"""fluke: its FedAVG and its FastDataLoader on resident tensors.

Rows are dealt to clients by fluke's own IID splitter: as many a client as everywhere else, so the steps are the same.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, where common is

from common import work as bench

bench.declare_vision_operators()

from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import DataSplitter
from fluke.data.datasets import DataContainer
from fluke.evaluation import ClassificationEval
from fluke.utils import FederationObserver


class Watch(FederationObserver):
    """The rounds' clock, and the last accuracy."""

    def __init__(self, clock: bench.Clock) -> None:
        self.clock, self.accuracy = clock, float("nan")

    def start_round(self, round: int, global_model: Any) -> None:
        if round == 1:
            self.clock.start()

    def server_evaluation(self, round: int, eval_type: str, evals: dict[str, float], **_: Any) -> None:
        self.accuracy = evals["accuracy"]

    def end_round(self, round: int) -> None:
        self.clock.tick()


def settings(work: bench.Work) -> DDict:
    """Hyper-parameters of client and server."""
    optimizer = DDict(name="SGD", lr=work.lr, weight_decay=work.weight_decay)
    client = DDict(
        batch_size=work.batch, local_epochs=work.epochs, loss="CrossEntropyLoss", optimizer=optimizer,
        scheduler=DDict(name="StepLR", gamma=1, step_size=1),
    )  # fmt: skip
    return DDict(client=client, server=DDict(weighted=True), model=bench.make_model(work))


def main() -> None:
    """Train and report."""
    work, clock, steps = bench.options(__doc__).work, bench.Clock(), bench.Steps()
    env = FlukeENV()
    env.set_seed(0)
    env.set_device("cpu")
    env.set_evaluator(ClassificationEval(eval_every=1, n_classes=work.classes))
    env.set_eval_cfg(pre_fit=False, post_fit=False, server=True, locals=False)
    data = DataContainer(*bench.make_data(work), work.classes)
    split = DataSplitter(data, distribution="iid", client_split=0.0, keep_test=True, server_test=True)
    algorithm, watch = FedAVG(n_clients=work.clients, data_splitter=split, hyper_params=settings(work)), Watch(clock)
    algorithm.set_callbacks([watch])
    algorithm.run(n_rounds=work.rounds, eligible_perc=work.cohort / work.clients)
    bench.report("fluke", work, clock, watch.accuracy, steps.count)


if __name__ == "__main__":
    main()
