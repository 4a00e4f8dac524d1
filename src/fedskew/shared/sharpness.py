"""Sharpness-aware local steps: the gradient comes from a perturbed point."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from torch import Tensor

from fedskew import functional as F
from fedskew import tree
from fedskew.fields import AtLeast, Within
from fedskew.shared.steps import SGD
from fedskew.types import Carry, Context, Differentiate, Params, Raw

__all__ = ["SharpnessAware"]


@dataclass(frozen=True)
class SharpnessAware(SGD):
    """A step of SGD along the gradient at a perturbed point, on the same mini-batch.

    e = rho g(w) / ||g(w)||_2, then g <- (1 - alpha) g(w) + alpha g(w + e) in the place of g(w). The perturbation
    follows the loss terms alone; corrections of the gradient, clipping, weight decay and momentum come after, and act
    at w. BatchNorm statistics are those of the pass at w. ``adaptive`` scales e with the parameters:
    e = rho w^2 g / ||w g||_2. ``normalised`` False takes e = rho g.

    Source: Foret et al. 2021, equations 2 and 3, https://arxiv.org/abs/2010.01412

    Example:
        >>> SharpnessAware(rho=0.05).alpha
        1.0
    """

    name = "sam"
    compute = "2 gradients a step"
    reference = "foret2021"

    rho: Annotated[float, AtLeast(0)] = 0.1
    """length rho of the perturbation, in units of the parameters; 0 is SGD"""
    alpha: Annotated[float, Within(0, 1)] = 1.0
    """share of the gradient at the perturbed point; 0 is SGD"""
    adaptive: bool = False
    """perturb each parameter in proportion to its square (ASAM)"""
    normalised: bool = True
    """divide the perturbation by the norm of the gradient; False: e = rho g, or rho w^2 g"""

    def step(self, carry: Carry, ctx: Context, differentiate: Differentiate) -> tuple[Carry, Tensor]:
        """One step on one mini-batch, with two gradients."""
        return super().step(carry, ctx, partial(differentiate, rule=self._gradient))

    def _gradient(self, raw: Raw, w: Params) -> tuple[Params, Tensor, Any]:
        """((1 - alpha) g(w) + alpha g(w + e), the loss and the forward pass at w)."""
        first, loss, seen = raw(w)
        second, _, _ = raw(tree.add(w, self._ascent(first, w)))
        return self._mixed(first, second), loss, seen

    def _ascent(self, grads: Params, w: Params) -> Params:
        """e."""
        if self.normalised:
            return F.sam_ascent(grads, self.rho, w if self.adaptive else None)
        scale = {n: w[n].square() for n in grads} if self.adaptive else dict.fromkeys(grads, 1.0)
        return {n: self.rho * scale[n] * g for n, g in grads.items()}

    def _mixed(self, first: Params, second: Params) -> Params:
        if self.alpha == 1:
            return second
        return {n: (1 - self.alpha) * first[n] + self.alpha * g for n, g in second.items()}
