"""FedSpeed: a proximal term whose bias each client corrects, and sharpness-aware steps (Sun et al. 2023)."""

from dataclasses import dataclass
from typing import Annotated, Literal

from fedskew import tree
from fedskew.errors import FieldError, unknown
from fedskew.fields import Above
from fedskew.method import Method, Read, ServerOptimizer, SharpnessAware, Uniform
from fedskew.methods.feddyn import DynamicCorrection, DynamicRegulariser
from fedskew.types import Cohort, Federation, LocalRun, Params, Task, Tree


@dataclass(frozen=True)
class UploadedRegulariser(DynamicRegulariser):
    """FedDyn's client half, whose state is uploaded too: the server averages corrected models.

    Steps use g - h_k + alpha (w - x), with h_k <- h_k - alpha (y_k - x) after the run. Upload: -h_k / alpha, the sum of
    the client's updates so far. FedSpeed's paper calls h_k the controller and 1 / alpha lambda.

    Source: Sun et al. 2023, algorithm 1, https://arxiv.org/abs/2302.10429

    Example:
        >>> UploadedRegulariser(alpha=0.1)
        UploadedRegulariser(alpha=0.1, clip=0.0)
    """

    name = "uploaded_dynamic_regulariser"
    reads = (Read("upload", "sum", "state", by="update"),)
    uploads = "P"
    reference = "sun2023speed"

    alpha: Annotated[float, Above(0)] = 0.1
    """strength; must equal that of the server"""

    def finish(self, local: LocalRun) -> tuple[Tree, Tree]:
        """-h_k / alpha is uploaded, h_k stays."""
        _, memory = super().finish(local)
        return {"sum": tree.scale(memory["h"], -1 / self.alpha)}, memory


@dataclass(frozen=True)
class CorrectedMean(ServerOptimizer):
    """The mean of the participants' models, each corrected by its own state.

    x <- x + lr sum_k p_k (delta_k - h_k / alpha), with h_k as the round has left it.

    Source: Sun et al. 2023, algorithm 1, https://arxiv.org/abs/2302.10429

    Example:
        >>> CorrectedMean(alpha=0.1)
        CorrectedMean(lr=1.0, alpha=0.1)
    """

    name = "corrected_mean"
    reference = "sun2023speed"

    alpha: Annotated[float, Above(0)] = 0.1
    """the regulariser's strength"""

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """The clients must upload their state."""
        if not any(isinstance(p, UploadedRegulariser) for p in method.parts):
            rule = f"hold {UploadedRegulariser.name} beside the server {self.name}"
            raise FieldError("Method", "parts", rule, ", ".join(p.name for p in method.parts))

    def update(self, params: Params, delta: Params, state: Tree, cohort: Cohort) -> tuple[Params, Tree]:
        """x + lr (delta + sum_k p_k sum_k)."""
        mean = tree.aggregate(cohort.uploads[UploadedRegulariser.name]["sum"], cohort.weights.update)
        return tree.add(params, tree.add(delta, mean), self.lr), state


def fedspeed(alpha: float = 0.1, rho: float = 0.1, average: Literal["cohort", "all"] = "cohort") -> Method:
    """FedSpeed: FedDyn's client term with gradients at a perturbed point, and corrected models at the server.

    Each client uploads its model corrected by its state; clients count equally.

    w <- w - lr (g(w + rho g(w) / ||g(w)||_2) - h_k + alpha (w - x)). A mixture of both gradients is the `alpha` of
    `sam`.

    Source: Sun et al. 2023, algorithm 1, https://arxiv.org/abs/2302.10429

    Args:
        alpha: Strength of the proximal term, the paper's 1 / lambda, positive.
        rho: Length of the perturbation; 0 with average="all" is FedDyn.
        average: cohort: the corrections of the participants are averaged, as printed, which uploads them; all: those of
            all clients, as the authors' code has it, by the server of FedDyn.

    Returns:
        The method.

    Raises:
        ConfigError: `average` is unknown, or a number breaks its limit.

    Example:
        >>> fedspeed(average="all").server
        DynamicCorrection(lr=1.0, alpha=0.1)
    """
    if average not in ("cohort", "all"):
        raise unknown("average", average, ("cohort", "all"))
    of_cohort = average == "cohort"
    part = UploadedRegulariser(alpha) if of_cohort else DynamicRegulariser(alpha)
    server = CorrectedMean(alpha=alpha) if of_cohort else DynamicCorrection(alpha=alpha)
    local = SharpnessAware(rho=rho)
    return Method("fedspeed", (part,), weighting=Uniform(), server=server, local=local, reference="sun2023speed")
