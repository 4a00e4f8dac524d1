"""FedProx: a quadratic pull towards the broadcast model (Li et al. 2020)."""

from dataclasses import dataclass
from typing import Annotated

from fedskew.fields import AtLeast
from fedskew.method import Component, Method
from fedskew.types import Params, View


@dataclass(frozen=True)
class Proximal(Component):
    """L + (mu/2) ||w - w^t||^2: its gradient mu (w - w^t) joins the others before momentum."""

    name = "proximal"
    mu: Annotated[float, AtLeast(0)] = 0.01
    """coefficient mu"""
    proximal = property(lambda self: self.mu)

    def correct(self, grads: Params, view: View) -> Params:
        """g + mu (w - w^t)."""
        return {n: g + self.mu * (view.params[n] - view.ctx.params[n]) for n, g in grads.items()}


def fedprox(mu: float = 0.01) -> Method:
    """FedAvg with the proximal term; mu = 0 is FedAvg."""
    return Method("fedprox", parts=(Proximal(mu),), reference="li2020")
