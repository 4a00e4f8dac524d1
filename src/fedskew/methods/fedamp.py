"""FedAMP: every client has a model of its own, pulled towards those that are like it (Huang et al. 2021)."""

from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew import tree
from fedskew.fields import Above, AtLeast
from fedskew.method import Component, Gradient, Method, Read
from fedskew.types import Cohort, Context, Federation, LocalRun, Params, Task, Tree, View


@dataclass(frozen=True)
class AttentiveMessages(Component):
    """Attentive message passing between the clients' own models, which the server keeps.

    u_k = sum_j xi_kj w_j with xi_kj = (alpha / sigma) exp(-||w_k - w_j||^2 / sigma) for the other clients j that have
    taken part, scaled down where their sum exceeds `most`, and xi_kk = 1 - sum_j xi_kj. Client k goes on from its own
    model w_k, by gradients g(w) + pull (w - u_k). The mean of the participants' models is the global model. BatchNorm's
    running statistics of w_k stay with it; the mean of them is the global model's.

    Source: Huang et al. 2021, equations 3 to 6, https://arxiv.org/abs/2007.03797

    Example:
        >>> AttentiveMessages(sigma=10.0)
        AttentiveMessages(alpha=0.1, sigma=10.0, pull=1.0, most=1.0)
    """

    name = "attentive_messages"
    version = 2
    downloads = "P"
    reads = (Read("update", "each"),)
    averages_all = True
    own_only = True
    keeps = "N P at the server, P on every client"
    compute = "server: N K distances of models"
    reference = "huang2021"

    alpha: Annotated[float, AtLeast(0)] = 0.1
    """step alpha of the messages; 0 trains every client by itself"""
    sigma: Annotated[float, Above(0)] = 1.0
    """width of the attention, in squared units of the parameters"""
    pull: Annotated[float, AtLeast(0)] = 1.0
    """coefficient of the pull towards u_k, the paper's lambda / alpha"""
    most: Annotated[float, AtLeast(0, infinite=True)] = 1.0
    """largest share of the other clients in u_k; inf: no limit, as in public code, where xi_kk may be negative"""

    def init_client(self, params: Params, buffers: Params, task: Task) -> Tree:
        """{"model": the initial one}, its BatchNorm statistics among it."""
        return {"model": {**params, **buffers}}

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """{"models": those of all clients, [N, ...], "seen": [N]}."""
        like = next(iter(params.values()))
        return {"models": tree.expand(params, fed.clients), "seen": like.new_zeros(fed.clients)}

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """u_k to each client of the cohort."""
        if ids is None:
            return {}, None
        models, others = state["models"], state["seen"].expand(len(ids), -1).clone()
        others[torch.arange(len(ids)), ids] = 0
        share = F.attention(models, ids, self.alpha, self.sigma) * others
        share = share * (self.most / share.sum(1, keepdim=True).clamp(min=1e-30)).clamp(max=1)
        share[torch.arange(len(ids)), ids] = 1 - share.sum(1)
        return {}, {"cloud": {n: torch.tensordot(share.to(w), w, 1) for n, w in models.items()}}

    def start(self, params: Params, ctx: Context) -> tuple[Params, Tree]:
        """The client's own model, with its statistics."""
        memory = ctx.memory[self.name]
        return memory["model"], memory

    def correct(self, grads: Params, view: View) -> Params:
        """g + pull (w - u_k)."""
        cloud = view.ctx.shared[self.name]["cloud"]
        return {n: g + self.pull * (view.params[n] - cloud[n]) for n, g in grads.items()}

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """The model stays."""
        return {}, {"model": {**local.params, **local.buffers}}

    def combine(self, state: Tree, cohort: Cohort) -> Params:
        """The deltas as they are: filling this hook shows each of them to the server."""
        return cohort.deltas

    def absorb(self, state: Tree, cohort: Cohort, key: Tensor) -> tuple[Tree, Tree | None]:
        """The participants' new models."""
        new_models = {n: cohort.before[n] + d for n, d in cohort.trained.items()}
        models = {n: w.index_copy(0, cohort.ids.to(w.device), new_models[n].to(w)) for n, w in state["models"].items()}
        return {"models": models, "seen": state["seen"].index_fill(0, cohort.ids.to(state["seen"].device), 1.0)}, None

    def personalize(self, params: Params, ctx: Context, gradient: Gradient) -> Params:
        """The client's own model."""
        model: Any = ctx.memory[self.name]["model"]
        return dict(model)


def fedamp(alpha: float = 0.1, sigma: float = 1.0, pull: float = 1.0) -> Method:
    """FedAMP: every client has its own model and learns most from the clients whose models are similar.

    The server keeps the models and sends each client a mean of all, weighted by similarity.

    Source: Huang et al. 2021, https://arxiv.org/abs/2007.03797

    Args:
        alpha: Step of the messages; 0 trains every client by itself.
        sigma: Width of the attention, positive.
        pull: Coefficient of the pull towards the message.

    Returns:
        The method.

    Example:
        >>> fedamp(sigma=10.0).parts[1].sigma
        10.0
    """
    return Method("fedamp", parts=(AttentiveMessages(alpha, sigma, pull),), reference="huang2021")
