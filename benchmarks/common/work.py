"""The same federated work for every peer: data, split, network, local steps, evaluation, and how it is reported.

A workload fixes everything that costs time. Pixels are made up, in the shape of the data set that the workload is
named after. Every client has the same number of rows, so every peer takes the same number of steps; where a workload is
ragged (`common.ragged`), the cohorts are fixed as well. A weak pattern in each class makes the work learnable: peers
that did the same work report accuracies that agree.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_post_hook

from common import ragged

EVALUATION_ROWS = 200  # faster on a CPU than 1000: the activations stay in its cache
OTHER_COHORTS = 0.25  # share by which their steps may differ from those of the workload's cohorts
PATTERN = 0.1  # standard deviation of a class's pattern, beside the pixels' noise of 1


@dataclass(frozen=True)
class Work:
    """One workload. A round trains ``cohort`` clients, then tests on ``test`` rows.

    All clients own ``rows`` rows; where it is ragged, that is the most, and sizes follow a power law, or that of each
    class, and sizes follow a split (`common.ragged`).
    """

    name: str
    model: str
    shape: tuple[int, ...]
    clients: int
    rows: int
    cohort: int
    epochs: int
    batch: int
    lr: float
    rounds: int
    weight_decay: float = 0.0
    test: int = 10_000
    classes: int = 10
    cpu: bool = True  # False: minutes a round on two cores, left out of bench.py's default
    threads: int = 1  # intra-op threads of the peers: small networks are no faster with two, convolutions are
    power: float = 0.0  # exponent of the clients' sizes; 0: all own the same number of rows
    split: str = ""  # "double" or "dirichlet"

    @property
    def ragged(self) -> bool:
        """Whether clients own different numbers of rows."""
        return bool(self.power or self.split)

    @property
    def sizes(self) -> np.ndarray[Any, Any]:
        """Rows of each client, [N]."""
        return ragged.sizes(self.clients, self.rows, self.power, self.split)

    @property
    def all_steps(self) -> int:
        """Local steps of all rounds, over their cohorts."""
        if not self.ragged:
            return self.rounds * self.cohort * self.epochs * -(-self.rows // self.batch)
        ids = [k for r in range(self.rounds) for k in ragged.cohort(self.clients, self.cohort, r)]
        return int((self.epochs * -(-self.sizes[ids] // self.batch)).sum())

    @property
    def dense(self) -> bool:
        """Whether the network has no convolutions."""
        return self.model in ("lr", "2nn") or self.model.startswith("mlp-")


MNIST, CIFAR, TABLE = (1, 28, 28), (3, 32, 32), (1, 8, 8)
WORKLOADS = {
    w.name: w
    for w in (
        # Seol & Kim 2023, case 4
        Work("mnist-lr", "lr", MNIST, 200, 300, 10, 5, 10, 0.03, rounds=10),
        # FLUTE's and FedML's comparison, LR-MNIST: their clients own 61 rows on average
        Work("flute-lr", "lr", MNIST, 1000, 60, 10, 1, 10, 0.03, rounds=100),
        # McMahan's 2NN over many small clients
        Work("mnist-2nn", "2nn", MNIST, 1000, 60, 50, 1, 10, 0.05, rounds=10),
        # FedGR 2023: the TensorFlow tutorial's network
        Work("cifar-tfcnn", "tfcnn", CIFAR, 100, 500, 10, 1, 64, 0.1, rounds=5, weight_decay=5e-4, threads=2),
        # pfl-research, benchmarks/image_classification, baseline.yaml (which evaluates every tenth round)
        Work("pfl-cifar", "pfl_cnn", CIFAR, 1000, 50, 50, 1, 10, 0.1, rounds=5, threads=2),
        # PFLlib's quick start: MNIST pooled, a quarter for testing, full batches only
        Work("pfllib-mnist", "pfllib_cnn", MNIST, 20, 2620, 20, 1, 10, 0.005, rounds=3, test=17_500, threads=2),
        # our own: thousands of clients of unequal size with few rows each, a hundred a round
        Work("ragged-mlp", "mlp-64", TABLE, 4000, 300, 100, 1, 10, 0.05, rounds=8, power=1.5),
        Work("ragged-lenet", "lenet", MNIST, 400, 300, 20, 1, 10, 0.05, rounds=8, power=1.5, test=2000),
        # FedBal's network, 2 instead of its 10 local epochs
        Work("fedbal-convnet", "convnet", CIFAR, 100, 500, 10, 2, 64, 0.01, rounds=3, cpu=False, threads=2),
        # FedGR's own federation at its paper's pace: Fashion-MNIST padded to 32x32, two labels a client
        Work("fedgr-fashion", "tfcnn-grey", (1, 32, 32), 100, 6000, 10, 5, 64, 0.1, rounds=5, weight_decay=5e-4,
             cpu=False, threads=2, split="double"),
        Work("dirichlet-lenet", "lenet", MNIST, 100, 6000, 10, 2, 64, 0.1, rounds=8, cpu=False, split="dirichlet"),
        Work("resnet20", "resnet20", CIFAR, 100, 500, 10, 1, 64, 0.1, rounds=3, cpu=False, threads=2),
    )
}  # fmt: skip

# ---------------------------------------------------------------------------------------------------------------------
# Networks: plain torch, since a peer's environment does not hold fedskew. The classifier is always named "fc".


def conv(before: int, after: int, size: int, pad: int = 0) -> list[nn.Module]:
    """A convolution and its ReLU."""
    return [nn.Conv2d(before, after, size, padding=pad), nn.ReLU()]


def net(trunk: list[nn.Module], features: int, classes: int) -> nn.Sequential:
    """Layers, then the classifier "fc"."""
    layers = OrderedDict((str(i), layer) for i, layer in enumerate(trunk))
    layers["fc"] = nn.Linear(features, classes)
    return nn.Sequential(layers)


def dense(before: int, after: int) -> list[nn.Module]:
    """A linear layer and its ReLU."""
    return [nn.Linear(before, after), nn.ReLU()]


class Block(nn.Module):
    """ResNet-20's block: two 3x3 convolutions; the shortcut takes every second pixel and pads new channels by zeros."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.stride, self.grow = stride, (after - before) // 2

    def forward(self, x: Tensor) -> Tensor:  # [B, before, H, W] -> [B, after, H/stride, W/stride]
        out = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        if self.grow:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.grow, self.grow))
        return F.relu(out + x)


