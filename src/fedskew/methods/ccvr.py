"""CCVR: the classifier is calibrated on virtual features of the classes' Gaussians (Luo et al. 2021)."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew import rng
from fedskew.errors import FieldError
from fedskew.fields import Above, AtLeast, demand
from fedskew.method import Component, Method, Read
from fedskew.types import Answers, Cohort, Federation, Params, Query, Task, Tree, View

LARGEST = 4096  # features; a covariance for each class of more would not fit a client's memory


STATISTICS = ("mean", "covariance", "count")


@dataclass(frozen=True)
class VirtualRepresentations(Component):
    """The classifier of the evaluated model is trained on features drawn from one Gaussian for each class.

    Before a round every client uploads n_kc, mu_kc and S_kc of the broadcast model's features of its classes. The
    server pools them, draws `samples` features for each class that somebody owns, and trains the broadcast model's
    classifier on them by SGD. Training goes on from the uncalibrated model.

    Source: Luo et al. 2021, algorithm 1, https://arxiv.org/abs/2106.05001

    Example:
        >>> VirtualRepresentations(samples=500).serves
        'asked'
    """

    name = "virtual_representations"
    compute = "1 forward pass over every client's rows, C covariances of F x F; server: epochs over C samples features"
    reads = (Read("probe", "sum", "mean and covariance of the features of each class"), Read("histogram", "sum"))
    uploads = "C (F + F F + 1) (every client)"
    downloads = "P (every client)"
    keeps = "P + C (F F + F) at the server"
    reference = "luo2021"

    samples: Annotated[int, AtLeast(1)] = 200
    """virtual features of each class"""
    epochs: Annotated[int, AtLeast(0)] = 1
    """passes over them"""
    lr: Annotated[float, Above(0)] = 0.1
    """learning rate of the classifier"""
    batch: Annotated[int, AtLeast(0)] = 64
    """features of a mini-batch; 0 takes all"""
    clients: Literal["all", "cohort"] = "all"
    """clients whose statistics are pooled: all, or the round's participants"""
    serves: Literal["asked", "last"] = "asked"
    """evaluated model: the one before the round, whose features were collected, or the one after the round with this
    classifier"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """{"model": what is served, "mean", "covariance", "count": the pooled statistics}."""
        weight = params[task.weight]
        blank = {"mean": torch.zeros_like(weight), "count": weight.new_zeros(task.classes)}
        square = weight.new_zeros(task.classes, task.features, task.features)
        return {"model": params, **blank, "covariance": square}

    def ask(self, state: Tree, round: int, key: Tensor) -> Query | None:
        """The statistics of the clients' features."""
        return Query(self.clients, self.statistics)

    def statistics(self, view: View) -> Tree:
        """{"mean": [C, F], "covariance": [C, F, F], "count": [C]} of the client's rows."""
        statistics = F.class_statistics(view.out.features, view.batch.y, view.batch.mask, view.ctx.task.classes)
        return dict(zip(STATISTICS, statistics, strict=True))

    def to_sum(self, answer: Tree) -> Tree:
        """The sums that the statistics come of."""
        return dict(zip(STATISTICS, F.class_moments(*(answer[n] for n in STATISTICS)), strict=True))

    def from_sum(self, total: Tree) -> Tree:
        """The statistics of all rows."""
        return dict(zip(STATISTICS, F.statistics_of_moments(*(total[n] for n in STATISTICS)), strict=True))

    def receive(self, state: Tree, answers: Answers, key: Tensor) -> Tree:
        """The pooled statistics."""
        pooled = F.pooled_statistics(*(answers.values[n] for n in STATISTICS))
        return {**state, **dict(zip(STATISTICS, pooled, strict=True))}

    def absorb(self, state: Tree, cohort: Cohort, key: Tensor) -> tuple[Tree, Tree | None]:
        """Features are drawn, and the classifier that was broadcast is trained on them."""
        task, before = cohort.task, cohort.before
        shape = (task.classes, self.samples, task.features)
        noise = rng.normal(key, shape, torch.float64).to(state["mean"].device)
        features = F.gaussian_features(state["mean"], state["covariance"], noise)
        known = (state["count"] > 0).repeat_interleave(self.samples).nonzero().squeeze(1)

        def order(epoch: int) -> Tensor:
            drawn = rng.uniform(rng.fold(rng.fold(key, 1), epoch), (len(known),)).argsort(stable=True)
            rows: Tensor = known[drawn.to(known.device)]
            return rows

        weight, bias = before[task.weight], before.get(task.bias)
        trained = F.creff_head(features, weight, bias, self.epochs, self.lr, self.batch, order)
        head = {n: h for n, h in zip((task.weight, task.bias), trained, strict=True) if h is not None}
        return {**state, "model": {**before, **head}}, None

    def serve(self, params: Params, state: Tree, task: Task) -> Params:
        """The calibrated model."""
        model: Params = state["model"]
        if self.serves == "asked":
            return model
        return {**params, **{n: model[n] for n in (task.weight, task.bias) if n in model}}

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """A covariance F x F for each class must fit into a client's memory; a served model needs its statistics."""
        statistics = any(name.endswith("running_mean") for name in task.norms)
        rule = "be last for a network with BatchNorm: the statistics are those after the round"
        demand(self, "serves", self.serves == "last" or not statistics, rule)
        if task.features > LARGEST:
            rule, hint = f"meet a head with at most {LARGEST} features", "the model's projection linear has fewer"
            raise FieldError(type(self).__name__, "clients", rule, task.features, hint)


def ccvr(samples: int = 200) -> Method:
    """CCVR: the classifier of FedAvg's model is trained anew on features drawn from one Gaussian for each class.

    Clients upload the mean and covariance of the features of their classes, and the server pools them.

    Source: Luo et al. 2021, algorithm 1, https://arxiv.org/abs/2106.05001

    Args:
        samples: Virtual features of each class.

    Returns:
        The method.

    Example:
        >>> ccvr(500).parts[1].samples
        500
    """
    return Method("ccvr", parts=(VirtualRepresentations(samples),), reference="luo2021")
