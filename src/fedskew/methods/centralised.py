"""Losses of centralised imbalanced learning, as parts: class-balanced loss and LDAM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew.fields import Within
from fedskew.method import Component
from fedskew.tree import Tree
from fedskew.types import Params, Task, View

__all__ = ["LDAM", "ClassBalancedLoss"]


@dataclass(frozen=True)
class ClassBalancedLoss(Component):
    """CE weighted by (1 - beta) / (1 - beta^n_y), scaled to sum to the number of owned classes (Cui et al. 2019)."""

    name = "class_balanced_loss"
    classification = True
    reference = "cui2019"

    beta: Annotated[float, Within(0, 1, "[)")] = 0.9999
    """0 is cross-entropy"""

    def loss(self, view: View) -> Tensor:
        """See the class."""
        weights = F.class_balanced_weights(view.ctx.used, self.beta)
        return view.batch.mean(F.weighted_cross_entropy(view.out.logits, view.batch.y, weights))


@dataclass(frozen=True)
class LDAM(Component):
    """CE of s (cos(f, u_c) - Delta_y [c = y]), Delta_c = margin (n_min / n_c)^(1/4) (Cao et al. 2019).

    The served classifier has normalised rows and no bias, so that it ranks by the same cosines.
    """

    name = "ldam"
    classification = True
    reference = "cao2019"

    margin: float = 0.5
    """the largest margin"""
    scale: float = 30.0
    """s"""

    def loss(self, view: View) -> Tensor:
        """See the class."""
        cosines = F.cosine_logits(view.out.features, view.params[view.ctx.task.weight])
        margins = F.ldam_margins(view.ctx.used.to(cosines), self.margin)
        return view.batch.mean(F.cross_entropy(F.ldam_logits(cosines, view.batch.y, margins, self.scale), view.batch.y))

    def serve(self, params: Params, state: Tree, task: Task) -> Params:
        """Rows of length one, bias zero."""
        head = {task.weight: torch.nn.functional.normalize(params[task.weight], dim=1)}
        bias = {n: torch.zeros_like(params[n]) for n in (task.bias,) if n in params}
        return {**params, **head, **bias}
