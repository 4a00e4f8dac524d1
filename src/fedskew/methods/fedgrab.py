"""Fed-GraB: binary losses whose positive and negative gradients a controller balances (Xiao et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedskew import functional as F
from fedskew.method import Component, Method
from fedskew.tree import Tree
from fedskew.types import Params, Task, View

__all__ = ["GradientBalancer", "fedgrab"]


@dataclass(frozen=True)
class GradientBalancer(Component):
    """Binary cross-entropy of each class, with weights that a PID controller sets for positive and negative rows.

    L = mean_b sum_c w_c BCE_c with w_c = f(u_c) for the row's own class and f(-u_c) for the others, f(x) = (10/9) /
    (1/9 + e^(-x/2)). u_c follows an incremental PID controller on the error -(P_c - N_c), P_c and N_c the accumulated
    sizes of positive and negative gradients of class c. Gains of 0 give plain BCE.

    Source: Xiao et al. 2023, https://arxiv.org/abs/2310.07587

    Example:
        >>> F.fedgrab_map(torch.tensor([-2.0, 0.0, 2.0]))
        tensor([0.3927, 1.0000, 2.3197])
    """

    name = "gradient_balancer"
    keeps = "5 C on every client"
    compute = "O(C) a row"
    classification = True

    kp: float = 10.0
    """proportional gain"""
    ki: float = 0.01
    """integral gain"""
    kd: float = 0.1
    """derivative gain"""

    def init_client(self, params: Params, buffers: Params, task: Task) -> Tree:
        """Zeros [C] for every class: both accumulators, the last two errors and the output u."""
        zero = torch.zeros(task.classes, dtype=params[task.weight].dtype, device=params[task.weight].device)
        return dict.fromkeys(("positive", "negative", "earlier", "previous", "u"), zero)

    def loss(self, view: View) -> torch.Tensor:
        """Mean weighted binary cross-entropy of the mini-batch, ()."""
        u = view.memory[self.name]["u"]
        return view.batch.mean(F.weighted_bce(view.out.logits, view.batch.y, F.fedgrab_map(u), F.fedgrab_map(-u)))

    def learn(self, view: View) -> Tree:
        """The accumulators with the gradients of this mini-batch, and one step of the controller."""
        own = view.memory[self.name]
        truth = view.batch.y.unsqueeze(1) == torch.arange(view.ctx.task.classes, device=view.batch.y.device)
        size = (view.out.logits.sigmoid() - truth.to(view.out.logits)).abs() * view.batch.mask.unsqueeze(1)
        size = size / view.batch.mask.sum().clamp(min=1)
        positive = own["positive"] + F.fedgrab_map(own["u"]) * (size * truth).sum(0)
        negative = own["negative"] + F.fedgrab_map(-own["u"]) * (size * ~truth).sum(0)
        error = negative - positive
        rise, earlier, previous = F.fedgrab_pid(error, own["earlier"], own["previous"], self.kp, self.ki, self.kd)
        return {
            "positive": positive,
            "negative": negative,
            "earlier": earlier,
            "previous": previous,
            "u": own["u"] + rise,
        }


def fedgrab() -> Method:
    """Fed-GraB with every class under control, as in the released code.

    Source: Xiao et al. 2023, https://arxiv.org/abs/2310.07587

    Returns:
        The method.

    Example:
        >>> fedgrab().parts
        (GradientBalancer(kp=10.0, ki=0.01, kd=0.1),)
    """
    return Method("fedgrab", parts=(GradientBalancer(),), reference="xiao2023")
