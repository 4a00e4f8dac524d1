"""CReFF: the classifier is re-trained at the server on synthetic features (Shang et al. 2022)."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew import rng
from fedskew.fields import AtLeast
from fedskew.method import Component, Method, Read
from fedskew.types import Answers, Cohort, Federation, Params, Query, Task, Tree, View


@dataclass(frozen=True)
class FederatedFeatures(Component):
    """Synthetic features whose class gradients match those of the clients; a new classifier is trained on them.

    Each client uploads g_k,c, the mean gradient of the classifier on its rows of class c. The server averages them over
    the clients that own class c, fits features by minimising sum_c sum_rows (1 - cos(g_c^syn, g_c)), and trains a fresh
    linear head on them, by mini-batches. The gradient by the classifier's bias is matched as one more row. The
    broadcast model stays that of FedAvg. The new head serves evaluation and the next round's gradients.

    Source: Shang et al. 2022, https://arxiv.org/abs/2204.13399

    Example:
        >>> FederatedFeatures(draws=1).features_per_class
        100
    """

    name = "federated_features"
    keeps = "features_per_class C F at the server"
    compute = (
        "draws forward passes over the client's rows; server: match_steps, and head_epochs passes over the features"
    )
    reads = (Read("probe", "sum", "head gradient of each class"), Read("labels", "sum"))
    uploads = "C C (F + 1)"
    downloads = "C F"

    features_per_class: Annotated[int, AtLeast(1)] = 100
    """synthetic features of each class"""
    match_steps: Annotated[int, AtLeast(0)] = 100
    """steps of the features towards the clients' gradients"""
    match_lr: float = 0.1
    """learning rate of these steps"""
    head_epochs: Annotated[int, AtLeast(0)] = 300
    """epochs of the new head over all features"""
    head_lr: float = 0.01
    """its learning rate"""
    head_batch: Annotated[int, AtLeast(0)] = 32
    """features in a mini-batch of the head, by default as in the authors' code; 0: all of them, one step an epoch"""
    match_bias: bool = True
    """also match the gradient of the bias, as the authors' code does"""
    draws: Annotated[int, AtLeast(1)] = 10
    """augmented draws that a client averages"""
    rows: Annotated[int, AtLeast(1)] = 32
    """rows of each class in a draw"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """The global head until one is trained, and no features yet: {"head", "features", "born"}."""
        head = {n: params[n].clone() for n in (task.weight, task.bias) if n in params}
        features = params[task.weight].new_zeros(task.classes, self.features_per_class, task.features)
        return {"head": head, "features": features, "born": torch.zeros(())}

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """The re-trained head to all."""
        return state["head"], None

    def ask(self, state: Tree, round: int, key: Tensor) -> Query | None:
        """The class gradients of the cohort."""
        return Query("cohort", self.class_gradients, draws=self.draws, augment=True)

    def class_gradients(self, view: View) -> Tree:
        """{"gradients": [C, C, F], [C, C, F + 1] with the bias, "present": [C]} on `rows` random rows of a class."""
        task, head = view.ctx.task, view.ctx.shared[self.name]
        draws = rng.uniform(rng.fold(view.key, 1), view.batch.y.shape, view.out.features.dtype)
        mask = F.rows_per_class(view.batch.y, draws, self.rows, task.classes)
        weight, bias = head[task.weight], head.get(task.bias)
        both = self.match_bias and bias is not None
        gradients = F.creff_head_gradients(view.out.features, weight, bias, view.batch.y, mask, both)
        return {"gradients": gradients, "present": (view.ctx.owned > 0).to(gradients)}

    def receive(self, state: Tree, answers: Answers, key: Tensor) -> Tree:
        """The mean gradient of each class over the clients that own it, without weights."""
        owners = answers.values["present"].sum(0)
        mean = answers.values["gradients"].sum(0) / owners.clamp(min=1)[:, None, None]
        return {**state, "real": mean, "present": (owners > 0).to(mean)}

    def absorb(self, state: Tree, cohort: Cohort, key: Tensor) -> tuple[Tree, Tree | None]:
        """New features, then a fresh head that is trained on them."""
        task, head, old = cohort.task, state["head"], state["features"]
        old = torch.where(state["born"] > 0, old, rng.normal(key, old.shape, old.dtype).to(old.device))
        weight, bias = head[task.weight], head.get(task.bias)
        features = F.creff_synthesize(
            old, weight, bias, state["real"], state["present"], self.match_steps, self.match_lr
        )
        spread = (2 * rng.uniform(rng.fold(key, 1), weight.shape, weight.dtype) - 1).to(
            weight.device
        ) / task.features**0.5
        zero = None if bias is None else torch.zeros_like(bias)

        def order(epoch: int) -> Tensor:
            drawn = rng.uniform(rng.fold(rng.fold(key, 2), epoch), (old.shape[0] * old.shape[1],)).argsort(stable=True)
            return drawn.to(old.device)

        shuffled = order if self.head_batch else None
        fresh = F.creff_head(features, spread, zero, self.head_epochs, self.head_lr, self.head_batch, shuffled)
        named = {n: h for n, h in zip((task.weight, task.bias), fresh, strict=True) if h is not None}
        return {"head": named, "features": features, "born": torch.ones(())}, None

    def serve(self, params: Params, state: Tree, task: Task) -> Params:
        """The broadcast model with the re-trained head."""
        return {**params, **state["head"]}


def creff() -> Method:
    """CReFF: a new classifier is trained on synthetic features whose gradients match those of the clients' classes.

    Each client uploads the mean gradient of the classifier for each of its classes; settings are the authors'.

    Source: Shang et al. 2022, https://arxiv.org/abs/2204.13399

    Returns:
        The method.

    Example:
        >>> creff().with_("federated_features", head_lr=0.1).parts[1].head_lr
        0.1
    """
    return Method("creff", parts=(FederatedFeatures(),), reference="shang2022")
