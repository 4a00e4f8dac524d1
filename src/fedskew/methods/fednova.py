"""FedNova: updates normalised by the reach of each client's local steps (Wang et al. 2020)."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch

from fedskew import functional as F
from fedskew import tree
from fedskew.fields import Within, demand
from fedskew.method import SGD, Method, Read, ServerOptimizer, Size, Sums, Weighting, Wrapping
from fedskew.types import Cohort, Federation, Params, Task, Tree, Weights


@dataclass(frozen=True)
class FedNova(Wrapping):
    """Normalised averaging: each update is divided by the reach of the client's local steps.

    x <- x + tau_eff sum_k p_k delta_k / a_k with tau_eff = sum_k p_k a_k, a_k = ||a_k||_1 and p_k the weights of
    `base`. The effective weights need not sum to 1, so buffers are averaged with p_k.

    Source: Wang et al. 2020, equations 7 and 8, https://arxiv.org/abs/2007.07481

    Example:
        >>> import torch
        >>> p, a = torch.tensor([0.25, 0.75]), torch.tensor([2.0, 6.0])
        >>> F.fednova_weights(p, a, (p * a).sum())
        tensor([0.6250, 0.6250])
    """

    name = "fednova"
    uploads = "1"

    tau_eff: Literal["norm", "steps"] = "norm"
    """sum_k p_k a_k, or sum_k p_k tau_k, which the official code uses with a proximal term"""

    @property
    def reads(self) -> tuple[Read, ...]:
        """What the base reads, and the reach of local runs, which comes of the rows."""
        return (*self.inner.reads, Read("rows", "sum", "local steps"))

    normed = True

    @property
    def stages(self) -> int:
        """Those of the base, and that of the reach."""
        return self._base_stages + 1

    def adds(self, state: Tree, own: Cohort, sums: Sums) -> Tree:
        """{"tau_eff": p_k a_k, or p_k tau_k, "p": p_k}, after the sums of the base."""
        if len(sums) < self._base_stages:
            return self._base_adds(state, own, sums)
        p, reports = self._base_weights(state, own, sums), own.reports
        reach = reports.a_norm if self.tau_eff == "norm" else reports.steps.to(reports.a_norm)
        return {"tau_eff": p.update * reach, "p": p.average}

    def mass(self, state: Tree, own: Cohort, sums: Sums) -> Weights:
        """p_k tau_eff / a_k for updates, the base's weights for buffers."""
        p, tau_eff, stayed = self._base_weights(state, own, sums), sums[-1]["tau_eff"], sums[-1]["p"]
        # below 1 where somebody has left since the sums of the base; else 1 up to rounding, and the bits stay
        tau_eff = torch.where((stayed - 1).abs() > 1e-6, tau_eff / stayed.clamp(min=1e-300), tau_eff)
        return Weights(F.fednova_weights(p.update, own.reports.a_norm, tau_eff), p.average)

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """Momentum with a proximal term has no agreed ||a||_1: the official recursion counts both twice."""
        both = method.proximal > 0 and isinstance(method.local, SGD) and method.local.momentum > 0
        demand(method.local, "momentum", not both, "be 0 if fednova is used with a proximal part")
        super().check(method, fed, task)


@dataclass(frozen=True)
class GlobalMomentum(ServerOptimizer):
    """Server momentum on gradients, as in the FedNova authors' code.

    buf <- gmf buf - delta / eta;  x <- x - lr eta buf, with eta the clients' mean learning rate of the round. The
    buffer holds gradients, so that under a decaying rate it differs from `momentum`. gmf = 0 is x <- x + lr delta.

    Source: code of Wang et al. 2020, https://arxiv.org/abs/2007.07481

    Example:
        >>> GlobalMomentum(gmf=0.9)
        GlobalMomentum(lr=1.0, gmf=0.9)
    """

    name = "global_momentum"
    keeps = "P at the server (gmf above 0)"
    reference = "wang2020"

    gmf: Annotated[float, Within(0, 1, "[)")] = 0.0
    """global momentum factor"""

    @property
    def reads(self) -> tuple[Read, ...]:
        """With momentum the mean learning rate, which may come of the rows."""
        return (Read("rows", "sum", "learning rate"),) if self.gmf else ()

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """{"buffer": 0}, or nothing without momentum."""
        return {"buffer": tree.zeros_like(params)} if self.gmf else {}

    def update(self, params: Params, delta: Params, state: Tree, cohort: Cohort) -> tuple[Params, Tree]:
        """One step of the buffer and of the parameters."""
        if not self.gmf:
            return tree.add(params, delta, self.lr), state
        eta = cohort.reports.lr.mean()
        buffer = tree.add(tree.scale(state["buffer"], self.gmf), delta, -1 / eta)
        return tree.add(params, buffer, -self.lr * eta), {"buffer": buffer}


def fednova(base: Weighting = Size(), gmf: float = 0.0) -> Method:
    """FedNova: each client's update is divided by the length of its local run before the average.

    Clients with more local steps then do not pull the model to their own optimum; the weights are those of another
    weighting.

    FedNTD's variant with control variates is `fednova().with_(parts=(ControlVariate(),))`.

    Source: Wang et al. 2020, equations 7 and 8, https://arxiv.org/abs/2007.07481

    Args:
        base: The weighting whose weights are normalised, for example `AggregationBalancer()` of FedBal.
        gmf: Global momentum factor in [0, 1).

    Returns:
        The method.

    Example:
        >>> fednova(gmf=0.5).server
        GlobalMomentum(lr=1.0, gmf=0.5)
    """
    return Method("fednova", weighting=FedNova(base), server=GlobalMomentum(gmf=gmf), reference="wang2020")
