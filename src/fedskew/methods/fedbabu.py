"""FedBABU: the body trains under a head that does not move (Oh et al. 2022)."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch

from fedskew import functional as F
from fedskew import rng
from fedskew.fields import Above, AtLeast, Within
from fedskew.method import Component, Gradient, Method
from fedskew.method.keeping import Frozen, in_group
from fedskew.types import COSINE_SCALE, Context, Params


@dataclass(frozen=True)
class FineTune(Component):
    """The client's own model: the global model after some epochs on the client's training rows.

    v <- momentum v + g(w);  w <- w - lr v, with the gradient of the mean cross-entropy of mini-batches, in evaluation
    mode; of scaled cosines where the model is served with them, whose scale stands still. It is made for evaluation and
    trains nothing else. Every epoch has its own order of the rows, which is the same for clients of equally many rows.
    With `steps` it is gradient descent on all rows instead.

    Source: Oh et al. 2022, algorithm 1, https://arxiv.org/abs/2106.06042; the mini-batches: the authors' code,
    https://github.com/jhoon-oh/FedBABU, analysis.ipynb, whose rate is 0.001 under momentum 0.9

    Example:
        >>> FineTune(tuned="head")
        FineTune(steps=0, lr=0.01, tuned='head', epochs=5, batch_size=50, momentum=0.0)
    """

    name = "fine_tune"
    version = 2
    compute = "epochs passes over the client's rows, at the evaluation of personal models"

    steps: Annotated[int, AtLeast(0)] = 0
    """steps on all rows of the client in the place of epochs, without momentum; 0: epochs"""
    lr: Annotated[float, Above(0)] = 0.01
    """learning rate of the steps"""
    tuned: Literal["all", "head", "body"] = "all"
    """parameters that these steps train"""
    epochs: Annotated[int, AtLeast(0)] = 5
    """epochs of mini-batches"""
    batch_size: Annotated[int, AtLeast(0)] = 50
    """rows of a mini-batch; 0: all"""
    momentum: Annotated[float, Within(0, 1, "[)")] = 0.0
    """momentum of the epochs' steps, whose buffer begins empty"""

    def personalize(self, params: Params, ctx: Context, gradient: Gradient) -> Params:
        """The parameters after the epochs, or after the steps."""
        trainable = [n for n in params if n != COSINE_SCALE]
        moving = [n for n in trainable if self.tuned == "all" or in_group(n, self.tuned, ctx.task)]
        if self.steps:
            return F.descended(params, gradient, self.lr, self.steps, moving)
        rows = int(ctx.owned.sum())
        orders = [rng.uniform(rng.key(epoch, self.name), (rows,), torch.float64) for epoch in range(self.epochs)]
        batches = [at for order in orders for at in torch.split(order.argsort(stable=True), self.batch_size or rows)]
        return F.fine_tuned(params, lambda p, at: gradient(p, None, at), batches, self.lr, self.momentum, moving)


def fedbabu(epochs: int = 5, lr: float = 0.01, steps: int = 0) -> Method:
    """FedBABU: FedAvg of the body under a classifier that keeps its initial value; fine-tuned for each client.

    The classifier is neither trained nor sent. The global model is the averaged body under the initial classifier.
    Clients count by their rows here and alike in the authors' code: `weighting=Uniform()`, or the preset `authors`.

    Source: Oh et al. 2022, algorithm 1, https://arxiv.org/abs/2106.06042

    Args:
        epochs: Epochs of the fine-tuning, at evaluation.
        lr: Their rate.
        steps: Steps on all rows of a client in the place of epochs.

    Returns:
        The method.

    Example:
        >>> fedbabu().with_("fine_tune", tuned="head").parts[1:]
        (Frozen(names=('head',)), FineTune(steps=0, lr=0.01, tuned='head', epochs=5, batch_size=50, momentum=0.0))
    """
    return Method("fedbabu", parts=(Frozen(), FineTune(steps, lr, epochs=epochs)), reference="oh2022")
