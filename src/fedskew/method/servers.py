"""Server optimizers: the step of the global model along the aggregated update."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch

from fedskew import functional as F
from fedskew import tree
from fedskew.fields import LARGEST, Above, Within, demand
from fedskew.method.component import ServerOptimizer
from fedskew.types import Cohort, Federation, Params, Task, Tree


@dataclass(frozen=True)
class Plain(ServerOptimizer):
    """The aggregated update, scaled by the server's learning rate.

    x <- x + lr * delta; lr = 1 is FedAvg.

    Source: Reddi et al. 2021, algorithm 1 with SGD at the server, https://arxiv.org/abs/2003.00295

    Example:
        >>> Plain(lr=0.5)
        Plain(lr=0.5)
    """

    name = "plain"

    def update(self, params: Params, delta: Params, state: Tree, cohort: Cohort) -> tuple[Params, Tree]:
        """x + lr * delta; the state stays."""
        return tree.add(params, delta, self.lr), state


@dataclass(frozen=True)
class WeightedSum(ServerOptimizer):
    """The weighted sum of the clients' models, whatever the weights add up to.

    x <- x + lr (sum_k p_k y_k - x). With lr = 1 the new model is sum_k p_k y_k. Weights that sum to P < 1 shrink the
    model: sum_k p_k y_k = P x + sum_k p_k delta_k, where `plain` has x + sum_k p_k delta_k. With P = 1 both are the
    same.

    Source: Seol and Kim 2023, equation 2 as printed, https://doi.org/10.3390/s23031152

    Example:
        >>> WeightedSum()
        WeightedSum(lr=1.0)
    """

    name = "weighted_sum"
    reference = "seol2023"

    def update(self, params: Params, delta: Params, state: Tree, cohort: Cohort) -> tuple[Params, Tree]:
        """x + lr (delta - (1 - P) x) with P the sum of the weights; the state stays."""
        lost = 1 - float(cohort.weights.update.sum())
        return tree.add(params, tree.add(delta, params, -lost), self.lr), state


@dataclass(frozen=True)
class Momentum(ServerOptimizer):
    """Server momentum without dampening (FedAvgM).

    m <- beta m + delta;  x <- x + lr m, or with `nesterov` x <- x + lr (beta m + delta).

    A momentum of 0.9 multiplies a lasting update by 10, so at `lr` 1 the server moves ten times as far as FedAvg's.
    The sources have that rate beside small rates of the clients: 10^-1.5 on CIFAR-100 (Reddi et al. 2021, who take
    10^-0.5 at the server on EMNIST and Shakespeare). At a client rate of 0.1, `lr` 0.1 or Nesterov's form keeps the
    model from collapsing.

    Source: Hsu et al. 2019, https://arxiv.org/abs/1909.06335

    Example:
        >>> x, state = {"w": torch.zeros(1)}, {"first": {"w": torch.zeros(1)}}
        >>> for delta in (0.2, 0.1):
        ...     x, state = Momentum().update(x, {"w": torch.tensor([delta])}, state, None)
        >>> x
        {'w': tensor([0.4800])}
    """

    name = "momentum"
    keeps = "P at the server"
    reference = "hsu2019"

    beta: Annotated[float, Within(0, 1, "[)")] = 0.9
    """momentum of the server"""
    nesterov: bool = False
    """look ahead by one step: x + lr (beta m + delta)"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """{"first": m = 0}."""
        return {"first": tree.zeros_like(params)}

    def update(self, params: Params, delta: Params, state: Tree, cohort: Cohort) -> tuple[Params, Tree]:
        """One step of the moment and of the parameters."""
        params, first = F.momentum_update(params, delta, state["first"], self.lr, self.beta, self.nesterov)
        return params, {"first": first}


@dataclass(frozen=True)
class Adagrad(ServerOptimizer):
    """Adagrad at the server (FedAdagrad).

    m <- beta1 m + (1 - beta1) delta;  v <- v + delta^2;  x <- x + lr m / (sqrt(v) + tau), with v_0 = tau^2.

    Source: Reddi et al. 2021, algorithm 2, https://arxiv.org/abs/2003.00295

    Example:
        >>> Adagrad(lr=0.5)
        Adagrad(lr=0.5, beta1=0.0, tau=0.001, initial=-1.0, bias_correction='none')
    """

    name = "adagrad"
    reference = "reddi2021"
    keeps = "2 P at the server"
    rule: ClassVar[Any] = staticmethod(F.adagrad_update)

    lr: Annotated[float, Above(0)] = 0.1
    """server learning rate eta"""
    beta1: Annotated[float, Within(0, 1, "[)")] = 0.0
    """decay of the first moment; the paper's experiments with Adagrad have 0"""
    tau: Annotated[float, Above(0, infinite=True)] = 1e-3
    """degree of adaptivity; v starts at tau^2"""
    initial: float = -1.0
    """initial second moment v_0; negative means tau^2"""
    bias_correction: Literal["none", "torch", "keras", "flower"] = "none"
    """torch: moments over 1 - beta^t; keras: the same, but tau is not corrected; flower: Keras's form with t + 1"""

    def __post_init__(self) -> None:
        super().__post_init__()
        squared = math.isinf(self.tau) or self.tau**2 <= LARGEST
        demand(self, "tau", squared, f"be at most {LARGEST**0.5:.2g}, or inf: its square is a float32")

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """{"first": m = 0, "second": v_0}."""
        start = self.initial if self.initial >= 0 else self.tau**2
        return {"first": tree.zeros_like(params), "second": tree.map_tree(lambda p: torch.full_like(p, start), params)}

    def update(self, params: Params, delta: Params, state: Tree, cohort: Cohort) -> tuple[Params, Tree]:
        """One step by the rule of the class."""
        decay = getattr(self, "beta2", 0.0)  # Adagrad sums
        rates = (self.lr, self.beta1, decay, self.tau, cohort.round, self.bias_correction)
        params, first, second = type(self).rule(params, delta, state["first"], state["second"], *rates)
        return params, {"first": first, "second": second}


@dataclass(frozen=True)
class Adam(Adagrad):
    """Adam at the server (FedAdam).

    As `adagrad`, with v <- beta2 v + (1 - beta2) delta^2.

    Source: Reddi et al. 2021, algorithm 2, https://arxiv.org/abs/2003.00295

    Example:
        >>> Adam(beta2=0.999).beta2
        0.999
    """

    name = "adam"
    rule = staticmethod(F.adam_update)

    beta1: Annotated[float, Within(0, 1, "[)")] = 0.9
    """decay of the first moment"""
    beta2: Annotated[float, Within(0, 1, "[)")] = 0.99
    """decay of the second moment"""


@dataclass(frozen=True)
class Yogi(Adam):
    """Yogi at the server (FedYogi).

    As `adagrad`, with v <- v - (1 - beta2) delta^2 sign(v - delta^2).

    Source: Reddi et al. 2021, algorithm 2, https://arxiv.org/abs/2003.00295

    Example:
        >>> Yogi(beta2=0.999).beta2
        0.999
    """

    name = "yogi"
    rule = staticmethod(F.yogi_update)
