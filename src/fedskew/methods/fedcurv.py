"""FedCurv: a client stays near the others' models where their Fisher information is large (Shoham et al. 2019)."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew import tree
from fedskew.fields import AtLeast
from fedskew.method import Component, Method, Read
from fedskew.types import Answers, Cohort, Federation, LocalRun, Params, Query, Task, Tree, View


@dataclass(frozen=True)
class Curvature(Component):
    """An elastic pull towards every other client's last model, by the diagonal of its Fisher information.

    L + lam sum_{j != k} (w - y_j)^T diag(F_j) (w - y_j) over the clients j that have taken part, F_j the mean of the
    squared gradients of the cross-entropy at y_j on the rows of j. A client sends F_j and F_j y_j before the next
    round, and is sent both sums without its own part: its gradient is g + 2 lam (sum F_j w - sum F_j y_j).

    Source: Shoham et al. 2019, equation 4, https://arxiv.org/abs/1910.07796

    Example:
        >>> Curvature(lam=0.1).fisher
        'rows'
    """

    name = "curvature"
    uploads = "2 P"
    downloads = "3 P"
    averages_all = True
    keeps = "2 N P at the server, P on every client"
    compute = "a gradient of every row at the end of a local run; O(P) a step"
    reads = (Read("probe", "each", "diagonal of the Fisher information"),)
    reference = "shoham2019"

    lam: Annotated[float, AtLeast(0)] = 1.0
    """weight lam of the term"""
    fisher: Literal["rows", "batch"] = "rows"
    """rows: mean of the rows' squared gradients; batch: square of their mean gradient, as in public code"""

    def init_client(self, params: Params, buffers: Params, task: Task) -> Tree:
        """{"params", "buffers"}: the model after the last local run."""
        return {"params": params, "buffers": buffers}

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """{"fisher": F_j, "product": F_j y_j, leaves [N, ...], "due": [N], who took part in the last round}."""
        zeros = tree.expand(tree.zeros_like(params), fed.clients)
        return {"fisher": zeros, "product": zeros, "due": torch.zeros(fed.clients)}

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """To each client the sums over the others."""
        if ids is None:
            return {}, None
        kinds = ("fisher", "product")
        return {}, {kind: {n: f.sum(0) - f[ids.to(f.device)] for n, f in state[kind].items()} for kind in kinds}

    def ask(self, state: Tree, round: int, key: Tensor) -> Query | None:
        """The information of the last round's participants."""
        ids = state["due"].nonzero().squeeze(1)
        return Query(ids.cpu(), self.information) if len(ids) else None

    def information(self, view: View) -> Tree:
        """{"fisher": F_k, "product": F_k y_k} of the kept model on all rows of the client."""
        kept, batch = view.memory[self.name], view.batch

        def loss(params: Params, x: Tensor, y: Tensor) -> Tensor:
            real = torch.ones(len(y), dtype=batch.mask.dtype, device=y.device)
            out, _ = view.forward(params, kept["buffers"], x, real, train=False, key=view.key)
            return F.cross_entropy(out.logits, y)

        fisher = F.fisher_diagonal(loss, kept["params"], batch.x, batch.y, batch.mask, self.fisher)
        return {"fisher": fisher, "product": {n: f * kept["params"][n] for n, f in fisher.items()}}

    def receive(self, state: Tree, answers: Answers, key: Tensor) -> Tree:
        """The participants' parts are replaced."""

        def put(old: Tensor, new: Tensor) -> Tensor:
            return old.index_copy(0, answers.ids.to(old.device), new.to(old))

        replaced = {kind: tree.map_tree(put, state[kind], answers.values[kind]) for kind in ("fisher", "product")}
        return {**replaced, "due": torch.zeros_like(state["due"])}

    def correct(self, grads: Params, view: View) -> Params:
        """g + 2 lam (sum F_j w - sum F_j y_j)."""
        sums = view.ctx.shared[self.name]
        pull = {n: sums["fisher"][n] * w - sums["product"][n] for n, w in view.params.items()}
        return {n: g + 2 * self.lam * pull[n] for n, g in grads.items()}

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """The model stays, until the server asks for its information."""
        return {}, {"params": local.params, "buffers": local.buffers}

    def absorb(self, state: Tree, cohort: Cohort, key: Tensor) -> tuple[Tree, Tree | None]:
        """The participants are due."""
        return {**state, "due": state["due"].index_fill(0, cohort.ids.to(state["due"].device), 1.0)}, None


def fedcurv(lam: float = 1.0) -> Method:
    """FedCurv: an elastic term pulls each client towards the last models of all others.

    Each parameter is pulled by the diagonal of the Fisher information, which says how much it matters there.

    Source: Shoham et al. 2019, equation 4, https://arxiv.org/abs/1910.07796

    Args:
        lam: Weight of the term; 0 is FedAvg.

    Returns:
        The method.

    Example:
        >>> fedcurv(0.1).parts[1].lam
        0.1
    """
    return Method("fedcurv", parts=(Curvature(lam),), reference="shoham2019")
