"""Measures of label skew: pure functions of the clients' label histograms.

Every function takes ``counts`` [N, C], numpy or torch, with n_kc rows of class c at client k, and returns float64.
n_k = sum_c n_kc, q_k = n_k. / n_k is the client's label distribution, p = sum_k n_k. / n the global one. Logarithms are
natural, so divergences are in nats. A client without rows has NaN where its distribution is needed; `summary` leaves
such clients out and counts them. Every function raises DataError unless the counts are a non-empty matrix of finite
numbers of at least 0.

Example:
    >>> import numpy as np
    >>> from fedskew.data import skew
    >>> counts = np.array([[8, 2, 0], [0, 5, 5]])
    >>> skew.js_to_global(counts).round(4).tolist()
    [0.131, 0.1665]
    >>> skew.diversity(counts).tolist()
    [2.0, 2.0]
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedskew import rng
from fedskew.data.divergences import (
    DISTANCES,
    earth_mover,
    emd_to_global,
    hellinger,
    hellinger_to_global,
    js_to_global,
    kl_to_global,
    overlap,
    pairwise,
    tv_to_global,
)
from fedskew.data.histograms import (
    Counts,
    Floats,
    diversity,
    effective_classes,
    effective_clients,
    entropy,
    imbalance,
    local_imbalance,
    matrix,
    missing_rate,
    owners,
    quantity_gini,
    shapes,
    shared,
)
from fedskew.errors import DataError

__all__ = [
    "DISTANCES", "FedLA", "diversity", "earth_mover", "effective_classes", "effective_clients", "emd_to_global",
    "entropy", "fedla", "hellinger", "hellinger_to_global", "imbalance", "js_to_global", "kl_to_global",
    "local_imbalance", "missing_rate", "overlap", "owners", "pair_mean", "pairwise", "quantity_gini", "sample",
    "shapes", "shared", "summary", "tv_to_global",
]  # fmt: skip

_PAIRS = 500  # most clients to compare pairwise, which takes N^2 numbers; of more, a fixed sample


def sample(counts: Counts, most: int = _PAIRS) -> Floats:
    """At most ``most`` of the clients that have rows, drawn at random but always the same ones.

    Args:
        counts: Label histograms, [N, C].
        most: Most clients.

    Returns:
        Their histograms, [M, C].
    """
    n = matrix(counts)
    full = n[n.sum(axis=1) > 0]
    # random, not evenly spaced: clients may be ordered in a pattern that a spacing would miss
    return np.asarray(full[rng.generator(rng.key(0, "skew", "pairs")).permutation(len(full))[:most]])


def pair_mean(counts: Counts, distance: str = "js", most: int = _PAIRS) -> float:
    """Mean of `pairwise` over pairs of different clients with rows.

    Args:
        counts: Label histograms, [N, C].
        distance: As for `pairwise`.
        most: Of more clients than this, a `sample` is compared.

    Returns:
        The mean; 0 for a single client.

    Raises:
        ConfigError: ``distance`` is unknown.
    """
    return _pair_mean(pairwise(sample(counts, most), distance))


class FedLA(NamedTuple):
    """FedLA's three descriptors of label skew. Means are over pairs of a `sample` of the clients."""

    labels: Floats  # label distribution per client: [N] labels held
    entropy: Floats  # [N] nats, NaN without rows
    hellinger: float  # distribution consistency, label identity removed: mean distance of two sorted shapes
    earth_mover: float  # the same by earth mover's distance
    overlap: float  # inter-client distribution: mean rows that two clients have in common by label
    shared: Floats  # [N] rows whose label another client holds, too


def fedla(counts: Counts, most: int = _PAIRS) -> FedLA:
    """FedLA's label distribution of each client, distribution consistency and inter-client distribution.

    Args:
        counts: Label histograms, [N, C].
        most: Of more clients than this, a `sample` is compared pairwise.

    Returns:
        The descriptors.

    Example:
        >>> import numpy as np
        >>> from fedskew.data import skew
        >>> found = skew.fedla(np.array([[4, 2, 0], [0, 2, 4], [3, 3, 0]]))
        >>> found.labels.tolist(), round(found.overlap, 4), found.shared.tolist()
        ([2.0, 2.0, 2.0], 3.0, [6.0, 2.0, 6.0])

    References:
        Khalil et al. 2023, Label-Aware Aggregation for Improved Federated Learning (FMEC).
        https://github.com/AhmadMkhalil/Label-Aware-Aggregation-in-Federated-Learning
    """
    some = sample(counts, most)
    h, emd, common = (_pair_mean(of(some)) for of in (hellinger, earth_mover, overlap))
    return FedLA(diversity(counts), entropy(counts), h, emd, common, shared(counts))


def _pair_mean(distances: Floats) -> float:
    """Mean over pairs of different clients; 0 for a single client."""
    count = len(distances)
    return float((distances.sum() - np.trace(distances)) / (count * (count - 1))) if count > 1 else 0.0


def summary(counts: Counts, most: int = _PAIRS) -> dict[str, float | list[float]]:
    """The skew report of a federation: one number for each measure, and lists with one number for each class.

    Means are over the clients with rows. Pairwise means are over all pairs of at most ``most`` such clients, always the
    same ones; ``pair_clients`` is their number. ``hellinger_mean``, ``emd_mean`` and ``overlap_mean`` are FedLA's; the
    ``*_pairs_mean`` compare label by label.

    Args:
        counts: Label histograms, [N, C].
        most: Most clients that are compared pairwise.

    Returns:
        A dict that JSON can hold.

    Raises:
        DataError: There are no rows.

    Example:
        >>> import numpy as np
        >>> from fedskew.data import skew
        >>> found = skew.summary(np.array([[8, 2, 0], [0, 5, 5]]))
        >>> found["clients"], found["size_median"], round(found["js_mean"], 4), found["class_rows"]
        (2, 10.0, 0.1488, [8.0, 7.0, 5.0])
    """
    n = matrix(counts)
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
