"""Losses of centralised imbalanced learning, as parts: the class-balanced loss and LDAM."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew.fields import Within
from fedskew.method import Component
from fedskew.types import Params, Task, Tree, View


@dataclass(frozen=True)
class ClassBalancedLoss(Component):
    """Cross-entropy weighted by the effective number of rows of the class.

    L = mean_b w_y CE_b with w_c in proportion to (1 - beta) / (1 - beta^n_c) over the client's classes; the weights sum
    to the number of these classes.

    Source: Cui et al. 2019, https://arxiv.org/abs/1901.05555

    Example:
        >>> F.class_balanced_weights(torch.tensor([1.0, 2.0]), beta=0.9)
        tensor([1.3103, 0.6897], dtype=torch.float64)
    """

    name = "class_balanced_loss"
    classification = True
    reference = "cui2019"

    beta: Annotated[float, Within(0, 1, "[)")] = 0.9999
    """0 is cross-entropy"""

    def loss(self, view: View) -> Tensor:
        """Mean weighted cross-entropy of the mini-batch, ()."""
        weights = F.class_balanced_weights(view.ctx.used, self.beta)
        return view.batch.mean(F.weighted_cross_entropy(view.out.logits, view.batch.y, weights))


@dataclass(frozen=True)
class LDAM(Component):
    """Cross-entropy of scaled cosines with a larger margin for rarer classes (LDAM).

    L = CE(s (cos(f, u_c) - Delta_c [c = y])) with Delta_c = margin (n_min / n_c)^(1/4), f the features and u_c row c of
    the classifier. The served classifier has rows of length 1 and no bias, so that it ranks by the same cosines.

    Source: Cao et al. 2019, https://arxiv.org/abs/1906.07413

    Example:
        >>> F.ldam_margins(torch.tensor([16.0, 1.0]), 0.5)
        tensor([0.2500, 0.5000])
    """

    name = "ldam"
    classification = True
    reference = "cao2019"

    margin: float = 0.5
    """the largest margin"""
    scale: float = 30.0
    """s"""

    def loss(self, view: View) -> Tensor:
        """Mean cross-entropy of the scaled cosines with margins, ()."""
        cosines = F.cosine_logits(view.out.features, view.params[view.ctx.task.weight])
        margins = F.ldam_margins(view.ctx.used.to(cosines), self.margin)
        return view.batch.mean(F.cross_entropy(F.ldam_logits(cosines, view.batch.y, margins, self.scale), view.batch.y))

    def serve(self, params: Params, state: Tree, task: Task) -> Params:
        """The parameters with classifier rows of length 1 and bias 0."""
        head = {task.weight: torch.nn.functional.normalize(params[task.weight], dim=1)}
        bias = {n: torch.zeros_like(params[n]) for n in (task.bias,) if n in params}
        return {**params, **head, **bias}
