"""How a cohort is cut into stacks: clients of like length beside each other, as many stacks as pay.

A stack's step costs what its operators cost, whatever their size, and what its clients and rows cost:

    step = STEP + clients * parameters * (TOUCH + rows * PRODUCT)

Clients are sorted by their number of steps. A stack narrows as its clients end, so a shorter client costs nothing more;
what a further stack adds is the operators of its longest client, and what it saves are padded rows and waiting threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fedskew.engines.ways import Way

__all__ = ["Length", "Price", "cut", "length"]

# Microseconds on two cores of an AMD EPYC, float32: notes/performance.md says how they were measured. They
# decide only what is stacked with what, so that another machine's may be off by a factor.
STEP = {Way.WRITTEN: 85.0, Way.AROUND: 600.0, Way.VMAP: 1500.0, Way.RECORDED: 250.0}  # the operators of a step
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
    def of(cls, parameters: int, way: Way) -> Price:
        """The price of a network whose steps go this way."""
        return cls(STEP[way], TOUCH * parameters, PRODUCT * parameters, way in (Way.WRITTEN, Way.AROUND))

    def stack(self, lengths: Sequence[Length]) -> float:
        """Of all steps of a stack whose first client is its longest."""
        rows = max(one.rows for one in lengths)
        return self.step * lengths[0].steps + sum(one.steps for one in lengths) * (self.touch + rows * self.product)


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
    for one in costs:
        ends[ends.index(min(ends))] += one
    return max(ends)
