"""FedDyn: a dynamic regulariser at the clients and a correction at the server (Acar et al. 2021)."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedskew import functional as F
from fedskew import tree
from fedskew.errors import FieldError, require
from fedskew.fields import Above, AtLeast, demand, omit_if_default
from fedskew.method import Component, Method, Read, ServerOptimizer, Uniform
from fedskew.method.steps import clip_by_norm
from fedskew.types import Cohort, Context, Federation, LocalRun, Params, Task, Tree, View


@dataclass(frozen=True)
class DynamicRegulariser(Component):
    """The linear and the quadratic term that FedDyn adds to the client's loss.

    L_k(w) - <h_k, w> + (alpha / 2) ||w - x||^2, so each step uses g - h_k + alpha (w - x). After the local run
    h_k <- h_k - alpha (y_k - x). It needs the server `dynamic_correction` with the same alpha.

    A clip of its own limits g - h_k - alpha x and leaves alpha w, which public code adds as weight decay, after
    clipping; the clip of the local step limits the whole.

    Source: Acar et al. 2021, algorithm 1, https://arxiv.org/abs/2111.04263; clip: the authors' code,
    https://github.com/alpemreacar/FedDyn, and https://github.com/woodenchild95/FL-Simulator

    Example:
        >>> DynamicRegulariser(alpha=0.1)
        DynamicRegulariser(alpha=0.1, clip=0.0)
    """

    name = "dynamic_regulariser"
    averages_all = True
    keeps = "P on every client"
    compute = "O(P) a step"

    alpha: Annotated[float, AtLeast(0)] = 0.01
    """strength; must equal that of the server"""
    clip: Annotated[float, AtLeast(0, infinite=True, hint="0 does not clip")] = omit_if_default(default=0.0)
    """largest norm of g - h_k - alpha x over all parameters, before alpha w is added; 0 does not clip"""

    @property
    def proximal(self) -> float:
        """alpha: it pulls like a proximal term."""
        return self.alpha

    def init_client(self, params: Params, buffers: Params, task: Task) -> Tree:
        """{"h": h_k = 0}."""
        return {"h": tree.zeros_like(params)}

    def correct(self, grads: Params, view: View) -> Params:
        """g - h_k + alpha (w - x)."""
        alpha, h = self._strength(view.ctx), view.memory[self.name]["h"]
        if not self.clip:
            return F.feddyn_correction(grads, h, view.params, view.ctx.params, alpha)
        linear = {n: g - h[n] - alpha * view.ctx.params[n] for n, g in grads.items()}
        limited = clip_by_norm(linear, self.clip)
        return {n: g + alpha * view.params[n] for n, g in limited.items()}

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """No upload; h_k - alpha (y_k - x) stays on the client."""
        moved = tree.sub(local.params, local.ctx.params)
        return {}, {"h": F.feddyn_state(local.memory[self.name]["h"], moved, self._strength(local.ctx))}

    def _strength(self, ctx: Context) -> Tensor | float:
        """alpha of this client."""
        return self.alpha

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """The server must be FedDyn's, with the same alpha; and one clip is enough."""
        both = bool(self.clip and getattr(method.local, "clip", 0.0))
        demand(self, "clip", not both, f"be 0 beside the clip of {method.local.name}, which limits alpha w, too")
        rule = f"equal the regulariser's alpha, {self.alpha}"
        if not hasattr(method.server, "alpha"):
            raise FieldError("Method", "server", f"be {DynamicCorrection.name}, its alpha {rule}", method.server.name)
        demand(method.server, "alpha", method.server.alpha == self.alpha, rule)


