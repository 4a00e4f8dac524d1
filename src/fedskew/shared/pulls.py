"""Pulls towards the broadcast model that other authors' code runs under the name FedProx."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fedskew import functional as F
from fedskew.component import Component
from fedskew.fields import AtLeast
from fedskew.types import Params, View

__all__ = ["ProximalVariant"]


@dataclass(frozen=True)
class ProximalVariant(Component):
    """L + mu sum_t ||w_t - w^t_t||_2 over the tensors t ("norm"), or L + mu mean_t smooth_l1(w_t, w^t_t) ("smooth_l1").

    Stand-ins of `proximal`: `fedskew run fedprox --parts proximal_variant`. The norm is not squared: a pull of constant
    size, 0 where it has no direction. smooth_l1 is the mean over a tensor's entries, slope clipped to 1. The FedNova
    repository adds mu (w - w^t) after momentum, in place: that enters the buffer and equals `proximal`.
    """

    name = "proximal_variant"

    mu: Annotated[float, AtLeast(0)] = 0.01
    """coefficient mu"""
    form: Literal["norm", "smooth_l1"] = "norm"
    """norm: the FedGA authors' code; smooth_l1: FedRepo's and FedGR's"""

    def correct(self, grads: Params, view: View) -> Params:
        """g + the gradient of the term."""
        pull = F.proximal_pull(view.params, view.ctx.params, self.mu, self.form)
        return {n: g + pull[n] for n, g in grads.items()}
