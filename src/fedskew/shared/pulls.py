"""Proximal terms that other implementations run under the name FedProx."""

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
    """Proximal terms of other implementations, instead of ``proximal``.

    norm: L + mu sum_t ||w_t - w^t_t||_2 over the tensors t, without the square: a pull of constant size, 0 at w = w^t.
    smooth_l1: L + mu mean_t smooth_l1(w_t, w^t_t), the mean over the entries of a tensor, slope at most 1.

    Source: norm, the code of FedGA, https://github.com/Xiao-Chenguang/FedGA; smooth_l1, that of FedGR,
    https://github.com/Guosy-wxy/FedGR. The FedNova repository adds mu (w - w^t) after momentum and in place, which
    enters the momentum buffer and so equals ``proximal``.

    Example:
        >>> ProximalVariant(mu=0.1, form="smooth_l1")
        ProximalVariant(mu=0.1, form='smooth_l1')
    """

    name = "proximal_variant"

    mu: Annotated[float, AtLeast(0)] = 0.01
    """coefficient mu"""
    form: Literal["norm", "smooth_l1"] = "norm"
    """norm: the FedGA authors' code; smooth_l1: FedRepo's and FedGR's"""

    def correct(self, grads: Params, view: View) -> Params:
        """The gradient plus that of the proximal term."""
        pull = F.proximal_pull(view.params, view.ctx.params, self.mu, self.form)
        return {n: g + pull[n] for n, g in grads.items()}
