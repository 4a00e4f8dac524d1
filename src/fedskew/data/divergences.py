"""Distances between label distributions, of pairs of clients and of clients to all rows.

`fedskew.data.skew` exports these functions.
"""

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
    """Sum over the columns of ``columns`` [N, D] of term(x_i, x_j), [N, N]; it holds N^2 numbers at a time."""
    total = np.zeros((len(columns), len(columns)))
    for x in columns.T:
        total += term(x[:, None], x[None, :])
    return total


def hellinger(counts: Counts) -> Floats:
    """Hellinger distances between the sorted label distributions of all pairs of clients.

        H_ij = ||sqrt(q_i) - sqrt(q_j)||_2 / sqrt(2)

    Args:
        counts: Label histograms, [N, C].

    Returns:
        Distances in [0, 1], [N, N]; 0 for the same shape. It holds N^2 numbers.

    Example:
        >>> import numpy as np
        >>> from fedskew.data import skew
        >>> skew.hellinger(np.array([[4, 2, 0], [0, 2, 4], [3, 3, 0]])).round(4)[0].tolist()
        [0.0, 0.0, 0.12]

    References:
        Khalil et al. 2023, Label-Aware Aggregation for Improved Federated Learning (FMEC), distribution consistency.
        https://github.com/AhmadMkhalil/Label-Aware-Aggregation-in-Federated-Learning
    """
    return np.sqrt(_pairwise(np.sqrt(shapes(counts)), lambda a, b: (a - b) ** 2) / 2)


def earth_mover(counts: Counts) -> Floats:
    """Earth mover's distances between the sorted label distributions of all pairs of clients.

        EMD_ij = sum_c |sum_{b <= c} (q_ib - q_jb)|

    Args:
        counts: Label histograms, [N, C].

    Returns:
        Distances, [N, N]; 0 for the same shape. It holds N^2 numbers.

    Example:
        >>> import numpy as np
        >>> from fedskew.data import skew
        >>> skew.earth_mover(np.array([[4, 2, 0], [0, 2, 4], [3, 3, 0]])).round(4)[0].tolist()
        [0.0, 0.0, 0.1667]

    References:
        Khalil et al. 2023, Label-Aware Aggregation for Improved Federated Learning (FMEC), distribution consistency.
        https://github.com/AhmadMkhalil/Label-Aware-Aggregation-in-Federated-Learning
    """
    return _pairwise(np.cumsum(shapes(counts), axis=1), lambda a, b: np.abs(a - b))


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
    return _pairwise(matrix(counts), np.minimum)


def _kl(q: Floats, p: Floats) -> Floats:
    """KL(q || p) along the last axis, with 0 log 0 = 0; p > 0 wherever q > 0."""
    ratio = np.divide(q, p, out=np.ones(np.broadcast(q, p).shape), where=(q > 0) & (p > 0))
    return np.where(np.isnan(q).any(axis=-1), np.nan, summed(q * np.log(ratio), axis=-1))


def _both(counts: Counts) -> tuple[Floats, Floats]:
    """q [N, C] and p [1, C]."""
    n = matrix(counts)
    return distributions(n), distributions(n.sum(axis=0, keepdims=True))


def kl_to_global(counts: Counts) -> Floats:
    """Kullback-Leibler divergence KL(q_k || p) of each client from the global label distribution.

    Args:
        counts: Label histograms, [N, C].

    Returns:
        Nats, [N]; NaN without rows.

    Example:
        >>> import numpy as np
        >>> from fedskew.data import skew
        >>> skew.kl_to_global(np.array([[8, 2], [2, 8]])).round(4).tolist()
        [0.1927, 0.1927]
    """
    return _kl(*_both(counts))


def js_to_global(counts: Counts) -> Floats:
    """Jensen-Shannon divergence of each client from the global label distribution.

        (KL(q_k || m) + KL(p || m)) / 2,   m = (q_k + p) / 2

    Args:
        counts: Label histograms, [N, C].

    Returns:
        Nats in [0, log 2], [N]; NaN without rows.

    Example:
        >>> import numpy as np
        >>> from fedskew.data import skew
        >>> skew.js_to_global(np.array([[8, 2], [2, 8]])).round(4).tolist()
        [0.0507, 0.0507]
    """
    q, p = _both(counts)
    middle = (q + p) / 2
    return (_kl(q, middle) + _kl(p, middle)) / 2


def tv_to_global(counts: Counts) -> Floats:
    """Total variation distance of each client from the global label distribution.

        sum_c |q_kc - p_c| / 2

    Args:
        counts: Label histograms, [N, C].

    Returns:
        Numbers in [0, 1], [N]; NaN without rows.
    """
    q, p = _both(counts)
    return summed(np.abs(q - p)) / 2


def hellinger_to_global(counts: Counts) -> Floats:
    """Hellinger distance of each client from the global label distribution.

        ||sqrt(q_k) - sqrt(p)||_2 / sqrt(2)

    Args:
        counts: Label histograms, [N, C].

    Returns:
        Numbers in [0, 1], [N]; NaN without rows.
    """
    q, p = _both(counts)
    return np.sqrt(summed((np.sqrt(q) - np.sqrt(p)) ** 2) / 2)


def emd_to_global(counts: Counts) -> Floats:
    """Sum of absolute differences of each client's and the global label distribution, twice `tv_to_global`.

        sum_c |q_kc - p_c|

    Zhao et al. call this the earth mover's distance: labels have no order, so a move to any other label costs the same.

    Args:
        counts: Label histograms, [N, C].

    Returns:
        Numbers in [0, 2], [N]; NaN without rows.

    Example:
        >>> import numpy as np
        >>> from fedskew.data import skew
        >>> skew.emd_to_global(np.array([[8, 2], [2, 8]])).round(4).tolist()
        [0.6, 0.6]

    References:
        Zhao et al. 2018, Federated Learning with Non-IID Data. https://arxiv.org/abs/1806.00582
    """
    return 2 * tv_to_global(counts)


def _js_term(a: Floats, b: Floats) -> Floats:
    """One class's terms of the Jensen-Shannon divergence, with 0 log 0 = 0."""
    middle = np.where(a + b > 0, (a + b) / 2, 1.0)
    logs = [x * np.log(np.where(x > 0, x, middle) / middle) for x in (a, b)]
    return np.asarray((logs[0] + logs[1]) / 2)


def _kl_term(a: Floats, b: Floats) -> Floats:
    """a log(a / b); infinite where the first client has a label that the second lacks."""
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
    """Distances between the label distributions of all pairs of clients.

    Unlike `hellinger` and `earth_mover`, which compare sorted distributions, these compare label by label.

    Args:
        counts: Label histograms, [N, C].
        distance: "js" (Jensen-Shannon divergence, nats), "kl" (Kullback-Leibler divergence of row from column, infinite
            where the column's client lacks a label), "tv" (total variation), "emd" (sum_c |q_ic - q_jc|) or
            "hellinger".

    Returns:
        Distances, [N, N]; NaN for clients without rows. It holds N^2 numbers.

    Raises:
        ConfigError: ``distance`` is unknown.

    Example:
        >>> import numpy as np
        >>> from fedskew.data import skew
        >>> skew.pairwise(np.array([[8, 2], [2, 8]]), "tv").round(4).tolist()
        [[0.0, 0.6], [0.6, 0.0]]
    """
    if distance not in DISTANCES:
        raise unknown("distance", distance, DISTANCES)
    total = _pairwise(distributions(matrix(counts)), DISTANCES[distance])
    return np.asarray(np.sqrt(total) if distance == "hellinger" else total)
