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

from fedskew import rng
from fedskew.errors import claim, unknown

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[Any] | torch.Tensor

FEW = 3  # classes of one row that make a client worth a remark
_PAIRS = 500  # most clients to compare pairwise, which takes N^2 numbers; of more, a fixed sample


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


def shapes(counts: Counts) -> Floats:
    """Label distributions sorted in decreasing order, without the identity of the labels.

    Args:
        counts: Label histograms, [N, C].

    Returns:
        Sorted q_k, [N, C]; NaN without rows.

    Example:
        >>> import numpy as np
        >>> from fedskew.data import skew
        >>> skew.shapes(np.array([[1, 3, 0]])).tolist()
        [[0.75, 0.25, 0.0]]

    References:
        Khalil et al. 2023, Label-Aware Aggregation for Improved Federated Learning (FMEC), distribution consistency.
        https://github.com/AhmadMkhalil/Label-Aware-Aggregation-in-Federated-Learning
    """
    return -np.sort(-distributions(matrix(counts)), axis=1)


def shared(counts: Counts) -> Floats:
    """Rows of each client whose label another client holds too.

    Args:
        counts: Label histograms, [N, C].

    Returns:
        Rows, [N].

    Example:
        >>> import numpy as np
        >>> from fedskew.data import skew
        >>> skew.shared(np.array([[4, 2, 0], [0, 2, 4]])).tolist()
        [2.0, 2.0]

    References:
        Khalil et al. 2023, Label-Aware Aggregation for Improved Federated Learning (FMEC), inter-client distribution.
        https://github.com/AhmadMkhalil/Label-Aware-Aggregation-in-Federated-Learning
    """
    n = matrix(counts)
    return summed(n * (summed(n > 0, axis=0) > 1))


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
    q = distributions(matrix(counts))
    return -summed(q * np.log(np.where(q > 0, q, 1.0)))


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


def _pairwise(columns: Floats, term: Callable[[Floats, Floats], Floats]) -> Floats:
    """Sum over the columns of ``columns`` [N, D] of term(x_i, x_j), [N, N]; it holds N^2 numbers at a time."""
    total = np.zeros((len(columns), len(columns)))
    for x in columns.T:
        total += term(x[:, None], x[None, :])
    return total


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
    return np.sqrt(_pairwise(shapes(counts), DISTANCES["hellinger"]))


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
    return _pairwise(np.cumsum(shapes(counts), axis=1), DISTANCES["emd"])


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


def _told(terms: Callable[[Callable[[Floats, Floats], Floats]], Floats], distance: str) -> Floats:
    """The distances of summed terms. Raises ConfigError for an unknown one."""
    if distance not in DISTANCES:
        raise unknown("distance", distance, DISTANCES)
    total = terms(DISTANCES[distance])
    return np.asarray(np.sqrt(total) if distance == "hellinger" else total)


def to_global(counts: Counts, distance: str = "js") -> Floats:
    """Distance of each client's label distribution q_k from the global one, p.

        js         (KL(q_k || m) + KL(p || m)) / 2,  m = (q_k + p) / 2, in [0, log 2] nats
        kl         KL(q_k || p), nats
        tv         sum_c |q_kc - p_c| / 2, in [0, 1]
        emd        sum_c |q_kc - p_c|, in [0, 2]
        hellinger  ||sqrt(q_k) - sqrt(p)||_2 / sqrt(2), in [0, 1]

    Zhao et al. call ``emd`` the earth mover's distance: labels have no order, so a move to any other label costs the
    same.

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
        >>> skew.to_global(np.array([[8, 2], [2, 8]]), "emd").round(4).tolist()
        [0.6, 0.6]

    References:
        Zhao et al. 2018, Federated Learning with Non-IID Data. https://arxiv.org/abs/1806.00582
    """
    n = matrix(counts)
    q, p = distributions(n), distributions(n.sum(axis=0, keepdims=True))
    return _told(lambda term: summed(term(q, p)), distance)


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
    return _told(lambda term: _pairwise(distributions(matrix(counts)), term), distance)


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


def _pair_mean(distances: Floats) -> float:
    """Mean over pairs of different clients; 0 for a single client."""
    count = len(distances)
    return float((distances.sum() - np.trace(distances)) / (count * (count - 1))) if count > 1 else 0.0


def stray(counts: Counts) -> dict[str, float]:
    """The client with the most classes of one row, where these are three or more and half of its classes or more.

    Such rows are often an artefact of the division: the `rounding` "cut" of `dirichlet` leaves them to the last client.

    Args:
        counts: Label histograms, [N, C].

    Returns:
        ``stray_client``, ``stray_classes`` and ``stray_one_row``: its number from 0, the classes it holds, and those of
        one row. Empty where there is no such client.

    Example:
        >>> import numpy as np
        >>> from fedskew.data import skew
        >>> skew.stray(np.array([[9, 0, 9, 9, 9], [7, 1, 1, 1, 0]]))
        {'stray_client': 1, 'stray_classes': 4, 'stray_one_row': 3}
    """
    n = matrix(counts)
    single = (n == 1).sum(axis=1)
    k = int(single.argmax())
    held = int((n[k] > 0).sum())
    if single[k] < FEW or 2 * single[k] < held:
        return {}
    return {"stray_client": k, "stray_classes": held, "stray_one_row": int(single[k])}


def summary(counts: Counts, most: int = _PAIRS) -> dict[str, float | list[float]]:
    """The skew report of a federation: one number for each measure, and lists with one number for each class.

    Means are over the clients with rows. Pairwise means are over all pairs of at most ``most`` such clients, always the
    same ones; ``pair_clients`` is their number. ``hellinger_mean``, ``emd_mean`` and ``overlap_mean`` are FedLA's; the
    ``*_pairs_mean`` compare label by label. What `stray` finds stands beside them.

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
        >>> facts = skew.summary(np.array([[8, 2, 0], [0, 5, 5]]))
        >>> facts["clients"], facts["size_median"], round(facts["js_mean"], 4), facts["class_rows"]
        (2, 10.0, 0.1488, [8.0, 7.0, 5.0])
    """
    n = matrix(counts)
    sizes = n.sum(axis=1)
    claim(sizes.any(), "counts", "hold at least one row", "none")
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
        **{f"{d}_mean": float(to_global(full, d).mean()) for d in ("js", "kl", "tv")},
        "shared_rate": float(shared(n).sum() / sizes.sum()),
        "hellinger_mean": _pair_mean(hellinger(some)),
        "emd_mean": _pair_mean(earth_mover(some)),
        "overlap_mean": _pair_mean(overlap(some)),
        "imbalance_local_max": float(local_imbalance(full).max()),
        "effective_classes_global": float(effective_classes(n.sum(axis=0, keepdims=True))[0]),
        "effective_classes_mean": float(effective_classes(full).mean()),
        **{f"{d}_to_global_mean": float(to_global(full, d).mean()) for d in ("hellinger", "emd")},
        **{f"{d}_pairs_mean": _pair_mean(pairwise(some, d)) for d in ("js", "emd", "hellinger")},
        "pair_clients": len(some),
        **stray(n),
        "class_rows": n.sum(axis=0).tolist(),
        "class_owners": owners(n).tolist(),
    }
