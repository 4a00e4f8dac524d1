"""FedDyn: dynamic regularisation (Acar et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fedskew import functional as F
from fedskew import tree
from fedskew.errors import FieldError
from fedskew.fields import Above, AtLeast, demand
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

    alpha: Annotated[float, AtLeast(0)] = 0.01
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
        return F.feddyn_correction(grads, view.memory[self.name]["h"], view.params, view.ctx.params, self.alpha)

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """h_k stays on the client."""
        moved = tree.sub(local.params, local.ctx.params)
        return {}, {"h": F.feddyn_state(local.memory[self.name]["h"], moved, self.alpha)}

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """Both halves or none, with one alpha."""
        rule = f"equal the regulariser's alpha, {self.alpha}"
        if not hasattr(method.server, "alpha"):
            raise FieldError("Method", "server", f"be {DynamicCorrection.name}, its alpha {rule}", method.server.name)
        demand(method.server, "alpha", method.server.alpha == self.alpha, rule)


@dataclass(frozen=True)
class DynamicCorrection(ServerOptimizer):
    """h <- h - (alpha / N) sum_k (y_k - x);  x <- x + lr mean_k (y_k - x) - h / alpha."""

    name = "dynamic_correction"
    keeps = "P at the server"

    alpha: Annotated[float, Above(0)] = 0.01
    """the regulariser's strength"""

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """Not without the clients' half."""
        halves = [p.name for p in method.parts]
        if DynamicRegulariser.name not in halves:
            rule = f"hold {DynamicRegulariser.name} beside the server {self.name}"
            raise FieldError("Method", "parts", rule, ", ".join(halves))

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """h = 0."""
        return {"h": tree.zeros_like(params)}

    def update(self, params: Params, delta: Params, state: Tree, cohort: Cohort) -> tuple[Params, Tree]:
        """See the class; delta is the cohort's mean."""
        h = F.feddyn_server_state(state["h"], delta, self.alpha, len(cohort.ids), cohort.task.clients)
        return F.feddyn_update(params, delta, h, self.alpha, self.lr), {"h": h}


def feddyn(alpha: float = 0.01) -> Method:
    """FedDyn under the uniform mean."""
    parts, server = (DynamicRegulariser(alpha),), DynamicCorrection(alpha=alpha)
    return Method("feddyn", parts, weighting=Uniform(), server=server, reference="acar2021")
