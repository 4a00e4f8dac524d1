"""FedSMOO: clients agree on one perturbation, and on one model by FedDyn (Sun et al. 2023)."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from fedskew import functional as F
from fedskew import tree
from fedskew.method import SGD, Method, Read, SharpnessAware, Uniform
from fedskew.methods.feddyn import DynamicCorrection, DynamicRegulariser
from fedskew.types import Carry, Cohort, Context, Differentiate, Federation, LocalRun, Params, Raw, Task, Tree


@dataclass(frozen=True)
class DynamicSharpnessAware(SharpnessAware):
    """Sharpness-aware steps whose perturbations are drawn towards a common one.

    e = rho d / ||d||_2 with d = g(w) - mu_k - s; mu_k <- mu_k + e - s; the gradient is that at w + e. mu_k stays on the
    client from round to round and is uploaded. Server: s <- rho u / ||u||_2 with u = sum_k p_k mu_k. Both start at 0.

    Source: Sun et al. 2023, https://arxiv.org/abs/2305.11584, as the authors' code has it,
    https://github.com/woodenchild95/FL-Simulator

    Example:
        >>> DynamicSharpnessAware(rho=0.05).rho
        0.05
    """

    name = "dynamic_sam"
    averages_all = True
    keeps = "P on every client, P at the server"
    uploads = "P"
    downloads = "P"
    reads = (Read("upload", "sum", "perturbation", by="average"),)
    reference = "sun2023smoo"

    def init_client(self, params: Params, buffers: Params, task: Task) -> Tree:
        """{"mu": mu_k = 0}."""
        return {"mu": tree.zeros_like(params)}

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """{"s": s = 0}."""
        return {"s": tree.zeros_like(params)}

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """s to all."""
        return {"s": state["s"]}, None

    def start(self, params: Params, ctx: Context) -> tuple[Params, Tree]:
        """The parameters, mu_k, and an empty momentum buffer."""
        params, memory = super().start(params, ctx)
        return params, {**memory, "mu": ctx.memory[self.name]["mu"]}

    def step(self, carry: Carry, ctx: Context, differentiate: Differentiate) -> tuple[Carry, Tensor]:
        """One step on one mini-batch, with two gradients; mu_k moves with it."""
        mu, common = carry.memory[self.name]["mu"], ctx.shared[self.name]["s"]
        taken: list[Params] = []

        def ahead(raw: Raw, w: Params) -> tuple[Params, Tensor, Any]:
            first, loss, seen = raw(w)
            taken.append(self._ascent(tree.sub(tree.sub(first, mu), common), w))
            second, _, _ = raw(tree.add(w, taken[-1]))
            return self._mixed(first, second), loss, seen

        after, loss = SGD.step(self, carry, ctx, partial(differentiate, rule=ahead))
        memory = {**after.memory[self.name], "mu": tree.add(mu, tree.sub(taken[-1], common))}
        return after._replace(memory={**after.memory, self.name: memory}), loss

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """mu_k is uploaded, and stays."""
        mu = local.memory[self.name]["mu"]
        return {"mu": mu}, {"mu": mu}

    def absorb(self, state: Tree, cohort: Cohort, key: Tensor) -> tuple[Tree, Tree | None]:
        """s = rho u / ||u||_2."""
        mean = tree.aggregate(cohort.uploads[self.name]["mu"], cohort.weights.average)
        return {"s": F.sam_ascent(mean, self.rho)}, None


def fedsmoo(alpha: float = 0.1, rho: float = 0.1) -> Method:
    """FedSMOO: FedDyn whose clients perturb their steps towards a common perturbation, under the uniform mean.

    Clients look for flat minima of the global loss instead of their own.

    Source: Sun et al. 2023, https://arxiv.org/abs/2305.11584

    Args:
        alpha: FedDyn's strength, the paper's 1 / beta, positive.
        rho: Length of the perturbation; 0 is FedDyn.

    Returns:
        The method.

    Example:
        >>> fedsmoo(rho=0.05).local.name
        'dynamic_sam'
    """
    parts, server = (DynamicRegulariser(alpha),), DynamicCorrection(alpha=alpha)
    local = DynamicSharpnessAware(rho=rho)
    return Method("fedsmoo", parts, weighting=Uniform(), server=server, local=local, reference="sun2023smoo")
