"""Parts that two or more methods share."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedskew import functional as F
from fedskew.component import Component
from fedskew.shared.pulls import ProximalVariant
from fedskew.types import View

__all__ = ["CrossEntropy", "ProximalVariant"]


@dataclass(frozen=True)
class CrossEntropy(Component):
    """L = mean_b -log softmax(z_b)[y_b], the classification loss of a method that brings none."""

    name = "cross_entropy"
    classification = True

    def loss(self, view: View) -> Tensor:
        """See the class."""
        return view.batch.mean(F.cross_entropy(view.out.logits, view.batch.y))
