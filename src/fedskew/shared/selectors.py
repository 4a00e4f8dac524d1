"""Selectors: which clients take part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedskew import rng
from fedskew.component import Selector
from fedskew.errors import FieldError
from fedskew.tree import Tree
from fedskew.types import Assignment, Params, Task

if TYPE_CHECKING:
    from fedskew.data.federation import Federation
    from fedskew.method import Method

__all__ = ["Random", "TrainAll", "draw_clients"]


def draw_clients(sizes: Tensor, k: int, key: Tensor, proportional: bool = False) -> Tensor:
    """k distinct clients with rows, uniformly or with probability proportional to their sizes (successive draws).

    Exponential race: the k smallest of -log(u_i) / w_i, the same distribution as successive weighted draws.
    """
    u = 1.0 - rng.uniform(key, (len(sizes),), torch.float64)
    weight = sizes.double() if proportional else (sizes > 0).double()
    race = torch.where(sizes > 0, -torch.log(u) / weight.clamp(min=1e-300), torch.inf)
    k = min(k, int((sizes > 0).sum()))
    return torch.sort(torch.topk(race, k, largest=False).indices).values


@dataclass(frozen=True)
class Random(Selector):
    """k of the clients that have rows, uniformly without replacement (McMahan et al. 2017)."""

    name = "random"

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """Which clients have rows at all: {"sizes": [N] of 0 and 1}."""
        return {"sizes": (fed.counts.sum(1) > 0).long()}

    def select(self, state: Tree, k: int, key: Tensor) -> Assignment:
        """Chains of one client, in the order of their ids."""
        return Assignment(draw_clients(state["sizes"], k, key).unsqueeze(1))


@dataclass(frozen=True)
class TrainAll(Random):
    """Every client with rows trains; k of them, drawn as by ``random``, are averaged (the pFedMe authors' code).

    The global model is that of ``random``; every client's own model is of the last round.
    """

    name = "train_all"
    compute = "every client trains"
    downloads = "P (every client)"

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """The server may see nothing but the averaged models: others send none."""
        across = [c.name for c in method.components if {c} & {*method.having("combine"), *method.having("absorb")}]
        if across:
            rule = f"go with parts that act at the clients alone, not with {', '.join(across)}"
            raise FieldError("Method", "selector", rule, self.name)

    def select(self, state: Tree, k: int, key: Tensor) -> Assignment:
        """Chains of one client, all of them; k are averaged."""
        everyone = torch.nonzero(state["sizes"] > 0).squeeze(1)
        chosen = super().select(state, k, key).chains.squeeze(1)
        return Assignment(everyone.unsqueeze(1), averaged=torch.isin(everyone, chosen))
