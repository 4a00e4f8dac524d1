"""CReFF: the head is re-trained on features synthesised from class gradients (Shang et al., IJCAI 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from torch import Tensor

from fedskew import rng
from fedskew.fields import AtLeast
from fedskew.functional import creff as F
from fedskew.method import Component, Method
from fedskew.tree import Tree
from fedskew.types import Answers, Cohort, Params, Query, Task, View

if TYPE_CHECKING:
    from fedskew.data.federation import Federation

__all__ = ["FederatedFeatures", "creff"]


@dataclass(frozen=True)
class FederatedFeatures(Component):
    """Clients send each class's mean head gradient; the server fits synthetic features to them and trains a head.

    The broadcast model stays FedAvg's: the new head is used for evaluation and for the next round's gradients.
    """

    name = "federated_features"
    keeps = "features_per_class C F at the server"
    compute = "draws forward passes over the client's rows; server: match_steps + head_epochs steps"
    discloses = "head gradient of each class, owned labels"
    uploads = "C C F"
    downloads = "C F"

    features_per_class: Annotated[int, AtLeast(1)] = 100
    """synthetic features of each class"""
    match_steps: int = 100
    """steps of the features towards the clients' gradients"""
    match_lr: float = 0.1
    """their learning rate"""
    head_epochs: int = 300
    """full-batch epochs of the new head"""
    head_lr: float = 0.01
    """its learning rate"""
    draws: Annotated[int, AtLeast(1)] = 10
    """augmented draws that a client averages"""
    rows: Annotated[int, AtLeast(1)] = 32
    """rows of each class in a draw"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """The global head until one was trained; features are born in the first round."""
        head = {n: params[n].clone() for n in (task.weight, task.bias) if n in params}
        features = params[task.weight].new_zeros(task.classes, self.features_per_class, task.features)
        return {"head": head, "features": features, "born": torch.zeros(())}

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """The re-trained head."""
        return state["head"], None

    def ask(self, state: Tree, round: int, key: Tensor) -> Query | None:
        """Class gradients of the cohort."""
        return Query("cohort", self.class_gradients, draws=self.draws, augment=True)

    def class_gradients(self, view: View) -> Tree:
        """{"gradients": [C, C, F], "present": [C]} on at most ``rows`` random rows of every class."""
        task, head = view.ctx.task, view.ctx.shared[self.name]
        draws = rng.uniform(rng.fold(view.key, 1), view.batch.y.shape, view.out.features.dtype)
        mask = F.rows_per_class(view.batch.y, draws, self.rows, task.classes)
        gradients = F.creff_head_gradients(
            view.out.features, head[task.weight], head.get(task.bias), view.batch.y, mask
        )
        return {"gradients": gradients, "present": (view.ctx.owned > 0).to(gradients)}

    def receive(self, state: Tree, answers: Answers, key: Tensor) -> Tree:
        """Unweighted mean over the clients that own the class."""
        owners = answers.values["present"].sum(0)
        mean = answers.values["gradients"].sum(0) / owners.clamp(min=1)[:, None, None]
        return {**state, "real": mean, "present": (owners > 0).to(mean)}

    def absorb(self, state: Tree, cohort: Cohort, key: Tensor) -> tuple[Tree, Tree | None]:
        """New features, then a fresh keyed head trained on them."""
        task, head, old = cohort.task, state["head"], state["features"]
        old = torch.where(state["born"] > 0, old, rng.normal(key, old.shape, old.dtype).to(old.device))
        weight, bias = head[task.weight], head.get(task.bias)
        features = F.creff_synthesize(
            old, weight, bias, state["real"], state["present"], self.match_steps, self.match_lr
        )
        spread = (2 * rng.uniform(rng.fold(key, 1), weight.shape, weight.dtype) - 1).to(
            weight.device
        ) / task.features**0.5
        fresh = F.creff_head(
            features, spread, None if bias is None else torch.zeros_like(bias), self.head_epochs, self.head_lr
        )
        named = {n: h for n, h in zip((task.weight, task.bias), fresh, strict=True) if h is not None}
        return {"head": named, "features": features, "born": torch.ones(())}, None

    def serve(self, params: Params, state: Tree, task: Task) -> Params:
        """The broadcast model under the re-trained head."""
        return {**params, **state["head"]}


def creff() -> Method:
    """CReFF with the authors' settings."""
    return Method(
        "creff",
        parts=(FederatedFeatures(),),
        reference="shang2022",
    )
