"""Clients of unequal size, as federations of devices have them, and the cohorts that fedskew draws of them.

Equal work is what makes peers comparable. Where clients own the same number of rows, any cohort will do; where they do
not, every peer must train the same clients. So the draw of fedskew's default selector at seed 0 is written out here,
in numpy: a peer's environment does not hold fedskew. Its steps are counted and compared by `common.work.report`.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["cohort", "sizes"]

Array = np.ndarray[Any, Any]
LEAST = 20  # rows of the smallest clients


@lru_cache(maxsize=8)
def sizes(clients: int, most: int, power: float, split: str = "") -> Array:
    """Rows of each client, [N]: ``most`` for all with power 0, else a power law cut at ``most``, in random order.

    The quantile function of a Pareto law: LEAST * u ** (-1 / power), u spread evenly over (0, 1).
    With a split, ``most`` is the rows of each of ten classes. "double": two labels a client, and a label's i-th owner
    has a share ~ 1 / i. "dirichlet": each class has shares over the clients from Dirichlet(0.1).
    """
    draw = np.random.Generator(np.random.PCG64(0))
    if split == "double":
        owners = 2 * clients // 10
        share = 1 / draw.permutation(np.repeat(np.arange(1, owners + 1), 10)).reshape(clients, 2)
        return (most * share.sum(1) * 10 / share.sum()).astype(np.int64)
    if split == "dirichlet":
        return np.maximum((most * draw.dirichlet(np.full(clients, 0.1), 10).sum(0)).astype(np.int64), 1)
    if not power:
        return np.full(clients, most, np.int64)
    even = (np.arange(clients) + 0.5) / clients
    drawn = np.minimum(LEAST * even ** (-1 / power), most).astype(np.int64)
    return draw.permutation(drawn)


def cohort(clients: int, count: int, round: int) -> list[int]:
    """The clients that fedskew's `Random` selector draws in a round, counted from 0, at seed 0; all own rows."""
    text = f"0/{round + 1}/select"
    key = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
    with np.errstate(over="ignore"):
        x = np.uint64(key) + np.arange(1, clients + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    race = -np.log(1.0 - (x >> np.uint64(40)).astype(np.float64) * 2.0**-24)
    return np.sort(np.argpartition(race, count - 1)[:count]).tolist()
