"""Parts that several methods share."""

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
    """Cross-entropy, the loss of a method that brings no classification loss of its own.

    L = mean_b -log softmax(z_b)[y_b] over the rows b of a mini-batch.

    Example:
        >>> CrossEntropy()
        CrossEntropy()
    """

    name = "cross_entropy"
    classification = True

    def loss(self, view: View) -> Tensor:
        """Mean cross-entropy of the mini-batch, ()."""
        return view.batch.mean(F.cross_entropy(view.out.logits, view.batch.y))
