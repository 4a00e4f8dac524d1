"""MOON: model-contrastive federated learning (Li et al. 2021)."""

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
    """mu * -log(e^{cos(z, z_g)/T} / (e^{cos(z, z_g)/T} + e^{cos(z, z_p)/T})), z the features entering the classifier.

    z_g comes from the global model, z_p from this client's previous one, both without gradients and in evaluation mode.
    A client's first participation omits the term; in round 1 it is everybody's.
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
        """The projection head, part of the communicated model: F -> F -> projection, torch's uniform start."""
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
        """No previous model: ``seen`` is 0."""
        return {"params": params, "buffers": buffers, "seen": torch.zeros(())}

    def loss(self, view: View) -> Tensor:
        """See the class."""
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
        """The local model becomes the previous one."""
        return {}, {"params": local.params, "buffers": local.buffers, "seen": torch.ones(())}


def moon(mu: float = 1.0, temperature: float = 0.5) -> Method:
    """MOON on the features that enter the classifier (no projection head)."""
    return Method("moon", parts=(ModelContrastive(mu, temperature),), reference="li2021moon")
