"""Terms added to the local objective: FedProx, MOON and FedNTD. B rows, C classes, F features."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedskew.functional._numeric import choose, cosine, is_label, nonzero
from fedskew.tree import Params

__all__ = ["fedntd_loss", "moon_contrastive", "proximal", "proximal_pull"]


def proximal(params: Params, anchor: Params, mu: Tensor | float) -> Tensor:
    """Proximal term of FedProx.

        (mu / 2) ||w - x||^2,   with gradient mu (w - x)

    Args:
        params: Local parameters w, a dict of tensors.
        anchor: Global parameters x, with the same names and shapes.
        mu: Strength, at least 0.

    Returns:
        The term, ().

    Example:
        >>> import torch
        >>> from fedskew.functional import proximal
        >>> proximal({"w": torch.tensor([1.0, 2.0])}, {"w": torch.zeros(2)}, mu=0.5)
        tensor(1.2500)

    References:
        Li et al. 2020, Federated Optimization in Heterogeneous Networks (MLSys). https://arxiv.org/abs/1812.06127
    """
    squares = [(params[name] - anchor[name]).square().sum() for name in params]
    return 0.5 * mu * torch.stack(squares).sum()


def proximal_pull(
    params: Params, anchor: Params, mu: Tensor | float, form: Literal["norm", "smooth_l1"] = "norm"
) -> Params:
    """Gradient of two terms that public code runs under the name FedProx.

        "norm":       mu (w_t - x_t) / ||w_t - x_t||, of mu sum_t ||w_t - x_t||_2
        "smooth_l1":  mu clip(w - x, -1, 1) / (entries of t * tensors), of mu mean_t mean_i huber(w_ti - x_ti)

    t runs over the tensors, i over the entries of one. The paper's term is `proximal`, with gradient mu (w - x).

    Args:
        params: Local parameters w, a dict of tensors.
        anchor: Global parameters x, with the same names and shapes.
        mu: Strength, at least 0.
        form: "norm" is the code of the FedGA authors; 0 where w = x. "smooth_l1" is the code of FedRepo and FedGR.

    Returns:
        Gradient by w, a dict as ``params``.

    Raises:
        ConfigError: ``form`` is not "norm" or "smooth_l1".

    Example:
        >>> import torch
        >>> from fedskew.functional import proximal_pull
        >>> w, x = {"w": torch.tensor([3.0, 4.0])}, {"w": torch.zeros(2)}
        >>> proximal_pull(w, x, mu=0.5), proximal_pull(w, x, mu=0.5, form="smooth_l1")
        ({'w': tensor([0.3000, 0.4000])}, {'w': tensor([0.2500, 0.2500])})

    References:
        Li et al. 2020, Federated Optimization in Heterogeneous Networks (MLSys). https://arxiv.org/abs/1812.06127
    """
    choose("form", form, ("norm", "smooth_l1"))
    moved = {name: params[name] - anchor[name] for name in params}
    if form == "norm":
        return {n: mu * d / nonzero(torch.linalg.vector_norm(d)) for n, d in moved.items()}
    return {n: mu * d.clamp(-1, 1) / (d.numel() * len(moved)) for n, d in moved.items()}


def moon_contrastive(z: Tensor, z_global: Tensor, z_previous: Tensor, temperature: float = 0.5) -> Tensor:
    """Model-contrastive term of MOON: representations near the global model's, far from the previous local model's.

        -log( e^{cos(z, z_g) / T} / (e^{cos(z, z_g) / T} + e^{cos(z, z_p) / T}) )

    Gradients reach all three arguments: detach ``z_global`` and ``z_previous``.

    Args:
        z: Representations of the current model, [B, F].
        z_global: Representations of the global model, [B, F].
        z_previous: Representations of the client's previous local model, [B, F].
        temperature: T, positive.

    Returns:
        Term of each row, [B], in [log(1 + e^{-2/T}), log(1 + e^{2/T})]. A zero vector has cosine 0.

    Example:
        >>> import torch
        >>> from fedskew.functional import moon_contrastive
        >>> z, z_global, z_previous = torch.tensor([[[1.0, 0.0]], [[1.0, 1.0]], [[0.0, 2.0]]])
        >>> moon_contrastive(z, z_global, z_previous)
        tensor([0.2176])

    References:
        Li, He and Song 2021, Model-Contrastive Federated Learning (CVPR). https://arxiv.org/abs/2103.16257
    """
    return -F.logsigmoid((cosine(z, z_global) - cosine(z, z_previous)) / temperature)


def fedntd_loss(
    logits: Tensor, teacher: Tensor, labels: Tensor, temperature: float = 1.0, scaled: bool = True
) -> Tensor:
    """Not-true distillation of FedNTD: divergence from the global model over the classes other than the label.

        tau^2 KL( softmax(z^g_{without y} / tau) || softmax(z_{without y} / tau) )

    With two classes the term is 0.

    Args:
        logits: Logits z of the local model, [B, C].
        teacher: Logits z^g of the global model, [B, C]; detached.
        labels: Class numbers y in [0, C), int64 [B].
        temperature: tau, positive.
        scaled: Multiply by tau^2, as the paper does. The FedGA authors' copy does not.

    Returns:
        Term of each row in nats, [B].

    Example:
        >>> import torch
        >>> from fedskew.functional import fedntd_loss
        >>> logits, teacher = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0.0, 1.0, 2.0]])
        >>> fedntd_loss(logits, teacher, torch.tensor([0]))
        tensor([0.4621])
        >>> fedntd_loss(logits, teacher, torch.tensor([0]), temperature=3.0)
        tensor([0.4954])

    References:
        Lee et al. 2022, Preservation of the Global Knowledge by Not-True Distillation in Federated Learning (NeurIPS).
        https://arxiv.org/abs/2106.03097
    """
    truth = is_label(labels, logits.shape[-1])

    def log_probabilities(z: Tensor) -> Tensor:  # 0 at the true class, which has no part in the sum
        return (z / temperature).masked_fill(truth, -torch.inf).log_softmax(-1).masked_fill(truth, 0.0)

    log_teacher = log_probabilities(teacher.detach())
    weight = log_teacher.exp().masked_fill(truth, 0.0)
    divergence = (weight * (log_teacher - log_probabilities(logits))).sum(-1)
    return temperature**2 * divergence if scaled else divergence
