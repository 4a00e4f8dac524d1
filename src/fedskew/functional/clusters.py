"""Which clients are drawn, and which are alike: clustered sampling, FedAMP and IFCA. N clients, m draws."""

from __future__ import annotations

import torch
from torch import Tensor

from fedskew.tree import Params

__all__ = ["attention", "cluster_draws", "similarity_draws", "update_angles"]


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
