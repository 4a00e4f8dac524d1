"""FedGA: gradient alignment by label calibration (Xiao et al.)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from fedskew import functional as F
from fedskew.fields import demand
from fedskew.method import Component, Method
from fedskew.shared import Uniform
from fedskew.types import Task, View

if TYPE_CHECKING:
    from fedskew.data.federation import Federation

__all__ = ["CalibratedTargets", "fedga"]


@dataclass(frozen=True)
class CalibratedTargets(Component):
    """Targets q_y = 1, q_i = (N_y - N_i) / N_y * p_i with the counts N of the mini-batch; p is detached.

    softce (the authors' code): -sum_i q_i log p_i.  exact (the derivation): logsumexp(z) - sum_i q_i z_i.
    binary: BCE of s = z_1 - z_0, targets that shrink the larger class's residual to N_small / N_large.
    """

    name = "calibrated_targets"
    compute = "O(B C) a mini-batch"
    classification = True

    form: Literal["softce", "exact", "binary"] = "softce"
    """the loss under the calibrated targets; binary is the paper's sigmoid study, of two classes"""
    count_scope: Literal["batch", "client"] = "batch"
    """whose counts N are: the mini-batch's or the client's"""

    def loss(self, view: View) -> Tensor:
        """See the class."""
        logits, batch = view.out.logits, view.batch
        counts = view.ctx.used.to(logits.dtype)
        if self.count_scope == "batch":
            counts = F.class_counts(batch.y, logits.shape[-1], batch.mask)
        if self.form == "binary":
            return batch.mean(F.fedga_binary_loss(logits, batch.y, counts))
        return batch.mean(F.fedga_loss(logits, batch.y, counts, batch.mask, self.form))

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """One sigmoid output tells two classes apart."""
        two = self.form != "binary" or task.classes == 2
        demand(self, "form", two, f"be softce or exact for {task.classes} classes")


def fedga(form: Literal["softce", "exact", "binary"] = "softce") -> Method:
    """FedGA under the uniform mean that the authors' code takes; ``--clip 5`` belongs to their protocol."""
    return Method("fedga", parts=(CalibratedTargets(form),), weighting=Uniform(), reference="fedga")
