"""MOON: a contrastive term between the global and the client's previous model (Li et al. 2021)."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew.fields import Above, AtLeast
from fedskew.method import Component, Method
from fedskew.types import LocalRun, Params, Task, Tree, View


@dataclass(frozen=True)
class ModelContrastive(Component):
    """A contrastive term that draws representations towards the global model and away from the client's previous one.

    mu * -log(e^(cos(z, z_g) / T) / (e^(cos(z, z_g) / T) + e^(cos(z, z_p) / T))), z what enters the classifier, z_g that
    of the global and z_p that of the previous model. Both are in evaluation mode and without gradient. The term is
    omitted in a client's first round.

    z is the output of a projection head F -> F -> ReLU -> `projection` that the part puts in front of the classifier,
    so the head is part of the network: it is averaged, evaluated and saved. With mu 0 the method is FedAvg on that
    network (`projection` of the model). With 0 there is no head, and z are the network's own features.

    Source: Li et al. 2021, algorithm 1 and section 3.3, https://arxiv.org/abs/2103.16257

    Example:
        >>> z, z_previous = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]])
        >>> F.moon_contrastive(z, torch.tensor([[1.0, 1.0]]), z_previous, 0.5)
        tensor([0.2176])
    """

    name = "model_contrastive"
    keeps = "P on every client"
    compute = "2 forward passes a step"

    mu: Annotated[float, AtLeast(0)] = 5.0
    """weight of the term; the paper's best: 5 on CIFAR-10, 1 on CIFAR-100 and Tiny-ImageNet"""
    temperature: Annotated[float, Above(0, infinite=True)] = 0.5
    """T"""
    projection: Annotated[int, AtLeast(0)] = 256
    """width of the projection head in front of the classifier, unless the model sets it; 0: none"""
    newcomer: Literal["omit", "initial"] = "omit"
    """a client's first participation after round 1: no term, or an untrained previous model as in the authors' code"""

    @property
    def projects(self) -> int:
        """The head that it wants in the network."""
        return self.projection

    def init_client(self, params: Params, buffers: Params, task: Task) -> Tree:
        """The initial model as the previous one; `seen` is 0 until the client takes part."""
        return {"params": params, "buffers": buffers, "seen": torch.zeros(())}

    def loss(self, view: View) -> Tensor:
        """mu times the mean contrastive term of the mini-batch, ()."""
        previous = view.memory[self.name]
        z_global = view.teacher().features
        z_previous = view.teacher(previous["params"], previous["buffers"]).features
        term = F.moon_contrastive(view.out.features, z_global, z_previous, self.temperature)
        known = previous["seen"] if self.newcomer == "omit" else (view.progress.round > 1)
        weighted: Tensor = self.mu * known.to(term) * view.batch.mean(term)
        return weighted

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """No upload; the local model stays as the previous one."""
        seen = torch.ones_like(local.ctx.memory[self.name]["seen"])
        return {}, {"params": local.params, "buffers": local.buffers, "seen": seen}


def moon(mu: float = 5.0, temperature: float = 0.5, projection: int = 256) -> Method:
    """MOON: a contrastive term draws features to the global model's and away from the client's previous ones.

    The features come out of the paper's projection head, which becomes part of the network.

    Without the head, on the features that enter the classifier, as FedNTD's code and FedRepo have it:
    `moon(mu=1.0, projection=0)`.

    Source: Li et al. 2021, algorithm 1 and section 3.3, https://arxiv.org/abs/2103.16257

    Args:
        mu: Weight of the term; 0 is FedAvg on the same network. The paper has 5 for CIFAR-10, 1 for CIFAR-100.
        temperature: Temperature T, positive.
        projection: Width of the head; 0: none. `projection` of the model goes before it.

    Returns:
        The method.

    Example:
        >>> moon().projection, moon(projection=0).projection
        (256, 0)
    """
    return Method("moon", parts=(ModelContrastive(mu, temperature, projection),), reference="li2021moon")
