"""Selectors: the clients that take part in a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from torch import Tensor

from fedskew import rng
from fedskew.fields import Within, demand
from fedskew.method.component import Selector
from fedskew.types import Assignment, Federation, Params, Task, Tree

if TYPE_CHECKING:
    from fedskew.method.value import Method


def draw_clients(sizes: Tensor, k: int, key: Tensor, proportional: bool = False) -> Tensor:
    """k distinct clients that have rows, uniformly or with probability in proportion to their rows.

    Successive weighted draws, as an exponential race: the k smallest of -log(u_i) / w_i.

    Args:
        sizes: Rows of each client, [N].
        k: Number of clients; fewer are drawn where fewer have rows.
        key: Key of the draw.
        proportional: Draw in proportion to `sizes`.

    Returns:
        Ids of the clients, ascending.

    Example:
        >>> draw_clients(torch.tensor([5, 0, 7]), 2, rng.key(0, "example")).tolist()
        [0, 2]
    """
    u = 1.0 - rng.uniform(key, (len(sizes),), torch.float64)
    weight = sizes.double() if proportional else (sizes > 0).double()
    race = torch.where(sizes > 0, -torch.log(u) / weight.clamp(min=1e-300), torch.inf)
    k = min(k, int((sizes > 0).sum()))
    return torch.sort(torch.topk(race, k, largest=False).indices).values


def ward_merges(distances: Tensor, rows: bool = False) -> Tensor:
    """The tree of Ward's hierarchical clustering.

    Args:
        distances: Symmetric, 0 on the diagonal, [N, N].
        rows: Cluster the rows of the matrix as points instead.

    Returns:
        The two branches that each step joins, int64 [N - 1, 2]; a client is the branch of its number, step i makes
        branch N + i.

    Example:
        >>> apart = torch.tensor([[0.0, 9.0, 1.0], [9.0, 0.0, 8.0], [1.0, 8.0, 0.0]])
        >>> ward_merges(apart).tolist()
        [[0, 2], [1, 3]]
    """
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import pdist

    if len(distances) < 2:
        return torch.zeros((0, 2), dtype=torch.int64)
    upper = torch.triu_indices(len(distances), len(distances), 1)
    table = distances.cpu().double()
    pairs = pdist(table.numpy()) if rows else table[upper[0], upper[1]].numpy()
    return torch.from_numpy(linkage(pairs, "ward")[:, :2]).long()


@dataclass(frozen=True)
class Random(Selector):
    """k of the clients that have rows, uniformly without replacement.

    Source: McMahan et al. 2017, algorithm 1, https://arxiv.org/abs/1602.05629

    Example:
        >>> Random()
        Random()
    """

    name = "random"

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """The clients that have rows: {"sizes": [N] of 0 and 1}."""
        return {"sizes": fed.has_rows.long()}

    def select(self, state: Tree, k: int, key: Tensor) -> Assignment:
        """Chains of one client, ordered by id."""
        return Assignment(draw_clients(state["sizes"], k, key).unsqueeze(1))


@dataclass(frozen=True)
class Poisson(Random):
    """Each client that has rows with probability k / N, whatever the others do; a round may be without clients.

    N is the number of clients that have rows. In a round without clients the update is 0.

    Source: McMahan et al. 2018, algorithm 1, https://arxiv.org/abs/1710.06963

    Example:
        >>> Poisson()
        Poisson()
    """

    name = "poisson"
    reference = "mcmahan2018"
    varies = True

    def select(self, state: Tree, k: int, key: Tensor) -> Assignment:
        """Chains of one client, ordered by id."""
        has_rows = state["sizes"] > 0
        drawn = rng.uniform(key, (len(has_rows),), torch.float64) * has_rows.sum() < k
        return Assignment((drawn & has_rows).nonzero())


@dataclass(frozen=True)
class Failing(Random):
    """As `Random`, but client k misses a round in which it was chosen with probability `rates[k]`.

    Misses are independent draws of the client and the round. A client of rate 1 is never chosen. Where all that were
    chosen would miss the round, the one takes part whose draw exceeds its rate the most, so that no round is empty.

    Raises:
        FieldError: A rate is not in [0, 1], all are 1, or there are not as many as clients.

    Example:
        >>> Failing(rates=(0.5, 0.0))
        Failing(rates=(0.5, 0.0))
    """

    name = "failing"

    rates: tuple[Annotated[float, Within(0, 1)], ...] = ()
    """probability that each client misses a round, comma-separated, for example 0.1,0,0.5; unset: none does"""

    def __post_init__(self) -> None:
        super().__post_init__()
        demand(self, "rates", not self.rates or min(self.rates) < 1, "leave a client of a rate below 1")

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """Raise FieldError unless there is one rate a client, and one below 1 of a client with rows."""
        fits = len(self.rates) in (0, fed.clients)
        demand(self, "rates", fits, f"be as many as there are clients, {fed.clients}")
        available = bool((self.init_server({}, fed, task)["sizes"] > 0).any())
        demand(self, "rates", available, "leave a client with rows of a rate below 1")

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """The clients that may take part, as `Random` has them."""
        sizes = super().init_server(params, fed, task)["sizes"]
        return {"sizes": sizes * (torch.tensor(self.rates or (0.0,)) < 1)}

    def select(self, state: Tree, k: int, key: Tensor) -> Assignment:
        """Chains of one client, of those that miss nothing."""
        chosen = draw_clients(state["sizes"], k, key)
        margin = rng.uniform(rng.fold(key, 1), (len(state["sizes"]),), torch.float64)
        margin = (margin - torch.tensor(self.rates or (0.0,), dtype=torch.float64))[chosen]
        there = chosen[margin >= 0]
        return Assignment((there if len(there) else chosen[margin.argmax()].view(1)).unsqueeze(1))
