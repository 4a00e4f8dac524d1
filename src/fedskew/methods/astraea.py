"""Astraea: augmentation of rare classes, and mediators that train clients in sequence (Duan et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew import rng
from fedskew.fields import AtLeast, Within
from fedskew.method import Method, Selector
from fedskew.shared import Shuffle
from fedskew.shared.selectors import draw_clients
from fedskew.tree import Tree
from fedskew.types import Answers, Assignment, Params, Query, Task

if TYPE_CHECKING:
    from fedskew.data.federation import Federation

__all__ = ["Augmentation", "Mediators", "astraea"]


@dataclass(frozen=True)
class Augmentation(Shuffle):
    """A row of a class below the mean count is expanded to (mean / C_c)^alpha copies, stochastically rounded."""

    name = "augmentation"
    compute = "more rows of rare classes"
    discloses = "class histogram"
    downloads = "C"

    alpha: Annotated[float, Within(0, 1)] = 0.5
    """0 augments nothing, 1 levels the classes"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """{"counts": global histogram [C]}: the sum of the histograms that clients sent."""
        return {"counts": fed.counts.sum(0)}

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """The global histogram."""
        return state, None

    def offer(self, counts: Tensor, state: Tree, round: int, key: Tensor) -> Tensor:
        """Counts after expansion: floor(copies) each, and a Bernoulli draw for the rest."""
        copies = F.astraea_copies(state["counts"], self.alpha)
        extra = rng.generator(key).binomial(counts.numpy(), (copies % 1).numpy())
        return counts * copies.floor().long() + torch.from_numpy(extra)


@dataclass(frozen=True)
class Mediators(Selector):
    """k random clients, dealt greedily to mediators of at most ``gamma`` so that each pool is near uniform.

    A mediator passes the model from client to client; the mediators' models are averaged.
    """

    name = "mediators"
    compute = "clients of a mediator train one after another"
    chained = True
    discloses = "class histogram"
    uploads = "C (every client)"

    gamma: Annotated[int, AtLeast(1)] = 5
    """clients of a mediator; 1 is FedAvg's round"""
    mediator_epochs: Annotated[int, AtLeast(1)] = 1
    """passes of the model over a mediator's clients"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """No histogram is known yet."""
        return {"counts": torch.zeros_like(fed.counts)}

    def ask(self, state: Tree, round: int, key: Tensor) -> Query | None:
        """Everyone's histogram, after augmentation."""
        return Query("all", "counts")

    def receive(self, state: Tree, answers: Answers, key: Tensor) -> Tree:
        """{"counts": [N, C]}."""
        return {"counts": answers.values}

    def select(self, state: Tree, k: int, key: Tensor) -> Assignment:
        """Chains of at most gamma clients."""
        ids = draw_clients(state["counts"].sum(1), k, key)
        mediators = F.astraea_schedule(state["counts"][ids], self.gamma)
        longest = max(map(len, mediators))
        table = torch.tensor([m + [-1] * (longest - len(m)) for m in mediators])
        chains = torch.where(table >= 0, ids[table.clamp(min=0)], -1)
        return Assignment(chains.repeat(1, self.mediator_epochs))


def astraea(alpha: float = 0.5, gamma: int = 5) -> Method:
    """Augmentation and mediators."""
    return Method("astraea", sampler=Augmentation(alpha), selector=Mediators(gamma), reference="duan2019")
