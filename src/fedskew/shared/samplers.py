"""Samplers: which rows a client trains on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from fedskew import rng
from fedskew.component import Sampler
from fedskew.tree import Tree

__all__ = ["ClassBalanced", "Shuffle", "batched", "realise"]


Array = np.ndarray[Any, Any]


def realise(labels: Array, target: Array, draw: np.random.Generator) -> Array:
    """Positions into labels [n] that hold ``target`` [C] rows of each class.

    Fewer than the client has: a random subset. More: as many whole copies as fit, the rest drawn without replacement,
    so no row is duplicated twice before all were once. A class without rows stays empty.
    """
    order = np.argsort(labels, kind="stable")
    bounds = np.searchsorted(labels[order], np.arange(len(target) + 1))
    chosen = []
    for c in np.flatnonzero(target):
        own = order[bounds[c] : bounds[c + 1]]
        if len(own) == 0:
            continue
        copies, rest = divmod(int(target[c]), len(own))
        chosen.append(np.tile(own, copies))
        chosen.append(draw.permutation(own)[:rest])
    return np.concatenate(chosen) if chosen else np.empty(0, np.int64)


def batched(pool: Array, pace: tuple[int, int, int], draw: np.random.Generator) -> Array:
    """The pool [n], shuffled anew each epoch, as mini-batches [E, S, B]; a last partial batch is padded by -1."""
    size, epochs, most = pace
    size = size or max(len(pool), 1)
    steps = -(-len(pool) // size)
    out = np.full((epochs, steps * size), -1, np.int64)
    for row in out:
        row[: len(pool)] = draw.permutation(pool)
    plan = out.reshape(epochs, steps, size)
    return plan[:, :most] if most else plan


@dataclass(frozen=True)
class Shuffle(Sampler):
    """Every offered row once an epoch, in a new random order; a quota takes a random subset for the whole round."""

    name = "shuffle"

    def plan(
        self, labels: Array, offered: Array, quota: Array | None, pace: tuple[int, int, int], shared: Tree, key: Tensor
    ) -> Array:
        """See `Sampler.plan`: duplicates up to ``offered``, a subset of ``quota``, then shuffled mini-batches."""
        target = offered if quota is None else np.minimum(offered, quota)
        draw = rng.generator(key)
        return batched(realise(labels, target, draw), pace, draw)


@dataclass(frozen=True)
class ClassBalanced(Sampler):
    """Each row draws a class uniformly from those the client has, then a row of it; an epoch has as many rows as were
    offered. Drawn anew every epoch (Kang et al. 2020).
    """

    name = "class_balanced"
    reference = "kang2020"

    def plan(
        self, labels: Array, offered: Array, quota: Array | None, pace: tuple[int, int, int], shared: Tree, key: Tensor
    ) -> Array:
        """See the class; a quota only sets the number of rows and which classes may be drawn."""
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
