"""FedNTD: distillation of the global model on the classes that are not the row's own (Lee et al. 2022)."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedskew import functional as F
from fedskew.fields import Above, AtLeast
from fedskew.method import Component, Method
from fedskew.types import View


@dataclass(frozen=True)
class NotTrueDistillation(Component):
    """Distillation of the global model over the classes other than the row's own.

    L = beta tau^2 KL(softmax(z_g / tau) || softmax(z / tau)) over the C - 1 classes without y, z_g the logits of the
    global model.

    Source: Lee et al. 2022, https://arxiv.org/abs/2106.03097

    Example:
        >>> import torch
        >>> F.fedntd_loss(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([0]), 1.0)
        tensor([0.4621])
    """

    name = "not_true_distillation"
    compute = "1 forward pass a step"

    beta: Annotated[float, AtLeast(0)] = 1.0
    """weight of the term"""
    tau: Annotated[float, Above(0)] = 1.0
    """temperature"""
    scaled: bool = True
    """keep the factor tau^2; the FedGA authors' copy omits it"""

    def loss(self, view: View) -> Tensor:
        """Mean distillation term of the mini-batch, (); the global model in evaluation mode, no gradient."""
        return self.beta * view.batch.mean(
            F.fedntd_loss(view.out.logits, view.teacher().logits, view.batch.y, self.tau, self.scaled)
        )


def fedntd(beta: float = 1.0, tau: float = 1.0) -> Method:
    """FedNTD: cross-entropy, and distillation of the global model's outputs on all classes but the true one.

    The client keeps what the global model knows of classes that it has few rows of.

    Source: Lee et al. 2022, https://arxiv.org/abs/2106.03097

    Args:
        beta: Weight of the distillation; 0 is FedAvg.
        tau: Temperature, positive.

    Returns:
        The method.

    Example:
        >>> fedntd(beta=0.5).parts[1]
        NotTrueDistillation(beta=0.5, tau=1.0, scaled=True)
    """
    return Method("fedntd", parts=(NotTrueDistillation(beta, tau),), reference="lee2022")
