"""Regularisers of the local objective."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedskew.functional._numeric import choose, cosine, is_label, nonzero
from fedskew.tree import Params

__all__ = ["fedntd_loss", "moon_contrastive", "proximal", "proximal_pull"]


def proximal(params: Params, anchor: Params, mu: Tensor | float) -> Tensor:
    """(mu / 2) ||w - x||^2 over the parameters of two dicts of one structure, (). Source: FedProx."""
    squares = [(params[name] - anchor[name]).square().sum() for name in params]
    return 0.5 * mu * torch.stack(squares).sum()


def proximal_pull(
    params: Params, anchor: Params, mu: Tensor | float, form: Literal["norm", "smooth_l1"] = "norm"
) -> Params:
    """Gradient of what others run as FedProx's term, shaped as ``params``; `proximal` itself has mu (w - x).

    "norm", of mu sum_t ||w_t - x_t||_2 over the tensors t: mu (w - x) / ||w - x||, 0 at w = x (the FedGA authors).
    "smooth_l1", of mu mean_t mean_i huber(w_ti - x_ti): mu clip(w - x, -1, 1) / (entries * tensors) (FedRepo, FedGR).
    Raises ConfigError for another ``form``.
    """
    choose("form", form, ("norm", "smooth_l1"))
    moved = {name: params[name] - anchor[name] for name in params}
    if form == "norm":
        return {n: mu * d / nonzero(torch.linalg.vector_norm(d)) for n, d in moved.items()}
    return {n: mu * d.clamp(-1, 1) / (d.numel() * len(moved)) for n, d in moved.items()}


def moon_contrastive(z: Tensor, z_global: Tensor, z_previous: Tensor, temperature: float = 0.5) -> Tensor:
    """-log( e^{cos(z, z_g)/T} / (e^{cos(z, z_g)/T} + e^{cos(z, z_p)/T}) ), [B]; representations [B, F].

    Gradients reach all three arguments: detach the global and the previous ones. Source: MOON.
    """
    return -F.logsigmoid((cosine(z, z_global) - cosine(z, z_previous)) / temperature)


def fedntd_loss(
    logits: Tensor, teacher: Tensor, labels: Tensor, temperature: float = 1.0, scaled: bool = True
) -> Tensor:
    """tau^2 KL( softmax(z^g_{without y} / tau) || softmax(z_{without y} / tau) ), [B]; the teacher is detached.

    logits and teacher [B, C]; the true class is removed from both. With C = 2 the term is 0. ``scaled=False`` omits
    tau^2, as the FedGA authors' copy does. Source: FedNTD.
    """
    truth = is_label(labels, logits.shape[-1])

    def log_probabilities(z: Tensor) -> Tensor:  # 0 at the true class, which has no part in the sum
        return (z / temperature).masked_fill(truth, -torch.inf).log_softmax(-1).masked_fill(truth, 0.0)

    log_teacher = log_probabilities(teacher.detach())
    weight = log_teacher.exp().masked_fill(truth, 0.0)
    divergence = (weight * (log_teacher - log_probabilities(logits))).sum(-1)
    return temperature**2 * divergence if scaled else divergence
