"""FedVLS: the classes that a client lacks are distilled, and logits of other classes suppressed (Guo et al. 2025)."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedskew import functional as F
from fedskew.fields import AtLeast
from fedskew.method import Component, Method
from fedskew.types import View


@dataclass(frozen=True)
class VacantClasses(Component):
    """Cross-entropy moved by the client's class shares, with vacant-class distillation and logit suppression.

    L = CE(z + log(pi + 1e-9), y) + lam KL(softmax(z^g) || softmax(z)) over the vacant classes
    + suppression sum_c pi_c log mean_b exp(1[y_b != c] (z_bc - log(pi_c + 1e-9) + log(1 / C + 1e-9))),
    pi the shares of the classes in the rows that the client trains on, z^g the logits of the global model.

    Source: Guo et al. 2025, code at https://github.com/krumpguo/FedVLS

    Example:
        >>> VacantClasses(lam=1.0)
        VacantClasses(lam=1.0, suppression=0.005)
    """

    name = "vacant_classes"
    classification = True
    compute = "1 forward pass a step"
    reference = "guo2025"

    lam: Annotated[float, AtLeast(0)] = 0.1
    """weight of the distillation"""
    suppression: Annotated[float, AtLeast(0)] = 0.005
    """weight of the logit suppression"""

    @property
    def needs_two_classes(self) -> bool:
        """A class without rows is lowered by about 20."""
        return True

    def loss(self, view: View) -> Tensor:
        """The three terms of the mini-batch, (); the global model in evaluation mode, no gradient."""
        logits, batch, counts = view.out.logits, view.batch, view.ctx.used
        distilled = F.vacant_distillation(logits, view.teacher().logits, counts == 0)
        suppressed = F.logit_suppression(logits, batch.y, counts, batch.mask)
        classified = batch.mean(F.fedvls_loss(logits, batch.y, counts))
        return classified + self.lam * batch.mean(distilled) + self.suppression * suppressed


def fedvls(lam: float = 0.1, suppression: float = 0.005) -> Method:
    """FedVLS: distillation for classes that a client lacks, and a limit on the logits of absent labels.

    Cross-entropy is shifted by the client's class shares; the weights are those of the authors' example on
    CIFAR-10.

    Source: Guo et al. 2025, code at https://github.com/krumpguo/FedVLS

    Args:
        lam: Weight of the distillation; the default of the authors' parser is 1.
        suppression: Weight of the logit suppression.

    Returns:
        The method.

    Example:
        >>> fedvls(lam=1.0).parts
        (VacantClasses(lam=1.0, suppression=0.005),)
    """
    return Method("fedvls", parts=(VacantClasses(lam, suppression),), reference="guo2025")
