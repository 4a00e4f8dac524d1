"""FedLESAM: sharpness-aware steps along the way that the global model came (Fan et al. 2024)."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew import tree
from fedskew.fields import AtLeast
from fedskew.method import SGD, Method, Uniform
from fedskew.types import Carry, Cohort, Context, Differentiate, Federation, LocalRun, Params, Raw, Task, Tree


@dataclass(frozen=True)
class GlobalSharpnessAware(SGD):
    """A step of SGD along the gradient at a perturbed point; the perturbation is the same in the whole local run.

    e = rho d / ||d||_2 with d = x_old - x, x_old the model that the client was sent when it took part last. e = 0
    at its first time. g(w + e) takes the place of g(w): one gradient a step.

    Source: Fan et al. 2024, algorithm 1, https://arxiv.org/abs/2405.18890

    Example:
        >>> GlobalSharpnessAware(rho=0.05).since
        'participation'
    """

    name = "lesam"
    averages_all = True
    keeps = "P on every client"
    compute = "O(P) a step"
    reference = "fan2024"

    rho: Annotated[float, AtLeast(0)] = 0.1
    """length rho of the perturbation, in units of the parameters; 0 is SGD"""
    since: Literal["participation", "round"] = "participation"
    """participation: d is measured from the client's last time, as printed; round: d is minus the server's last step,
    which is sent and kept at the server, as the authors' code has it"""
    norm: Literal["all", "tensors"] = "all"
    """all: ||d|| over all parameters; tensors: the sum of each tensor's norm, as the authors' code has it"""

    @property
    def _keeps_model(self) -> bool:
        """Whether the last model stays on the client."""
        return self.since == "participation"

    def init_client(self, params: Params, buffers: Params, task: Task) -> Tree:
        """{"old": the initial model, "seen": 0 until the client takes part}."""
        return {"old": params, "seen": torch.zeros(())} if self._keeps_model else {}

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """{} or {"moved": 0}."""
        return {} if self._keeps_model else {"moved": tree.zeros_like(params)}

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """The server's last step to all, where d is measured by it."""
        return dict(state), None

    def start(self, params: Params, ctx: Context) -> tuple[Params, Tree]:
        """The parameters, and e."""
        params, memory = super().start(params, ctx)
        if self._keeps_model:
            kept = ctx.memory[self.name]
            back = {n: kept["seen"].to(x) * (kept["old"][n] - x) for n, x in ctx.params.items()}
            memory = {**memory, "old": ctx.params, "seen": torch.ones_like(kept["seen"])}
        else:
            back = tree.scale(ctx.shared[self.name]["moved"], -1.0)
        return params, {**memory, "ascent": F.sam_ascent(back, self.rho, norm=self.norm)}

    def step(self, carry: Carry, ctx: Context, differentiate: Differentiate) -> tuple[Carry, Tensor]:
        """One step on one mini-batch."""
        ascent = carry.memory[self.name]["ascent"]

        def ahead(raw: Raw, w: Params) -> tuple[Params, Tensor, Any]:
            return raw(tree.add(w, ascent))

        return super().step(carry, ctx, partial(differentiate, rule=ahead))

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """No upload; the model that was sent stays."""
        memory = local.memory[self.name]
        return {}, {"old": memory["old"], "seen": memory["seen"]} if self._keeps_model else {}

    def absorb(self, state: Tree, cohort: Cohort, key: Tensor) -> tuple[Tree, Tree | None]:
        """The server's step."""
        return {} if self._keeps_model else {"moved": tree.sub(cohort.after, cohort.before)}, None


def fedlesam(rho: float = 0.1) -> Method:
    """FedLESAM: clients step along the gradient at a point perturbed by the global model's own change.

    The change is that since the client took part last; it costs one gradient a step, and clients count equally.

    FedLESAM-D is `replace(feddyn(alpha), local=fedlesam(rho).local)`, FedLESAM-S the same with `scaffold()`.

    Source: Fan et al. 2024, algorithm 1, https://arxiv.org/abs/2405.18890

    Args:
        rho: Length of the perturbation; 0 is FedAvg.

    Returns:
        The method.

    Example:
        >>> fedlesam(rho=0.05).local.rho
        0.05
    """
    return Method("fedlesam", weighting=Uniform(), local=GlobalSharpnessAware(rho=rho), reference="fan2024")
