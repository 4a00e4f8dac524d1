"""FedUV: uniform features and varied outputs, as if the client's rows were IID (Son et al. 2024)."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedskew import functional as F
from fedskew.fields import AtLeast
from fedskew.method import Component, Method
from fedskew.types import View


@dataclass(frozen=True)
class UniformityVariance(Component):
    """Two terms of a mini-batch: features apart from each other, probabilities that vary from row to row.

    L + spread mean_c max(0, 1 / sqrt(C) - std_b softmax(z_b)_c) + uniformity mean_{b < d} exp(-||f_b - f_d||^2 / s),
    s the median of the squared distances, f what enters the classifier.

    Source: Son et al. 2024, https://arxiv.org/abs/2402.18372

    Example:
        >>> UniformityVariance(uniformity=0.0)
        UniformityVariance(spread=2.5, uniformity=0.0)
    """

    name = "uniformity_variance"
    compute = "O(B B F) a step, as much memory"
    reference = "son2024"

    spread: Annotated[float, AtLeast(0)] = 2.5
    """weight of the term on the classifier's outputs; the authors' `std_coeff`"""
    uniformity: Annotated[float, AtLeast(0)] = 0.5
    """weight of the term on the features; the authors' `unif_coeff`"""

    def loss(self, view: View) -> Tensor:
        """Both terms of the mini-batch, ()."""
        mask = view.batch.mask
        apart = F.feature_uniformity(view.out.features, mask)
        return self.spread * F.output_spread(view.out.logits, mask) + self.uniformity * apart


def feduv(spread: float = 2.5, uniformity: float = 0.5) -> Method:
    """FedUV: FedAvg with two terms that keep features apart and probabilities varied within a mini-batch.

    The aim is local training as if the client had all classes.

    Source: Son et al. 2024, https://arxiv.org/abs/2402.18372

    Args:
        spread: Weight of the term on the classifier's outputs.
        uniformity: Weight of the term on the features; with both 0 it is FedAvg.

    Returns:
        The method.

    Example:
        >>> feduv(spread=1.0).parts[1]
        UniformityVariance(spread=1.0, uniformity=0.5)
    """
    return Method("feduv", parts=(UniformityVariance(spread, uniformity),), reference="son2024")
