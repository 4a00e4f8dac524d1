"""Power-of-choice: clients with a large loss are preferred (Cho et al. 2022)."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew.fields import AtLeast, demand
from fedskew.method import Method, Read, Selector, draw_clients
from fedskew.types import Answers, Assignment, Federation, Params, Query, Task, Tree


@dataclass(frozen=True)
class PowerOfChoice(Selector):
    """The k candidates with the largest loss of the broadcast model on their rows.

    d candidates are drawn without replacement, with probability in proportion to their rows.

    Source: Cho et al. 2022, https://arxiv.org/abs/2010.01243

    Example:
        >>> F.power_of_choice(torch.tensor([0.5, 2.0, 1.0]), 2)
        tensor([1, 2])
    """

    name = "power_of_choice"
    compute = "1 forward pass over the candidates' rows"
    reads = (Read("rows", "each"), Read("loss", "each"))
    uploads = "1 (every candidate)"
    downloads = "P (every candidate)"

    candidates: Annotated[int, AtLeast(1)] = 20
    """d, number of candidates; d equal to the cohort means sampling proportional to size"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """Rows and losses of the clients, [N]; -inf for those that were not asked."""
        sizes = fed.sizes
        return {"sizes": sizes, "losses": torch.full((len(sizes),), -torch.inf, dtype=torch.float64)}

    def ask(self, state: Tree, round: int, key: Tensor) -> Query | None:
        """The losses of d random candidates."""
        return Query(draw_clients(state["sizes"], self.candidates, key, proportional=True), "loss")

    def receive(self, state: Tree, answers: Answers, key: Tensor) -> Tree:
        """The losses of this round's candidates."""
        losses = torch.full_like(state["losses"], -torch.inf)
        return {**state, "losses": losses.index_copy(0, answers.ids, answers.values.to(losses))}

    def select(self, state: Tree, k: int, key: Tensor) -> Assignment:
        """Chains of one client: the k largest losses."""
        asked = int((state["losses"] > -torch.inf).sum())
        eligible = int((state["sizes"] > 0).sum())
        demand(self, "candidates", self.candidates >= min(k, eligible), f"be at least the cohort, {k}")
        return Assignment(F.power_of_choice(state["losses"], min(k, asked)).sort().values.unsqueeze(1))


def powerofchoice(candidates: int = 20) -> Method:
    """Power-of-choice: FedAvg on those of the drawn candidates whose loss is largest.

    Each candidate reports the loss of the broadcast model on its rows before the round.

    Source: Cho et al. 2022, https://arxiv.org/abs/2010.01243

    Args:
        candidates: Candidates d of a round, at least the cohort; equal to it, clients are drawn by their rows.

    Returns:
        The method.

    Example:
        >>> powerofchoice(30).selector
        PowerOfChoice(candidates=30)
    """
    return Method("powerofchoice", selector=PowerOfChoice(candidates), reference="cho2022")
