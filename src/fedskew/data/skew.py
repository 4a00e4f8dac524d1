"""How skewed a federation is: pure functions of the label histograms of its clients.

Every function takes ``counts`` [N, C] (numpy or torch; n_kc rows of class c at client k) and returns float64 numpy.
n_k = sum_c n_kc, q_k = n_k. / n_k, p = sum_k n_k. / n. Logarithms are natural. Where a client without rows has no value
(its shape, its distance to the global distribution) there is NaN; `summary` leaves such clients out and counts them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from fedskew import rng
from fedskew.errors import DataError, unknown

__all__ = [
    "DISTANCES", "FedLA", "diversity", "earth_mover", "effective_classes", "effective_clients", "emd_to_global",
    "entropy", "fedla", "hellinger", "hellinger_to_global", "imbalance", "js_to_global", "kl_to_global",
    "local_imbalance", "missing_rate", "overlap", "owners", "pair_mean", "pairwise", "quantity_gini", "sample",
    "shapes", "shared", "summary", "tv_to_global",
]  # fmt: skip

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[Any] | torch.Tensor

_PAIRS = 500  # clients that are compared pairwise, N^2 numbers: of more, a drawn subset, always the same


def _matrix(counts: Counts) -> Floats:
    """The counts as float64 [N, C]. Raises DataError unless they form a non-empty matrix of numbers >= 0."""
    raw = counts.detach().cpu().numpy() if isinstance(counts, torch.Tensor) else counts
    matrix = np.asarray(raw, dtype=np.float64)
    if matrix.ndim != 2 or matrix.size == 0 or not (np.isfinite(matrix) & (matrix >= 0)).all():
        raise DataError(f"counts must be a non-empty matrix [clients, classes] of numbers >= 0; got {matrix.shape}")
    return matrix


def _over(top: Floats, bottom: Floats) -> Floats:
    """top / bottom, NaN where the bottom is 0."""
    out: Floats = np.full(np.broadcast(top, bottom).shape, np.nan)
    return np.divide(top, bottom, out=out, where=bottom > 0)


def _sum(terms: npt.NDArray[Any], axis: int = 1) -> Floats:
    return np.asarray(terms.sum(axis=axis), dtype=np.float64)


def _shares(n: Floats) -> Floats:
    """Label distributions q_k, [N, C]."""
    return _over(n, n.sum(axis=1, keepdims=True))


def _pairwise(columns: Floats, term: Callable[[Floats, Floats], Floats]) -> Floats:
    """Sum over the columns of ``columns`` [N, D] of term(x_i, x_j), [N, N]; holds N^2 numbers at a time."""
    total = np.zeros((len(columns), len(columns)))
    for x in columns.T:
        total += term(x[:, None], x[None, :])
    return total


def shapes(counts: Counts) -> Floats:
    """Label distributions sorted in decreasing order, label identity removed, [N, C] (FedLA)."""
    return -np.sort(-_shares(_matrix(counts)), axis=1)


def hellinger(counts: Counts) -> Floats:
    """Hellinger distances of shapes, H_ij = |sqrt(q_i) - sqrt(q_j)|_2 / sqrt(2) in [0, 1], [N, N] (FedLA)."""
    return np.sqrt(_pairwise(np.sqrt(shapes(counts)), lambda a, b: (a - b) ** 2) / 2)


def earth_mover(counts: Counts) -> Floats:
    """Earth mover's distances of shapes, EMD_ij = sum_c |sum_{b<=c} (q_ib - q_jb)|, [N, N]; 0: same shape (FedLA)."""
    return _pairwise(np.cumsum(shapes(counts), axis=1), lambda a, b: np.abs(a - b))


def overlap(counts: Counts) -> Floats:
    """Rows that two clients have in common by label, sum_c min(n_ic, n_jc), [N, N] (FedLA)."""
    return _pairwise(_matrix(counts), np.minimum)


def shared(counts: Counts) -> Floats:
    """Rows of each client whose label another client holds too, [N] (FedLA's inter-client distribution)."""
    n = _matrix(counts)
    return _sum(n * (_sum(n > 0, axis=0) > 1))


