"""CLIMB: constrained learning, f_k <= mean f + eps for every client k (Shen et al. 2022)."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew.fields import AtLeast
from fedskew.method import Method, Read, Weighting
from fedskew.types import Answers, Cohort, Federation, Params, Query, Task, Tree, View, Weights


@dataclass(frozen=True)
class Dual(Weighting):
    """Weights from the dual variables of the constraints f_k <= mean f + eps, f_k the loss of client k.

    x <- x + (1 / m) sum_k w_k delta_k with w_k = 1 + lambda_k - mean lambda. Every `primal_rounds` rounds lambda_k <-
    clip(lambda_k + (dual_lr / N) (f_k - mean f - eps), 0, lambda_max), with the losses of all clients at the model
    before these rounds. Weights may be negative, so buffers are averaged by size.

    Source: Shen et al. 2022, algorithm 1, https://openreview.net/forum?id=Xo0lbDt975

    Example:
        >>> zero, losses = torch.zeros(4), torch.tensor([0.5, 1.0, 2.0, 0.5])
        >>> F.climb_weights(F.climb_dual_step(zero, losses, 2.0, 0.1, 100.0))
        tensor([0.8875, 0.8875, 1.3375, 0.8875])
    """

    name = "dual"
    keeps = "2 N at the server"
    compute = "1 forward pass over every client's rows in dual rounds"
    reads = (Read("loss", "each"), Read("rows", "sum"))
    uploads = "1 (every client, in dual rounds)"
    downloads = "P (every client, in dual rounds)"

    dual_lr: Annotated[float, AtLeast(0, infinite=True)] = 2.0
    """eta_d; the parser of the authors' code has 1, their scripts have 2"""
    eps: float = 0.01
    """tolerance of the constraint; the authors' scripts: 0.01 on Fashion-MNIST, 0.02 on CIFAR-10; at 1 nothing acts"""
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
    whole: bool = False
    """cut each weight to a whole number towards 0, as FedGA's copy: a client with a weight below 1 does not train"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """lambda = `initial` for every client, and no losses yet: {"duals", "losses", "known", "real"}, each [N]."""
        zero, real = torch.zeros(task.clients, dtype=torch.float64), fed.has_rows.double()
        return {"duals": zero + self.initial, "losses": zero.clone(), "known": zero.clone(), "real": real}

    def ask(self, state: Tree, round: int, key: Tensor) -> Query | None:
        """The losses f_k, before the first of the primal rounds."""
        due = (round - 1) % self.primal_rounds == 0
        return Query("all" if self.report == "all" else "cohort", "loss") if due else None

    def receive(self, state: Tree, answers: Answers, key: Tensor) -> Tree:
        """The losses [N]; a client without rows or without a report counts as average and so moves no weight."""
        losses = state["losses"].index_copy(0, answers.ids, answers.values.to(state["losses"]))
        known = state["known"].index_fill(0, answers.ids, 1.0) * state["real"]
        mean = (losses * known).sum() / known.sum()
        return {**state, "losses": torch.where(known > 0, losses, mean), "known": known}

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """With `apply="loss"`, the weight of each client to that client."""
        return {}, {"weight": self._weights(state)[ids]} if self.apply == "loss" and ids is not None else None

    def correct(self, grads: Params, view: View) -> Params:
        """With `apply="loss"`, the gradient times the client's weight."""
        if self.apply == "delta":
            return grads
        return {n: g * view.ctx.shared[self.name]["weight"].to(g) for n, g in grads.items()}

    def _weights(self, state: Tree) -> Tensor:
        weights = F.climb_weights(state["duals"])
        weights = weights.trunc() if self.whole else weights
        return weights.clamp(min=0) if self.clamp_weights else weights

    def record(self, state: Tree) -> dict[str, Any]:
        """The smallest and the largest dual variable after the round."""
        return {"dual_min": float(state["duals"].min()), "dual_max": float(state["duals"].max())}

    def weigh(self, state: Tree, cohort: Cohort) -> Weights:
        """w_k / m for updates, or 1 / m where the weights multiply the loss; size weights for buffers."""
        weights = self._weights(state)[cohort.ids]
        weights = torch.ones_like(weights) if self.apply == "loss" else weights
        return Weights(weights / len(cohort.ids), F.size_weights(cohort.reports.samples.double()))

    def absorb(self, state: Tree, cohort: Cohort, key: Tensor) -> tuple[Tree, Tree | None]:
        """A dual step after the last of the primal rounds."""
        if cohort.round % self.primal_rounds:
            return state, None
        duals = F.climb_dual_step(state["duals"], state["losses"], self.dual_lr, self.eps, self.lambda_max)
        return {**state, "duals": duals}, None


def climb(dual_lr: float = 2.0, eps: float = 0.01) -> Method:
    """CLIMB: clients whose loss is far above the mean get larger weights.

    The weights are dual variables of the constraint that no client's loss exceeds the mean by more than a
    tolerance.

    In the authors' scripts all clients take part in every round.

    Source: Shen et al. 2022, algorithm 1, https://openreview.net/forum?id=Xo0lbDt975

    Args:
        dual_lr: Learning rate of the dual variables.
        eps: Tolerance of the constraint f_k <= mean f + eps. The scripts have 0.02 for CIFAR-10.

    Returns:
        The method, with the values of the authors' scripts for Fashion-MNIST.

    Example:
        >>> climb(eps=0.02).weighting.dual_lr
        2.0
    """
    return Method("climb", weighting=Dual(dual_lr, eps), reference="shen2022")
