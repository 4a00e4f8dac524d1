"""Measures of label histograms, one client or one class at a time; `fedskew.data.skew` exports them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedskew.errors import DataError

__all__ = [
    "Counts",
    "Floats",
    "distributions",
    "diversity",
    "effective_classes",
    "effective_clients",
    "entropy",
    "imbalance",
    "local_imbalance",
    "matrix",
    "missing_rate",
    "over",
    "owners",
    "quantity_gini",
    "shapes",
    "shared",
    "summed",
]

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[Any] | torch.Tensor


def matrix(counts: Counts) -> Floats:
    """The counts as float64 [N, C]. Raises DataError unless they are a non-empty matrix of numbers of at least 0."""
    raw = counts.detach().cpu().numpy() if isinstance(counts, torch.Tensor) else counts
    matrix = np.asarray(raw, dtype=np.float64)
    if matrix.ndim != 2 or matrix.size == 0 or not (np.isfinite(matrix) & (matrix >= 0)).all():
        raise DataError(f"counts must be a non-empty matrix [clients, classes] of numbers >= 0; got {matrix.shape}")
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
