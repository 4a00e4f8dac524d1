"""FedGR: unbalanced softmax and gravitation regulariser for double imbalance (Guo et al., DASFAA 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from fedskew import functional as F
from fedskew.fields import AtLeast
from fedskew.method import Component, Method
from fedskew.tree import Tree
from fedskew.types import Cohort, Params, View

__all__ = ["Gravitation", "UnbalancedSoftmax", "fedgr"]


@dataclass(frozen=True)
class UnbalancedSoftmax(Component):
    """-log( exp(gamma_y z_y) / sum_{c owned} exp(gamma_c z_c) ), gamma_c = n_min/n_c ("max1") or N_k/n_c ("raw")."""

    name = "unbalanced_softmax"
    compute = "O(C) a row"
    classification = True

    gamma: Literal["max1", "raw"] = "max1"
    """scale of gamma"""
    missing: Literal["mask", "code"] = "mask"
    """labels without rows: left out of the softmax, or the authors' code's n_min / (4 n_max)"""

    def loss(self, view: View) -> Tensor:
        """See the class."""
        return view.batch.mean(
            F.unbalanced_softmax_loss(view.out.logits, view.batch.y, view.ctx.used, self.gamma, self.missing)
        )


@dataclass(frozen=True)
class Gravitation(Component):
    """One step U <- U - strength * lr * dReg/dU on the owned rows of the clients' classifiers, before averaging."""

    name = "gravitation"
    compute = "server: O((sum of owned labels)^2 F)"
    discloses = "owned labels"
    uploads = "C bits"

    strength: Annotated[float, AtLeast(0)] = 0.5
    """lambda; the step is lambda times the clients' learning rate"""
    row_average: Literal["all", "owners"] = "all"
    """whose rows make the global row: all participants', or those of the label's owners"""

    def combine(self, state: Tree, cohort: Cohort) -> Params:
        """Deltas whose classifier rows were corrected."""
        assert cohort.deltas is not None and cohort.weights is not None
        name, owned = cohort.task.weight, cohort.used > 0
        before = cohort.before[name]
        owned = owned.to(before.device)
        step = self.strength * cohort.reports.lr[:, None, None].to(before)  # each client's own rate
        rows = F.gravitation_step(before + cohort.deltas[name], owned, step)
        if self.row_average == "owners":
            mean = F.mean_rows(rows, owned, cohort.weights.average.to(rows), "owners")
            held = owned.any(0).unsqueeze(1)
            rows = mean.where(held, before).expand_as(rows)
        return {**cohort.deltas, name: rows - before}


def fedgr(softmax: bool = True, gravitation: bool = True, strength: float = 0.5) -> Method:
    """Both halves, or either."""
    client = (UnbalancedSoftmax(),) if softmax else ()
    server = (Gravitation(strength),) if gravitation else ()
    return Method("fedgr", parts=(*client, *server), reference="guo2023")