def resnet20(classes: int) -> nn.Sequential:
    """Three stages of three blocks with 16, 32 and 64 channels."""
    trunk: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    before = 16
    for after in (16, 32, 64):
        for i in range(3):
            trunk.append(Block(before, after, 2 if i == 0 and after > 16 else 1))
            before = after
    return net([*trunk, nn.AdaptiveAvgPool2d(1), nn.Flatten()], 64, classes)


def mlp(widths: tuple[int, ...], classes: int, features: int = 784) -> nn.Sequential:
    """Dense layers on flat images."""
    trunk: list[nn.Module] = [nn.Flatten()]
    for width in widths:
        trunk += dense(features, width)
        features = width
    return net(trunk, features, classes)


def tfcnn(channels: int, classes: int) -> nn.Sequential:
    """The network of the TensorFlow tutorial for images of 32x32."""
    trunk = [*conv(channels, 32, 3), nn.MaxPool2d(2), *conv(32, 64, 3), nn.MaxPool2d(2), *conv(64, 64, 3)]
    return net([*trunk, nn.Flatten(), *dense(1024, 64)], 64, classes)


MODELS: dict[str, Callable[[int], nn.Module]] = {
    "lr": lambda c: mlp((), c),
    "2nn": lambda c: mlp((200, 200), c),
    "lenet": lambda c: net(
        [
            *conv(1, 6, 5, 2), nn.MaxPool2d(2), *conv(6, 16, 5), nn.MaxPool2d(2),
            nn.Flatten(), *dense(400, 120), *dense(120, 84),
        ],
        84, c,
    ),
    "tfcnn": lambda c: tfcnn(3, c),
    "tfcnn-grey": lambda c: tfcnn(1, c),
    "pfl_cnn": lambda c: net(
        [
            *conv(3, 32, 3), *conv(32, 64, 3), nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(),
            *dense(64 * 14 * 14, 128), nn.Dropout(0.5),
        ],
        128, c,
    ),
    "pfllib_cnn": lambda c: net(
        [*conv(1, 32, 5), nn.MaxPool2d(2), *conv(32, 64, 5), nn.MaxPool2d(2), nn.Flatten(), *dense(1024, 512)], 512, c
    ),
    "convnet": lambda c: net(
        [*conv(3, 64, 3, 1), *conv(64, 64, 3, 1), *conv(64, 128, 3, 1), nn.MaxPool2d(2, 2, 1), nn.Flatten()],
        128 * 17 * 17, c,
    ),
    "resnet20": resnet20,
}  # fmt: skip


