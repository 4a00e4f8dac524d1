"""BalanceFL: a local update that behaves as if the client's data were uniform over the classes (Shuai et al. 2022)."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew import rng
from fedskew.fields import Above, AtLeast, demand
from fedskew.method import SGD, Component, Fixed, Method
from fedskew.method.samplers import ClassBalanced
from fedskew.types import Federation, Params, Query, Task, Tree, View

LARGEST = 4096  # features; the covariance of more would not fit a client's memory


@dataclass(frozen=True)
class KnowledgeInheritance(Component):
    """Cross-entropy over the client's classes, distillation over the others, and an entropy bonus.

    L = CE_P(z + noise, y) + lam KD_N(z^g, z) - smoothing H_P(z), with P the positive classes (those of the client, or
    of the mini-batch) and N the others. CE_P and H_P use the softmax over P, KD_N = -sum_N softmax(z^g / T) log
    softmax(z / T) over N with z^g of the global model. A row of class c gets noise on its features with probability 1 -
    n_c / n_max: Gaussian, of the classes' average covariance of the global model's features. The covariance stays on
    the client.

    Source: Shuai et al. 2022, code at https://github.com/sxontheway/BalanceFL

    Example:
        >>> KnowledgeInheritance(augment_features=False).lam
        1.0
    """

    name = "knowledge_inheritance"
    keeps = "F F on every client"
    compute = "1 forward pass a step, 1 over the client's rows, eigenvectors of F x F"
    classification = True

    temperature: Annotated[float, Above(0, infinite=True)] = 2.0
    """T of the distillation"""
    lam: Annotated[float, AtLeast(0)] = 1.0
    """weight of the distillation"""
    smoothing: float = 0.002
    """weight of the entropy"""
    scope: Literal["client", "batch"] = "client"
    """classes that count as positive: the client's (paper) or the mini-batch's (code)"""
    entropy_reduction: Literal["mean", "sum"] = "mean"
    """over the mini-batch; the code sums"""
    augment_features: bool = True
    """add the Gaussian noise"""

    def init_client(self, params: Params, buffers: Params, task: Task) -> Tree:
        """No covariance yet: {"root": zeros [F, F]}."""
        size = task.features if self.augment_features else 0
        return {"root": params[task.weight].new_zeros(size, size)}

    def ask(self, state: Tree, round: int, key: Tensor) -> Query | None:
        """Each participant computes its covariance at the global model and keeps it."""
        return Query("cohort", self.covariance, keep=True) if self.augment_features else None

    def covariance(self, view: View) -> Tree:
        """{"root": R [F, F]} with R R^T the covariance of the features."""
        features = view.out.features
        wide = features if features.dtype.itemsize >= 4 else features.float()  # torch factors nothing narrower
        return {"root": F.covariance_root(wide, view.batch.y, view.ctx.task.classes).to(features)}

    def loss(self, view: View) -> Tensor:
        """Cross-entropy, distillation and entropy of the mini-batch, ()."""
        logits, batch, counts = view.out.logits, view.batch, view.ctx.used.to(view.out.logits)
        positive = counts > 0 if self.scope == "client" else F.class_counts(batch.y, len(counts), batch.mask) > 0
        augmented = logits + self._noise(view, counts) if self.augment_features else logits
        teacher = view.teacher().logits
        classify, distil, entropy = F.balancefl_terms(logits, augmented, teacher, batch.y, positive, self.temperature)
        spread = batch.mean(entropy) if self.entropy_reduction == "mean" else (entropy * batch.mask).sum()
        return batch.mean(classify) + self.lam * batch.mean(distil) - self.smoothing * spread

    def _noise(self, view: View, counts: Tensor) -> Tensor:
        """The change of the logits by the noise on the features, [B, C]."""
        weight, features = view.params[view.ctx.task.weight], view.out.features
        chance = 1 - counts / counts.max().clamp(min=1)
        drawn = rng.uniform(rng.fold(view.key, 201), view.batch.y.shape, features.dtype) < chance[view.batch.y]
        noise = rng.normal(rng.fold(view.key, 202), features.shape, features.dtype) @ view.memory[self.name]["root"].T
        return torch.where(drawn.unsqueeze(1), noise @ weight.T, 0.0)

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """The covariance F x F must fit into a client's memory."""
        small = task.features <= LARGEST or not self.augment_features
        demand(self, "augment_features", small, f"be false for a head with more than {LARGEST} features")


def balancefl() -> Method:
    """BalanceFL: class-balanced mini-batches, and a loss that keeps knowledge of classes that a client lacks.

    Each client learns its own classes by cross-entropy and the others by distillation, at the authors' rate.

    Source: Shuai et al. 2022, code at https://github.com/sxontheway/BalanceFL

    Returns:
        The method.

    Example:
        >>> balancefl().pace.lr, balancefl().local
        (0.005, SGD(momentum=0.9, weight_decay=0.0001, clip=0.0))
    """
    return Method(
        "balancefl", parts=(KnowledgeInheritance(),), sampler=ClassBalanced(), pace=Fixed(lr=0.005),
        local=SGD(momentum=0.9, weight_decay=1e-4), reference="shuai2022",
    )  # fmt: skip