def diversity(counts: Counts) -> Floats:
    """Number of labels that each client holds, [N]."""
    return _sum(_matrix(counts) > 0)


def entropy(counts: Counts) -> Floats:
    """Entropy of each client's labels, -sum_c q_c log q_c in nats, [N]; NaN without rows."""
    q = _shares(_matrix(counts))
    return -_sum(q * np.log(np.where(q > 0, q, 1.0)))


def effective_classes(counts: Counts) -> Floats:
    """Effective number of labels of each client, exp(entropy) in [1, C], [N]; NaN without rows."""
    return np.asarray(np.exp(entropy(counts)))


def imbalance(counts: Counts) -> float:
    """Global imbalance ratio max_c N_c / min_c N_c over the classes that occur; NaN without rows."""
    return float(local_imbalance(_matrix(counts).sum(axis=0, keepdims=True))[0])


def local_imbalance(counts: Counts) -> Floats:
    """Imbalance ratio of each client, max_c n_kc / min_c n_kc over the classes it holds, [N]; NaN without rows."""
    n = _matrix(counts)
    least = np.where(n > 0, n, np.inf).min(axis=1)
    return _over(n.max(axis=1), np.where(np.isfinite(least), least, 0.0))


def missing_rate(counts: Counts) -> float:
    """Share of (client, class) pairs without rows, among the classes that occur somewhere; NaN without rows."""
    n = _matrix(counts)
    present = n[:, n.sum(axis=0) > 0]
    return float((present == 0).mean()) if present.size else float("nan")


def owners(counts: Counts) -> Floats:
    """Number of clients that hold each class, [C]."""
    return _sum(_matrix(counts) > 0, axis=0)


def quantity_gini(counts: Counts) -> float:
    """Gini coefficient of client sizes, sum_ij |n_i - n_j| / (2 N n), 0 for equal sizes; NaN without rows."""
    sizes = np.sort(_matrix(counts).sum(axis=1))
    count, total = len(sizes), sizes.sum()
    rank = 2 * np.arange(1, count + 1) - count - 1
    return float((rank * sizes).sum() / (count * total)) if total > 0 else float("nan")


def effective_clients(counts: Counts) -> float:
    """Effective number of clients 1 / sum_k (n_k / n)^2, N for equal sizes; NaN without rows."""
    sizes = _matrix(counts).sum(axis=1)
    return float(sizes.sum() ** 2 / (sizes**2).sum()) if sizes.any() else float("nan")


def _kl(q: Floats, p: Floats) -> Floats:
    """KL(q || p) along the last axis, 0 log 0 = 0; p > 0 wherever q > 0."""
    ratio = np.divide(q, p, out=np.ones(np.broadcast(q, p).shape), where=(q > 0) & (p > 0))
    return np.where(np.isnan(q).any(axis=-1), np.nan, _sum(q * np.log(ratio), axis=-1))


def _both(counts: Counts) -> tuple[Floats, Floats]:
    """q [N, C] and p [1, C]."""
    n = _matrix(counts)
    return _shares(n), _shares(n.sum(axis=0, keepdims=True))


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
    return _sum(np.abs(q - p)) / 2


def hellinger_to_global(counts: Counts) -> Floats:
    """Hellinger distance |sqrt(q_k) - sqrt(p)|_2 / sqrt(2) in [0, 1], [N]; NaN without rows."""
    q, p = _both(counts)
    return np.sqrt(_sum((np.sqrt(q) - np.sqrt(p)) ** 2) / 2)


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
    total = _pairwise(_shares(_matrix(counts)), DISTANCES[distance])
    return np.asarray(np.sqrt(total) if distance == "hellinger" else total)


def sample(counts: Counts, most: int = _PAIRS) -> Floats:
    """At most so many of the clients that have rows, [M, C], drawn under a key of its own: always the same ones."""
    n = _matrix(counts)
    full = n[n.sum(axis=1) > 0]
    # drawn, not evenly spaced: a spacing can fall in step with the order of the clients and see one kind only
    return np.asarray(full[rng.generator(rng.key(0, "skew", "pairs")).permutation(len(full))[:most]])