def make_model(work: Work) -> nn.Module:
    """The workload's network; torch's own initial weights under one fixed seed, the generator left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if work.model.startswith("mlp-"):
            return mlp((int(work.model[4:]),), work.classes, math.prod(work.shape))
        return MODELS[work.model](work.classes)


# ---------------------------------------------------------------------------------------------------------------------
# Data


def labels_of(work: Work) -> Tensor:
    """Labels [n], client by client: k has five classes, k to k + 4 modulo C, as near equal as its rows allow."""
    sizes = torch.from_numpy(work.sizes)
    client = torch.arange(work.clients).repeat_interleave(sizes)
    row = torch.arange(len(client)) - (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    return (client + row % min(5, work.classes)) % work.classes


def make_data(work: Work) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x [n, ...], y [n], x_test, y_test: noise and a coarse pattern a class; client k owns the rows `rows_of`."""
    g = torch.Generator().manual_seed(0)
    channels, height, width = work.shape
    coarse = torch.randn(work.classes, channels, 4, 4, generator=g)
    pattern = PATTERN * F.interpolate(coarse, (height, width), mode="nearest")  # [C, channels, H, W]
    y, y_test = labels_of(work), torch.randint(0, work.classes, (work.test,), generator=g)
    return images(pattern, y, g), y, images(pattern, y_test, g), y_test


@lru_cache(maxsize=1)
def resident(work: Work) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`make_data`, once a process: for the workers of a simulation."""
    return make_data(work)


def images(pattern: Tensor, y: Tensor, g: torch.Generator) -> Tensor:
    """One image a label, [n, channels, H, W]; chunks, so that no second copy of the data set is made."""
    x = torch.randn(len(y), *pattern.shape[1:], generator=g)
    for part, labels in zip(x.split(4096), y.split(4096), strict=True):
        part += pattern[labels]
    return x


def rows_of(work: Work, k: int) -> slice:
    """The rows of client k."""
    begin = int(work.sizes[:k].sum()) if work.ragged else k * work.rows
    return slice(begin, begin + int(work.sizes[k]))


@torch.inference_mode()
def accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    """Share of right answers, in evaluation mode; the mode is put back."""
    before = net.training
    net.eval()
    right = sum(
        (net(a).argmax(1) == b).sum() for a, b in zip(x.split(EVALUATION_ROWS), y.split(EVALUATION_ROWS), strict=True)
    )
    net.train(before)
    return float(right) / len(y)


# ---------------------------------------------------------------------------------------------------------------------
# The command of a peer, and its one line


def options(doc: str | None, extra: Callable[[argparse.ArgumentParser], Any] | None = None) -> argparse.Namespace:
    """WORKLOAD [--rounds R] [--threads T], and what ``extra`` adds; ``work`` is the workload. Sets the thread count."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--rounds", type=int, help="instead of the workload's own number; the first is not counted")
    parser.add_argument("--threads", type=int, help="intra-op threads, instead of the workload's own number")
    if extra:
        extra(parser)
    args = parser.parse_args()
    work = WORKLOADS[args.workload]
    args.rounds, args.threads = args.rounds or work.rounds, args.threads or work.threads
    if args.rounds < 2:
        parser.error(f"--rounds must be at least 2, since the first is not counted; got {args.rounds}")
    args.work = replace(work, rounds=args.rounds)
    torch.set_num_threads(args.threads)
    return args


