"""FedACG: the server sends a model that its momentum has moved ahead already (Kim et al. 2024)."""

from dataclasses import dataclass
from typing import Annotated

from fedskew import functional as F
from fedskew import tree
from fedskew.fields import Within
from fedskew.method import Method, ServerOptimizer, Uniform
from fedskew.methods.fedprox import Proximal
from fedskew.types import Cohort, Federation, Params, Task, Tree


@dataclass(frozen=True)
class Accelerated(ServerOptimizer):
    """Accelerated client gradient: clients start from z = x + lr beta m, which the momentum m has moved ahead.

    m <- beta m + delta, with delta measured from z; x <- x + lr m; z is sent, x is served. z moves as the model of
    `momentum` with `nesterov`.

    Source: Kim et al. 2024, algorithm 1, https://arxiv.org/abs/2201.03172

    Example:
        >>> Accelerated(beta=0.9)
        Accelerated(lr=1.0, beta=0.9)
    """

    name = "accelerated"
    keeps = "P at the server"
    reference = "kim2024"

    beta: Annotated[float, Within(0, 1, "[)")] = 0.85
    """momentum of the server, the paper's lambda; 0 is FedAvg"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """{"first": m = 0}."""
        return {"first": tree.zeros_like(params)}

    def update(self, params: Params, delta: Params, state: Tree, cohort: Cohort) -> tuple[Params, Tree]:
        """The new z and m."""
        params, first = F.momentum_update(params, delta, state["first"], self.lr, self.beta, nesterov=True)
        return params, {"first": first}

    def serve(self, params: Params, state: Tree, task: Task) -> Params:
        """x = z - lr beta m."""
        return {n: z - self.lr * self.beta * state["first"][n] for n, z in params.items()}


def fedacg(beta: float = 0.85, mu: float = 0.002) -> Method:
    """FedACG: clients start from a model that the server's momentum has moved ahead.

    A proximal term pulls each client towards the model that was sent, and clients count equally.

    Source: Kim et al. 2024, algorithm 1, https://arxiv.org/abs/2201.03172

    Args:
        beta: Momentum of the server in [0, 1).
        mu: Coefficient of the proximal term (mu / 2) ||w - z||^2. The authors' code has 0.001 without the half.

    Returns:
        The method.

    Example:
        >>> fedacg(beta=0.9).server
        Accelerated(lr=1.0, beta=0.9)
    """
    parts, server = (Proximal(mu),), Accelerated(beta=beta)
    return Method("fedacg", parts, weighting=Uniform(), server=server, reference="kim2024")
