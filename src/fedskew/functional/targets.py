"""Aggregation weights towards a distribution of labels: FedDisco and FedPALS. K participants, C classes."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedskew.functional._numeric import as_float, choose, nonzero

__all__ = ["disco_weights", "label_discrepancy", "pals_weights"]

Metric = Literal["kl", "kl_plain", "l2", "l1", "cosine"]


def _shares(counts: Tensor) -> Tensor:
    rows = as_float(counts)
    return rows / nonzero(rows.sum(-1, keepdim=True))


def label_discrepancy(counts: Tensor, target: Tensor, metric: Metric = "kl") -> Tensor:
    """How far the labels of each participant are from a target distribution.

        "kl_plain":  sum_c q_kc log(q_kc / t_c), q_k = n_k / sum n_k;   "kl": the same, divided by its sum over k
        "l2", "l1":  ||q_k - t||;   "cosine": 1 - cos(q_k, t)

    Args:
        counts: Rows n of each class at each participant, [K, C].
        target: Shares t of the classes, [C], which sum to 1.
        metric: The distance.

    Returns:
        d, [K]. "kl" and "kl_plain" are infinite where a participant has a class of share 0.

    Raises:
        ConfigError: ``metric`` is unknown.

    Example:
        >>> import torch
        >>> from fedskew.functional import label_discrepancy
        >>> counts = torch.tensor([[4.0, 0.0], [1.0, 1.0]])
        >>> label_discrepancy(counts, torch.tensor([0.5, 0.5]), "l1")
        tensor([1., 0.])

    References:
        Ye et al. 2023, FedDisco: Federated Learning with Discrepancy-Aware Collaboration (ICML).
        https://arxiv.org/abs/2305.19229
    """
    choose("metric", metric, ("kl", "kl_plain", "l2", "l1", "cosine"))
    q = _shares(counts)
    if metric in ("l1", "l2"):
        distance: Tensor = torch.linalg.vector_norm(q - target, ord=int(metric[1]), dim=-1)
        return distance
    if metric == "cosine":
        size = torch.linalg.vector_norm(q, dim=-1) * torch.linalg.vector_norm(target)
        similarity: Tensor = (q * target).sum(-1) / nonzero(size)
        return 1 - similarity
    divergence = (torch.xlogy(q, q) - torch.xlogy(q, target)).sum(-1)
    if metric == "kl_plain":
        return divergence
    endless = divergence.isinf()
    return torch.where(endless, divergence, divergence / nonzero(divergence.masked_fill(endless, 0).sum()))


def disco_weights(weights: Tensor, discrepancy: Tensor, a: float = 0.5, b: float = 0.1) -> Tensor:
    """Weights of FedDisco: less for participants whose labels are far from the target.

        p_k = max(0, p_k - a d_k + b) / sum_j max(0, p_j - a d_j + b)

    Args:
        weights: Weights p to start from, [K], which sum to 1.
        discrepancy: d, [K].
        a: Weight of the discrepancy.
        b: What every participant is given.

    Returns:
        Weights, [K]; they sum to 1. ``weights`` themselves where nobody has anything left.

    Example:
        >>> import torch
        >>> from fedskew.functional import disco_weights
        >>> disco_weights(torch.tensor([0.5, 0.5]), torch.tensor([0.8, 0.2]), a=0.5, b=0.1)
        tensor([0.2857, 0.7143])

    References:
        Ye et al. 2023, FedDisco: Federated Learning with Discrepancy-Aware Collaboration (ICML).
        https://arxiv.org/abs/2305.19229
    """
    far = discrepancy.nan_to_num()  # the largest number for infinity, so that a = 0 makes nothing of it
    left = (weights - a * far + b).clamp(min=0)
    return torch.where(left.sum() > 0, left / nonzero(left.sum()), weights)


def pals_weights(counts: Tensor, sizes: Tensor, target: Tensor, lam: float) -> Tensor:
    """Weights of FedPALS: the mixture of the participants' labels that is nearest to a target, and not too uneven.

        argmin over the simplex of ||t - sum_k a_k q_k||^2 + lam sum_k a_k^2 / n_k,   q_k = counts_k / sum counts_k

    A large lam gives n_k / sum n. The programme is solved exactly, by an active set from those weights, in float64.

    Args:
        counts: Rows of each class at each participant, [K, C].
        sizes: Rows n_k of each participant, [K], positive.
        target: Shares t of the classes, [C], which sum to 1.
        lam: lam, at least 0; 1e-9 at least is taken, so that one solution is the best.

    Returns:
        a, float64 [K]; they sum to 1.

    Example:
        >>> import torch
        >>> from fedskew.functional import pals_weights
        >>> counts, target = torch.tensor([[6.0, 0.0], [6.0, 2.0]]), torch.tensor([0.5, 0.5])
        >>> pals_weights(counts, counts.sum(1), target, lam=0.0)
        tensor([0., 1.], dtype=torch.float64)
        >>> pals_weights(counts, counts.sum(1), target, lam=1e9).float()
        tensor([0.4286, 0.5714])

    References:
        Listo Zec, Breitholtz and Johansson 2025, Overcoming label shift with target-aware federated learning.
        https://arxiv.org/abs/2411.03799
    """
    q, n = _shares(counts.double()), sizes.double()
    quadratic = q @ q.T + max(lam, 1e-9) * torch.diag(1 / n)
    linear = q @ target.double()
    a, active = n / n.sum(), torch.ones(len(n), dtype=torch.bool, device=n.device)
    for _ in range(50 * len(n)):
        at = active.nonzero().squeeze(1)
        system = torch.ones(len(at) + 1, len(at) + 1, dtype=n.dtype, device=n.device)
        system[:-1, :-1], system[-1, -1] = quadratic[at][:, at], 0.0
        solved = torch.linalg.solve(system, torch.cat([linear[at], linear.new_ones(1)]))
        goal = torch.zeros_like(a).index_copy(0, at, solved[:-1])
        if bool((goal >= 0).all()):
            a = goal
            slope = torch.where(active, torch.inf, quadratic @ a - linear + solved[-1])
            if float(slope.min()) >= -1e-12:
                return a
            active = active | (torch.arange(len(n), device=n.device) == slope.argmin())
            continue
        falling = active & (goal < 0)  # walk towards the goal until the first weight reaches 0
        reach = torch.where(falling, a / (a - goal).clamp(min=1e-300), torch.inf)
        first = reach.argmin()
        a = (a + reach[first] * (goal - a)).clamp(min=0)
        a[first], active[first] = 0.0, False
        a = a / a.sum()
    return a
