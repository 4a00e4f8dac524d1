"""FedDecorr: the features of a mini-batch are kept from collapsing on few dimensions (Shi et al. 2023)."""

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from fedskew import functional as F
from fedskew.fields import Above, AtLeast, omit_if_default
from fedskew.method import Component, Method
from fedskew.types import View


@dataclass(frozen=True)
class Decorrelation(Component):
    """Decorrelation of the features that enter the classifier, over the rows of a mini-batch.

    L + beta sum_{i != j} (z^T z)_ij^2 / (F (F - 1) B) with z the features standardised over the B rows; or
    L + beta ||K||_F^2 / F^2 with K their correlation matrix. A mini-batch of one row adds nothing. A model without a
    hidden layer has no features to train. A feature whose variance is below eps counts less; one at about eps has a
    gradient of the order of 1 / sqrt(eps), which makes differences of rounding grow.

    Source: Shi et al. 2023, https://arxiv.org/abs/2210.00226

    Example:
        >>> Decorrelation(beta=0.2)
        Decorrelation(beta=0.2, form='code', eps=1e-08)
    """

    name = "decorrelation"
    compute = "O(B F F) a step"
    reference = "shi2023"

    beta: Annotated[float, AtLeast(0)] = 0.1
    """weight of the term"""
    form: Literal["code", "printed"] = "code"
    """code: products of standardised features, without the diagonal, over the rows; printed: the correlation matrix"""
    eps: Annotated[float, Above(0)] = omit_if_default(default=1e-8)
    """added to the variance of each feature; at the authors' 1e-8 rounding grows in features that are nearly dead, and
    1e-3 prevents it"""

    def loss(self, view: View) -> Tensor:
        """beta times the term of the mini-batch, ()."""
        return self.beta * F.feature_correlation(view.out.features, view.batch.mask, self.form, self.eps)


def feddecorr(beta: float = 0.1) -> Method:
    """FedDecorr: FedAvg with a term that decorrelates the features which enter the classifier.

    It works against features that collapse to few dimensions when a client has few classes.

    Source: Shi et al. 2023, https://arxiv.org/abs/2210.00226

    Args:
        beta: Weight of the term; 0 is FedAvg.

    Returns:
        The method.

    Example:
        >>> feddecorr(beta=0.2).parts[1].beta
        0.2
    """
    return Method("feddecorr", parts=(Decorrelation(beta),), reference="shi2023")
