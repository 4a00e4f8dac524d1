"""Parts that several methods share: losses, terms, and those about the classifier."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew import rng, tree
from fedskew.errors import FieldError
from fedskew.fields import Above, AtLeast, Within, omit_if_default
from fedskew.method.component import Component
from fedskew.types import COSINE_SCALE, Batch, Federation, Output, Params, Task, Tree, View, Width


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
    """Proximal terms of other implementations, instead of `proximal`.

    norm: L + mu sum_t ||w_t - w^t_t||_2 over the tensors t, without the square: a pull of constant size, 0 at w = w^t.
    smooth_l1: L + mu mean_t smooth_l1(w_t, w^t_t), the mean over the entries of a tensor, slope at most 1.

    Source: norm, the code of FedGA, https://github.com/Xiao-Chenguang/FedGA; smooth_l1, that of FedGR,
    https://github.com/Guosy-wxy/FedGR. The FedNova repository adds mu (w - w^t) after momentum and in place, which
    enters the momentum buffer and so equals `proximal`.

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


def mean_gradient(view: View, params: Params) -> Params:
    """The gradient of the mean cross-entropy by some of the parameters, in evaluation mode.

    Args:
        view: The rows and the model.
        params: Those parameters of the model, by name.

    Returns:
        The gradient, shaped as `params`.
    """

    def mean(moved: Params) -> Tensor:
        rows = view.batch
        out, _ = view.forward({**view.params, **moved}, view.buffers, rows.x, rows.mask, train=False, key=view.key)
        return rows.mean(F.cross_entropy(out.logits, rows.y))

    return tree.slope(mean, params)


# The classifier: its initial weight, and logits by directions


if TYPE_CHECKING:
    from fedskew.method.value import Method


@dataclass(frozen=True)
class InitialHead(Component):
    """Initial rows of the classifier, with a bias of 0. Combine it with `Frozen` to keep them.

    simplex: an equiangular tight frame, w_c' w_d = -norm^2 / (C - 1), which needs C - 1 features. orthogonal: w_c' w_d
    = 0, which needs C. Both are turned by a rotation that the seed of the initial weights draws. A sparse simplex has
    floor(sparsity F) zeros in each row, at drawn places; the other entries then move so that the angles, which the
    zeros have narrowed, widen again.

    Source: Li et al. 2023, section 4.1, https://arxiv.org/abs/2303.10058; the zeros: Xiao et al. 2024,
    https://arxiv.org/abs/2401.08977

    Example:
        >>> InitialHead("orthogonal")
        InitialHead(rows='orthogonal', norm=1.0, sparsity=0.0, steps=300)
    """

    name = "initial_head"

    rows: Literal["simplex", "orthogonal"] = "simplex"
    """arrangement of the rows of the weight"""
    norm: Annotated[float, Above(0)] = 1.0
    """length of each row"""
    sparsity: Annotated[float, Within(0, 1, "[)")] = omit_if_default(default=0.0)
    """share of zeros in each row of a simplex"""
    steps: Annotated[int, AtLeast(0)] = omit_if_default(default=300)
    """steps that move the other entries if some are 0"""

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """Raise FieldError where so many classes need more features, and for zeros in orthogonal rows."""
        if self.sparsity and self.rows != "simplex":
            raise FieldError("InitialHead", "sparsity", f"be 0 for {self.rows} rows", self.sparsity)
        needed = task.classes - 1 if self.rows == "simplex" else task.classes
        if task.features < needed:
            rule = f"have at least {needed} features before the classifier, for {task.classes} classes"
            raise FieldError(
                "InitialHead", "rows", rule, task.features, "a wider model, or a projection head, has more"
            )

    def init_model(self, params: Params, task: Task, key: Tensor) -> Params:
        """The weight [C, F], and the bias where there is one."""
        old = params[task.weight]
        weight = _rows(self.rows, self.sparsity, self.steps, task.classes, task.features, int(key))
        bias = {n: torch.zeros_like(params[n]) for n in (task.bias,) if n in params}
        return {task.weight: (self.norm * weight).to(old), **bias}


