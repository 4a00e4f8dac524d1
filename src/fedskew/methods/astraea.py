"""Astraea: augmentation of rare classes, and mediators that train clients in sequence (Duan et al. 2019)."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew import rng
from fedskew.fields import AtLeast, Within
from fedskew.method import Method, Read, Selector, Shuffle, draw_clients
from fedskew.types import Answers, Assignment, Federation, Params, Query, Task, Tree


@dataclass(frozen=True)
class Augmentation(Shuffle):
    """More rows of the classes below the mean: each row becomes (mean / C_c)^alpha copies, rounded at random.

    C_c is the global number of rows of class c and mean their mean over the classes. Classes at or above it stay.

    Source: Duan et al. 2019, https://arxiv.org/abs/1907.01132

    Example:
        >>> F.astraea_copies(torch.tensor([400, 100, 50, 50]), alpha=0.5)
        tensor([1.0000, 1.2247, 1.7321, 1.7321], dtype=torch.float64)
    """

    name = "augmentation"
    compute = "more rows of rare classes"
    reads = (Read("histogram", "sum"),)
    downloads = "C"

    alpha: Annotated[float, Within(0, 1)] = 0.5
    """0 augments nothing, 1 levels the classes"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """The global histogram: {"counts": [C]}, the sum of those that clients sent."""
        return {"counts": fed.counts.sum(0)}

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """The global histogram to all."""
        return state, None

    def offer(self, counts: Tensor, state: Tree, round: int, key: Tensor) -> Tensor:
        """Rows after augmentation: floor(copies) of each, and a Bernoulli draw for the fraction."""
        copies = F.astraea_copies(state["counts"], self.alpha)
        extra = rng.generator(key).binomial(counts.numpy(), (copies % 1).numpy())
        return counts * copies.floor().long() + torch.from_numpy(extra)


@dataclass(frozen=True)
class Mediators(Selector):
    """k random clients, dealt to mediators that pass the model from client to client.

    A mediator takes at most `gamma` clients, greedily: the next is the one that minimises KL(pooled counts ||
    uniform). The models of the mediators are averaged.

    Source: Duan et al. 2019, https://arxiv.org/abs/1907.01132

    Example:
        >>> F.astraea_schedule(torch.tensor([[40, 0, 0], [0, 40, 0], [0, 0, 40], [20, 20, 0]]), 3)
        [[3, 2, 0], [1]]
    """

    name = "mediators"
    compute = "clients of a mediator train one after another"
    chained = True
    reads = (Read("histogram", "each"),)
    uploads = "C (every client)"

    gamma: Annotated[int, AtLeast(1)] = 5
    """clients of a mediator; 1 is FedAvg's round"""
    mediator_epochs: Annotated[int, AtLeast(1)] = 1
    """passes of the model over a mediator's clients"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """No histogram yet: {"counts": zeros [N, C]}."""
        return {"counts": torch.zeros(task.clients, task.classes, dtype=torch.int64)}

    def ask(self, state: Tree, round: int, key: Tensor) -> Query | None:
        """The histogram of every client, after augmentation."""
        return Query("all", "counts")

    def receive(self, state: Tree, answers: Answers, key: Tensor) -> Tree:
        """The histograms: {"counts": [N, C]}."""
        return {"counts": answers.values}

    def select(self, state: Tree, k: int, key: Tensor) -> Assignment:
        """One chain of at most `gamma` clients for each mediator."""
        ids = draw_clients(state["counts"].sum(1), k, key)
        mediators = F.astraea_schedule(state["counts"][ids], self.gamma)
        longest = max(map(len, mediators))
        table = torch.tensor([m + [-1] * (longest - len(m)) for m in mediators])
        chains = torch.where(table >= 0, ids[table.clamp(min=0)], -1)
        return Assignment(chains.repeat(1, self.mediator_epochs))


def astraea(alpha: float = 0.5, gamma: int = 5) -> Method:
    """Astraea: rows of rare classes are multiplied, and mediators train their clients in sequence.

    A mediator groups clients whose pooled labels are nearly balanced; the server averages the models of the
    mediators.

    Source: Duan et al. 2019, https://arxiv.org/abs/1907.01132

    Args:
        alpha: Strength of the augmentation in [0, 1]; 0 augments nothing, 1 levels the classes.
        gamma: Clients of a mediator; 1 is a round of FedAvg.

    Returns:
        The method.

    Example:
        >>> astraea(alpha=0.25).sampler
        Augmentation(alpha=0.25)
    """
    return Method("astraea", sampler=Augmentation(alpha), selector=Mediators(gamma), reference="duan2019")
