"""FedIR: rows weighted by how rare their class is at the client (Hsu et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from fedskew import functional as F
from fedskew.method import Component, Method
from fedskew.tree import Tree
from fedskew.types import Params, Task, View

if TYPE_CHECKING:
    from fedskew.data.federation import Federation

__all__ = ["ImportanceReweighting", "fedir"]


@dataclass(frozen=True)
class ImportanceReweighting(Component):
    """sum_b w_b CE_b / sum_b w_b over the mini-batch, w = p(y) / q_k(y): global over local label distribution."""

    name = "importance_reweighting"
    classification = True
    discloses = "class histogram, once"
    downloads = "C"

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """{"prior": p [C]}, from the histograms that clients sent once."""
        total = fed.counts.sum(0).double()
        return {"prior": total / total.sum()}

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """p to all."""
        return state, None

    def loss(self, view: View) -> Tensor:
        """See the class."""
        weights = F.importance_weights(view.ctx.shared[self.name]["prior"], view.ctx.used.to(view.out.logits))
        rows = weights[view.batch.y] * view.batch.mask
        losses = F.cross_entropy(view.out.logits, view.batch.y)
        return (rows * losses).sum() / rows.sum().clamp(min=1e-12)


def fedir() -> Method:
    """FedAvg under importance-weighted losses."""
    return Method("fedir", parts=(ImportanceReweighting(),), reference="hsu2020")
