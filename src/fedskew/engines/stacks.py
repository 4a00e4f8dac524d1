"""Stacks of clients: jobs with a leading axis K, steps that narrow as clients end, and how a cohort is cut.

Clients of like length stand beside each other, in as many stacks as pay. A stack's step costs what its operators cost,
whatever their size, and what its clients and rows cost:

    step = STEP + clients * parameters * (TOUCH + rows * PRODUCT)

Clients are sorted by their number of steps. A stack narrows as its clients end, so a shorter client costs nothing more;
what a further stack adds is the operators of its longest client, and what it saves are padded rows and waiting threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedskew import tree
from fedskew.client import ClientInputs, Job
from fedskew.engines.planning import ClientJob
from fedskew.engines.programs import each_leaf, leaves_of, rebuild
from fedskew.engines.stepper import StepMode
from fedskew.types import Carry

DIMS: Any = Job(None, 0)  # type: ignore[arg-type]  # vmap's axes of a stacked job
Now = tuple[Tensor, ...]  # positions [K, D, B], keys [K, D], epoch [K], step [K], and active [K] where some have ended


class Leg(NamedTuple):
    """Steps that follow each other and have the same clients: the first ``width`` of the stack."""

    width: int
    times: list[int]
    ended: bool  # some of these clients have ended before its last step


def stack(jobs: Sequence[Job]) -> Job:
    """One job of K clients: what differs has a leading axis [K]."""
    columns = (tree.stack([getattr(job.own, name) for job in jobs]) for name in ClientInputs._fields)
    return Job(jobs[0].shared, ClientInputs(*columns))


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
    copy: Carry = each_leaf(lambda leaf: leaf.clone(memory_format=torch.contiguous_format), carry)
    return copy


def narrowed(job: Job, carry: Carry, width: int) -> tuple[Job, Carry, Carry]:
    """The first clients of a stack, and what the others have become."""
    inputs, first = (each_leaf(lambda leaf: leaf[:width], given) for given in (job.own, carry))
    return Job(job.shared, inputs), first, each_leaf(lambda leaf: leaf[width:], carry)


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


def schedule(clients: Sequence[ClientJob], device: torch.device, few: bool = False) -> list[tuple[Leg, list[Now]]]:
    """The steps of each leg of a stack that is sorted, its longest client first; ``few`` widths as in `legs`.

    A step has each client's rows, keys (its own, as in the sequential engine), and where in its run it is.
    """
    at = torch.from_numpy(positions(clients)).to(device)
    count, total, draws = at.shape[:3]
    keys = torch.zeros(count, total, draws, dtype=torch.int64)
    epoch = np.ones((count, total), np.int64)
    for i, (row, client) in enumerate(zip(keys, clients, strict=True)):
        row[: len(client.keys), : client.keys.shape[1]] = client.keys
        epoch[i, : len(client.plan.epoch)] = client.plan.epoch
    number = torch.arange(1, total + 1, device=device).expand(count, total)
    steps = [len(p.plan.batches) for p in clients]
    active = torch.arange(total, device=device) < torch.tensor(steps).to(device).unsqueeze(1)
    each = (at, keys.to(device), torch.from_numpy(epoch).to(device), number, active)
    columns = list(zip(*(column.unbind(1) for column in each), strict=True))

    def now(t: int, leg: Leg) -> Now:
        return tuple(leaf[: leg.width] for leaf in columns[t][: None if leg.ended else -1])

    return [(leg, [now(t, leg) for t in leg.times]) for leg in legs(steps, total, few)]


def positions(clients: Sequence[ClientJob]) -> np.ndarray[Any, Any]:
    """Positions among the rows of the whole stack, [K, T, D, B]; -1 is padding."""
    shapes = np.array([p.plan.batches.shape for p in clients])
    out, begin = np.full((len(clients), *shapes.max(0)), -1, np.int64), 0
    for target, client in zip(out, clients, strict=True):
        t, d, b = client.plan.batches.shape
        target[:t, :d, :b] = np.where(client.plan.batches >= 0, client.plan.batches + begin, -1)
        begin += len(client.plan.rows)
    return out


# How a cohort is cut


# Microseconds on two cores of an AMD EPYC, float32: notes/engines.md says how they were measured. They
# decide only what is stacked with what, so that another machine's may be off by a factor.
STEP = {
    StepMode.WRITTEN: 85.0,
    StepMode.FUSED: 600.0,
    StepMode.VMAP: 1500.0,
    StepMode.RECORDED: 250.0,
}  # the operators of a step
TOUCH = 0.0004  # a parameter is read and written
PRODUCT = 0.00005  # a parameter meets a row, forwards and backwards
SEARCHED = 64  # places at which sorted clients may be cut, at least; it bounds the search among many clients


class Length(NamedTuple):
    """What makes a local run long."""

    steps: int
    rows: int  # of a step, padded


class Price(NamedTuple):
    """Microseconds of a stack's step."""

    step: float
    touch: float  # a client
    product: float  # a client's row
    python: bool = False  # its operators are short and called from Python, so that threads wait for each other

    @classmethod
    def of(cls, parameters: int, mode: StepMode) -> Price:
        """The price of a network whose steps run in this mode."""
        return cls(STEP[mode], TOUCH * parameters, PRODUCT * parameters, mode in (StepMode.WRITTEN, StepMode.FUSED))

    def stack(self, lengths: Sequence[Length]) -> float:
        """Of all steps of a stack whose first client is its longest."""
        rows = max(run.rows for run in lengths)
        return self.step * lengths[0].steps + sum(run.steps for run in lengths) * (self.touch + rows * self.product)


