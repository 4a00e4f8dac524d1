"""Classifier re-training on federated features (CReFF): gradients at the clients, features and head at the server."""

from __future__ import annotations

import torch
from torch import Tensor

from fedskew.functional._numeric import is_label, nonzero, unit
from fedskew.functional.losses import cross_entropy

__all__ = ["creff_head", "creff_head_gradients", "creff_match", "creff_synthesize", "rows_per_class"]


def rows_per_class(labels: Tensor, draws: Tensor, most: int, classes: int) -> Tensor:
    """At most ``most`` rows of every class, those with the smallest ``draws`` [B] (uniform numbers): mask [B]."""
    order = draws.argsort()
    grouped = order[labels[order].argsort(stable=True)]
    counts = is_label(labels, classes).sum(0)
    starts = counts.cumsum(0) - counts
    rank = torch.arange(len(labels), device=labels.device) - starts[labels[grouped]]
    return torch.zeros_like(draws).index_copy(0, grouped, (rank < most).to(draws))


def creff_head_gradients(features: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, mask: Tensor) -> Tensor:
    """Gradient of each class's mean cross-entropy by the classifier's weight, [C, C, F]; zeros without rows.

    features [B, F], weight [C, F], labels [B], mask [B]. g_c = mean_{b: y_b = c} (softmax(W f_b) - e_c) f_b^T.
    Source: CReFF, equation 4.
    """
    truth = is_label(labels, len(weight)).to(features)
    error = torch.nn.functional.linear(features, weight, bias).softmax(-1) - truth
    share = truth * mask.unsqueeze(1)
    share = share / nonzero(share.sum(0))
    return torch.einsum("bc,bd,bf->cdf", share, error, features)


def creff_match(synthetic: Tensor, real: Tensor, present: Tensor, eps: float = 0.0) -> Tensor:
    """Sum over present classes and over rows of 1 - cos(synthetic, real), (); cosines along the last axis.

    synthetic, real [C, F] or [C, R, F] (the gradient of a head with R rows), present [C] mask. ``eps`` is added to the
    product of the norms: the code has 1e-6. A zero row has cosine 0. Source: CReFF, gradient matching.
    """
    norms = torch.linalg.vector_norm(synthetic, dim=-1) * torch.linalg.vector_norm(real, dim=-1)
    shrink = norms / nonzero(norms + eps) if eps else 1.0
    distance = 1 - (unit(synthetic) * unit(real)).sum(-1) * shrink
    weight = present.to(distance.dtype).reshape(-1, *[1] * (distance.dim() - 1))
    return (distance * weight).sum()


def _gradients_of(synthetic: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Classifier gradient of each class's synthetic features [C, n, F]: [C, C, F]."""
    truth = torch.eye(len(weight), dtype=synthetic.dtype, device=synthetic.device).unsqueeze(1)
    error = torch.nn.functional.linear(synthetic, weight, bias).softmax(-1) - truth
    return torch.einsum("cnd,cnf->cdf", error, synthetic) / synthetic.shape[1]


def creff_synthesize(
    synthetic: Tensor, weight: Tensor, bias: Tensor | None, real: Tensor, present: Tensor, steps: int, lr: float
) -> Tensor:
    """Features [C, n, F] after ``steps`` of gradient descent on sum_c sum_rows (1 - cos(g_c^syn, g_c)).

    weight [C, F] and bias [C] are the head at which the real gradients [C, C, F] were taken; classes with ``present`` 0
    do not count. Source: CReFF, equation 6.
    """
    for _ in range(steps):
        with torch.enable_grad():
            leaf = synthetic.detach().requires_grad_()
            loss = creff_match(_gradients_of(leaf, weight, bias), real, present, eps=1e-6)
            (grad,) = torch.autograd.grad(loss, leaf)
        synthetic = synthetic - lr * grad
    return synthetic.detach()


def creff_head(
    synthetic: Tensor, weight: Tensor, bias: Tensor | None, epochs: int, lr: float
) -> tuple[Tensor, Tensor | None]:
    """(weight, bias) of a linear head trained on the features [C, n, F] by full-batch descent from ``weight``."""
    features = synthetic.flatten(0, 1)
    labels = torch.arange(len(synthetic), device=synthetic.device).repeat_interleave(synthetic.shape[1])
    heads = [weight] if bias is None else [weight, bias]
    for _ in range(epochs):
        with torch.enable_grad():
            leaves = [h.detach().requires_grad_() for h in heads]
            loss = cross_entropy(torch.nn.functional.linear(features, *leaves), labels).mean()
            grads = torch.autograd.grad(loss, leaves)
        heads = [h - lr * g for h, g in zip(heads, grads, strict=True)]
    return heads[0].detach(), heads[1].detach() if len(heads) > 1 else None
