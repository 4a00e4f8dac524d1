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
    >>> skew.to_global(counts).round(4).tolist()
    [0.131, 0.1665]
    >>> skew.diversity(counts).tolist()
    [2.0, 2.0]
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import entr, rel_entr

from fedskew.errors import claim, unknown

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[Any] | torch.Tensor


def matrix(counts: Counts) -> Floats:
    """The counts as float64 [N, C]. Raises DataError unless they are a non-empty matrix of numbers of at least 0."""
    raw = counts.detach().cpu().numpy() if isinstance(counts, torch.Tensor) else counts
    matrix = np.asarray(raw, dtype=np.float64)
    fine = matrix.ndim == 2 and matrix.size and (np.isfinite(matrix) & (matrix >= 0)).all()
    claim(fine, "counts", "be a non-empty matrix [clients, classes] of numbers >= 0", matrix.shape)
    return matrix


def over(top: Floats, bottom: Floats) -> Floats:
    """top / bottom; NaN where the bottom is 0."""
    out: Floats = np.full(np.broadcast(top, bottom).shape, np.nan)
    return np.divide(top, bottom, out=out, where=bottom > 0)


def summed(terms: npt.NDArray[Any], axis: int = 1) -> Floats:
    """Sum along an axis, in float64."""
    return np.asarray(terms.sum(axis=axis), dtype=np.float64)


def distributions(n: Floats) -> Floats:
    """Label distributions q_k, [N, C]."""
    return over(n, n.sum(axis=1, keepdims=True))


def diversity(counts: Counts) -> Floats:
    """Number of labels that each client holds, [N]."""
    return summed(matrix(counts) > 0)


def entropy(counts: Counts) -> Floats:
    """Entropy of each client's label distribution.

        -sum_c q_c log q_c

    Args:
        counts: Label histograms, [N, C].

    Returns:
        Nats in [0, log C], [N]; NaN without rows.

    Example:
        >>> import numpy as np
        >>> from fedskew.data import skew
        >>> skew.entropy(np.array([[5, 5], [9, 1]])).round(4).tolist()
        [0.6931, 0.3251]
    """
    return summed(entr(distributions(matrix(counts))))


def effective_classes(counts: Counts) -> Floats:
    """Effective number of labels of each client, exp(entropy) in [1, C], [N]; NaN without rows."""
    return np.asarray(np.exp(entropy(counts)))


def imbalance(counts: Counts) -> float:
    """Global imbalance ratio max_c N_c / min_c N_c over the classes that occur; NaN without rows."""
    return float(local_imbalance(matrix(counts).sum(axis=0, keepdims=True))[0])


def local_imbalance(counts: Counts) -> Floats:
    """Imbalance ratio max_c n_kc / min_c n_kc of each client over the classes it holds, [N]; NaN without rows."""
    n = matrix(counts)
    least = np.where(n > 0, n, np.inf).min(axis=1)
    return over(n.max(axis=1), np.where(np.isfinite(least), least, 0.0))


def missing_rate(counts: Counts) -> float:
    """Share of (client, class) pairs without rows, over the classes that occur; NaN without rows."""
    n = matrix(counts)
    present = n[:, n.sum(axis=0) > 0]
    return float((present == 0).mean()) if present.size else float("nan")


def owners(counts: Counts) -> Floats:
    """Number of clients that hold each class, [C]."""
    return summed(matrix(counts) > 0, axis=0)


def quantity_gini(counts: Counts) -> float:
    """Gini coefficient of the client sizes.

        sum_ij |n_i - n_j| / (2 N n)

    Args:
        counts: Label histograms, [N, C].

    Returns:
        A number in [0, 1); 0 for equal sizes, NaN without rows.

    Example:
        >>> import numpy as np
        >>> from fedskew.data import skew
        >>> skew.quantity_gini(np.array([[5, 5], [0, 10]])), skew.quantity_gini(np.array([[20, 0], [0, 0]]))
        (0.0, 0.5)
    """
    sizes = np.sort(matrix(counts).sum(axis=1))
    count, total = len(sizes), sizes.sum()
    rank = 2 * np.arange(1, count + 1) - count - 1
    return float((rank * sizes).sum() / (count * total)) if total > 0 else float("nan")