def length(batches: np.ndarray[Any, Any]) -> Length:
    """Of a plan's mini-batches [T, D, B]."""
    return Length(len(batches), batches.shape[1] * batches.shape[2])


def cut(lengths: Sequence[Length], threads: int, most: int, price: Price) -> list[list[int]]:
    """Places of the clients of each stack, from the longest client to the shortest; the costliest stack comes first.

    Args:
        lengths: of the clients.
        threads: that train stacks at the same time.
        most: clients that a stack may have.
        price: of a step.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i].steps, -lengths[i].rows))
    parts = [order[a:b] for a, b in pairwise(_cheapest([lengths[i] for i in order], most, price))]

    def cost(part: list[int]) -> float:
        return price.stack([lengths[i] for i in part])

    def end(parts: list[list[int]]) -> float:
        alone = price.python * price.step * sum(lengths[part[0]].steps for part in parts)
        return max(_span(list(map(cost, parts)), threads), alone)

    parts.sort(key=cost, reverse=True)
    while len(parts[0]) > 1:  # as long as the threads end sooner for it
        split = _halves(parts[0], cost)
        after = sorted([*split, *parts[1:]], key=cost, reverse=True)
        if end(after) >= 0.98 * end(parts):
            break
        parts = after
    return parts


def _cheapest(lengths: list[Length], most: int, price: Price) -> list[int]:
    """Where sorted clients are cut, 0 and their number included, so that the sum of the stacks' costs is least."""
    n = len(lengths)
    edges = np.linspace(0, n, max(min(n, SEARCHED), -(-n // most)) + 1).round().astype(int)
    steps, rows = (np.array(column, float) for column in zip(*lengths, strict=True))
    done, widest = np.concatenate([[0.0], steps.cumsum()]), np.zeros(len(edges) - 1)
    best, came = np.full(len(edges), np.inf), np.zeros(len(edges), int)
    best[0] = 0.0
    for j in range(1, len(edges)):
        i = int(np.searchsorted(edges, edges[j] - most))  # the first place from which a stack may begin
        widest[:j] = np.maximum(widest[:j], rows[edges[j - 1] : edges[j]].max())
        each = price.touch + widest[i:j] * price.product
        costs = best[i:j] + price.step * steps[edges[i:j]] + (done[edges[j]] - done[edges[i:j]]) * each
        came[j] = i + int(costs.argmin())
        best[j] = costs[came[j] - i]
    at = [len(edges) - 1]
    while at[-1]:
        at.append(int(came[at[-1]]))
    return [int(edges[j]) for j in reversed(at)]


def _halves(part: list[int], cost: Callable[[list[int]], float]) -> tuple[list[int], list[int]]:
    """A stack in two that cost about the same."""
    low, high = 1, len(part) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if cost(part[:middle]) < cost(part[middle:]) else (low, middle)
    return part[:low], part[low:]


def _span(costs: list[float], threads: int) -> float:
    """When the last thread ends, if each takes the next stack as it becomes free."""
    ends = [0.0] * threads
    for cost in costs:
        ends[ends.index(min(ends))] += cost
    return max(ends)
