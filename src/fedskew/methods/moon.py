"""MOON: a contrastive term between the global and the client's previous model (Li et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew import rng
from fedskew.fields import Above, AtLeast
from fedskew.method import Component, Method
from fedskew.tree import Tree
from fedskew.types import LocalRun, Params, Task, View

__all__ = ["ModelContrastive", "moon"]


@dataclass(frozen=True)
class ModelContrastive(Component):
    """A contrastive term that draws features towards the global model and away from the client's previous one.

    mu * -log(e^(cos(z, z_g) / T) / (e^(cos(z, z_g) / T) + e^(cos(z, z_p) / T))), z the features that enter the
    classifier, z_g those of the global and z_p those of the previous model. Both are in evaluation mode and without
    gradient. The term is omitted in a client's first round.

    Source: Li et al. 2021, algorithm 1, https://arxiv.org/abs/2103.16257

    Example:
        >>> one, other = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]])
        >>> F.moon_contrastive(one, torch.tensor([[1.0, 1.0]]), other, 0.5)
        tensor([0.2176])
    """

    name = "model_contrastive"
    keeps = "P on every client"
    compute = "2 forward passes a step"

    mu: Annotated[float, AtLeast(0)] = 1.0
    """weight of the term"""
    temperature: Annotated[float, Above(0, infinite=True)] = 0.5
    """T"""
    projection: Annotated[int, AtLeast(0)] = 0
    """width of a two-layer projection head before the comparison; 0: none (the paper has 256)"""
    newcomer: Literal["omit", "initial"] = "omit"
    """a client's first participation after round 1: no term, or, in the authors' code, an untrained previous model"""

    def init_params(self, params: Params, task: Task, key: Tensor) -> Params:
        """The projection head, part of the model: F -> F -> projection, torch's uniform initialisation."""
        if not self.projection:
            return {}
        like, bound = params[task.weight], task.features**-0.5
        shapes = {"0.weight": (task.features, task.features), "2.weight": (self.projection, task.features)}
        drawn = {n: (2 * rng.uniform(rng.fold(key, i), s) - 1) * bound for i, (n, s) in enumerate(shapes.items())}
        return {f"{self.name}.{n}": w.to(like) for n, w in drawn.items()}

    def _project(self, features: Tensor, params: Params) -> Tensor:
        if not self.projection:
            return features
        hidden = torch.relu(features @ params[f"{self.name}.0.weight"].T)
        return hidden @ params[f"{self.name}.2.weight"].T

    def init_client(self, params: Params, buffers: Params, task: Task) -> Tree:
        """The initial model as the previous one; ``seen`` is 0 until the client takes part."""
        return {"params": params, "buffers": buffers, "seen": torch.zeros(())}

    def loss(self, view: View) -> Tensor:
        """mu times the mean contrastive term of the mini-batch, ()."""
        previous = view.memory[self.name]
        z = self._project(view.out.features, view.params)
        z_global = self._project(view.teacher().features, view.ctx.params).detach()
        z_previous = self._project(
            view.teacher(previous["params"], previous["buffers"]).features, previous["params"]
        ).detach()
        term = F.moon_contrastive(z, z_global, z_previous, self.temperature)
        known = previous["seen"] if self.newcomer == "omit" else (view.progress.round > 1)
        weighted: Tensor = self.mu * known.to(term) * view.batch.mean(term)
        return weighted

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """No upload; the local model stays as the previous one."""
        return {}, {"params": local.params, "buffers": local.buffers, "seen": torch.ones(())}


def moon(mu: float = 1.0, temperature: float = 0.5) -> Method:
    """MOON on the features that enter the classifier, without a projection head.

    The paper's head: ``moon().with_("model_contrastive", projection=256)``.

    Source: Li et al. 2021, algorithm 1, https://arxiv.org/abs/2103.16257

    Args:
        mu: Weight of the term; 0 is FedAvg. The paper has 5 for CIFAR-10, 1 for CIFAR-100.
        temperature: Temperature T, positive.

    Returns:
        The method.

    Example:
        >>> moon(mu=5.0).with_("model_contrastive", projection=256).parts[1].projection
        256
    """
    return Method("moon", parts=(ModelContrastive(mu, temperature),), reference="li2021moon")
