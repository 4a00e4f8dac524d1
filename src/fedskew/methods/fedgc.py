"""FedGC: private classifier heads, pushed apart at the server (Niu and Deng 2022)."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew.fields import AtLeast
from fedskew.method import Component, Gradient, Method, Read
from fedskew.types import Cohort, Context, LocalRun, Params, Task, Tree, View


@dataclass(frozen=True)
class PrivateHead(Component):
    """A private classifier head, with cross-entropy over the client's classes; the server pushes the heads apart.

    Server: W <- W - strength lr dReg/dW on the uploaded heads, with lr the clients' learning rate and Reg = -sum_k
    sum_i log(e^(w_ki w'_ki) / (e^(w_ki w'_ki) + sum over other clients' rows of other labels e^(w_zj w'_ki))), w'
    detached. The corrected heads go back to the clients. Row c of the global head is the weighted mean over the owners
    of c.

    Source: Niu and Deng 2022, https://arxiv.org/abs/2112.07246

    Example:
        >>> PrivateHead(strength=0.1)
        PrivateHead(strength=0.1, anchors='own')
    """

    name = "private_head"
    averages_all = True
    keeps = "the head on every client"
    compute = "server: O((sum of owned labels)^2 F)"
    classification = True
    reads = (Read("labels", "each"), Read("rows", "each", "learning rate"), Read("update", "each"))

    strength: Annotated[float, AtLeast(0)] = 0.5
    """lambda of the server's step"""
    anchors: Literal["own", "class_mean"] = "own"
    """own: every row pushes away the others' rows of other labels; class_mean, PFLlib's: a label's mean row pushes away
    the rows of clients that lack the label"""

    @property
    def needs_two_classes(self) -> bool:
        """A class without rows is left out."""
        return True

    def init_client(self, params: Params, buffers: Params, task: Task) -> Tree:
        """The head of the initial model; `seen` is 0 until the client takes part."""
        return {"head": head_of(params, task), "seen": torch.zeros(())}

    def start(self, params: Params, ctx: Context) -> tuple[Params, Tree]:
        """The broadcast parameters with the client's own head."""
        return self.personalize(params, ctx, lambda p, term=None, at=None: p), ctx.memory[self.name]

    def personalize(self, params: Params, ctx: Context, gradient: Gradient) -> Params:
        """The model with the client's head; before its first round, the global model."""
        memory = ctx.memory[self.name]
        return {**params, **{n: torch.where(memory["seen"] > 0, h, params[n]) for n, h in memory["head"].items()}}

    def loss(self, view: View) -> Tensor:
        """Mean cross-entropy over the classes that the client has, ()."""
        owned = view.ctx.used > 0
        logits = view.out.logits.masked_fill(~owned, torch.finfo(view.out.logits.dtype).min)
        return view.batch.mean(F.cross_entropy(logits, view.batch.y))

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """No upload besides the model; the head stays until the server writes the corrected one back."""
        seen = torch.ones_like(local.ctx.memory[self.name]["seen"])
        return {}, {"head": head_of(local.params, local.ctx.task), "seen": seen}

    def combine(self, state: Tree, cohort: Cohort) -> Params:
        """Deltas in which every client's head is the owners' mean of the corrected heads, row by row."""
        heads = self._corrected(cohort)
        return {**cohort.deltas, **{name: self._owners_delta(cohort, name, head) for name, head in heads.items()}}

    def _owners_delta(self, cohort: Cohort, name: str, heads: Tensor) -> Tensor:
        """The delta [K, ...], the same for all, that makes each row of a parameter its owners' mean."""
        before = cohort.before[name].unsqueeze(-1).flatten(1)  # [C, F], and [C, 1] of the bias
        owned = (cohort.used > 0).to(before.device)
        mean = F.mean_rows(heads.unsqueeze(-1).flatten(2), owned, cohort.weights.average.to(before), "owners")
        row = torch.where(owned.any(0).unsqueeze(1), mean, before) - before
        return row.reshape(cohort.before[name].shape).expand_as(heads)

    def absorb(self, state: Tree, cohort: Cohort, key: Tensor) -> tuple[Tree, Tree | None]:
        """The corrected heads, written back to their clients."""
        return state, {"head": self._corrected(cohort), "seen": torch.ones(len(cohort.ids))}

    def _corrected(self, cohort: Cohort) -> Params:
        """Heads [K, ...] after the server's step on their weights."""
        heads = {n: w + cohort.trained[n] for n, w in head_of(cohort.before, cohort.task).items()}
        name, owned = cohort.task.weight, cohort.used > 0
        step = self.strength * cohort.reports.lr[:, None, None].to(heads[name])  # each client's own rate
        return {**heads, name: F.fedgc_step(heads[name], owned.to(heads[name].device), step, self.anchors)}


def head_of(params: Params, task: Task) -> Params:
    """The parameters of the classifier, by name."""
    return {n: params[n] for n in (task.weight, task.bias) if n in params}


def fedgc(strength: float = 0.5) -> Method:
    """FedGC: each client keeps a classifier of its own classes, and the server pushes these classifiers apart.

    Clients train on the classes they have; the correction supplies the missing comparison with the other classes.

    Source: Niu and Deng 2022, https://arxiv.org/abs/2112.07246

    Args:
        strength: Factor of the server's step; 0 keeps private heads without a step.

    Returns:
        The method.

    Example:
        >>> fedgc(strength=0.0).parts
        (PrivateHead(strength=0.0, anchors='own'),)
    """
    return Method("fedgc", parts=(PrivateHead(strength),), reference="niu2022")
