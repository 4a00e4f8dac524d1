"""FedNH: fixed prototypes on the unit sphere for a classifier, which the server smooths (Dai et al. 2023)."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew.fields import Above, Within, omit_if_default
from fedskew.method import Component, Method, Read, Uniform
from fedskew.types import COSINE_SCALE, Answers, Cohort, Federation, LocalRun, Params, Query, Task, Tree, View


@dataclass(frozen=True)
class NonParametricHead(Component):
    """Cross-entropy of scaled cosines between features and prototypes, which no client trains.

    L = CE(s cos(f, W), y). W starts orthonormal. Before the next round a client sends mu_kc, the direction of its class
    means of f / ||f|| under its model y_k, and n_kc. Server: W_c <- unit(rho W_c + (1 - rho) unit(sum n_kc mu_kc)). The
    network's own classifier gets no gradient. Where the model is served its logits are s cos(f, W), too.

    By confidence, mu_kc is the direction of sum_b p_b f_b / ||f_b|| over the rows of c, p_b the model's probability of
    c, and exp(W_c' mu_kc) stands for n_kc.

    Source: Dai et al. 2023, https://arxiv.org/abs/2212.02758

    Example:
        >>> NonParametricHead(smoothing=0.5)
        NonParametricHead(smoothing=0.5, scale=30.0, trained=False, weighs='rows')
    """

    name = "non_parametric_head"
    version = 2
    classification = True
    uploads = "C (F + 1)"
    downloads = "P + 2 C F"
    keeps = "C F at the server, P on every client"
    compute = "1 forward pass over the client's rows at the end of a local run"
    reads = (Read("probe", "sum", "mean feature direction of each class"), Read("histogram", "sum"))
    reference = "dai2023"

    smoothing: Annotated[float, Within(0, 1)] = 0.9
    """rho, share of the prototypes that is kept in a round; 1: they do not change"""
    scale: Annotated[float, Above(0)] = 30.0
    """s, which multiplies the cosines"""
    trained: bool = omit_if_default(default=False)
    """train s as a parameter from this value on and average it; the code starts at 1 or 20 by network"""
    weighs: Literal["rows", "confidence"] = omit_if_default(default="rows")
    """weights of rows and clients: number of rows, or the model's probabilities and agreement"""

    def init_params(self, params: Params, task: Task, key: Tensor) -> Params:
        """{"non_parametric_head.scale": ()} where it is trained."""
        return {f"{self.name}.scale": params[task.weight].new_tensor(self.scale)} if self.trained else {}

    def init_client(self, params: Params, buffers: Params, task: Task) -> Tree:
        """{"params", "buffers"}: the model after the last local run."""
        return {"params": params, "buffers": buffers}

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """{"prototypes": W [C, F], "due": [N], who took part in the last round}."""
        weight = params[task.weight]
        return {"prototypes": F.spread_prototypes(weight).to(weight), "due": torch.zeros(task.clients)}

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """W to all."""
        return {"prototypes": state["prototypes"]}, None

    def ask(self, state: Tree, round: int, key: Tensor) -> Query | None:
        """The prototypes of the last round's participants."""
        ids = state["due"].nonzero().squeeze(1)
        return Query(ids.cpu(), self.directions) if len(ids) else None

    def directions(self, view: View) -> Tree:
        """{"mean": mu_k [C, F], "count": n_k [C] or what stands for it} of the kept model on all rows of the client."""
        kept, batch, confidence = view.memory[self.name], view.batch, None
        features = view.teacher(kept["params"], kept["buffers"]).features
        if self.weighs == "confidence":
            confidence = (-F.cross_entropy(self._logits(features, kept["params"], view), batch.y)).exp()
        mean, count = F.class_prototypes(features, batch.y, batch.mask, view.ctx.task.classes, confidence)
        if self.weighs == "confidence":
            count = F.prototype_agreement(view.ctx.shared[self.name]["prototypes"].to(mean), mean)
        return {"mean": mean, "count": count}

    def to_sum(self, answer: Tree) -> Tree:
        """n_k mu_k, and n_k."""
        return {"mean": answer["count"].unsqueeze(-1) * answer["mean"], "count": answer["count"]}

    def from_sum(self, total: Tree) -> Tree:
        """The mean direction that all rows have together."""
        count = total["count"].unsqueeze(-1)
        return {**total, "mean": total["mean"] / count.where(count > 0, 1.0)}

    def receive(self, state: Tree, answers: Answers, key: Tensor) -> Tree:
        """The smoothed prototypes."""
        directions, old = answers.values, state["prototypes"]
        new = F.smoothed_prototypes(old, directions["mean"].to(old), directions["count"].to(old), self.smoothing)
        return {"prototypes": new, "due": torch.zeros_like(state["due"])}

    def loss(self, view: View) -> Tensor:
        """Mean cross-entropy of the mini-batch under the prototypes, ()."""
        logits = self._logits(view.out.features, view.params, view)
        idle = 0.0 * view.out.logits.sum()  # without a hidden layer no parameter has a part in the loss
        return view.batch.mean(F.cross_entropy(logits, view.batch.y)) + idle

    def _logits(self, features: Tensor, params: Params, view: View) -> Tensor:
        scale = params[f"{self.name}.scale"] if self.trained else self.scale
        return F.prototype_logits(features, view.ctx.shared[self.name]["prototypes"], scale)

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """The model stays, until the server asks for its prototypes."""
        return {}, {"params": local.params, "buffers": local.buffers}

    def absorb(self, state: Tree, cohort: Cohort, key: Tensor) -> tuple[Tree, Tree | None]:
        """The participants are due."""
        return {**state, "due": state["due"].index_fill(0, cohort.ids.to(state["due"].device), 1.0)}, None

    def serve(self, params: Params, state: Tree, task: Task) -> Params:
        """The model with W as its classifier, whose logits are s cos(f, W)."""
        weight = state["prototypes"].to(params[task.weight])
        bias = {n: torch.zeros_like(params[n]) for n in (task.bias,) if n in params}
        scale = params[f"{self.name}.scale"] if self.trained else weight.new_tensor(self.scale)
        return {**params, task.weight: weight, **bias, COSINE_SCALE: scale}


def fednh(
    smoothing: float = 0.9, scale: float = 30.0, trained: bool = False, weighs: Literal["rows", "confidence"] = "rows"
) -> Method:
    """FedNH: classifier rows that start far apart and move slowly to the mean features of their classes.

    Clients train features under fixed rows of one length, the server moves the rows by the clients' class means;
    clients count equally.

    Source: Dai et al. 2023, https://arxiv.org/abs/2212.02758

    Args:
        smoothing: What stays of the prototypes in a round; 1 keeps them as they start.
        scale: Factor of the cosines.
        trained: Train it, and average it.
        weighs: rows, or confidence.

    Returns:
        The method.

    Example:
        >>> fednh(0.5).parts
        (NonParametricHead(smoothing=0.5, scale=30.0, trained=False, weighs='rows'),)
    """
    part = NonParametricHead(smoothing, scale, trained=trained, weighs=weighs)
    return Method("fednh", parts=(part,), weighting=Uniform(), reference="dai2023")
