"""Stacks of clients: their jobs with a leading axis K, and their steps, padded to the longest local run."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew import tree
from fedskew.client import Job, Own
from fedskew.engines.jobs import Place
from fedskew.types import Carry

__all__ = ["DIMS", "Now", "contiguous", "schedule", "stack"]

DIMS: Any = Job(None, 0)  # type: ignore[arg-type]  # vmap's axes of a stacked job
Now = tuple[Tensor, ...]  # positions [K, D, B], keys [K, D], epoch [K], step [K], and active [K] where some have ended


def stack(jobs: list[Job]) -> Job:
    """One job of K clients: what differs has a leading axis [K]."""
    return Job(jobs[0].shared, Own(*(tree.stack([getattr(j.own, n) for j in jobs]) for n in Own._fields)))


def contiguous(carry: Carry) -> Carry:
    """Leaves with memory of their own: vmap gives views of what all clients share."""
    return Carry(*(tree.map_tree(torch.Tensor.contiguous, field) for field in carry))


def schedule(places: list[Place], device: torch.device) -> list[Now]:
    """Each step's rows, keys (each client's own, as in the sequential engine), and where in its run a client is."""
    at = torch.from_numpy(_padded(places)).to(device)
    clients, total, draws = at.shape[:3]
    keys = torch.zeros(clients, total, draws, dtype=torch.int64)
    for row, place in zip(keys, places, strict=True):
        row[: len(place.keys), : place.keys.shape[1]] = place.keys
    epoch = np.ones((clients, total), np.int64)
    for i, p in enumerate(places):
        epoch[i, : len(p.plan.epoch)] = p.plan.epoch
    number = torch.arange(1, total + 1, device=device).expand(clients, total)
    steps = np.array([len(p.plan.batches) for p in places])
    active = torch.from_numpy(np.arange(total) < steps[:, None]).to(device)
    each = (at, keys.to(device), torch.from_numpy(epoch).to(device), number, active)
    columns = zip(*(column.unbind(1) for column in each), strict=True)
    return [now if t >= steps.min() else now[:-1] for t, now in enumerate(columns)]


def _padded(places: list[Place]) -> np.ndarray[Any, Any]:
    """Positions among the rows of the whole stack, [K, T, D, B]; -1 is padding."""
    shapes = np.array([p.plan.batches.shape for p in places])
    out, begin = np.full((len(places), *shapes.max(0)), -1, np.int64), 0
    for target, place in zip(out, places, strict=True):
        t, d, b = place.plan.batches.shape
        target[:t, :d, :b] = np.where(place.plan.batches >= 0, place.plan.batches + begin, -1)
        begin += len(place.plan.rows)
    return out
