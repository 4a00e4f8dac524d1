"""Samplers: the rows that a client trains on, and their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from fedskew import rng
from fedskew.errors import FieldError
from fedskew.method.component import Sampler
from fedskew.types import Federation, Task, Tree

if TYPE_CHECKING:
    from fedskew.method.value import Method

Array = np.ndarray[Any, Any]
WIDE = 1024  # rows: narrower mini-batches keep their padding, since sums over another width differ in their last bits


def realise(labels: Array, target: Array, draw: np.random.Generator) -> Array:
    """Positions of rows that hold `target` rows of each class.

    A client with more rows of a class gives a random subset. One with fewer repeats all of them as often as it can and
    draws the rest without replacement. A class without rows stays empty.

    Args:
        labels: Labels of the client's rows, [n].
        target: Rows wanted of each class, [C].
        draw: Generator of the draws.

    Returns:
        Positions into `labels`, class by class.

    Example:
        >>> realise(np.array([0, 1, 1]), np.array([2, 2]), np.random.Generator(np.random.PCG64(0)))
        array([0, 0, 1, 2])
    """
    order = labels.argsort(kind="stable")
    bounds = labels[order].searchsorted(np.arange(len(target) + 1)).tolist()
    chosen = []
    for c, wanted in enumerate(target.tolist()):  # a hundred clients a round come by here: no array of a few numbers
        rows = order[bounds[c] : bounds[c + 1]]
        if not wanted or not len(rows):
            continue
        copies, rest = divmod(int(wanted), len(rows))
        some = draw.permutation(rows)  # drawn where none of it is wanted, too: later draws depend on it
        chosen += [rows] * copies
        if rest:
            chosen.append(some[:rest])
    return np.concatenate(chosen) if chosen else np.empty(0, np.int64)


def batched(pool: Array, pace: tuple[int, int, int], draw: np.random.Generator) -> Array:
    """The pool as mini-batches, shuffled anew in each epoch.

    Args:
        pool: Positions of the rows to train on, [n].
        pace: Batch size or 0 for all rows, epochs, and most steps of an epoch or 0 for all.
        draw: Generator of the shuffles.

    Returns:
        Positions [E, S, B]; -1 pads the last mini-batch. B is the batch size, or the rows of the pool where these are
        fewer and the batch size is above `WIDE`.

    Example:
        >>> batched(np.arange(3), (2, 1, 0), np.random.Generator(np.random.PCG64(0))).shape
        (1, 2, 2)
    """
    size, epochs, most = pace
    most_rows = max(len(pool), 1)
    size = min(size, most_rows) if size > WIDE else size or most_rows
    steps = -(-len(pool) // size)
    out = np.full((epochs, steps * size), -1, np.int64)
    for row in out:
        row[: len(pool)] = draw.permutation(pool)
    plan = out.reshape(epochs, steps, size)
    return plan[:, :most] if most else plan


@dataclass(frozen=True)
class Shuffle(Sampler):
    """Every row once an epoch, in a new random order; with a quota, a random subset for the whole round.

    Source: McMahan et al. 2017, algorithm 1, https://arxiv.org/abs/1602.05629

    Example:
        >>> Shuffle()
        Shuffle()
    """

    name = "shuffle"

    def plan(
        self, labels: Array, offered: Array, quota: Array | None, pace: tuple[int, int, int], shared: Tree, key: Tensor
    ) -> Array:
        """Rows repeated up to `offered` and cut to `quota`, then mini-batches [E, S, B] in random order."""
        target = offered if quota is None else np.minimum(offered, quota)
        draw = rng.generator(key)
        return batched(realise(labels, target, draw), pace, draw)


@dataclass(frozen=True)
class PoissonBatches(Sampler):
    """Each row in each mini-batch with probability B / n, whatever the others do; a mini-batch may be without rows.

    n are the rows of the client. An epoch has as many mini-batches as with `shuffle`. Where n is at most B, each
    mini-batch has all rows.

    Source: Abadi et al. 2016, section 3.1, https://arxiv.org/abs/1607.00133

    Example:
        >>> PoissonBatches()
        PoissonBatches()
    """

    name = "poisson_batches"
    reference = "abadi2016"
    bare = True

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """Raise FieldError beside a step of several mini-batches, which takes them of one size."""
        if method.local.batches > 1:
            rule = f"give mini-batches of one size beside {method.local.name!r}, whose steps read several of them"
            raise FieldError("Method", "sampler", rule, self.name)

    def plan(
        self, labels: Array, offered: Array, quota: Array | None, pace: tuple[int, int, int], shared: Tree, key: Tensor
    ) -> Array:
        """Mini-batches [E, S, W], W the rows of the largest."""
        draw, (size, epochs, _) = rng.generator(key), pace
        pool = realise(labels, offered if quota is None else np.minimum(offered, quota), draw)
        steps = epochs * batched(pool, (*pace[:1], 1, pace[2]), draw).shape[1]
        rows = [pool[draw.random(len(pool)) * len(pool) < (size or len(pool))] for _ in range(steps)]
        out = np.full((steps, max(map(len, rows), default=1) or 1), -1, np.int64)
        for padded, drawn in zip(out, rows, strict=True):
            padded[: len(drawn)] = drawn
        return out.reshape(epochs, -1, out.shape[1])


@dataclass(frozen=True)
class ClassBalanced(Sampler):
    """Rows drawn by class: each draw takes a class uniformly from those the client has, then a row of it.

    P(row b) = 1 / (C_k n_k,y_b) with C_k the number of classes that client k has. An epoch has as many rows as were
    offered and is drawn anew.

    Source: Kang et al. 2020, class-balanced sampling, https://arxiv.org/abs/1910.09217

    Example:
        >>> ClassBalanced()
        ClassBalanced()
    """

    name = "class_balanced"
    reference = "kang2020"

    def plan(
        self, labels: Array, offered: Array, quota: Array | None, pace: tuple[int, int, int], shared: Tree, key: Tensor
    ) -> Array:
        """Mini-batches [E, S, B]; a quota sets only the number of rows and the classes to draw from."""
        target = offered if quota is None else np.minimum(offered, quota)
        draw = rng.generator(key)
        owned = np.flatnonzero((target > 0) & (np.bincount(labels, minlength=len(target)) > 0))
        order = np.argsort(labels, kind="stable")
        starts = np.searchsorted(labels[order], owned)
        ends = np.searchsorted(labels[order], owned, side="right")
        epochs = []
        for _ in range(pace[1]):
            which = draw.integers(0, max(len(owned), 1), int(target.sum()) if len(owned) else 0)
            place = starts[which] + np.floor(draw.random(len(which)) * (ends - starts)[which]).astype(np.int64)
            epochs.append(batched(order[place], (pace[0], 1, pace[2]), draw)[0])
        return np.stack(epochs)
