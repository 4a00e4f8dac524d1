"""Fed-Focal: the focal loss at the clients (Sarkar et al. 2020)."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedskew import functional as F
from fedskew.fields import Above, AtLeast
from fedskew.method import Component, Method
from fedskew.types import View


@dataclass(frozen=True)
class Focal(Component):
    """The focal loss: cross-entropy with less weight on rows that are classified well.

    L = mean_b -alpha (1 - p_y)^gamma log p_y. The factor is not detached. gamma = 0 and alpha = 1 is cross-entropy.

    Source: Sarkar et al. 2020, https://arxiv.org/abs/2011.06283

    Example:
        >>> import torch
        >>> F.focal_loss(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]), gamma=2.0, alpha=1.0)
        tensor([0.0457])
    """

    name = "focal"
    classification = True

    gamma: Annotated[float, AtLeast(0)] = 2.0
    """focusing exponent"""
    alpha: Annotated[float, Above(0)] = 1.0
    """weight of the loss"""

    def loss(self, view: View) -> Tensor:
        """Mean focal loss of the mini-batch, ()."""
        return view.batch.mean(F.focal_loss(view.out.logits, view.batch.y, self.gamma, self.alpha))


def fedfocal(gamma: float = 2.0) -> Method:
    """FedFocal: FedAvg with the focal loss.

    Rows that the model already classifies well count less, so that hard and rare ones count more.

    The paper also samples clients; a selector such as `power_of_choice` takes that place.

    Source: Sarkar et al. 2020, https://arxiv.org/abs/2011.06283

    Args:
        gamma: Focusing exponent; 0 is cross-entropy.

    Returns:
        The method.

    Example:
        >>> fedfocal(gamma=1.0).parts
        (Focal(gamma=1.0, alpha=1.0),)
    """
    return Method("fedfocal", parts=(Focal(gamma),), reference="sarkar2020")
