"""Rows that a client is tested on: a share of the test set, or rows of its own that it does not train on."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from fedskew import rng
from fedskew.data.partitioners.base import Partition, gather

__all__ = ["hold_out", "share_out"]


def hold_out(partition: Partition, fraction: float, seed: int) -> tuple[Partition, Partition]:
    """Hold out a fraction of each client's rows.

    A client of n rows that nobody else has holds out floor(fraction n + 1/2) of them, and trains on one of
    them at least. They are drawn alike under the key (seed, client). The draw is not stratified, as in the loaders that
    this follows: FedRepo takes a client's first max(floor(0.2 n), 1) rows for its test, FedLA trains on the first 80 %.

    Args:
        partition: Rows of each client.
        fraction: In [0, 1).
        seed: Seed of the draw.

    Returns:
        (rows that each client trains on, rows that it holds out), both in ascending order.

    Example:
        >>> import numpy as np
        >>> from fedskew.data import Partition
        >>> from fedskew.data.local_test import hold_out
        >>> left, held = hold_out(Partition(np.arange(12), np.array([0, 10, 11, 12])), 0.2, seed=0)
        >>> left.sizes.tolist(), held.sizes.tolist()
        ([8, 1, 1], [2, 0, 0])
    """
    key, picked = rng.key(seed, "data", "rows of the local test"), np.zeros(len(partition.rows), bool)
    owners = np.bincount(partition.rows, minlength=1)[partition.rows]
    for k, size in enumerate(partition.sizes.tolist()):
        start = partition.offsets[k]
        alone = start + np.flatnonzero(owners[start : start + size] == 1)
        take = min(math.floor(fraction * len(alone) + 0.5), max(len(alone) - 1, 0))
        if take:
            picked[rng.generator(key, k).permutation(alone)[:take]] = True
    ends = np.concatenate([[0], np.cumsum(picked)])[partition.offsets].astype(np.int64)
    held = Partition(partition.rows[picked], ends)
    return Partition(partition.rows[~picked], partition.offsets - ends), held


def share_out(labels: np.ndarray, counts: Tensor, seed: int) -> Partition:
    """Deal the rows of a test set to clients, each class in proportion to their training rows of it.

    Args:
        labels: Labels of the test rows, [n].
        counts: Training rows of each class at each client, int64 [N, C].
        seed: Seed of the draws.

    Returns:
        Rows of each client; those of a class that no client trains on are left out.
    """
    clients, order = len(counts), rng.key(seed, "data", "local test")
    owner = np.full(len(labels), -1)
    for c, owned in enumerate(counts.numpy().T):
        rows = rng.generator(order, c, "rows").permutation(np.flatnonzero(labels == c))
        tie = rng.generator(order, c, "ties").permutation(clients)
        shares = _proportional(len(rows), owned, tie)
        owner[rows[: shares.sum()]] = np.repeat(np.arange(clients), shares)
    return gather(owner, clients)


def _proportional(total: int, weights: np.ndarray, tie: np.ndarray) -> np.ndarray:
    """Whole shares of ``total`` in proportion to ``weights`` [N], by largest remainders, in exact integers."""
    mass = int(weights.sum())
    if mass == 0:
        return np.zeros_like(weights)
    shares, rest = np.divmod(total * weights, mass)
    order = tie[np.argsort(-rest[tie], kind="stable")]
    shares[order[: total - int(shares.sum())]] += 1
    return np.asarray(shares)
