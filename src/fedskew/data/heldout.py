"""What is held out of training: whole clients, rows of each client, and its share of the test set."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedskew import rng
from fedskew.data.arrays import draw_whole
from fedskew.data.partitioners.base import Partition, gather
from fedskew.errors import require

if TYPE_CHECKING:
    from fedskew.data.federation import Federation


def parted(fed: Federation, fraction: float) -> Federation:
    """Hold out a fraction of the clients.

    Args:
        fed: a federation in which all clients train.
        fraction: of the clients with rows, in (0, 1): floor(fraction n + 1/2) of n are held out, at least 1 and at most
            n - 1, drawn under (seed of the federation, "held-out clients").

    Returns:
        The federation without their rows, and they with theirs as its ``unseen``, but for rows that others train on,
        too. All clients keep their numbers.

    Raises:
        ConfigError: fewer than two clients have rows, or others train on all rows of those held out.

    Example:
        >>> import fedskew as fs
        >>> fed = fs.federate("digits", "iid", clients=5, heldout_clients=0.4)
        >>> int((fed.sizes > 0).sum()), int((fed.unseen.sizes > 0).sum())
        (3, 2)
    """
    trains = np.flatnonzero(fed.sizes.numpy())
    rule = "be 0 in a federation with fewer than two clients that have rows"
    require(len(trains) > 1, "heldout_clients", rule, fraction)
    count = min(max(math.floor(fraction * len(trains) + 0.5), 1), len(trains) - 1)
    out = np.zeros(fed.clients, bool)
    out[rng.generator(rng.key(fed.seed, "data", "held-out clients")).permutation(trains)[:count]] = True
    left = _only(fed, ~out)
    unseen = _only(fed, out, left.partition.rows)
    rule = "leave held-out clients a row that no other client trains on"
    require(len(unseen.partition.rows) > 0, "heldout_clients", rule, fraction)
    return replace(left, heldout_clients=fraction, unseen=unseen)


def _only(fed: Federation, clients: np.ndarray, without: np.ndarray | None = None) -> Federation:
    """The federation in which only these clients [N] have rows, and train on none of ``without``."""
    partition, held = (part and part.masked(np.repeat(clients, part.sizes)) for part in (fed.partition, fed.held))
    assert partition is not None
    if without is not None:
        codes = np.arange(len(fed.dataset.y)) if fed.dataset.units is None else fed.dataset.units.numpy()
        partition = partition.masked(~np.isin(codes[partition.rows], codes[without]))
    counts = torch.from_numpy(partition.counts(fed.dataset.y.numpy(), fed.dataset.classes))
    return replace(fed, partition=partition, counts=counts, held=held)


def hold_out(
    partition: Partition, fraction: float, seed: int, units: Tensor | None = None
) -> tuple[Partition, Partition]:
    """Hold out a fraction of each client's rows.

    A client of n rows that nobody else has holds out floor(fraction n + 1/2) of them, and trains on one of
    them at least. They are drawn alike under the key (seed, client). The draw is not stratified, as in the loaders that
    this follows: FedRepo takes a client's first max(floor(0.2 n), 1) rows for its test, FedLA trains on the first 80 %.

    Args:
        partition: Rows of each client.
        fraction: In [0, 1).
        seed: Seed of the draw.
        units: Codes of all rows, such as patients, which are held out whole; those that two clients have train.

    Returns:
        (rows that each client trains on, rows that it holds out), both in ascending order.

    Example:
        >>> import numpy as np
        >>> from fedskew.data import Partition
        >>> from fedskew.data.heldout import hold_out
        >>> left, held = hold_out(Partition(np.arange(12), np.array([0, 10, 11, 12])), 0.2, seed=0)
        >>> left.sizes.tolist(), held.sizes.tolist()
        ([8, 1, 1], [2, 0, 0])
    """
    key, picked = rng.key(seed, "data", "rows of the local test"), np.zeros(len(partition.rows), bool)
    owners = np.bincount(partition.rows, minlength=1)[partition.rows]
    codes = np.arange(len(owners)) if units is None else units.numpy()[partition.rows]
    if units is not None:  # clients that have rows of the same unit
        clients = np.repeat(np.arange(len(partition.sizes)), partition.sizes)
        owners = np.bincount(np.unique(np.stack([codes, clients]), axis=1)[0])[codes]
    for k, size in enumerate(partition.sizes.tolist()):
        start = partition.offsets[k]
        alone = start + np.flatnonzero(owners[start : start + size] == 1)
        take = min(math.floor(fraction * len(alone) + 0.5), max(len(alone) - 1, 0))
        if take and units is not None:
            one_class = np.zeros(len(alone), np.int64)
            picked[alone[draw_whole(one_class, codes[alone], np.array([take]), rng.fold(key, k))]] = True
        elif take:
            picked[rng.generator(key, k).permutation(alone)[:take]] = True
    return partition.masked(~picked), partition.masked(picked)


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