@lru_cache(maxsize=8)  # the steps take a second for 100 classes
def _rows(kind: str, sparsity: float, steps: int, classes: int, features: int, key: int) -> Tensor:
    """Rows of length 1, [C, F]."""
    spread, drawn = classes - 1 if kind == "simplex" else classes, torch.tensor(key)
    basis = F.orthonormal(rng.normal(drawn, (features, spread), torch.float64))
    weight = F.simplex_head(basis) if kind == "simplex" else basis.T
    if not (zeros := int(sparsity * features)):
        return weight
    order = rng.uniform(rng.fold(drawn, 1), (classes, features)).argsort(dim=1, stable=True)
    kept = torch.ones_like(weight).scatter(1, order[:, :zeros], 0.0)
    start = F.equal_lengths(weight * kept, 0.1)  # a tenth, and the rate, are those of FedLoGe's code
    return F.equal_lengths(F.sparse_frame(start, kept, 0.1, 1e-4, steps), 1.0)


@dataclass(frozen=True)
class CosineSoftmax(Component):
    """Cross-entropy of scaled cosines between features and the classifier's rows, shifted by the client's class counts.

    L = CE(s cos(h, w_c) + tau log n_c, y). A class without rows leaves the softmax unless tau is 0. The bias is not
    used. Where the model is served its logits are s cos(h, w_c), too.

    Source: Li et al. 2023, equation 6, https://arxiv.org/abs/2303.10058

    Example:
        >>> CosineSoftmax(tau=0.0)
        CosineSoftmax(scale=10.0, learnt=True, tau=0.0, projection='linear')
    """

    name = "cosine_softmax"
    version = 3  # projection was 0 by default
    classification = True

    scale: Annotated[float, Above(0)] = 10.0
    """initial scale s, an inverse temperature; the authors' code has 10 or 1 by network"""
    learnt: bool = True
    """train s as a parameter and average it"""
    tau: Annotated[float, AtLeast(0)] = 1.0
    """strength of the shift; 1 is the balanced softmax, 0 has none"""
    projection: Annotated[int, AtLeast(0)] | Literal["linear"] = "linear"
    """projection head in front of the classifier, unless the model sets it: linear, one layer of C features as in most
    networks of the authors' code; a number: two layers of that width; 0: none"""

    @property
    def projects(self) -> Width:
        """The head that it wants in the network."""
        return self.projection

    @property
    def needs_two_classes(self) -> bool:
        """A class without rows is left out."""
        return self.tau != 0

    def init_params(self, params: Params, task: Task, key: Tensor) -> Params:
        """{"cosine_softmax.scale": ()} where it is learnt."""
        return {f"{self.name}.scale": params[task.weight].new_tensor(self.scale)} if self.learnt else {}

    def loss(self, view: View) -> Tensor:
        """Mean cross-entropy, ()."""
        return view.batch.mean(self._rows(view.params, view.out, view.batch, view.ctx.task, view.ctx.used))

    def serve(self, params: Params, state: Tree, task: Task) -> Params:
        """The model with rows of length 1, whose logits are s cos(h, w_c)."""
        weight = params[task.weight]
        rows = weight / torch.linalg.vector_norm(weight, dim=1, keepdim=True).clamp(min=1e-12)
        return {**params, task.weight: rows, COSINE_SCALE: torch.as_tensor(self._scale(params)).to(weight)}

    def _scale(self, params: Params) -> Tensor | float:
        return params[f"{self.name}.scale"] if self.learnt else self.scale

    def _rows(self, params: Params, out: Output, batch: Batch, task: Task, counts: Tensor) -> Tensor:
        """Loss of each row, [B]."""
        logits = self._scale(params) * F.cosine_logits(out.features, params[task.weight])
        return F.logit_adjusted_loss(logits, batch.y, counts, self.tau)
