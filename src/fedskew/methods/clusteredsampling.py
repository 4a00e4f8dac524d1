"""Clustered sampling: every draw has its own distribution over the clients (Fraboni et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew import rng
from fedskew.method import Method, Selector
from fedskew.shared import Uniform
from fedskew.tree import Tree
from fedskew.types import Assignment, Params, Task

if TYPE_CHECKING:
    from fedskew.data.federation import Federation

__all__ = ["Clustered", "clusteredsampling"]


@dataclass(frozen=True)
class Clustered(Selector):
    """k draws of one client each, with replacement; on average client i is drawn k n_i / sum n times.

    Draw l takes client i with probability r_li. size: the clients by falling size fill k boxes of equal mass, and r_l
    is box l, so that a client of at most sum n / k rows lies in two boxes at most. none: r_li = n_i / sum n, which is
    multinomial sampling. A client that is drawn twice trains, and counts, twice. With the weighting ``uniform`` the
    aggregate is unbiased.

    Source: Fraboni et al. 2021, algorithm 1, https://arxiv.org/abs/2105.05883

    Example:
        >>> F.cluster_draws(torch.tensor([1, 2, 1]), 2).tolist()
        [[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]]
    """

    name = "clustered"
    repeats = True
    discloses = "sample count"
    reference = "fraboni2021"

    clusters: Literal["size", "none"] = "size"
    """size: boxes by the clients' rows, algorithm 1; none: every draw from all clients, multinomial sampling"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """The rows of each client: {"sizes": [N]}."""
        return {"sizes": fed.counts.sum(1).long()}

    def select(self, state: Tree, k: int, key: Tensor) -> Assignment:
        """Chains of one client, ordered by id; a client stands there as often as it was drawn."""
        sizes = state["sizes"]
        chance = F.cluster_draws(sizes, k if self.clusters == "size" else 1).expand(k, -1)
        u = rng.uniform(key, (k, 1), torch.float64).to(chance)
        reached = (chance.cumsum(1) <= u * chance.sum(1, keepdim=True)).sum(1)
        last = len(sizes) - 1 - (chance.flip(1) > 0).long().argmax(1)  # rounding must not reach a client of no chance
        return Assignment(torch.minimum(reached, last).sort().values.unsqueeze(1))


def clusteredsampling(clusters: Literal["size", "none"] = "size") -> Method:
    """FedAvg on clients of clustered sampling, under the uniform mean.

    Source: Fraboni et al. 2021, algorithm 1, https://arxiv.org/abs/2105.05883

    Args:
        clusters: size, or none for multinomial sampling.

    Returns:
        The method.

    Example:
        >>> clusteredsampling("none").selector
        Clustered(clusters='none')
    """
    return Method("clusteredsampling", selector=Clustered(clusters), weighting=Uniform(), reference="fraboni2021")
