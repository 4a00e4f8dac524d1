"""FedCM: every local step follows the last round's mean update as well (Xu et al. 2021)."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedskew import tree
from fedskew.fields import Within
from fedskew.method import Component, Method, Read, Uniform
from fedskew.types import Cohort, Federation, Params, Task, Tree, View


@dataclass(frozen=True)
class ClientMomentum(Component):
    """Client-level momentum: a step uses the gradient and the mean step of the last round's clients.

    Steps use alpha g + (1 - alpha) D. Server: D <- -delta / sum_k p_k tau_k lr_k, with delta the aggregated update,
    tau_k the steps of client k and lr_k its rate. D is a gradient: it is 0 in the first round. The server's own rate
    is no part of it.

    Source: Xu et al. 2021, algorithm 2, https://arxiv.org/abs/2106.10874

    Example:
        >>> ClientMomentum(alpha=0.1)
        ClientMomentum(alpha=0.1)
    """

    name = "client_momentum"
    averages_all = True
    keeps = "P at the server"
    compute = "O(P) a step"
    downloads = "P"
    reads = (Read("rows", "sum"),)
    reference = "xu2021"

    alpha: Annotated[float, Within(0, 1, "(]")] = 0.1
    """share of the client's own gradient; 1 is FedAvg"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """{"momentum": D = 0}."""
        return {"momentum": tree.zeros_like(params)}

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """D to all."""
        return {"momentum": state["momentum"]}, None

    def correct(self, grads: Params, view: View) -> Params:
        """alpha g + (1 - alpha) D."""
        momentum = view.ctx.shared[self.name]["momentum"]
        return {n: self.alpha * g + (1 - self.alpha) * momentum[n] for n, g in grads.items()}

    def absorb(self, state: Tree, cohort: Cohort, key: Tensor) -> tuple[Tree, Tree | None]:
        """-delta over the mean reach of a local run, in units of the rate."""
        reach = cohort.reports.steps.double() * cohort.reports.lr.double()
        mean = float((cohort.weights.average.to(reach) * reach).sum())
        return {"momentum": tree.scale(cohort.delta, -1 / max(mean, 1e-30))}, None


def fedcm(alpha: float = 0.1) -> Method:
    """FedCM: each local step mixes the client's gradient with the mean step of the last round's clients.

    This momentum draws the clients in one direction; they keep no state and count equally.

    Source: Xu et al. 2021, algorithm 2, https://arxiv.org/abs/2106.10874

    Args:
        alpha: Share of the client's own gradient in a step, above 0 and at most 1; 1 is FedAvg.

    Returns:
        The method.

    Example:
        >>> fedcm(alpha=0.3).parts
        (CrossEntropy(), ClientMomentum(alpha=0.3))
    """
    return Method("fedcm", parts=(ClientMomentum(alpha),), weighting=Uniform(), reference="xu2021")
