"""Aggregation weights of the participants.

K participants, N clients, C classes, D entries of a flattened classifier.
"""

from typing import Literal

import torch
from torch import Tensor

from fedskew.functional._numeric import as_float, choose, cosine, nonzero

__all__ = [
    "aggregation_balancer_weights", "classifier_similarity", "climb_dual_step", "climb_weights", "disco_left",
    "disco_weights", "fednova_weights", "gravitation_mass", "label_aware_mass", "label_aware_weights",
    "label_discrepancy", "pals_weights", "sgd_a_norm",
    "size_weights", "uniform_weights",
]  # fmt: skip


def _normalised(mass: Tensor) -> Tensor:
    """mass / sum(mass), or uniform weights when the mass is all zero."""
    total = mass.sum(-1, keepdim=True)
    return torch.where(total > 0, mass / nonzero(total), torch.full_like(mass, 1 / mass.shape[-1]))


def size_weights(samples: Tensor) -> Tensor:
    """Weights in proportion to the number of rows (FedAvg).

        p_k = n_k / sum_j n_j

    Args:
        samples: Rows n of each participant, [K].

    Returns:
        Weights, [K]; they sum to 1. Uniform when nobody has a row.

    Example:
        >>> import torch
        >>> from fedskew.functional import size_weights
        >>> size_weights(torch.tensor([3, 1]))
        tensor([0.7500, 0.2500])

    References:
        McMahan et al. 2017, Communication-Efficient Learning of Deep Networks from Decentralized Data (AISTATS).
        https://arxiv.org/abs/1602.05629
    """
    return _normalised(as_float(samples))


