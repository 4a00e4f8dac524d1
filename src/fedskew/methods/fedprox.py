"""FedProx: a proximal term towards the broadcast model (Li et al. 2020)."""

from dataclasses import dataclass
from typing import Annotated

from fedskew.fields import AtLeast
from fedskew.method import Component, Method
from fedskew.types import Params, View


@dataclass(frozen=True)
class Proximal(Component):
    """The proximal term: a quadratic pull towards the broadcast model.

    L + (mu / 2) ||w - w^t||^2. Its gradient mu (w - w^t) joins the others before momentum.

    Source: Li et al. 2020, equation 2, https://arxiv.org/abs/1812.06127

    Example:
        >>> Proximal(mu=0.1)
        Proximal(mu=0.1)
    """

    name = "proximal"
    mu: Annotated[float, AtLeast(0)] = 0.01
    """coefficient mu"""
    proximal = property(lambda self: self.mu)

    def correct(self, grads: Params, view: View) -> Params:
        """g + mu (w - w^t)."""
        return {n: g + self.mu * (view.params[n] - view.ctx.params[n]) for n, g in grads.items()}


def fedprox(mu: float = 0.01) -> Method:
    """FedProx: FedAvg with a quadratic term that pulls each client towards the model that was sent.

    A larger mu keeps local models nearer to the global one; mu 0 is FedAvg.

    Source: Li et al. 2020, equation 2, https://arxiv.org/abs/1812.06127

    Args:
        mu: Coefficient of the term; 0 is FedAvg.

    Returns:
        The method.

    Example:
        >>> fedprox(0.1).parts
        (CrossEntropy(), Proximal(mu=0.1))
    """
    return Method("fedprox", parts=(Proximal(mu),), reference="li2020")