def effective_clients(counts: Counts) -> float:
    """Effective number of clients 1 / sum_k (n_k / n)^2: N for equal sizes; NaN without rows."""
    sizes = matrix(counts).sum(axis=1)
    return float(sizes.sum() ** 2 / (sizes**2).sum()) if sizes.any() else float("nan")


def _js_terms(a: Floats, b: Floats) -> Floats:
    """Each class's term of the Jensen-Shannon divergence."""
    middle = (a + b) / 2
    return np.asarray((rel_entr(a, middle) + rel_entr(b, middle)) / 2)


DISTANCES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "js": lambda q, p: summed(_js_terms(q, p)),
    "kl": lambda q, p: summed(rel_entr(q, p)),
    "tv": lambda q, p: summed(np.abs(q - p)) / 2,
    "hellinger": lambda q, p: np.sqrt(summed((np.sqrt(q) - np.sqrt(p)) ** 2) / 2),
}


def overlap(counts: Counts) -> Floats:
    """Rows that each pair of clients has in common by label.

        overlap_ij = sum_c min(n_ic, n_jc)

    Args:
        counts: Label histograms, [N, C].

    Returns:
        Rows, [N, N].

    Example:
        >>> import numpy as np
        >>> from fedskew.data import skew
        >>> skew.overlap(np.array([[4, 2, 0], [0, 2, 4]]))[0].tolist()
        [6.0, 2.0]

    References:
        Khalil et al. 2023, Label-Aware Aggregation for Improved Federated Learning (FMEC), inter-client distribution.
        https://github.com/AhmadMkhalil/Label-Aware-Aggregation-in-Federated-Learning
    """
    return np.asarray(sum(np.minimum(x[:, None], x) for x in matrix(counts).T))


def to_global(counts: Counts, distance: str = "js") -> Floats:
    """Distance of each client's label distribution q_k from the global one, p.

        js         (KL(q_k || m) + KL(p || m)) / 2,  m = (q_k + p) / 2, in [0, log 2] nats
        kl         KL(q_k || p), nats
        tv         sum_c |q_kc - p_c| / 2, in [0, 1]
        hellinger  ||sqrt(q_k) - sqrt(p)||_2 / sqrt(2), in [0, 1]

    Args:
        counts: Label histograms, [N, C].
        distance: One of these.

    Returns:
        Distances, [N]; NaN without rows.

    Raises:
        ConfigError: ``distance`` is unknown.

    Example:
        >>> import numpy as np
        >>> from fedskew.data import skew
        >>> skew.to_global(np.array([[8, 2], [2, 8]])).round(4).tolist()
        [0.0507, 0.0507]
        >>> skew.to_global(np.array([[8, 2], [2, 8]]), "tv").round(4).tolist()
        [0.3, 0.3]
    """
    if distance not in DISTANCES:
        raise unknown("distance", distance, DISTANCES)
    n = matrix(counts)
    return DISTANCES[distance](distributions(n), distributions(n.sum(axis=0, keepdims=True)))


def summary(counts: Counts) -> dict[str, float | list[float]]:
    """The skew report of a federation: one number for each measure, and lists with one number for each class.

    Means are over the clients with rows.

    Args:
        counts: Label histograms, [N, C].

    Returns:
        A dict that JSON can hold.

    Raises:
        DataError: There are no rows.

    Example:
        >>> import numpy as np
        >>> from fedskew.data import skew
        >>> facts = skew.summary(np.array([[8, 2, 0], [0, 5, 5]]))
        >>> facts["clients"], facts["size_median"], round(facts["js_mean"], 4), facts["class_rows"]
        (2, 10.0, 0.1488, [8.0, 7.0, 5.0])
    """
    n = matrix(counts)
    sizes = n.sum(axis=1)
    claim(sizes.any(), "counts", "hold at least one row", "none")
    full = n[sizes > 0]
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
        **{f"{d}_mean": float(to_global(full, d).mean()) for d in DISTANCES},
        "imbalance_local_max": float(local_imbalance(full).max()),
        "effective_classes_global": float(effective_classes(n.sum(axis=0, keepdims=True))[0]),
        "effective_classes_mean": float(effective_classes(full).mean()),
        "class_rows": n.sum(axis=0).tolist(),
        "class_owners": owners(n).tolist(),
    }
