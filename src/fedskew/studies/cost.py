"""How long the runs of a study will take: from runs like them, or from steps that are measured here."""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from fedskew import models, rng
from fedskew.config.experiment import CLIENTS, Experiment
from fedskew.config.own import name_of
from fedskew.data.federation import federate
from fedskew.engines.runtime import one_thread
from fedskew.errors import FedskewError
from fedskew.method import Pace
from fedskew.settings import COHORT
from fedskew.studies.address import dataset_of

if TYPE_CHECKING:
    from fedskew.studies.study import Planned, Study


EVALUATED = 512  # rows of a measured evaluation
REPEATS = 3
SLOW = 0.3  # seconds of a call, whose start-up then counts little


@dataclass(frozen=True)
class Cost:
    """What the missing runs of a study cost.

    Attributes:
        seconds: Of one process, for all of them.
        runs: How many are missing.
        by_steps: How many of them are estimated from measured steps, since no finished run is like them.
        unknown: How many of them nothing is known of.
    """

    seconds: float = 0.0
    runs: int = 0
    by_steps: int = 0
    unknown: int = 0


def cost_of(study: Study, measure: bool = False) -> Cost:
    """The cost of a study's missing runs.

    A run takes as long a round as the median of finished runs of the same method, data and network; else of the same
    data and network. Where there are none and ``measure`` is set, a step of the network is measured on one thread, and
    rounds x (steps x seconds of a step) + evaluations x seconds of one are added up. Work of a method beside plain
    training, such as second models, is not in it.

    Args:
        study: The study.
        measure: Whether to measure steps; it takes seconds.
    """
    known: dict[str, list[float]] = {}
    everything = [*study.trials(), *study.plan()]
    for one in everything:
        entry = one.entry(study.store)
        if entry and entry.state == "finished" and entry.summary.get("rounds"):
            rate = entry.summary["total_wall_s"] / entry.summary["rounds"]
            for key in _alike(one):
                known.setdefault(key, []).append(rate)
    seconds, by_steps, unknown, missing = 0.0, 0, 0, study.missing(everything)
    for one in missing:
        made = one.cell.experiment
        rates = next((known[key] for key in _alike(one) if key in known), None)
        if made is not None and rates is not None:
            seconds += statistics.median(rates) * made.rounds
        elif made is not None and measure and (measured := run_seconds(made)) is not None:
            seconds += measured
            by_steps += 1
        else:
            unknown += 1
    return Cost(seconds, len(missing), by_steps, unknown)


def run_seconds(experiment: Experiment) -> float | None:
    """What a run takes on one thread, from measured steps; None where its data or its network cannot be had.

    A cohort is as many clients of the mean number of steps, which the pace gives for the rows that each client has.
    """
    try:
        data = dataset_of(experiment.data, experiment.path)
        clients, steps, rows = _local(experiment)
        model = experiment.network
        step, forward = step_seconds(model, tuple(data.x.shape[1:]), data.classes, max(1, round(rows / steps)))
    except FedskewError:
        return None
    evaluations = -(-experiment.rounds // experiment.eval_every)
    parts = (experiment.rounds - evaluations) * (experiment.eval_rows or 0)
    trained = experiment.rounds * min(experiment.cohort or COHORT, clients) * steps
    return trained * step + (evaluations * len(data.y_test) + parts) / EVALUATED * forward


def _local(experiment: Experiment) -> tuple[int, float, float]:
    """(clients, mean steps of a client's local run, mean rows of it), of the first split, as its pace has them."""
    clients = CLIENTS if experiment.clients is None and not experiment.partition.decides else experiment.clients
    own = (experiment.longtail, experiment.validation, experiment.rows_at_server, experiment.local_test)
    used = _rows(experiment.data, experiment.path, experiment.partition, clients, *own, experiment.heldout_clients)
    used = used[used > 0]  # nobody else is selected
    steps, rows = local_work(experiment.method.pace, used)
    return len(used), max(1.0, float(steps.mean())), max(1.0, float(rows.mean()))


def local_work(pace: Pace, used: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(steps, rows) of the first local run of clients that train on ``used`` rows in an epoch, [K] each."""
    plan = pace.of(used, 1, 1)
    every = torch.ceil(used / plan.batch.clamp(min=1))
    steps = plan.epochs * torch.where(plan.steps > 0, torch.minimum(every, plan.steps.to(every.dtype)), every)
    if plan.total is not None:
        steps = torch.where(plan.total > 0, torch.minimum(steps, plan.total.to(steps.dtype)), steps)
    return steps, torch.minimum(steps * plan.batch, (used * plan.epochs).to(steps.dtype))


@lru_cache(256)
def _rows(
    data: Any, path: str | None, partition: Any, clients: int | None, longtail: Any, validation: float, auxiliary: int,
    local_test: float, heldout_clients: float,
) -> torch.Tensor:  # fmt: skip
    """The rows that each client trains on, [N] int64, of seed 0."""
    fed = federate(
        dataset_of(data, path), partition, clients=clients, seed=0, longtail=longtail, validation=validation,
        auxiliary=auxiliary, local_test=local_test, heldout_clients=heldout_clients,
    )  # fmt: skip
    return torch.from_numpy(np.asarray(fed.counts).sum(1)).to(torch.int64)


@lru_cache(64)
@one_thread()
def step_seconds(model: Any, shape: tuple[int, ...], classes: int, batch: int) -> tuple[float, float]:
    """(seconds of a training step of ``batch`` rows, of a forward pass of 512), on one thread."""
    network = models.build(model, shape, classes, 0)
    rows = max(batch, EVALUATED)
    x, y = rng.uniform(rng.key(0, "cost"), (rows, *shape)), torch.arange(rows) % classes

    def step() -> None:
        loss = nn.functional.cross_entropy(network(x[:batch]), y[:batch])
        torch.autograd.grad(loss, [p for p in network.parameters() if p.requires_grad])

    def forward() -> None:
        with torch.no_grad():
            network(x[:EVALUATED])

    return _median(step), _median(forward)


def _median(what: Callable[[], None]) -> float:
    """Seconds, after a first call that warms up; of what is slow, that call says enough."""
    first = timeit.timeit(what, number=1)
    return first if first > SLOW else statistics.median(timeit.repeat(what, repeat=REPEATS, number=1))


def _alike(one: Planned) -> list[str]:
    """What tells the time of a run: runs of the same method, data and network; then of the same data and network."""
    made = one.cell.experiment
    if made is None:
        return []
    work = f"{made.data.name} {name_of(made.model)} {made.device} {made.cohort}"
    return [f"{one.cell.label} {one.cell.setting} {work}", f"{one.cell.label} {work}", work]
