"""FedExP: the server's rate follows from how far the clients' updates disagree (Jhunjhunwala et al. 2023)."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from fedskew import tree
from fedskew.fields import Above
from fedskew.method import Method, Read, ServerOptimizer, Uniform
from fedskew.types import Cohort, Federation, LocalRun, Params, Task, Tree


@dataclass(frozen=True)
class Extrapolated(ServerOptimizer):
    """Extrapolation: the aggregated update times a rate of at least 1.

    x <- x + lr r delta with r = max(1, sum_k p_k ||delta_k||^2 / (2 (||delta||^2 + eps))). Each client uploads
    ||delta_k||^2, one number, so that deltas are summed while clients train.

    Source: Jhunjhunwala et al. 2023, algorithm 1, https://arxiv.org/abs/2301.09604

    Example:
        >>> Extrapolated(eps=0.1).serves
        'average'
    """

    name = "extrapolated"
    keeps = "P at the server"
    averages_all = True
    uploads = "1"
    reads = (Read("upload", "sum", "norm of the update", by="update"),)
    reference = "jhunjhunwala2023"

    eps: Annotated[float, Above(0)] = 1e-3
    """eps, which bounds the rate where updates cancel"""
    decay: Annotated[float, Above(0)] = 1.0
    """factor on eps after every round; the authors' code has the square of the pace's decay"""
    scaled: bool = False
    """multiply eps by the number of participants, as the authors' code does"""
    serves: Literal["average", "last"] = "average"
    """the model that is evaluated: the mean of the last two, since the last one swings; or the last one"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """{"rate": 1, "previous": the model before this one}."""
        return {"rate": torch.ones((), dtype=torch.float64), "previous": params}

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """||y_k - x||^2 is uploaded."""
        return {"square": _square(tree.sub(local.params, local.ctx.params))}, {}

    def update(self, params: Params, delta: Params, state: Tree, cohort: Cohort) -> tuple[Params, Tree]:
        """One step at the rate of this round."""
        eps = self.eps * self.decay ** (cohort.round - 1) * (len(cohort.ids) if self.scaled else 1)
        squares = cohort.uploads[self.name]["square"].double()
        mean = float((cohort.weights.update.to(squares) * squares).sum())
        rate = max(1.0, mean / (2 * (float(_square(delta)) + eps)))
        after = tree.add(params, delta, self.lr * rate)
        previous = params if cohort.round > 1 else after
        return after, {"rate": torch.tensor(rate, dtype=torch.float64), "previous": previous}

    def serve(self, params: Params, state: Tree, task: Task) -> Params:
        """The mean of the last two models, or the last one."""
        if self.serves == "last":
            return params
        return {n: (x + state["previous"][n]) / 2 for n, x in params.items()}

    def record(self, state: Tree) -> dict[str, Any]:
        """The rate of the round."""
        return {"rate": float(state["rate"])}


def _square(delta: Params) -> Tensor:
    """||delta||_2^2 over all parameters, ()."""
    return torch.stack([d.square().sum() for d in delta.values()]).sum()


def fedexp(eps: float = 1e-3) -> Method:
    """FedExP: the server lengthens the mean update when the clients' updates point in different directions.

    The factor is at least 1 and comes from the norms of the updates, one number a client; clients count equally.

    Source: Jhunjhunwala et al. 2023, algorithm 1, https://arxiv.org/abs/2301.09604

    Args:
        eps: Bounds the rate; positive. A large one gives a rate of 1.

    Returns:
        The method.

    Example:
        >>> fedexp(eps=0.1).server.eps
        0.1
    """
    return Method("fedexp", weighting=Uniform(), server=Extrapolated(eps=eps), reference="jhunjhunwala2023")
