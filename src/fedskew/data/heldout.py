"""Clients that never train: they leave the federation, and form one of their own for evaluation."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedskew import rng
from fedskew.data.partitioners.base import Partition
from fedskew.data.partitioners.tail import restrict
from fedskew.errors import require

if TYPE_CHECKING:
    from fedskew.data.federation import Federation

__all__ = ["parted"]


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
    partition = _rows_of(fed.partition, clients)
    if without is not None:
        partition = restrict(partition, np.setdiff1d(partition.rows, without), len(fed.dataset.y))
    counts = torch.from_numpy(partition.counts(fed.dataset.y.numpy(), fed.dataset.classes))
    held = None if fed.held is None else _rows_of(fed.held, clients)
    return replace(fed, partition=partition, counts=counts, held=held)


def _rows_of(partition: Partition, clients: np.ndarray) -> Partition:
    """The rows of these clients [N]; the others have none."""
    sizes = np.where(clients, partition.sizes, 0)
    kept = np.repeat(clients, partition.sizes)
    return Partition(partition.rows[kept], np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
