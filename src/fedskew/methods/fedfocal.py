"""Fed-Focal: focal loss under federated averaging (Sarkar et al. 2020; no public code)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedskew import functional as F
from fedskew.fields import Above, AtLeast
from fedskew.method import Component, Method
from fedskew.types import View

__all__ = ["Focal", "fedfocal"]


@dataclass(frozen=True)
class Focal(Component):
    """-alpha (1 - p_y)^gamma log p_y, the factor not detached; gamma 0 and alpha 1 is cross-entropy."""

    name = "focal"
    classification = True

    gamma: Annotated[float, AtLeast(0)] = 2.0
    """focusing exponent"""
    alpha: Annotated[float, Above(0)] = 1.0
    """weight of the loss"""

    def loss(self, view: View) -> Tensor:
        """See the class."""
        return view.batch.mean(F.focal_loss(view.out.logits, view.batch.y, self.gamma, self.alpha))


def fedfocal(gamma: float = 2.0) -> Method:
    """Focal loss + FedAvg; the paper's tunable sampling is ``--selector power_of_choice`` or another selector."""
    return Method("fedfocal", parts=(Focal(gamma),), reference="sarkar2020")
