"""Divergences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedskew.data.histograms import Counts, Floats, distributions, matrix, shapes, summed
from fedskew.errors import unknown

__all__ = [
    "DISTANCES",
    "earth_mover",
    "emd_to_global",
    "hellinger",
    "hellinger_to_global",
    "js_to_global",
    "kl_to_global",
    "overlap",
    "pairwise",
    "tv_to_global",
]


def _pairwise(columns: Floats, term: Callable[[Floats, Floats], Floats]) -> Floats:
    """Sum over the columns of ``columns`` [N, D] of term(x_i, x_j), [N, N]; holds N^2 numbers at a time."""
    total = np.zeros((len(columns), len(columns)))
    for x in columns.T:
        total += term(x[:, None], x[None, :])
    return total


def hellinger(counts: Counts) -> Floats:
    """Hellinger distances of shapes, H_ij = |sqrt(q_i) - sqrt(q_j)|_2 / sqrt(2) in [0, 1], [N, N] (FedLA)."""
    return np.sqrt(_pairwise(np.sqrt(shapes(counts)), lambda a, b: (a - b) ** 2) / 2)


def earth_mover(counts: Counts) -> Floats:
    """Earth mover's distances of shapes, EMD_ij = sum_c |sum_{b<=c} (q_ib - q_jb)|, [N, N]; 0: same shape (FedLA)."""
    return _pairwise(np.cumsum(shapes(counts), axis=1), lambda a, b: np.abs(a - b))


def overlap(counts: Counts) -> Floats:
    """Rows that two clients have in common by label, sum_c min(n_ic, n_jc), [N, N] (FedLA)."""
    return _pairwise(matrix(counts), np.minimum)


def _kl(q: Floats, p: Floats) -> Floats:
    """KL(q || p) along the last axis, 0 log 0 = 0; p > 0 wherever q > 0."""
    ratio = np.divide(q, p, out=np.ones(np.broadcast(q, p).shape), where=(q > 0) & (p > 0))
    return np.where(np.isnan(q).any(axis=-1), np.nan, summed(q * np.log(ratio), axis=-1))


def _both(counts: Counts) -> tuple[Floats, Floats]:
    """q [N, C] and p [1, C]."""
    n = matrix(counts)
    return distributions(n), distributions(n.sum(axis=0, keepdims=True))


def kl_to_global(counts: Counts) -> Floats:
    """KL(q_k || p) in nats, [N]; NaN without rows."""
    return _kl(*_both(counts))


def js_to_global(counts: Counts) -> Floats:
    """Jensen-Shannon divergence (KL(q_k || m) + KL(p || m)) / 2, m = (q_k + p) / 2, in [0, log 2], [N]."""
    q, p = _both(counts)
    middle = (q + p) / 2
    return (_kl(q, middle) + _kl(p, middle)) / 2


def tv_to_global(counts: Counts) -> Floats:
    """Total variation sum_c |q_kc - p_c| / 2 in [0, 1], [N]; NaN without rows."""
    q, p = _both(counts)
    return summed(np.abs(q - p)) / 2


def hellinger_to_global(counts: Counts) -> Floats:
    """Hellinger distance |sqrt(q_k) - sqrt(p)|_2 / sqrt(2) in [0, 1], [N]; NaN without rows."""
    q, p = _both(counts)
    return np.sqrt(summed((np.sqrt(q) - np.sqrt(p)) ** 2) / 2)


def emd_to_global(counts: Counts) -> Floats:
    """sum_c |q_kc - p_c| in [0, 2], [N]: the "earth mover's distance" of Zhao and others (2018), twice `tv_to_global`.

    Labels have no order, so moving a row to any other label costs the same.
    """
    return 2 * tv_to_global(counts)


def _js_term(a: Floats, b: Floats) -> Floats:
    """The terms of one class of the Jensen-Shannon divergence, 0 log 0 = 0."""
    middle = np.where(a + b > 0, (a + b) / 2, 1.0)
    logs = [x * np.log(np.where(x > 0, x, middle) / middle) for x in (a, b)]
    return np.asarray((logs[0] + logs[1]) / 2)


def _kl_term(a: Floats, b: Floats) -> Floats:
    """a log(a / b), infinite where the second client lacks what the first has."""
    both = (a > 0) & (b > 0)
    finite = a * np.log(np.divide(a, b, out=np.ones(np.broadcast(a, b).shape), where=both))
    return np.where((a > 0) & (b == 0), np.inf, finite + 0 * b)  # a client without rows is NaN on either side


DISTANCES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "js": _js_term,
    "kl": _kl_term,
    "tv": lambda a, b: np.abs(a - b) / 2,
    "emd": lambda a, b: np.abs(a - b),
    "hellinger": lambda a, b: (np.sqrt(a) - np.sqrt(b)) ** 2 / 2,
}


def pairwise(counts: Counts, distance: str = "js") -> Floats:
    """Distances of the clients' label distributions, [N, N]; NaN for clients without rows. Holds N^2 numbers.

    ``distance`` is js (Jensen-Shannon divergence, nats), kl (Kullback-Leibler of the row's client from the column's,
    infinite where it lacks a label), tv (total variation), emd (sum_c |q_ic - q_jc|) or hellinger. Unlike `hellinger`
    and `earth_mover`, which compare sorted shapes, these know the labels.
    """
    if distance not in DISTANCES:
        raise unknown("distance", distance, DISTANCES)
    total = _pairwise(distributions(matrix(counts)), DISTANCES[distance])
    return np.asarray(np.sqrt(total) if distance == "hellinger" else total)
