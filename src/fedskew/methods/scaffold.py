"""SCAFFOLD: control variates correct the drift of the clients (Karimireddy et al. 2020)."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fedskew import functional as F
from fedskew import tree
from fedskew.method import Component, Method, Read, Uniform
from fedskew.method.parts import mean_gradient
from fedskew.types import Cohort, Federation, LocalRun, Params, Query, Task, Tree, View


@dataclass(frozen=True)
class ControlVariate(Component):
    """Control variates: each step is corrected by the difference of the server's and the client's variate.

    Steps use g - c_k + c. After the run c_k+ = c_k - c + (x - y_k) / (a lr), with a the reach of the local steps, their
    number tau for plain SGD. Server: c <- c + (1 / N) sum_k (c_k+ - c_k), so that c = (1 / N) sum_k c_k always.

    Source: Karimireddy et al. 2020, algorithm 1, https://arxiv.org/abs/1910.06378

    Example:
        >>> ControlVariate(option=1)
        ControlVariate(option=1, division='reach', spread='clients')
    """

    name = "control_variate"
    averages_all = True
    keeps = "P on every client, P at the server"
    compute = "O(P) a step"
    uploads = "P"
    downloads = "P"

    option: Literal[1, 2] = 2
    """2: c_k+ from the distance travelled; 1: c_k+ the gradient of the client's cross-entropy at w^t on all its rows"""
    division: Literal["reach", "steps"] = "reach"
    """divisor of the distance: a lr (FedNTD's adaptive division), or tau lr as printed, which is too small with local
    momentum"""
    spread: Literal["clients", "cohort", "size"] = "clients"
    """weight of each change of c_k: 1/N; 1/m with m participants (FedRepo's and FedGR's code); m/N times the share of
    the rows (Flower's NIID-Bench)"""

    @property
    def reads(self) -> tuple[Read, ...]:
        """The sum of the changes, each times 1 or its rows."""
        what = "change of the control variate"
        if self.spread == "size":
            return (Read("upload", "sum", what, by="size"), Read("rows", "sum"))
        return (Read("upload", "sum", what),)

    def init_client(self, params: Params, buffers: Params, task: Task) -> Tree:
        """{"c": c_k = 0}, and with option 1 the gradient."""
        zero = {"c": tree.zeros_like(params)}
        return zero if self.option == 2 else {**zero, "gradient": zero["c"]}

    def ask(self, state: Tree, round: int, key: Tensor) -> Query | None:
        """With option 1, every participant computes its gradient at w^t and keeps it."""
        return Query("cohort", self.gradient, keep=True) if self.option == 1 else None

    def gradient(self, view: View) -> Tree:
        """{"gradient": of the mean cross-entropy on the client's rows, in evaluation mode}."""
        return {"gradient": mean_gradient(view, view.params)}

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """{"c": c = 0}."""
        return {"c": tree.zeros_like(params)}

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """c to all."""
        return {"c": state["c"]}, None

    def correct(self, grads: Params, view: View) -> Params:
        """g - c_k + c."""
        return F.scaffold_correction(grads, view.memory[self.name]["c"], view.ctx.shared[self.name]["c"])

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """c_k+ - c_k as the upload, with the rate of this round; c_k+ stays."""
        c_k, c = local.memory[self.name]["c"], local.ctx.shared[self.name]["c"]
        reach = local.report.a_norm if self.division == "reach" else local.report.steps
        travel = (reach * local.ctx.lr).clamp(min=1e-30)  # a client without steps has moved by 0 as well
        after = F.scaffold_control(c_k, c, tree.sub(local.params, local.ctx.params), travel)
        if self.option == 1:
            after = local.memory[self.name]["gradient"]
        return {"change": tree.sub(after, c_k)}, {**local.memory[self.name], "c": after}

    def absorb(self, state: Tree, cohort: Cohort, key: Tensor) -> tuple[Tree, Tree | None]:
        """c + (1 / N) sum_k (c_k+ - c_k)."""
        change, among = cohort.uploads[self.name]["change"], cohort.task.population
        if self.spread == "cohort":
            among = len(cohort.ids)
        elif self.spread == "size":
            share = F.size_weights(cohort.reports.samples.double()) * len(cohort.ids)  # 1 each where all are as large
            change = {n: x * share.to(x.dtype).reshape(-1, *(1,) * (x.dim() - 1)) for n, x in change.items()}
        return {"c": F.scaffold_server_control(state["c"], change, among)}, None


def scaffold() -> Method:
    """SCAFFOLD: each local step is corrected by the difference of the server's and the client's control variate.

    The variates estimate the gradients of all clients and of one, by the paper's option II; clients count equally.

    Source: Karimireddy et al. 2020, algorithm 1, https://arxiv.org/abs/1910.06378

    Returns:
        The method.

    Example:
        >>> scaffold().with_("control_variate", option=1).parts[1].option
        1
    """
    return Method("scaffold", parts=(ControlVariate(),), weighting=Uniform(), reference="karimireddy2020")
