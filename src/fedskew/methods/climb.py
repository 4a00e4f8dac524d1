"""CLIMB: constrained learning, f_k <= mean f + eps for every client (Shen et al., ICLR 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew.fields import AtLeast
from fedskew.method import Method, Weighting
from fedskew.tree import Tree
from fedskew.types import Answers, Cohort, Params, Query, Task, View, Weights

if TYPE_CHECKING:
    from fedskew.data.federation import Federation

__all__ = ["Dual", "climb"]


@dataclass(frozen=True)
class Dual(Weighting):
    """x <- x + (1/m) sum_k w_k delta_k, w_k = 1 + lambda_k - mean lambda; a dual step every n_p rounds.

    lambda_k <- clip(lambda_k + (dual_lr/N)(f_k - mean f - eps), 0, lambda_max), f_k the losses of all clients at the
    model before the primal rounds.
    Buffers are averaged by size: dual weights may be negative.
    """

    name = "dual"
    keeps = "2 N at the server"
    compute = "1 forward pass over every client's rows in dual rounds"
    discloses = "loss of every client, in dual rounds"
    uploads = "1 (every client, in dual rounds)"
    downloads = "P (every client, in dual rounds)"

    dual_lr: Annotated[float, AtLeast(0, infinite=True)] = 1.0
    """eta_d"""
    eps: float = 1.0
    """tolerance of the constraint"""
    primal_rounds: Annotated[int, AtLeast(1)] = 5
    """n_p, rounds between dual steps"""
    lambda_max: float = 100.0
    """upper clip of lambda"""
    clamp_weights: bool = False
    """raise negative weights to 0"""
    apply: Literal["delta", "loss"] = "delta"
    """what the weight multiplies: the client's update, or its loss"""
    report: Literal["all", "cohort"] = "all"
    """who reports losses: every client, or the participants of the dual round (others keep their last report)"""
    initial: Annotated[float, AtLeast(0)] = 0.0
    """lambda of every client before the first round; FedGA's copy has 1, which matters once the lower clip acts"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """lambda = ``initial``."""
        zero, real = torch.zeros(task.clients, dtype=torch.float64), (fed.counts.sum(1) > 0).double()
        return {"duals": zero + self.initial, "losses": zero.clone(), "known": zero.clone(), "real": real}

    def ask(self, state: Tree, round: int, key: Tensor) -> Query | None:
        """f_k of every client, before the primal rounds."""
        due = (round - 1) % self.primal_rounds == 0
        return Query("all" if self.report == "all" else "cohort", "loss") if due else None

    def receive(self, state: Tree, answers: Answers, key: Tensor) -> Tree:
        """Losses [N]; a client that has no rows or never reported counts as average, so that it moves nobody."""
        losses = state["losses"].index_copy(0, answers.ids, answers.values.to(state["losses"]))
        known = state["known"].index_fill(0, answers.ids, 1.0) * state["real"]
        mean = (losses * known).sum() / known.sum()
        return {**state, "losses": torch.where(known > 0, losses, mean), "known": known}

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """With ``apply="loss"``, its weight to each client."""
        return {}, {"weight": self._weights(state)[ids]} if self.apply == "loss" and ids is not None else None

    def correct(self, grads: Params, view: View) -> Params:
        """The gradient of the weighted loss."""
        if self.apply == "delta":
            return grads
        return {n: g * view.ctx.shared[self.name]["weight"].to(g) for n, g in grads.items()}

    def _weights(self, state: Tree) -> Tensor:
        weights = F.climb_weights(state["duals"])
        return weights.clamp(min=0) if self.clamp_weights else weights

    def record(self, state: Tree) -> dict[str, Any]:
        """The smallest and largest dual after the round."""
        return {"dual_min": float(state["duals"].min()), "dual_max": float(state["duals"].max())}

    def weigh(self, state: Tree, cohort: Cohort) -> Weights:
        """Dual weights over m for updates (1/m where they multiply the loss), size weights for buffers."""
        weights = self._weights(state)[cohort.ids]
        weights = torch.ones_like(weights) if self.apply == "loss" else weights
        return Weights(weights / len(cohort.ids), F.size_weights(cohort.reports.samples.double()))

    def absorb(self, state: Tree, cohort: Cohort, key: Tensor) -> tuple[Tree, Tree | None]:
        """A dual step after the last primal round."""
        if cohort.round % self.primal_rounds:
            return state, None
        duals = F.climb_dual_step(state["duals"], state["losses"], self.dual_lr, self.eps, self.lambda_max)
        return {**state, "duals": duals}, None


def climb(dual_lr: float = 1.0, eps: float = 1.0) -> Method:
    """CLIMB with the official defaults."""
    return Method(
        "climb",
        weighting=Dual(dual_lr, eps),
        reference="shen2022",
    )
