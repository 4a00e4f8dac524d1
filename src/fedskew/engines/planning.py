"""Which rows each client trains on, step by step: planned on the host before anything is trained."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedskew import rng
from fedskew.method import Method
from fedskew.tree import Tree
from fedskew.types import Assignment, PacePlan

__all__ = ["Plan", "Source", "offer", "plan_client", "plan_pace"]

Array = np.ndarray[Any, Any]


class Source(NamedTuple):
    """Rows that queries and local runs read: a federation's clients, or the server's auxiliary rows by class."""

    rows: list[Array]  # of each client, into the training set
    labels: Array  # [n] of the training set
    counts: Tensor  # [N, C]


class Plan(NamedTuple):
    """One client's local run: T steps of D mini-batches of B rows."""

    client: int
    rows: Array  # [n] the client's rows in the training set
    batches: Array  # [T, D, B] positions into rows, -1 is padding
    epoch: Array  # [T] one-based
    epochs: int
    lr: float
    samples: int  # rows an epoch is drawn from
    owned: Tensor  # [C]
    offered: Tensor  # [C]
    used: Tensor  # [C]


def offer(method: Method, counts: Tensor, common: dict[str, Tree], round: int, seed: int) -> Tensor:
    """The sampler's offer for every client, [N, C]; keyed by the round, so that asking twice answers alike."""
    name = method.sampler.name
    return method.sampler.offer(counts, common.get(name, {}), round, rng.key(seed, round, name, "offer"))


def plan_pace(
    method: Method, offered: Tensor, assignment: Assignment, round: int, rounds: int
) -> tuple[Tensor, PacePlan]:
    """(rows of each class used [G*M, C], pace) for every place of the chains; padding uses no rows."""
    members = assignment.chains.shape[1]
    ids = assignment.chains.flatten()
    used = offered[ids.clamp(min=0)] * (ids >= 0).unsqueeze(1)
    if assignment.quota is not None:
        quota = assignment.quota.repeat_interleave(members, 0)
        used = torch.minimum(used, quota)
    return used, method.pace.of(used.sum(1), round, rounds)


def plan_client(
    method: Method,
    source: Source,
    client: int,
    place: int,
    offered: Tensor,
    used: Tensor,
    pace: tuple[int, int, int, float],
    shared: Tree,
    key: int,
) -> Plan:
    """The plan of one client. Every mini-batch of a step has an order of its own, so D of them stay aligned in size."""
    rows, labels = source.rows[client], source.labels[source.rows[client]]
    batch, epochs, steps, lr = pace
    draws = [
        method.sampler.plan(
            labels, offered.numpy(), used.numpy(), (batch, epochs, steps), shared, _key(rng.folded(key, 7 * d + place))
        )
        for d in range(method.local.batches)
    ]
    plan = np.stack(draws, axis=2)  # [E, S, D, B]
    epoch = np.repeat(np.arange(1, plan.shape[0] + 1), plan.shape[1])
    flat = plan.reshape(-1, *plan.shape[2:])
    real = (flat[:, 0] >= 0).any(1)
    flat, epoch = flat[real], epoch[real]
    return Plan(client, rows, flat, epoch, epochs, lr, int(used.sum()), source.counts[client], offered, used)


def _key(value: int) -> Tensor:
    return torch.tensor(value, dtype=torch.int64)