@dataclass(frozen=True)
class WeightedRegulariser(DynamicRegulariser):
    """FedDyn's client half as in the authors' code: alpha is divided by the client's weight.

    alpha_k = alpha / w_k with w_k = n_k N / sum_j n_j, so that a client with twice the mean rows is held half as
    strongly. With equally many rows at every client it is `dynamic_regulariser`. The server half stays as it is: the
    state h / alpha there is the sum of the updates, which no alpha scales.

    Source: code of Acar et al. 2021, https://github.com/alpemreacar/FedDyn

    Example:
        >>> WeightedRegulariser(alpha=0.1)
        WeightedRegulariser(alpha=0.1, clip=0.0)
    """

    name = "weighted_dynamic_regulariser"
    reads = (Read("rows", "sum"),)
    downloads = "1"
    reference = "acar2021"

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """{"mean": rows of a client, on average}."""
        return {"mean": fed.sizes.sum().double() / task.population}

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """The mean to all."""
        return {"mean": state["mean"]}, None

    def _strength(self, ctx: Context) -> Tensor | float:
        """alpha / w_k."""
        mean: Tensor = ctx.shared[self.name]["mean"].to(ctx.lr)
        return self.alpha * mean / ctx.owned.sum().clamp(min=1).to(ctx.lr)

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """As for every client's alpha alike, and no component may measure the reach of a local run by one alpha."""
        readers = [c.name for c in method.components if c.name in ("fednova", "control_variate")]
        rule = f"hold dynamic_regulariser beside {', '.join(readers)}: it needs one alpha for all clients"
        require(not readers, "parts", rule, self.name)
        super().check(method, fed, task)


@dataclass(frozen=True)
class DynamicCorrection(ServerOptimizer):
    """The server's half of FedDyn: the mean of the participants, corrected by the state of all clients.

    h <- h - (alpha / N) sum_k (y_k - x);  x <- x + lr mean_k (y_k - x) - h / alpha. The sum is m times the mean of the
    m participants: under a weighting that is not uniform it is of the weighted mean, which is not FedDyn.

    Source: Acar et al. 2021, algorithm 1, https://arxiv.org/abs/2111.04263

    Example:
        >>> DynamicCorrection(alpha=0.1)
        DynamicCorrection(lr=1.0, alpha=0.1)
    """

    name = "dynamic_correction"
    averages_all = True
    keeps = "P at the server"

    alpha: Annotated[float, Above(0)] = 0.01
    """the regulariser's strength"""

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """The clients must have FedDyn's regulariser."""
        if not any(isinstance(p, DynamicRegulariser) for p in method.parts):
            rule = f"hold {DynamicRegulariser.name} beside the server {self.name}"
            raise FieldError("Method", "parts", rule, ", ".join(p.name for p in method.parts))

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """{"h": h = 0}."""
        return {"h": tree.zeros_like(params)}

    def update(self, params: Params, delta: Params, state: Tree, cohort: Cohort) -> tuple[Params, Tree]:
        """The new state, then the new parameters; `delta` is the mean of the cohort."""
        h = F.feddyn_server_state(state["h"], delta, self.alpha, len(cohort.ids), cohort.task.population)
        return F.feddyn_update(params, delta, h, self.alpha, self.lr), {"h": h}


def feddyn(alpha: float = 0.01) -> Method:
    """FedDyn: linear and quadratic terms in the clients' losses, so that their optima agree with the global one.

    Each client keeps a state of the model's size, the server corrects the mean by the state of all clients, and
    clients count equally.

    The authors' code divides alpha by the client's weight: `weighted_dynamic_regulariser` in the place of
    `dynamic_regulariser`.

    Source: Acar et al. 2021, algorithm 1, https://arxiv.org/abs/2111.04263

    Args:
        alpha: Strength of the regulariser, positive; the paper tunes over 0.001, 0.01 and 0.1.

    Returns:
        The method.

    Example:
        >>> feddyn(alpha=0.1).server
        DynamicCorrection(lr=1.0, alpha=0.1)
    """
    parts, server = (DynamicRegulariser(alpha),), DynamicCorrection(alpha=alpha)
    return Method("feddyn", parts, weighting=Uniform(), server=server, reference="acar2021")
