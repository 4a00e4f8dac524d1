"""Who takes part with how much data, and who is like whom: oversampling, selection, mediators, clusters.

These functions run on the host, not under vmap. N clients, Q candidates, K chosen, m draws, C classes. Shares are
computed in float64; numbers of rows are exact integers.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from fedskew.errors import require
from fedskew.functional._numeric import choose
from fedskew.tree import Params

__all__ = [
    "astraea_copies", "astraea_schedule", "attention", "cluster_draws", "decay_step", "dynamic_batch", "dynamic_rate",
    "kl_to_uniform", "oversample_target", "power_of_choice", "seolkim_order", "seolkim_select", "similarity_draws",
    "update_angles",
]  # fmt: skip


def oversample_target(
    counts: Tensor, delta: Tensor | float, round: Tensor | int, decays: Literal["target", "amount"] = "target"
) -> Tensor:
    """Class counts after Seol and Kim's decaying oversampling.

    With m = (1 / C) sum_c n_c, the mean over all classes:

        "target":  t = m e^{-delta r};   classes with 0 < n_c < t are raised to ceil(t)
        "amount":  classes with 0 < n_c < m get floor((ceil(m) - n_c) e^{-delta r}) more rows

    Both raise to ceil(m) in round 0, and add nothing in the end. A decayed target first leaves out the classes near the
    mean; a decayed amount fills up every class below it, by less and less.

    Args:
        counts: Rows n of each class before oversampling, [..., C].
        delta: Decay, at least 0; grows by `decay_step`.
        round: Zero-based round r.
        decays: What the exponential factor multiplies: the "target" level, as in the paper's algorithm, or the "amount"
            of duplicates, as in its text.

    Returns:
        Counts, int64 [..., C]. Classes without rows stay without.

    Raises:
        ConfigError: ``decays`` is not "target" or "amount".

    Example:
        >>> import torch
        >>> from fedskew.functional import oversample_target
        >>> counts = torch.tensor([100, 20, 0, 40])
        >>> oversample_target(counts, delta=0.01, round=10)
        tensor([100,  37,   0,  40])
        >>> oversample_target(counts, delta=0.01, round=10, decays="amount")
        tensor([100,  38,   0,  40])

    References:
        Seol and Kim 2023, Performance Enhancement in Federated Learning by Reducing Class Imbalance of Non-IID Data
        (Sensors 23(3):1152), data sampling. https://doi.org/10.3390/s23031152
    """
    choose("decays", decays, ("target", "amount"))
    n = counts.to(torch.float64)
    mean, factor = n.mean(-1, keepdim=True), torch.exp(-torch.as_tensor(delta * round, dtype=torch.float64))
    if decays == "amount":
        more = ((mean.ceil() - n) * factor).floor()
        return torch.where((n > 0) & (n < mean), n + more, n).to(torch.int64)
    target = mean * factor
    return torch.where((n > 0) & (n < target), target.ceil(), n).to(torch.int64)


def kl_to_uniform(counts: Tensor) -> Tensor:
    """Kullback-Leibler divergence of a label distribution from the uniform one.

        KL(p || uniform) = sum_c p_c log(p_c C),   p = counts / sum(counts),   0 log 0 = 0

    Args:
        counts: Rows of each class, [..., C].

    Returns:
        Divergence in nats, in [0, log C], float64 [...]. No rows at all give log C, as a single class does.

    Example:
        >>> import torch
        >>> from fedskew.functional import kl_to_uniform
        >>> kl_to_uniform(torch.tensor([[60, 0, 10, 10], [5, 5, 5, 5]]))
        tensor([0.6507, 0.0000], dtype=torch.float64)

    References:
        Seol and Kim 2023, Performance Enhancement in Federated Learning by Reducing Class Imbalance of Non-IID Data
        (Sensors 23(3):1152), client selection. https://doi.org/10.3390/s23031152
    """
    n = counts.to(torch.float64)
    total, classes = n.sum(-1, keepdim=True), n.shape[-1]
    p = n / torch.where(total > 0, total, 1.0)
    divergence = torch.special.xlogy(p, p * classes).sum(-1).clamp(min=0)
    return torch.where(total.squeeze(-1) > 0, divergence, math.log(classes))


def seolkim_order(offered: Tensor, tiebreak: Tensor) -> Tensor:
    """Order in which Seol and Kim's server asks the candidates: most rows first, ties at random.

    Args:
        offered: Rows that each candidate offers, [Q, C].
        tiebreak: A uniform random number for each candidate, [Q]; of equal sizes the smallest comes first.

    Returns:
        Positions of the candidates, int64 [Q].

    Example:
        >>> import torch
        >>> from fedskew.functional import seolkim_order
        >>> seolkim_order(torch.tensor([[3, 0], [5, 5], [1, 2]]), torch.tensor([0.9, 0.5, 0.1]))
        tensor([1, 2, 0])

    References:
        Seol and Kim 2023, Performance Enhancement in Federated Learning by Reducing Class Imbalance of Non-IID Data
        (Sensors 23(3):1152), client selection. https://doi.org/10.3390/s23031152
    """
    shuffled = tiebreak.argsort(stable=True)
    return shuffled[offered.sum(-1)[shuffled].argsort(descending=True, stable=True)]


def _scarcest(offered: Tensor, free: Tensor, order: Tensor, pooled: Tensor, top: int) -> int | None:
    """First free candidate in the order with rows of the scarcest class below ``top``; None without one."""
    queue = order[free[order]]
    for c in pooled.argsort(stable=True).tolist():  # ties: lowest index
        if pooled[c] >= top:
            return None
        holders = queue[offered[queue, c] > 0]
        if len(holders):
            return int(holders[0])
    return None


def _next(offered: Tensor, order: Tensor, pooled: Tensor, top: int) -> int | None:
    """First candidate in the order with rows of the scarcest class, if that is below ``top``; None without one."""
    scarce = int(pooled.argsort(stable=True)[0])  # ties: lowest index
    holders = order[offered[order, scarce] > 0]
    return int(holders[0]) if len(holders) and int(pooled[scarce]) < top else None


def seolkim_select(
    offered: Tensor, limit: int, threshold: float, order: Tensor, passes: Literal["restart", "once"] = "restart"
) -> tuple[Tensor, Tensor]:
    """Select clients greedily until their pooled classes are balanced, and how much of each class each one uses.

    The first of the order gives all its rows: v = s = offered, m = max_c v_c. While fewer than ``limit`` are chosen and
    KL(v || uniform) >= threshold, the next client is the first unchosen one that has rows of the scarcest class with
    v_c < m. It gives s_c = min(m - v_c, offered_c) of every class, and v <- v + s.

    Algorithm 2 goes through the sorted list once: a client that lacks the scarcest class at its turn is not asked
    again, and a class that no later client has ends the selection. That is ``passes`` "once". Its listing tests the
    limit and the threshold after the loop, the text where v is updated, which is done here.

    Args:
        offered: Rows that each candidate offers, after oversampling, [Q, C].
        limit: Most clients, at least 1.
        threshold: Divergence in nats below which selection stops.
        order: Positions of the candidates, int64 [Q], from `seolkim_order`.
        passes: Who is asked next: every unchosen client, from the largest ("restart"), or those that stand behind the
            last chosen one ("once").

    Returns:
        (positions [K], quota [K, C]), int64: the chosen candidates and the rows of each class each one uses. Selection
        stops early when nobody can add a row.

    Raises:
        ConfigError: ``limit`` is below 1, there is no candidate, or ``passes`` is not "restart" or "once".

    Example:
        >>> import torch
        >>> from fedskew.functional import seolkim_order, seolkim_select
        >>> offered = torch.tensor([[60, 0, 10, 10], [0, 50, 0, 0], [5, 0, 30, 0], [0, 0, 0, 25], [0, 10, 5, 40]])
        >>> order = seolkim_order(offered, torch.rand(5, generator=torch.Generator().manual_seed(0)))
        >>> seolkim_select(offered, limit=10, threshold=0.1, order=order)
        (tensor([0, 4, 1]), tensor([[60,  0, 10, 10],
                [ 0, 10,  5, 40],
                [ 0, 50,  0,  0]]))
        >>> both = (seolkim_select(offered, 10, 0.0, order, passes)[0] for passes in ("restart", "once"))
        >>> [chosen.tolist() for chosen in both]
        [[0, 4, 1, 2, 3], [0, 4, 1, 2]]

    References:
        Seol and Kim 2023, Performance Enhancement in Federated Learning by Reducing Class Imbalance of Non-IID Data
        (Sensors 23(3):1152), algorithm 2. https://doi.org/10.3390/s23031152
    """
    choose("passes", passes, ("restart", "once"))
    require(limit >= 1, "limit", "be at least 1", limit)
    require(len(order) >= 1, "order", "name at least one candidate", len(order))
    offered = offered.to(torch.int64)
    free = torch.ones(len(offered), dtype=torch.bool, device=offered.device)
    chosen, pooled = [int(order[0])], offered[order[0]]
    quota, top = [pooled], int(pooled.max())
    free[chosen[0]] = False
    while len(chosen) < limit and bool(kl_to_uniform(pooled) >= threshold):
        if passes == "once":
            best = _next(offered, order[int((order == chosen[-1]).nonzero()) + 1 :], pooled, top)
        else:
            best = _scarcest(offered, free, order, pooled, top)
        if best is None:
            break
        share = torch.minimum(top - pooled, offered[best])
        chosen.append(best)
        quota.append(share)
        pooled, free[best] = pooled + share, False
    return torch.tensor(chosen, device=offered.device), torch.stack(quota)


def dynamic_batch(used: Tensor, beta: Tensor | float) -> Tensor:
    """Batch size that gives each client about the same number of steps an epoch.

        b_k = max(1, floor(n_k / beta))

    Args:
        used: Rows n that each client trains on, [K].
        beta: Steps an epoch, positive.

    Returns:
        Batch sizes, int64 [K].

    Example:
        >>> import torch
        >>> from fedskew.functional import dynamic_batch
        >>> dynamic_batch(torch.tensor([250, 7]), beta=25)
        tensor([10,  1])

    References:
        Seol and Kim 2023, Performance Enhancement in Federated Learning by Reducing Class Imbalance of Non-IID Data
        (Sensors 23(3):1152), dynamic batch. https://doi.org/10.3390/s23031152
    """
    return torch.floor(used.to(torch.float64) / beta).clamp(min=1).to(torch.int64)


def dynamic_rate(batch: Tensor, eta_max: Tensor | float, literal: bool = False, b0: float = 1.0) -> Tensor:
    """Learning rate that grows with the batch size and saturates at eta_max.

        eta_k = eta_max (2 / pi) arctan(b_k / b0)

    Args:
        batch: Batch sizes b, [K].
        eta_max: Largest learning rate.
        literal: Leave out 2 / pi, as the paper prints it; the rate then exceeds eta_max.
        b0: Scale of the batch size. The paper has 1.

    Returns:
        Learning rates, float64 [K].

    Example:
        >>> import torch
        >>> from fedskew.functional import dynamic_rate
        >>> dynamic_rate(torch.tensor([83, 10, 1]), eta_max=0.1)
        tensor([0.0992, 0.0937, 0.0500], dtype=torch.float64)

    References:
        Seol and Kim 2023, Performance Enhancement in Federated Learning by Reducing Class Imbalance of Non-IID Data
        (Sensors 23(3):1152), dynamic learning rate. https://doi.org/10.3390/s23031152
    """
    return eta_max * (1.0 if literal else 2 / math.pi) * torch.arctan(batch.to(torch.float64) / b0)


def decay_step(delta: Tensor | float, owned: Tensor, offered: Tensor, threshold: float, increment: float) -> Tensor:
    """Raise the decay of oversampling when the chosen clients oversample too much.

        delta <- delta + increment   if sum(offered - owned) / sum(owned) > threshold

    Args:
        delta: Decay; a tensor keeps its dtype, a float becomes float64.
        owned: Rows of the chosen clients before oversampling, [K, C].
        offered: Rows of the chosen clients after oversampling, [K, C].
        threshold: Share of added rows. The paper has 0.1.
        increment: The paper has 0.1.

    Returns:
        New delta, ().

    Example:
        >>> import torch
        >>> from fedskew.functional import decay_step
        >>> decay_step(0.01, torch.tensor([[200, 60]]), torch.tensor([[220, 72]]), threshold=0.1, increment=0.1)
        tensor(0.1100, dtype=torch.float64)

    References:
        Seol and Kim 2023, Performance Enhancement in Federated Learning by Reducing Class Imbalance of Non-IID Data
        (Sensors 23(3):1152), data sampling. https://doi.org/10.3390/s23031152
    """
    current = delta if isinstance(delta, Tensor) else torch.tensor(delta, dtype=torch.float64)
    have = owned.to(torch.float64).sum()
    rate = (offered.to(torch.float64).sum() - have) / torch.where(have > 0, have, 1.0)
    return torch.where(rate > threshold, current + increment, current)


def astraea_copies(global_counts: Tensor, alpha: float) -> Tensor:
    """Number of copies to which Astraea expands a sample of each class.

        (mean C / C_c)^alpha   for classes below the mean count, else 1

    Args:
        global_counts: Rows C of each class over all clients, [C].
        alpha: Exponent in [0, 1]; 0 expands nothing.

    Returns:
        Copies, float64 [C]; round them at random. A class without rows has 1.

    Example:
        >>> import torch
        >>> from fedskew.functional import astraea_copies
        >>> astraea_copies(torch.tensor([400, 100, 50, 50]), alpha=0.5)
        tensor([1.0000, 1.2247, 1.7321, 1.7321], dtype=torch.float64)

    References:
        Duan et al. 2019, Astraea: Self-Balancing Federated Learning for Improving Classification Accuracy of Mobile
        Deep Learning Applications (ICCD), augmentation. https://arxiv.org/abs/1907.01132
    """
    n = global_counts.to(torch.float64)
    mean = n.mean(-1, keepdim=True)
    return torch.where((n > 0) & (n < mean), (mean / torch.where(n > 0, n, 1.0)) ** alpha, 1.0)


def astraea_schedule(counts: Tensor, gamma: int) -> list[list[int]]:
    """Group clients under Astraea's mediators, so that each group's pooled classes are balanced.

    A mediator takes, one after another, the free client that gives the least KL(sum of counts || uniform), until it has
    ``gamma`` clients. Then the next one opens.

    Args:
        counts: Rows of each class at each client, [N, C].
        gamma: Most clients of a mediator, at least 1. 1 gives every client its own.

    Returns:
        Client numbers of each mediator, in the order in which they were taken. Ties go to the lowest number;
        differences below 1e-12 count as ties.

    Raises:
        ConfigError: ``gamma`` is below 1.

    Example:
        >>> import torch
        >>> from fedskew.functional import astraea_schedule
        >>> astraea_schedule(torch.tensor([[40, 0, 0], [0, 40, 0], [0, 0, 40], [20, 20, 0]]), gamma=3)
        [[3, 2, 0], [1]]

    References:
        Duan et al. 2019, Astraea: Self-Balancing Federated Learning for Improving Classification Accuracy of Mobile
        Deep Learning Applications (ICCD), mediator-based rescheduling. https://arxiv.org/abs/1907.01132
    """
    require(gamma >= 1, "gamma", "be at least 1", gamma)
    n = counts.to(torch.float64)
    free, mediators = list(range(len(n))), list[list[int]]()
    while free:
        members, pooled = list[int](), torch.zeros_like(n[0])
        while free and len(members) < gamma:
            divergence = kl_to_uniform(pooled + n[free])
            best = free.pop(int((divergence <= divergence.min() + 1e-12).nonzero()[0]))
            members.append(best)
            pooled = pooled + n[best]
        mediators.append(members)
    return mediators


def power_of_choice(losses: Tensor, m: int) -> Tensor:
    """Select the candidates on whose data the global model has the largest loss.

    Args:
        losses: Loss of the global model on each candidate's data, [d].
        m: Number of clients to select.

    Returns:
        Positions, largest loss first, ties by lowest position, int64 [min(m, d)].

    Example:
        >>> import torch
        >>> from fedskew.functional import power_of_choice
        >>> power_of_choice(torch.tensor([0.3, 2.0, 0.7]), m=2)
        tensor([1, 2])

    References:
        Cho, Wang and Joshi 2022, Towards Understanding Biased Client Selection in Federated Learning (AISTATS).
        https://arxiv.org/abs/2010.01243
    """
    return losses.argsort(descending=True, stable=True)[:m]


# Which clients are drawn, and which are alike: clustered sampling and FedAMP


def cluster_draws(sizes: Tensor, draws: int) -> Tensor:
    """Distributions over the clients, one a draw, whose mean is the share of each client's rows.

    The clients go by falling size into m boxes that hold sum n rows each, client i with m n_i rows: a box is filled to
    the brim before the next one, so that a client may lie in several. r_li is i's part of box l:

        sum_i r_li = 1,   (1 / m) sum_l r_li = n_i / sum_j n_j

    Args:
        sizes: Rows n of each client, int64 [N], not all 0.
        draws: m, at least 1.

    Returns:
        r, float64 [m, N].

    Example:
        >>> import torch
        >>> from fedskew.functional import cluster_draws
        >>> cluster_draws(torch.tensor([1, 2, 1]), 2)
        tensor([[0.0000, 1.0000, 0.0000],
                [0.5000, 0.0000, 0.5000]], dtype=torch.float64)

    References:
        Fraboni, Vidal, Kameni and Lorenzi 2021, Clustered Sampling: Low-Variance and Improved Representativity for
        Clients Selection in Federated Learning (ICML), algorithm 1. https://arxiv.org/abs/2105.05883
    """
    order = torch.argsort(sizes, descending=True, stable=True)
    upper = (draws * sizes[order]).cumsum(0)  # where client i ends on a line of m sum n rows
    lower, brim = upper - draws * sizes[order], sizes.sum() * torch.arange(draws, device=sizes.device).unsqueeze(1)
    part = torch.minimum(upper, brim + sizes.sum()) - torch.maximum(lower, brim)
    out = torch.zeros(draws, len(sizes), dtype=torch.float64, device=sizes.device)
    out[:, order] = part.clamp(min=0).double() / sizes.sum()
    return out


def update_angles(updates: Params) -> Tensor:
    """Angles between the clients' last updates.

        a_ij = arccos( d_i' d_j / (||d_i|| ||d_j||) ),  0 where i = j, and where d_i or d_j is 0

    Args:
        updates: d, leaves [N, ...]; 0 of a client without one.

    Returns:
        a, float64 [N, N], in [0, pi].

    Example:
        >>> import torch
        >>> from fedskew.functional import update_angles
        >>> update_angles({"w": torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])})[0]
        tensor([0.0000, 1.5708, 0.0000], dtype=torch.float64)

    References:
        Fraboni, Vidal, Kameni and Lorenzi 2021, Clustered Sampling: Low-Variance and Improved Representativity for
        Clients Selection in Federated Learning (ICML), section 5. https://arxiv.org/abs/2105.05883
    """
    flat = [d.flatten(1).double() for d in updates.values()]
    products = torch.stack([d @ d.T for d in flat]).sum(0)
    size = products.diagonal().sqrt()
    known = (size > 0).outer(size > 0) & ~torch.eye(len(size), dtype=torch.bool, device=size.device)
    cosines = products / torch.where(size > 0, size, 1.0).outer(torch.where(size > 0, size, 1.0))
    return torch.where(known, cosines.clamp(-1, 1).arccos(), torch.zeros_like(cosines))


def similarity_draws(sizes: Tensor, draws: int, merges: Tensor) -> Tensor:
    """Distributions over the clients, one a draw, each of clients that a tree has near each other.

    As in `cluster_draws` there are m boxes of sum n, and client i has m n_i. Who has whole boxes fills them alone; what
    is left of everybody forms clusters, the largest branches of the tree that fit a box. The largest clusters each open
    one of the other boxes; the rest, the smallest first, fills them up, the emptiest box first:

        sum_i r_li = 1,   (1 / m) sum_l r_li = n_i / sum_j n_j

    Args:
        sizes: Rows n of each client, int64 [N], not all 0.
        draws: m, at least 1.
        merges: The tree, int64 [N - 1, 2]: the two branches that each step joins; a client is the branch of its number,
            step i makes branch N + i.

    Returns:
        r, float64 [m, N].

    Example:
        >>> import torch
        >>> from fedskew.functional import similarity_draws
        >>> tree = torch.tensor([[0, 3], [1, 2], [4, 5]])
        >>> similarity_draws(torch.tensor([1, 1, 1, 1]), 2, tree)
        tensor([[0.5000, 0.0000, 0.0000, 0.5000],
                [0.0000, 0.5000, 0.5000, 0.0000]], dtype=torch.float64)

    References:
        Fraboni, Vidal, Kameni and Lorenzi 2021, Clustered Sampling: Low-Variance and Improved Representativity for
        Clients Selection in Federated Learning (ICML), algorithm 2. https://arxiv.org/abs/2105.05883
    """
    total = int(sizes.sum())
    mass = [draws * n for n in sizes.tolist()]
    boxes = [{i: total} for i, q in enumerate(mass) for _ in range(q // total)]
    rest = [q % total for q in mass]
    branches: dict[int, list[int]] = {i: [i] for i in range(len(rest))}
    weight = dict(enumerate(rest))
    for step, (a, b) in enumerate(merges.tolist(), len(rest)):
        weight[step] = weight[a] + weight[b]
        if weight[step] <= total:
            branches[step] = sorted(branches.pop(a) + branches.pop(b))
    clusters = sorted((weight[n], members) for n, members in branches.items() if weight[n])
    opened = draws - len(boxes)
    filled, open_box = len(boxes), len(clusters) - opened
    boxes += [{i: rest[i] for i in members} for _, members in clusters[open_box:]]
    for i in [i for _, members in clusters[:open_box] for i in members]:
        left = rest[i]
        while left:
            part = min(total - sum(boxes[filled].values()), left)
            if part:
                boxes[filled][i] = part
            left -= part
            filled += sum(boxes[filled].values()) == total
    out = torch.zeros(draws, len(rest), dtype=torch.float64)
    for row, box in enumerate(boxes):
        out[row, list(box)] = torch.tensor(list(box.values()), dtype=torch.float64)
    return (out / total).to(sizes.device)


def attention(models: Params, ids: Tensor, alpha: float, sigma: float) -> Tensor:
    """FedAMP's attention of some clients to all: larger for a client whose model is near.

        xi_kj = (alpha / sigma) exp(-||w_k - w_j||^2 / sigma)

    Args:
        models: The clients' models, leaves [N, ...].
        ids: Clients k, int64 [K].
        alpha: Step of the messages.
        sigma: Width, positive.

    Returns:
        xi, [K, N]; alpha / sigma of a client to itself, which FedAMP replaces by what the others leave.

    Example:
        >>> import torch
        >>> from fedskew.functional import attention
        >>> attention({"w": torch.tensor([[0.0], [1.0]])}, torch.tensor([0]), alpha=0.5, sigma=1.0)
        tensor([[0.5000, 0.1839]])

    References:
        Huang et al. 2021, Personalized Cross-Silo Federated Learning on Non-IID Data (AAAI), equations 3 to 5.
        https://arxiv.org/abs/2007.03797
    """

    def apart(k: int) -> Tensor:  # one client at a time: all at once would hold K N models
        return torch.stack([(w - w[k]).flatten(1).square().sum(-1) for w in models.values()]).sum(0)

    return alpha / sigma * (-torch.stack([apart(int(k)) for k in ids]) / sigma).exp()
