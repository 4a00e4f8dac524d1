"""FedBABU: the body trains under a head that does not move (Oh et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fedskew import functional as F
from fedskew.fields import Above, AtLeast
from fedskew.method import Component, Gradient, Method
from fedskew.shared.keeping import Frozen, in_group
from fedskew.types import Context, Params

__all__ = ["FineTune", "fedbabu"]


@dataclass(frozen=True)
class FineTune(Component):
    """The client's own model: the global model after some steps on the client's training rows.

    w <- w - lr g(w), with the gradient of the mean cross-entropy over all of the client's rows, in evaluation mode. It
    is made for evaluation and trains nothing else. The paper takes epochs of mini-batches.

    Source: Oh et al. 2022, algorithm 1, https://arxiv.org/abs/2106.06042

    Example:
        >>> FineTune(tuned="head")
        FineTune(steps=5, lr=0.1, tuned='head')
    """

    name = "fine_tune"
    compute = "steps passes over the client's rows, at the evaluation of personal models"

    steps: Annotated[int, AtLeast(0)] = 5
    """steps on all rows of the client"""
    lr: Annotated[float, Above(0)] = 0.1
    """learning rate of these steps"""
    tuned: Literal["all", "head", "body"] = "all"
    """parameters that these steps train"""

    def personalize(self, params: Params, ctx: Context, gradient: Gradient) -> Params:
        """The parameters after the steps."""
        moving = [n for n in params if self.tuned == "all" or in_group(n, self.tuned, ctx.task)]
        return F.descended(params, gradient, self.lr, self.steps, moving)


def fedbabu(steps: int = 5, lr: float = 0.1) -> Method:
    """FedBABU: FedAvg of the body under a classifier that keeps its initial value; fine-tuned for each client.

    The classifier is neither trained nor sent. The global model is the averaged body under the initial classifier.

    Source: Oh et al. 2022, algorithm 1, https://arxiv.org/abs/2106.06042

    Args:
        steps: Steps of the fine-tuning, at evaluation.
        lr: Their rate.

    Returns:
        The method.

    Example:
        >>> fedbabu().with_("fine_tune", tuned="head").parts[1:]
        (Frozen(names=('head',)), FineTune(steps=5, lr=0.1, tuned='head'))
    """
    return Method("fedbabu", parts=(Frozen(), FineTune(steps, lr)), reference="oh2022")
