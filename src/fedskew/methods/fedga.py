"""FedGA: targets that align the gradients of classes with unequal counts (Xiao et al. 2024)."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fedskew import functional as F
from fedskew.fields import demand, omit_if_default
from fedskew.method import Component, Method, Uniform
from fedskew.types import Federation, Task, View


@dataclass(frozen=True)
class CalibratedTargets(Component):
    """Cross-entropy with soft targets that compensate for unequal class counts.

    q_y = 1 and q_i = (N_y - N_i) / N_y * p_i for i != y, with N the counts of the mini-batch and p detached. The paper
    has the mean p over the rows of the class y (equation 10), the authors' code the row's own.
    softce (the authors' code): L = -sum_i q_i log p_i. exact (the derivation): L = logsumexp(z) - sum_i q_i z_i.
    binary: BCE of s = z_1 - z_0 with targets that shrink the residual of the larger class to N_small / N_large.

    The method wants the error asymmetry (EA) to be 1. The default does not bring it there: softce overshoots. On
    digits 0 and 6 with ten times as many of the first, EA of the training rows ends at 9.65 under cross-entropy, 0.25
    under softce, 1.13 under exact and 0.97 under binary (logistic regression, mean of 3 seeds, 2026-11-22, Intel Xeon,
    `python benchmarks/accuracy/error_asymmetry.py` of commit 570629fc).

    Source: Xiao et al. 2024, equation 10 and algorithm 1, code at https://github.com/Xiao-Chenguang/FedGA

    Example:
        >>> CalibratedTargets(form="exact")
        CalibratedTargets(form='exact', count_scope='batch', probability='row')
    """

    name = "calibrated_targets"
    compute = "O(B C) a mini-batch"
    classification = True

    form: Literal["softce", "exact", "binary"] = "softce"
    """loss with the calibrated targets: softce, the authors' code, does not bring error asymmetry to 1, exact nearly
    does; binary is the paper's sigmoid study with two classes"""
    count_scope: Literal["batch", "client"] = "batch"
    """source of the counts N: the mini-batch or the client"""
    probability: Literal["row", "class"] = omit_if_default(default="row")
    """p of the targets: the row's own, as in the authors' code, or its mean over the mini-batch's rows of the label, as
    in equation 10"""

    def loss(self, view: View) -> Tensor:
        """Mean loss of the mini-batch with the calibrated targets, ()."""
        logits, batch = view.out.logits, view.batch
        counts = view.ctx.used.to(logits.dtype)
        if self.count_scope == "batch":
            counts = F.class_counts(batch.y, logits.shape[-1], batch.mask)
        if self.form == "binary":
            return batch.mean(F.fedga_binary_loss(logits, batch.y, counts))
        return batch.mean(F.fedga_loss(logits, batch.y, counts, batch.mask, self.form, self.probability))

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """The binary form has one output, which tells two classes apart, and takes each row's own probability."""
        two = self.form != "binary" or task.classes == 2
        demand(self, "form", two, f"be softce or exact for {task.classes} classes")
        demand(self, "probability", self.form != "binary" or self.probability == "row", "be row for the form binary")


def fedga(form: Literal["softce", "exact", "binary"] = "softce") -> Method:
    """FedGA: cross-entropy with targets that balance the errors of a client's classes; clients count equally.

    Each mini-batch makes the targets from its class counts, so nothing more leaves the client.

    The uniform mean is that of the authors' code. Their protocol also clips gradients at norm 5:
    `fedga().with_("local", clip=5.0)`. The default loss is that of their code. It does not bring error asymmetry to
    1, as the derivation wants; `fedga("exact")` nearly does.

    Source: FedGA, code at https://github.com/Xiao-Chenguang/FedGA

    Args:
        form: The loss: "softce" as in the code, "exact" as derived, "binary" for two classes.

    Returns:
        The method.

    Example:
        >>> fedga("exact").with_("local", clip=5.0).local.clip
        5.0
    """
    return Method("fedga", parts=(CalibratedTargets(form),), weighting=Uniform(), reference="fedga")
