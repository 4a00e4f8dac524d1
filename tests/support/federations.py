"""Small federations of made-up rows and of a few digits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np

import fedskew as fs
from fedskew import rng
from fedskew.data.arrays import from_arrays
from fedskew.data.federation import Federation
from fedskew.data.partitioners import Partition
from fedskew.data.sources.table import load

RAGGED = [[9, 3, 1], [2, 5, 0], [1, 1, 6], [8, 8, 8]]
# eight clients of unequal size, three of one row
UNEVEN = [[1, 0, 0], [9, 30, 2], [0, 0, 1], [2, 5, 0], [8, 8, 8], [0, 1, 0], [1, 1, 2], [3, 0, 14]]
"""rows of each class at four clients, of different sizes; the second lacks a class"""


@cache
def small_digits(rows: int = 160, test: int = 40) -> Any:
    """A few of scikit-learn's digits, 8x8."""
    data = load("digits")
    return from_arrays(data.x[:rows], data.y[:rows], data.x_test[:test], data.y_test[:test], mean=(0.3,), std=(0.4,))


@cache
def skewed(clients: int = 6, alpha: float = 0.3, auxiliary: int = 3, seed: int = 1) -> Federation:
    """Ragged clients, most of which lack classes."""
    return fs.federate(
        small_digits(), fs.partitioners.Dirichlet(alpha=alpha), clients=clients, auxiliary=auxiliary, seed=seed
    )


@dataclass(frozen=True)
class Owners:
    """A partition by a list of owners, one a row; -1 is nobody."""

    name: ClassVar[str] = "owners"
    owner: tuple[int, ...]

    def split(self, labels: Any, clients: int, seed: int, columns: Any = None) -> Partition:
        owner = np.array(self.owner)
        rows = [np.flatnonzero(owner == k) for k in range(clients)]
        return Partition(np.concatenate(rows).astype(np.int64), np.cumsum([0, *map(len, rows)]).astype(np.int64))


def blobs(
    counts: list[list[int]], *, features: int = 5, copies: bool = False, shape: tuple[int, ...] = (), auxiliary: int = 0
) -> Federation:
    """Clients with given rows of each class, counts [N][C]; with ``copies`` client k's rows repeat client 0's.

    ``auxiliary`` rows of each class are the server's.
    """
    classes, labels, owner = len(counts[0]), [], []
    for k, histogram in enumerate(counts):
        for c, n in enumerate(histogram):
            labels += [c] * n
            owner += [k] * n
    aside = np.arange(len(labels), len(labels) + classes * auxiliary)
    labels += [c for c in range(classes) for _ in range(auxiliary)]
    owner += [-1] * len(aside)
    shape = shape or (features,)
    y = np.array(labels)
    draw = rng.generator(0, "blobs")
    centres = draw.normal(size=(classes, *shape))
    x = centres[y] + draw.normal(size=(len(y), *shape))
    if copies:
        x = np.concatenate([x[: sum(counts[0])]] * len(counts))
    spare = np.arange(classes).repeat(3)
    test = centres[spare] + draw.normal(size=(len(spare), *shape))
    data = from_arrays(x.astype(np.float32), y, test.astype(np.float32), spare, classes=classes)
    return replace(fs.federate(data, Owners(tuple(owner)), clients=len(counts)), auxiliary_rows=aside)