def uniform_weights(like: Tensor | int) -> Tensor:
    """Equal weights.

        p_k = 1 / K

    Args:
        like: Number of participants K, or a tensor [K, ...] whose dtype (if floating) and device the weights take.

    Returns:
        Weights, [K].

    Example:
        >>> from fedskew.functional import uniform_weights
        >>> uniform_weights(4)
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    if isinstance(like, int):
        return torch.full((like,), 1 / like)
    dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()
    return torch.full((like.shape[0],), 1 / like.shape[0], dtype=dtype, device=like.device)


def label_aware_weights(counts: Tensor) -> Tensor:
    """Label-aware weights (FedLA): each participant counts by its share of the rows of every label.

        p_i = W_i / sum_x W_x,   W_i = sum_j n_ij / S_j,   S_j = sum_i n_ij

    Args:
        counts: Rows n of each class at each participant, [K, C].

    Returns:
        Weights, [K]; they sum to 1. A label that nobody holds is left out; uniform when nobody has a row.

    Example:
        >>> import torch
        >>> from fedskew.functional import label_aware_weights
        >>> label_aware_weights(torch.tensor([[700, 0, 0], [200, 100, 25], [100, 0, 25]]))
        tensor([0.2333, 0.5667, 0.2000])

    References:
        Khalil et al. 2023, Label-Aware Aggregation for Improved Federated Learning (FMEC).
        https://github.com/AhmadMkhalil/Label-Aware-Aggregation-in-Federated-Learning
    """
    n = as_float(counts)
    return _normalised(label_aware_mass(n, n.sum(-2, keepdim=True)))


def label_aware_mass(counts: Tensor, totals: Tensor) -> Tensor:
    """What `label_aware_weights` divides by its sum: W_i, which a client knows from the sums of all.

        W_i = sum_j n_ij / S_j

    Args:
        counts: Rows n of each class at each participant, [K, C].
        totals: S, rows of each class of all participants together, [C] or [1, C].

    Returns:
        W, [K].

    Example:
        >>> import torch
        >>> from fedskew.functional import label_aware_mass
        >>> label_aware_mass(torch.tensor([[200.0, 100.0, 25.0]]), torch.tensor([1000.0, 100.0, 50.0]))
        tensor([1.7000])
    """
    return (as_float(counts) / nonzero(as_float(totals))).sum(-1)


def classifier_similarity(before: Tensor, after: Tensor, similarity: Literal["cosine", "l2"] = "cosine") -> Tensor:
    """Similarity of each participant's classifier to the global one (FedBal).

        "cosine":  v_i = cos(before, after_i)
        "l2":      v_i = -||before - after_i||_2

    Args:
        before: Flattened global classifier, [D].
        after: Flattened classifiers of the participants, [K, D].
        similarity: "cosine" is the paper's.

    Returns:
        v, [K]. A zero vector has cosine 0.

    Raises:
        ConfigError: ``similarity`` is not "cosine" or "l2".

    Example:
        >>> import torch
        >>> from fedskew.functional import classifier_similarity
        >>> after = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 2.0]])
        >>> classifier_similarity(torch.tensor([1.0, 0.0]), after)
        tensor([1.0000, 0.7071, 0.0000, 0.4472])

    References:
        Anonymous 2023, Knowledge Is Not Wisdom: Weight Balancing Mechanism for Local and Global Training in Federated
        Learning (submission, no public copy), aggregation balancer.
    """
    choose("similarity", similarity, ("cosine", "l2"))
    if similarity == "l2":
        distance: Tensor = torch.linalg.vector_norm(before - after, dim=-1)
        return -distance
    return cosine(before, after)


def aggregation_balancer_weights(
    similarity: Tensor, beta: float = 3.0, temperature: float = 1.0, inverse: bool = False
) -> Tensor:
    """Weights of FedBal's aggregation balancer: a softmax of similarities that are clipped from below.

        p = softmax(max(v, T) / temperature),   T = mean(v) - beta std(v)

    The standard deviation is that of the population, divided by K. A value lies at most sqrt(K - 1) of these below the
    mean, so beta >= sqrt(K - 1) clips nothing: with 4 participants beta = 2 and beta = 3 are the same.

    Args:
        similarity: v, [..., K], from `classifier_similarity`.
        beta: Width of the clipping, at least 0; inf clips nothing. The paper has 3.
        temperature: Positive. Equation 8 has none, that is 1; the text says that beta can act as one.
        inverse: Use softmax(-max(v, T) / temperature), our reading of the "inversely proportional term" of section 5.2,
            for which the paper gives no formula.

    Returns:
        Weights, [..., K]; they sum to 1.

    Example:
        >>> import torch
        >>> from fedskew.functional import aggregation_balancer_weights
        >>> v = torch.tensor([1.0, 0.70710678, 0.0, 0.4472136])
        >>> aggregation_balancer_weights(v), aggregation_balancer_weights(v, beta=1.0)
        (tensor([0.3718, 0.2774, 0.1368, 0.2139]), tensor([0.3626, 0.2705, 0.1583, 0.2086]))

    References:
        Anonymous 2023, Knowledge Is Not Wisdom: Weight Balancing Mechanism for Local and Global Training in Federated
        Learning (submission, no public copy), aggregation balancer.
    """
    floor = similarity.mean(-1, keepdim=True) - beta * similarity.std(-1, correction=0, keepdim=True)
    clipped = torch.fmax(similarity, floor)  # fmax: inf * 0 is NaN when beta is inf and all v are equal
    return ((-clipped if inverse else clipped) / temperature).softmax(-1)


def gravitation_mass(counts: Tensor, by: Literal["sample", "client"] = "sample") -> Tensor:
    """Weights of the anchors by rows, for `gravitation`.

        "sample":  m_{k,i} = n_{k,i} / sum_z N_z
        "client":  m_{k,i} = N_k / sum_z N_z,   N_k = sum_c n_{k,c}

    By sample every row of the data counts once, and Reg is a mean over rows.

    Args:
        counts: Rows n of each class at each participant, [K, C].
        by: "sample" or "client".

    Returns:
        m, float64 [K, C].

    Raises:
        ConfigError: ``by`` is not "sample" or "client".

    Example:
        >>> import torch
        >>> from fedskew.functional import gravitation_mass
        >>> gravitation_mass(torch.tensor([[3, 1], [0, 4]]))
        tensor([[0.3750, 0.1250],
                [0.0000, 0.5000]], dtype=torch.float64)

    References:
        Guo et al. 2023, FedGR: Federated Learning with Gravitation Regulation for Double Imbalance Distribution
        (DASFAA), equations 10 and 15. https://doi.org/10.1007/978-3-031-30637-2_47
    """
    choose("by", by, ("sample", "client"))
    n = counts.to(torch.float64)
    rows = n if by == "sample" else n.sum(-1, keepdim=True).expand_as(n)
    return rows / nonzero(n.sum())


def sgd_a_norm(steps: Tensor | int, momentum: float = 0.0, decay: Tensor | float = 0.0) -> Tensor:
    """FedNova's ||a||_1: how far tau local steps of SGD move, in units of the learning rate times the gradient.

        plain SGD:              tau
        momentum rho:           (tau - rho (1 - rho^tau) / (1 - rho)) / (1 - rho)
        proximal, e = lr mu:    sum_{s < tau} (1 - e)^s = (1 - (1 - e)^tau) / e

    Args:
        steps: Local steps tau, () or [K].
        momentum: rho in [0, 1).
        decay: e = lr mu of a proximal term, at least 0; () or [K].

    Returns:
        ||a||_1, shaped as ``steps`` and ``decay``.

    Note:
        With momentum and decay together this returns the momentum form. The authors' recursion adds the increments of
        both (double counting): do not combine the two.

    Example:
        >>> import torch
        >>> from fedskew.functional import sgd_a_norm
        >>> sgd_a_norm(torch.tensor([1, 2, 3])), sgd_a_norm(torch.tensor([1, 2, 3]), momentum=0.9)
        (tensor([1., 2., 3.]), tensor([1.0000, 2.9000, 5.6100]))
        >>> sgd_a_norm(3, decay=0.1)
        tensor(2.7100)

    References:
        Wang et al. 2020, Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization
        (NeurIPS), local solvers. https://arxiv.org/abs/2007.07481
    """
    tau = as_float(torch.as_tensor(steps))
    exact = tau.to(torch.float64)  # 1 - rho^tau and 1 - (1 - e)^tau cancel in float32
    if momentum:
        rest = 1 - momentum
        return ((exact - momentum * (1 - momentum**exact) / rest) / rest).to(tau.dtype)
    e = torch.as_tensor(decay, dtype=torch.float64, device=tau.device)
    small = e.clamp(max=0.5)
    series = torch.where(
        e <= 0.5, -torch.expm1(exact * torch.log1p(-small)) / nonzero(small), (1 - (1 - e) ** exact) / nonzero(e)
    )
    return torch.where(e == 0, exact, series).to(tau.dtype)


def fednova_weights(p: Tensor, a_norm: Tensor, tau_eff: Tensor | float | None = None) -> Tensor:
    """Coefficients of the deltas in FedNova's normalised averaging.

        tau_eff p_k / a_k,   tau_eff = sum_k p_k a_k

    Args:
        p: Aggregation weights, [..., K]; they sum to 1.
        a_norm: ||a_k||_1, [..., K], from `sgd_a_norm`.
        tau_eff: Effective number of steps; None computes it as above. With a proximal term the authors' code uses
            sum_k p_k tau_k.

    Returns:
        Coefficients, [..., K]. They need not sum to 1. A client without a step (a = 0) has 0.

    Example:
        >>> import torch
        >>> from fedskew.functional import fednova_weights
        >>> fednova_weights(torch.tensor([0.25, 0.75]), torch.tensor([2.0, 6.0]))
        tensor([0.6250, 0.6250])

    References:
        Wang et al. 2020, Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization
        (NeurIPS), normalised averaging. https://arxiv.org/abs/2007.07481
    """
    effective = (p * a_norm).sum(-1, keepdim=True) if tau_eff is None else tau_eff
    return torch.where(a_norm > 0, effective * p / nonzero(a_norm), torch.zeros_like(p))


def climb_weights(duals: Tensor) -> Tensor:
    """Client weights of CLIMB from its dual variables.

        w_k = 1 + lambda_k - mean(lambda)

    Args:
        duals: lambda, [..., N], at least 0.

    Returns:
        Weights, [..., N]. They sum to N and may be negative.

    Example:
        >>> import torch
        >>> from fedskew.functional import climb_weights
        >>> climb_weights(torch.tensor([0.0, 0.0, 0.45, 0.0]))
        tensor([0.8875, 0.8875, 1.3375, 0.8875])

    References:
        Shen et al. 2022, An Agnostic Approach to Federated Learning with Class Imbalance (ICLR).
        https://openreview.net/forum?id=Xo0lbDt975
    """
    return 1 + duals - duals.mean(-1, keepdim=True)


def climb_dual_step(
    duals: Tensor, losses: Tensor, lr: Tensor | float, eps: Tensor | float, maximum: float = 100.0
) -> Tensor:
    """Dual ascent of CLIMB on the constraints f_k - mean(f) <= eps.

        lambda_k <- clip(lambda_k + (lr / N) (f_k - mean(f) - eps), 0, maximum)

    Args:
        duals: lambda, [..., N]; zeros at first.
        losses: Loss f of the global model on every client's data, [..., N].
        lr: Dual learning rate.
        eps: Tolerance of the constraint, at least 0.
        maximum: Largest lambda. The authors' code has 100 in one variant and 5 in another.

    Returns:
        New lambda, [..., N].

    Example:
        >>> import torch
        >>> from fedskew.functional import climb_dual_step
        >>> climb_dual_step(torch.zeros(4), torch.tensor([0.5, 1.0, 2.0, 0.5]), lr=2.0, eps=0.1)
        tensor([0.0000, 0.0000, 0.4500, 0.0000])

    References:
        Shen et al. 2022, An Agnostic Approach to Federated Learning with Class Imbalance (ICLR).
        https://openreview.net/forum?id=Xo0lbDt975
    """
    slack = losses - losses.mean(-1, keepdim=True) - eps
    return (duals + lr / duals.shape[-1] * slack).clamp(0, maximum)


# Weights towards a distribution of labels: FedDisco and FedPALS


Metric = Literal["kl", "kl_plain", "l2", "l1", "cosine"]


def _shares(counts: Tensor) -> Tensor:
    rows = as_float(counts)
    return rows / nonzero(rows.sum(-1, keepdim=True))


def label_discrepancy(counts: Tensor, target: Tensor, metric: Metric = "kl", whole: Tensor | None = None) -> Tensor:
    """How far the labels of each participant are from a target distribution.

        "kl_plain":  sum_c q_kc log(q_kc / t_c), q_k = n_k / sum n_k;   "kl": the same, divided by its sum over k
        "l2", "l1":  ||q_k - t||;   "cosine": 1 - cos(q_k, t)

    Args:
        counts: Rows n of each class at each participant, [K, C].
        target: Shares t of the classes, [C], which sum to 1.
        metric: The distance.
        whole: For "kl", the sum over k that is divided by, of the finite ones, (); None: that of these participants.

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
    whole = divergence.masked_fill(endless, 0).sum() if whole is None else whole
    return torch.where(endless, divergence, divergence / nonzero(whole))


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
    left = disco_left(weights, discrepancy, a, b)
    return torch.where(left.sum() > 0, left / nonzero(left.sum()), weights)


def disco_left(weights: Tensor, discrepancy: Tensor, a: float, b: float) -> Tensor:
    """What `disco_weights` divides by its sum, max(0, p_k - a d_k + b), [K], of its arguments.

    Example:
        >>> import torch
        >>> from fedskew.functional import disco_left
        >>> disco_left(torch.tensor([0.5, 0.5]), torch.tensor([0.8, 0.2]), a=0.5, b=0.1)
        tensor([0.2000, 0.5000])
    """
    far = discrepancy.nan_to_num()  # the largest number for infinity, so that a = 0 makes nothing of it
    return (weights - a * far + b).clamp(min=0)


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
