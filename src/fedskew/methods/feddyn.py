"""FedDyn: dynamic regularisation (Acar et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedskew import tree
from fedskew.errors import require
from fedskew.method import Component, Method, ServerOptimizer
from fedskew.shared import Uniform
from fedskew.tree import Tree
from fedskew.types import Cohort, LocalRun, Params, Task, View

if TYPE_CHECKING:
    from fedskew.data.federation import Federation

__all__ = ["DynamicCorrection", "DynamicRegulariser", "feddyn"]


@dataclass(frozen=True)
class DynamicRegulariser(Component):
    """g - h_k + alpha (w - x) at every step; then h_k <- h_k - alpha (y_k - x). Needs server ``dynamic_correction``."""

    name = "dynamic_regulariser"
    keeps = "P on every client"
    compute = "O(P) a step"

    alpha: float = 0.01
    """strength; that of the server must equal it"""

    @property
    def proximal(self) -> float:
        """It pulls like a proximal term."""
        return self.alpha

    def init_client(self, params: Params, buffers: Params, task: Task) -> Tree:
        """h_k = 0."""
        return {"h": tree.zeros_like(params)}

    def correct(self, grads: Params, view: View) -> Params:
        """See the class."""
        h, x = view.memory[self.name]["h"], view.ctx.params
        return {n: g - h[n] + self.alpha * (view.params[n] - x[n]) for n, g in grads.items()}

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """h_k stays on the client."""
        moved = tree.sub(local.params, local.ctx.params)
        return {}, {"h": tree.add(local.memory[self.name]["h"], moved, -self.alpha)}

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """Both halves or none, with one alpha."""
        alpha = getattr(method.server, "alpha", None)
        require(alpha == self.alpha, "--server.alpha", f"equal the regulariser's alpha, {self.alpha}", alpha)


@dataclass(frozen=True)
class DynamicCorrection(ServerOptimizer):
    """h <- h - (alpha / N) sum_k (y_k - x);  x <- x + lr mean_k (y_k - x) - h / alpha."""

    name = "dynamic_correction"
    keeps = "P at the server"

    alpha: float = 0.01
    """the regulariser's strength"""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.alpha > 0, "--server.alpha", "be positive", self.alpha)

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """Not without the clients' half."""
        halves = [p.name for p in method.parts]
        rule = "go with the part dynamic_regulariser"
        require("dynamic_regulariser" in halves, f"--server {self.name}", rule, ", ".join(halves))

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """h = 0."""
        return {"h": tree.zeros_like(params)}

    def update(self, params: Params, delta: Params, state: Tree, cohort: Cohort) -> tuple[Params, Tree]:
        """See the class; delta is the cohort's mean."""
        share = self.alpha * len(cohort.ids) / cohort.task.clients
        h = tree.add(state["h"], delta, -share)
        return tree.add(tree.add(params, delta, self.lr), h, -1 / self.alpha), {"h": h}


def feddyn(alpha: float = 0.01) -> Method:
    """FedDyn under the uniform mean."""
    parts, server = (DynamicRegulariser(alpha),), DynamicCorrection(alpha=alpha)
    return Method("feddyn", parts, weighting=Uniform(), server=server, reference="acar2021")
