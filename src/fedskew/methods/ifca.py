"""IFCA: several models, each client trains the one with the least loss on its rows (Ghosh et al. 2020)."""

from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew import rng
from fedskew.fields import AtLeast
from fedskew.method import Component, Gradient, Method, Read, Uniform
from fedskew.types import Batch, Cohort, Context, Federation, LocalRun, Output, Params, Query, Task, Tree, View


@dataclass(frozen=True)
class ClusterIdentity(Component):
    """One model for each cluster of clients; a client belongs to the model with the least loss on its rows.

    s_k = argmin_j of the mean cross-entropy of theta_j on the rows of k. Client k goes on from theta_{s_k}; the server
    sets theta_j <- sum p_k y_k / sum p_k over the participants of cluster j. Nothing moves a model that nobody chose.
    The own model of a client, at evaluation, is that with the least loss then, whether or not it took part. The global
    model is the mean over all participants. theta_1 starts at the initial model, the others at its tensors
    with their entries in another order, which have the same distribution.

    Source: Ghosh et al. 2020, algorithm 1 with model averaging, https://arxiv.org/abs/2006.04088

    Example:
        >>> ClusterIdentity(clusters=4)
        ClusterIdentity(clusters=4)
    """

    name = "cluster_identity"
    version = 2
    reads = (Read("upload", "each", "cluster of the client"), Read("update", "each"))
    uploads = "1"
    downloads = "P clusters + P, of the question; P clusters, of the round"
    averages_all = True
    own_only = True
    trains_own = True
    keeps = "P clusters at the server"
    compute = "clusters forward passes over the client's rows"
    reference = "ghosh2020"

    clusters: Annotated[int, AtLeast(1)] = 2
    """number of models; 1 is FedAvg"""

    def init_client(self, params: Params, buffers: Params, task: Task) -> Tree:
        """{"losses": 0 of every model, [clusters]}."""
        return {"losses": params[task.weight].new_zeros(self.clusters)}

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """{"models": leaves [clusters, ...]}."""
        each = range(self.clusters)
        return {"models": {n: torch.stack([_reordered(w, n, j) for j in each]) for n, w in params.items()}}

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """The models of all clusters, to all."""
        return {"models": state["models"]}, None

    def ask(self, state: Tree, round: int, key: Tensor) -> Query | None:
        """Each participant computes the loss of every model and keeps it."""
        return Query("cohort", self.measured, keep=True)

    def measured(self, view: View) -> Tree:
        """{"losses": mean cross-entropy of every model on the client's rows, [clusters]}."""
        models, batch = view.ctx.shared[self.name]["models"], view.batch
        outs = [view.teacher({n: w[j] for n, w in models.items()}).logits for j in range(self.clusters)]
        return {"losses": torch.stack([batch.mean(F.cross_entropy(logits, batch.y)) for logits in outs])}

    def start(self, params: Params, ctx: Context) -> tuple[Params, Tree]:
        """The model of the client's cluster."""
        memory = ctx.memory[self.name]
        return self._chosen(memory["losses"], ctx), memory

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """The number of the cluster is uploaded."""
        memory = local.memory[self.name]
        return {"cluster": memory["losses"].argmin().to(memory["losses"])}, memory

    def combine(self, state: Tree, cohort: Cohort) -> Params:
        """The deltas as they are: filling this hook shows each of them to the server."""
        return cohort.deltas

    def absorb(self, state: Tree, cohort: Cohort, key: Tensor) -> tuple[Tree, Tree | None]:
        """The mean of each cluster's participants."""
        chosen = cohort.uploads[self.name]["cluster"]
        member = (chosen == torch.arange(self.clusters, device=chosen.device).unsqueeze(1)).double()  # [clusters, K]
        share = member * cohort.weights.average.to(member)
        whole = share.sum(1, keepdim=True)
        empty = whole.squeeze(1) == 0  # nobody chose it, or only clients of weight 0
        share = share / whole.clamp(min=1e-300)

        def mean(old: Tensor, before: Tensor, moved: Tensor) -> Tensor:
            new = torch.tensordot(share.to(moved), before + moved, 1)
            return torch.where(empty.view(-1, *[1] * before.ndim), old, new.to(old))

        models = state["models"]
        return {"models": {n: mean(w, cohort.before[n], cohort.trained[n]) for n, w in models.items()}}, None

    def personalize(self, params: Params, ctx: Context, gradient: Gradient) -> Params:
        """The model with the least loss on the client's training rows now."""
        models: Any = ctx.shared[self.name]["models"]
        factor = f"{self.name}.factor"

        def weighed(p: Params, out: Output, rows: Batch) -> Tensor:
            return p[factor] * F.cross_entropy(out.logits, rows.y)

        def loss(j: int) -> Tensor:
            """Of model j: the slope of the loss by a factor before it."""
            given = {**{n: w[j] for n, w in models.items()}, factor: ctx.lr.new_ones(())}
            return gradient(given, weighed)[factor]

        return self._chosen(torch.stack([loss(j) for j in range(self.clusters)]), ctx)

    def _chosen(self, losses: Tensor, ctx: Context) -> Params:
        """The model with the least of these losses."""
        models: Any = ctx.shared[self.name]["models"]
        at = losses.argmin().reshape(1)
        return {n: w.index_select(0, at).squeeze(0) for n, w in models.items()}


def _reordered(w: Tensor, name: str, number: int) -> Tensor:
    """The entries of a tensor in an order of model `number`; as they are for the first."""
    if number == 0:
        return w
    order = rng.uniform(rng.key(number, "ifca", name), (w.numel(),), torch.float64).argsort(stable=True)
    return w.flatten()[order.to(w.device)].view(w.shape)


def ifca(clusters: int = 2) -> Method:
    """IFCA: one model for each cluster of clients; a client trains the model that has the least loss on its rows.

    The server averages the models of each cluster's participants.

    Source: Ghosh et al. 2020, algorithm 1, https://arxiv.org/abs/2006.04088

    Args:
        clusters: Number of models; 1 is FedAvg under the uniform mean.

    Returns:
        The method.

    Example:
        >>> ifca(4).parts[1]
        ClusterIdentity(clusters=4)
    """
    return Method("ifca", parts=(ClusterIdentity(clusters),), weighting=Uniform(), reference="ghosh2020")