def pair_mean(counts: Counts, distance: str = "js", most: int = _PAIRS) -> float:
    """Mean of `pairwise` over pairs of different clients with rows; of more than ``most`` clients, of a `sample`."""
    return _pair_mean(pairwise(sample(counts, most), distance))


class FedLA(NamedTuple):
    """The three properties by which FedLA describes label skew; means are over pairs of a `sample` of the clients."""

    labels: Floats  # label distribution per client: [N] labels held
    entropy: Floats  # [N] nats, NaN without rows
    hellinger: float  # distribution consistency, label identity removed: mean distance of two sorted shapes
    earth_mover: float  # the same by earth mover's distance
    overlap: float  # inter-client distribution: mean rows that two clients have in common by label
    shared: Floats  # [N] rows whose label another client holds, too


def fedla(counts: Counts, most: int = _PAIRS) -> FedLA:
    """FedLA's label distribution per client, distribution consistency and inter-client distribution."""
    some = sample(counts, most)
    h, emd, common = (_pair_mean(of(some)) for of in (hellinger, earth_mover, overlap))
    return FedLA(diversity(counts), entropy(counts), h, emd, common, shared(counts))


def _pair_mean(distances: Floats) -> float:
    """Mean over pairs of different clients; 0 for a single client."""
    count = len(distances)
    return float((distances.sum() - np.trace(distances)) / (count * (count - 1))) if count > 1 else 0.0


def summary(counts: Counts, most: int = _PAIRS) -> dict[str, float | list[float]]:
    """The skew report of a federation: one number a descriptor, and a list where there is one per class.

    Means are over the clients that have rows. Pairwise means (FedLA's Hellinger, earth mover's, overlap of sorted
    shapes; ``*_pairs_mean`` of label distributions) are over all pairs of at most ``most`` such clients, always the
    same ones (``pair_clients`` says how many). Raises DataError if there are no rows at all.
    """
    n = _matrix(counts)
    sizes = n.sum(axis=1)
    if not sizes.any():
        raise DataError("counts must hold at least one row; got none")
    full = n[sizes > 0]
    some = sample(full, most)
    held = diversity(full)
    return {
        "clients": len(n),
        "empty_clients": len(n) - len(full),
        "classes": n.shape[1],
        "rows": float(sizes.sum()),
        "size_min": float(sizes.min()),
        "size_median": float(np.median(sizes)),
        "size_max": float(sizes.max()),
        "quantity_gini": quantity_gini(n),
        "effective_clients": effective_clients(n),
        "imbalance_global": imbalance(n),
        "imbalance_local_median": float(np.median(local_imbalance(full))),
        "missing_rate": missing_rate(n),
        "labels_min": float(held.min()),
        "labels_mean": float(held.mean()),
        "labels_max": float(held.max()),
        "entropy_mean": float(entropy(full).mean()),
        "js_mean": float(js_to_global(full).mean()),
        "kl_mean": float(kl_to_global(full).mean()),
        "tv_mean": float(tv_to_global(full).mean()),
        "shared_rate": float(shared(n).sum() / sizes.sum()),
        "hellinger_mean": _pair_mean(hellinger(some)),
        "emd_mean": _pair_mean(earth_mover(some)),
        "overlap_mean": _pair_mean(overlap(some)),
        "imbalance_local_max": float(local_imbalance(full).max()),
        "effective_classes_global": float(effective_classes(n.sum(axis=0, keepdims=True))[0]),
        "effective_classes_mean": float(effective_classes(full).mean()),
        "hellinger_to_global_mean": float(hellinger_to_global(full).mean()),
        "emd_to_global_mean": float(emd_to_global(full).mean()),
        **{f"{d}_pairs_mean": _pair_mean(pairwise(some, d)) for d in ("js", "emd", "hellinger")},
        "pair_clients": len(some),
        "class_rows": n.sum(axis=0).tolist(),
        "class_owners": owners(n).tolist(),
    }
