"""FedRS: the restricted softmax for missing classes (Li and Zhan 2021)."""

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from fedskew import functional as F
from fedskew.fields import AtLeast, Within
from fedskew.method import Component, Method
from fedskew.types import View


@dataclass(frozen=True)
class RestrictedSoftmax(Component):
    """Cross-entropy of logits that are scaled down for the classes which the client lacks.

    L = CE(s * z, y) with s_c = 1 for a class with rows and alpha otherwise ("paper"), or s_c = alpha + (1 - alpha) n_c
    / n_max ("code").

    Source: Li and Zhan 2021, https://doi.org/10.1145/3447548.3467254

    Example:
        >>> import torch
        >>> F.fedrs_scale(torch.tensor([30.0, 10.0, 0.0]), 0.5, "paper")
        tensor([1.0000, 1.0000, 0.5000])
    """

    name = "restricted_softmax"
    compute = "O(C) a row"
    classification = True

    alpha: Annotated[float, Within(0, 1)] = 0.5
    """scale of a missing class's logit; 1 is cross-entropy"""
    scaling: Literal["paper", "code"] = "paper"
    """the paper's rule, or the authors' code's soft one"""
    few: Annotated[int, AtLeast(0)] = 0
    """a class with at most this many rows counts as missing; fluke uses 2"""

    def loss(self, view: View) -> Tensor:
        """Mean cross-entropy of the scaled logits, ()."""
        scale = F.fedrs_scale(view.ctx.used.to(view.out.logits), self.alpha, self.scaling, self.few)
        return view.batch.mean(F.cross_entropy(scale * view.out.logits, view.batch.y))


def fedrs(alpha: float = 0.5) -> Method:
    """FedRS: the softmax of a client scales down the logits of classes that it does not have.

    The classifier rows of absent classes then move less; the rule is that of the paper.

    Source: Li and Zhan 2021, https://doi.org/10.1145/3447548.3467254

    Args:
        alpha: Scale of the logit of a missing class, in [0, 1]; 1 is FedAvg.

    Returns:
        The method.

    Example:
        >>> fedrs(0.25).parts[0].alpha
        0.25
    """
    return Method("fedrs", parts=(RestrictedSoftmax(alpha),), reference="li2021rs")
