"""FedNTD: distillation of what the global model says of the not-true classes (Lee et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedskew import functional as F
from fedskew.fields import Above, AtLeast
from fedskew.method import Component, Method
from fedskew.types import View

__all__ = ["NotTrueDistillation", "fedntd"]


@dataclass(frozen=True)
class NotTrueDistillation(Component):
    """beta tau^2 KL( softmax(z_g / tau) || softmax(z / tau) ) over the C - 1 classes that are not the row's own."""

    name = "not_true_distillation"
    compute = "1 forward pass a step"

    beta: Annotated[float, AtLeast(0)] = 1.0
    """weight of the term"""
    tau: Annotated[float, Above(0)] = 1.0
    """temperature"""
    scaled: bool = True
    """keep the factor tau^2; the FedGA authors' copy omits it"""

    def loss(self, view: View) -> Tensor:
        """The global model is evaluated without gradients and in evaluation mode."""
        return self.beta * view.batch.mean(
            F.fedntd_loss(view.out.logits, view.teacher().logits, view.batch.y, self.tau, self.scaled)
        )


def fedntd(beta: float = 1.0, tau: float = 1.0) -> Method:
    """Cross-entropy with not-true distillation; beta 0 is FedAvg."""
    return Method("fedntd", parts=(NotTrueDistillation(beta, tau),), reference="lee2022")
