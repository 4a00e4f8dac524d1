"""Parts that several methods share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from fedskew import functional as F
from fedskew.fields import AtLeast
from fedskew.method.component import Component, does_no_more
from fedskew.types import Params, View


@dataclass(frozen=True)
class CrossEntropy(Component):
    """Cross-entropy, the default classification loss.

    L = mean_b -log softmax(z_b)[y_b] over the rows b of a mini-batch.

    Example:
        >>> CrossEntropy()
        CrossEntropy()
    """

    name = "cross_entropy"
    classification = True

    @property
    def is_cross_entropy(self) -> bool:
        """True for this loss at its defaults."""
        return does_no_more(self, CrossEntropy)

    def loss(self, view: View) -> Tensor:
        """Mean cross-entropy of the mini-batch, ()."""
        return view.batch.mean(F.cross_entropy(view.out.logits, view.batch.y))


@dataclass(frozen=True)
class DatasetMean(Component):
    """The gradient of a mini-batch's sum, divided by the rows of the client's data set instead of the mini-batch's.

    g <- g |b| / |D_k|: every step is |b| / |D_k| times as long, so an epoch moves about as far as one step on all rows.
    Weight decay and momentum act on the result.

    Source: Seol and Kim 2023, equation 1 as printed, https://doi.org/10.3390/s23031152

    Example:
        >>> DatasetMean()
        DatasetMean(of='owned')
    """

    name = "dataset_mean"
    reference = "seol2023"

    of: Literal["owned", "used"] = "owned"
    """|D_k|: all rows of the client, or those that it trains on in the round"""

    def correct(self, grads: Params, view: View) -> Params:
        """The gradient times |b| / |D_k|."""
        rows = view.ctx.owned if self.of == "owned" else view.ctx.used
        share = view.batch.mask.sum() / rows.sum().clamp(min=1).to(view.batch.mask)
        return {n: g * share.to(g) for n, g in grads.items()}


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