def process_started() -> float:
    """When this process was started, in seconds since 1970; where /proc does not tell, now."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        uptime = float(Path("/proc/uptime").read_text().split()[0])
    except OSError:
        return time.time()
    return time.time() - (uptime - ticks / os.sysconf("SC_CLK_TCK"))


STARTED = process_started()


class Clock:
    """Marks the end of every round, its evaluation included. ``start`` marks the beginning of the first."""

    def __init__(self) -> None:
        self.marks: list[float] = []
        self.first_at = float("nan")  # when the first round was over, in seconds since 1970

    def start(self) -> None:
        """The first round begins, or what prepares it."""
        self.marks = [time.perf_counter()]

    def tick(self) -> None:
        """A round is over."""
        self.marks.append(time.perf_counter())
        if len(self.marks) == 2:
            self.first_at = time.time()

    @property
    def rounds(self) -> list[float]:
        """Seconds of each round, the first included."""
        return [b - a for a, b in pairwise(self.marks)]

    @property
    def startup_s(self) -> float:
        """From the process's start to its first evaluated round, less the fastest: imports, data, engine, warming up.

        Frameworks prepare at different moments; this counts all of it wherever it happens.
        """
        return self.first_at - STARTED - min(self.rounds)

    @property
    def total_s(self) -> float:
        """From the process's start to the end of the last round: what a short run costs."""
        return self.first_at - STARTED + sum(self.rounds[1:])


class Steps:
    """Counts the steps of all torch optimizers in this process, so that a peer that did less work is found out."""

    def __init__(self) -> None:
        self.count = 0
        register_optimizer_step_post_hook(self._step)

    def _step(self, *_: Any) -> None:
        self.count += 1


def report(peer: str, work: Work, clock: Clock, score: float, steps: float, **facts: Any) -> None:
    """Print the RESULT line: median, least and most seconds of the rounds after the first, startup, memory, accuracy.

    ``steps`` are the local steps of all rounds. Exits where rounds or steps are missing: such a run did other work.
    Where clients are ragged, frameworks draw cohorts of their own: their seconds are scaled to the workload's steps.
    ``total_s`` is counted from the process's start to its last round's end.
    """
    if len(clock.rounds) != work.rounds:
        sys.exit(f"{peer}: {work.rounds} rounds were asked for; {len(clock.rounds)} came to an end")
    own = work.ragged and abs(steps / work.all_steps - 1) < OTHER_COHORTS  # cohorts that a framework drew
    if steps != work.all_steps and not own:
        sys.exit(f"{peer}: the rounds must take {work.all_steps} local steps; got {steps:g}")
    first, *rounds = (seconds * work.all_steps / steps for seconds in clock.rounds)
    line = {
        "peer": peer,
        "workload": work.name,
        "round_s": statistics.median(rounds),
        "round_min_s": min(rounds),
        "round_max_s": max(rounds),
        "first_round_s": first,
        "startup_s": clock.startup_s,
        "total_s": clock.total_s,
        "accuracy": score,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        **facts,
    }
    if torch.cuda.is_initialized():
        line["cuda_mb"] = torch.cuda.max_memory_allocated() / 2**20
    print("RESULT", json.dumps({k: round(v, 5) if isinstance(v, float) else v for k, v in line.items()}), flush=True)
