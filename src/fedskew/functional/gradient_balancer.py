"""The gradient balancer of Fed-GraB: a controller of each class weighs positive and negative gradients. C classes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedskew.functional._numeric import is_label

__all__ = ["fedgrab_map", "fedgrab_pid", "weighted_bce"]


def fedgrab_map(u: Tensor) -> Tensor:
    """Map the controller's output to a gradient weight (Fed-GraB).

        f(u) = (10/9) / (1/9 + e^{-u/2})

    f(u) weighs the positive gradients of a class, f(-u) the negative ones.

    Args:
        u: Controller output, any shape. Values below -160 are raised to -160, where f is 1e-34, so that the exponential
            does not overflow.

    Returns:
        Weights in (0, 10), shaped as ``u``; f(0) = 1.

    Example:
        >>> import torch
        >>> from fedskew.functional import fedgrab_map
        >>> fedgrab_map(torch.tensor([-2.0, 0.0, 2.0]))
        tensor([0.3927, 1.0000, 2.3197])

    References:
        Xiao et al. 2023, Fed-GraB: Federated Long-tailed Learning with Self-Adjusting Gradient Balancer (NeurIPS),
        gradient balancer. https://arxiv.org/abs/2310.07587
    """
    return 10 / (1 + 9 * torch.exp(-0.5 * u.clamp(min=-160)))


def fedgrab_pid(
    error: Tensor, earlier: Tensor, previous: Tensor, kp: float = 10.0, ki: float = 0.01, kd: float = 0.1
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of Fed-GraB's incremental PID controller.

        increment = kp (e_t - e_{t-1}) + ki e_t + kd (e_t - 2 e_{t-1} + e_{t-2})

    The controller's output u is the running sum of the increments: kp e_t + ki sum_s e_s + kd (e_t - e_{t-1}). The
    error is e_t = -(positive - negative), the difference of the accumulated absolute gradients of a class.

    Args:
        error: e_t, any shape.
        earlier: e_{t-2}, shaped as ``error``; zeros before the first step.
        previous: e_{t-1}, shaped as ``error``; zeros before the first step.
        kp: Proportional gain.
        ki: Integral gain.
        kd: Derivative gain. The defaults of the gains are those of the authors' code.

    Returns:
        (increment, e_{t-1}, e_t): the last two are ``earlier`` and ``previous`` of the next step.

    Example:
        >>> import torch
        >>> from fedskew.functional import fedgrab_pid
        >>> zero = torch.zeros(())
        >>> fedgrab_pid(torch.tensor(-1.0), zero, zero)[0]
        tensor(-10.1100)

    References:
        Xiao et al. 2023, Fed-GraB: Federated Long-tailed Learning with Self-Adjusting Gradient Balancer (NeurIPS),
        gradient balancer; the recursion is that of the authors' code. https://arxiv.org/abs/2310.07587
    """
    increment = kp * (error - previous) + ki * error + kd * (error - 2 * previous + earlier)
    return increment, previous, error


def weighted_bce(logits: Tensor, labels: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """Binary cross-entropy of one sigmoid for each class, with weights for positive and negative entries.

        L_b = sum_c w_c softplus(-z_c if c = y else z_c),   w_c = positive_c if c = y else negative_c

    The weights are detached, so they multiply the gradients: dL/dz_c = w_c (sigmoid(z_c) - 1[c = y]). Weights of 1 give
    plain binary cross-entropy.

    Args:
        logits: Logits z, [B, C].
        labels: Class numbers y in [0, C), int64 [B].
        positive: Weight of a class in the rows of its own, [C].
        negative: Weight of a class in all other rows, [C].

    Returns:
        Loss of each row in nats, summed over the classes, [B].

    Example:
        >>> import torch
        >>> from fedskew.functional import fedgrab_map, weighted_bce
        >>> u = torch.tensor([0.0, 2.0])
        >>> weighted_bce(torch.zeros(2, 2), torch.tensor([0, 1]), fedgrab_map(u), fedgrab_map(-u))
        tensor([0.9653, 2.3010])

    References:
        Xiao et al. 2023, Fed-GraB: Federated Long-tailed Learning with Self-Adjusting Gradient Balancer (NeurIPS),
        gradient balancer. https://arxiv.org/abs/2310.07587
    """
    truth = is_label(labels, logits.shape[-1])
    terms = -F.logsigmoid(torch.where(truth, logits, -logits))
    return (torch.where(truth, positive.detach(), negative.detach()) * terms).sum(-1)
