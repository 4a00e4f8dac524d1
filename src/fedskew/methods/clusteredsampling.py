"""Clustered sampling: every draw has its own distribution over the clients (Fraboni et al. 2021)."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew import rng, tree
from fedskew.method import Method, Read, Selector, Uniform
from fedskew.method.selectors import ward_merges
from fedskew.types import Assignment, Cohort, Federation, Params, Task, Tree


@dataclass(frozen=True)
class Clustered(Selector):
    """k draws of one client each, with replacement; on average client i is drawn k n_i / sum n times.

    Draw l takes client i with probability r_li. size: the clients by falling size fill k boxes of equal mass, and r_l
    is box l, so that a client of at most sum n / k rows lies in two boxes at most. none: r_li = n_i / sum n, which is
    multinomial sampling. A client that is drawn twice trains, and counts, twice. With the weighting `uniform` the
    aggregate is unbiased.

    Source: Fraboni et al. 2021, algorithm 1, https://arxiv.org/abs/2105.05883

    Example:
        >>> F.cluster_draws(torch.tensor([1, 2, 1]), 2).tolist()
        [[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]]
    """

    name = "clustered"
    repeats = True
    reads = (Read("rows", "each"),)
    reference = "fraboni2021"

    clusters: Literal["size", "none"] = "size"
    """size: boxes by the clients' rows, algorithm 1; none: every draw from all clients, multinomial sampling"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """The rows of each client: {"sizes": [N]}."""
        return {"sizes": fed.sizes.long()}

    def select(self, state: Tree, k: int, key: Tensor) -> Assignment:
        """Chains of one client, ordered by id; a client stands there as often as it was drawn."""
        return _drawn(F.cluster_draws(state["sizes"], k if self.clusters == "size" else 1).expand(k, -1), key)


@dataclass(frozen=True)
class ClusteredByUpdate(Selector):
    """k draws of one client each, as `Clustered`, each from clients whose last updates are alike.

    The server keeps every client's last update d_i, 0 before its first. Ward's linkage of their angles a_ij is a tree;
    its largest branches that fit a box of sum n rows, client i with k n_i, are clusters, and the boxes are made of
    them. With the weighting `uniform` the aggregate is unbiased. Two clients are at angle 0 where one has no update.

    Source: Fraboni et al. 2021, algorithm 2, https://arxiv.org/abs/2105.05883

    Example:
        >>> ClusteredByUpdate()
        ClusteredByUpdate(ward='rows')
    """

    name = "clustered_by_update"
    repeats = True
    reads = (Read("rows", "each"), Read("update", "each"))
    keeps = "N P at the server"
    compute = "server: N^2 angles of updates a round"
    reference = "fraboni2021"

    ward: Literal["rows", "angles"] = "rows"
    """distances of the linkage: rows: Euclidean distances between the clients' rows of the matrix of angles, as in the
    authors' code; angles: the angles themselves"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """The rows of each client, and its last update: {"sizes": [N], "updates": leaves [N, ...]}."""
        zeros = tree.expand(tree.zeros_like(params), fed.clients)
        return {"sizes": fed.sizes.long(), "updates": zeros}

    def select(self, state: Tree, k: int, key: Tensor) -> Assignment:
        """Chains of one client, ordered by id; a client stands there as often as it was drawn."""
        merges = ward_merges(F.update_angles(state["updates"]), rows=self.ward == "rows")
        return _drawn(F.similarity_draws(state["sizes"].cpu(), k, merges), key)

    def combine(self, state: Tree, cohort: Cohort) -> Params:
        """The deltas as they are: filling this hook shows each of them to the server."""
        return cohort.deltas

    def absorb(self, state: Tree, cohort: Cohort, key: Tensor) -> tuple[Tree, Tree | None]:
        """The participants' new updates."""
        updates = cohort.trained
        kept = {n: d.index_copy(0, cohort.ids.to(d.device), updates[n].to(d)) for n, d in state["updates"].items()}
        return {**state, "updates": kept}, None


def _drawn(chance: Tensor, key: Tensor) -> Assignment:
    """One client from each of the distributions [k, N], ordered by id."""
    u = rng.uniform(key, (len(chance), 1), torch.float64).to(chance)
    reached = (chance.cumsum(1) <= u * chance.sum(1, keepdim=True)).sum(1)
    last = chance.shape[1] - 1 - (chance.flip(1) > 0).long().argmax(1)  # rounding must not reach a client of no chance
    return Assignment(torch.minimum(reached, last).sort().values.unsqueeze(1))


def clusteredsampling(clusters: Literal["size", "none", "similarity"] = "size") -> Method:
    """Clustered sampling: FedAvg on participants that are drawn from groups of clients, one from each.

    On average each client is drawn as often as its share of the rows says, with less variance than under
    independent draws.

    Source: Fraboni et al. 2021, algorithms 1 and 2, https://arxiv.org/abs/2105.05883

    Args:
        clusters: size; similarity, of the clients' last updates; or none for multinomial sampling.

    Returns:
        The method.

    Example:
        >>> clusteredsampling("none").selector
        Clustered(clusters='none')
        >>> clusteredsampling("similarity").selector
        ClusteredByUpdate(ward='rows')
    """
    selector = ClusteredByUpdate() if clusters == "similarity" else Clustered(clusters)
    return Method("clusteredsampling", selector=selector, weighting=Uniform(), reference="fraboni2021")
