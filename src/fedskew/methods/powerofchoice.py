"""Power-of-choice: of d candidates, the clients on which the model is worst (Cho et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew.fields import AtLeast, demand
from fedskew.method import Method, Selector
from fedskew.shared.selectors import draw_clients
from fedskew.tree import Tree
from fedskew.types import Answers, Assignment, Params, Query, Task

if TYPE_CHECKING:
    from fedskew.data.federation import Federation

__all__ = ["PowerOfChoice", "powerofchoice"]


@dataclass(frozen=True)
class PowerOfChoice(Selector):
    """d candidates without replacement, proportional to n_k; the k with the largest loss of w^t on their rows train."""

    name = "power_of_choice"
    compute = "1 forward pass over the candidates' rows"
    discloses = "sample count, loss of each candidate"
    uploads = "1 (every candidate)"
    downloads = "P (every candidate)"

    candidates: Annotated[int, AtLeast(1)] = 20
    """d; equal to the cohort it is sampling proportional to size"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """Sizes [N]; losses [N], -inf for those who were not asked."""
        sizes = fed.counts.sum(1)
        return {"sizes": sizes, "losses": torch.full((len(sizes),), -torch.inf, dtype=torch.float64)}

    def ask(self, state: Tree, round: int, key: Tensor) -> Query | None:
        """The candidates' losses."""
        return Query(draw_clients(state["sizes"], self.candidates, key, proportional=True), "loss")

    def receive(self, state: Tree, answers: Answers, key: Tensor) -> Tree:
        """Losses of this round's candidates."""
        losses = torch.full_like(state["losses"], -torch.inf)
        return {**state, "losses": losses.index_copy(0, answers.ids, answers.values.to(losses))}

    def select(self, state: Tree, k: int, key: Tensor) -> Assignment:
        """The k largest losses."""
        asked = int((state["losses"] > -torch.inf).sum())
        eligible = int((state["sizes"] > 0).sum())
        demand(self, "candidates", self.candidates >= min(k, eligible), f"be at least the cohort, {k}")
        return Assignment(F.power_of_choice(state["losses"], min(k, asked)).sort().values.unsqueeze(1))


def powerofchoice(candidates: int = 20) -> Method:
    """FedAvg on the clients that power-of-choice selects."""
    return Method("powerofchoice", selector=PowerOfChoice(candidates), reference="cho2022")
