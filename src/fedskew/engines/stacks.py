"""Stacks of clients: their jobs with a leading axis K, and their steps, which narrow as clients end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedskew import tree
from fedskew.client import Job, Own
from fedskew.engines.flat import leaves_of, rebuild
from fedskew.engines.jobs import Place
from fedskew.types import Carry

__all__ = ["DIMS", "Leg", "Now", "cloned", "legs", "mapped", "narrowed", "positions", "schedule", "stack", "whole"]

DIMS: Any = Job(None, 0)  # type: ignore[arg-type]  # vmap's axes of a stacked job
Now = tuple[Tensor, ...]  # positions [K, D, B], keys [K, D], epoch [K], step [K], and active [K] where some have ended


class Leg(NamedTuple):
    """Steps that follow each other and have the same clients: the first ``width`` of the stack."""

    width: int
    times: list[int]
    ended: bool  # some of these clients have ended before its last step


def stack(jobs: Sequence[Job]) -> Job:
    """One job of K clients: what differs has a leading axis [K]."""
    return Job(jobs[0].shared, Own(*(tree.stack([getattr(j.own, n) for j in jobs]) for n in Own._fields)))


def mapped(function: Callable[..., Any], *trees: Any) -> Any:
    """``torch.vmap`` of a function over all clients of a stack: over the first axis of every leaf of every tree.

    torch flattens trees too, at five times the cost of all else that vmap does, which counts in every local step.
    """
    results: list[Any] = []

    def flat(*leaves: Tensor) -> tuple[Tensor, ...]:
        results.append(function(*rebuild(trees, iter(leaves))))
        return tuple(leaves_of(results[0]))

    leaves = torch.vmap(flat)(*leaves_of(trees))
    return rebuild(results[0], iter(leaves))


def cloned(carry: Carry) -> Carry:
    """Leaves with contiguous memory of their own: vmap gives views of what all clients share."""

    def clone(leaf: Tensor) -> Tensor:
        return leaf.clone(memory_format=torch.contiguous_format)

    return Carry(*(tree.map_tree(clone, field) for field in carry))


def narrowed(job: Job, carry: Carry, width: int) -> tuple[Job, Carry, Carry]:
    """The first clients of a stack, and what the others have become."""
    own = Own(*(tree.map_tree(lambda leaf: leaf[:width], field) for field in job.own))
    first, rest = (
        Carry(*(tree.map_tree(lambda leaf, at=at: leaf[at], field) for field in carry))
        for at in (slice(width), slice(width, None))
    )
    return Job(job.shared, own), first, rest


def whole(carries: Sequence[Carry]) -> Carry:
    """The carry of all clients of a stack, from the parts in which they ended; the last part comes first."""
    if len(carries) == 1:
        return carries[0]
    return Carry(*(tree.concatenate(list(fields)) for fields in zip(*reversed(carries), strict=True)))


def legs(steps: Sequence[int], total: int, few: bool) -> list[Leg]:
    """How a stack narrows. Clients that have ended are left out.

    Args:
        steps: of each client, the longest first.
        total: steps of the stack.
        few: let it have one of a few widths, so that recorded steps come again, and mask clients beyond: 1, 2, 3, 4, 5,
            6, 7, 8, 10, 12, 14, 16, 20, ...
    """
    counts = (np.arange(total) < np.array(steps)[:, None]).sum(0).tolist()

    def width(count: int) -> int:
        unit = 1 << max(count.bit_length() - 3, 0) if few else 1
        return max(min(-(-count // unit) * unit, len(steps)), 1)

    groups = [list(group) for _, group in groupby(range(total), key=lambda t: width(counts[t]))]
    return [Leg(width(counts[g[0]]), g, counts[g[-1]] < width(counts[g[0]])) for g in groups]


def schedule(places: Sequence[Place], device: torch.device, few: bool = False) -> list[tuple[Leg, list[Now]]]:
    """The steps of each leg of a stack that is sorted, its longest client first; ``few`` widths as in `legs`.

    A step has each client's rows, keys (its own, as in the sequential engine), and where in its run it is.
    """
    at = torch.from_numpy(positions(places)).to(device)
    clients, total, draws = at.shape[:3]
    keys = torch.zeros(clients, total, draws, dtype=torch.int64)
    epoch = np.ones((clients, total), np.int64)
    for i, (row, place) in enumerate(zip(keys, places, strict=True)):
        row[: len(place.keys), : place.keys.shape[1]] = place.keys
        epoch[i, : len(place.plan.epoch)] = place.plan.epoch
    number = torch.arange(1, total + 1, device=device).expand(clients, total)
    steps = [len(p.plan.batches) for p in places]
    active = torch.arange(total, device=device) < torch.tensor(steps).to(device).unsqueeze(1)
    each = (at, keys.to(device), torch.from_numpy(epoch).to(device), number, active)
    columns = list(zip(*(column.unbind(1) for column in each), strict=True))

    def now(t: int, leg: Leg) -> Now:
        return tuple(leaf[: leg.width] for leaf in columns[t][: None if leg.ended else -1])

    return [(leg, [now(t, leg) for t in leg.times]) for leg in legs(steps, total, few)]


def positions(places: Sequence[Place]) -> np.ndarray[Any, Any]:
    """Positions among the rows of the whole stack, [K, T, D, B]; -1 is padding."""
    shapes = np.array([p.plan.batches.shape for p in places])
    out, begin = np.full((len(places), *shapes.max(0)), -1, np.int64), 0
    for target, place in zip(out, places, strict=True):
        t, d, b = place.plan.batches.shape
        target[:t, :d, :b] = np.where(place.plan.batches >= 0, place.plan.batches + begin, -1)
        begin += len(place.plan.rows)
    return out
