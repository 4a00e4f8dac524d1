"""FedIR: rows weighted by how rare their class is at the client (Hsu et al. 2020)."""

from dataclasses import dataclass

from torch import Tensor

from fedskew import functional as F
from fedskew.method import Component, Method, Read
from fedskew.types import Federation, Params, Task, Tree, View


@dataclass(frozen=True)
class ImportanceReweighting(Component):
    """Cross-entropy with importance weights: the global share of a class over its share at the client.

    L = sum_b w_b CE_b / sum_b w_b over the mini-batch, with w_b = p(y_b) / q_k(y_b), p the global and q_k the client's
    label distribution.

    Source: Hsu et al. 2020, https://arxiv.org/abs/2003.08082

    Example:
        >>> import torch
        >>> F.importance_weights(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([80.0, 20.0, 0.0]))
        tensor([0.6250, 1.5000, 0.0000])
    """

    name = "importance_reweighting"
    classification = True
    reads = (Read("histogram", "sum"),)
    downloads = "C"

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """The global label distribution: {"prior": p [C]}, from the histograms that clients sent once."""
        total = fed.counts.sum(0).double()
        return {"prior": total / total.sum()}

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """p to all."""
        return state, None

    def loss(self, view: View) -> Tensor:
        """Weighted mean of the mini-batch's cross-entropy, ()."""
        weights = F.importance_weights(view.ctx.shared[self.name]["prior"], view.ctx.used.to(view.out.logits))
        rows = weights[view.batch.y] * view.batch.mask
        losses = F.cross_entropy(view.out.logits, view.batch.y)
        return (rows * losses).sum() / rows.sum().clamp(min=1e-12)


def fedir() -> Method:
    """FedIR: FedAvg whose rows are weighted by how rare their class is on the client and common in all data.

    The client's weighted loss then estimates the loss under the labels of the whole federation.

    Source: Hsu et al. 2020, https://arxiv.org/abs/2003.08082

    Returns:
        The method.

    Example:
        >>> fedir().parts
        (ImportanceReweighting(),)
    """
    return Method("fedir", parts=(ImportanceReweighting(),), reference="hsu2020")
