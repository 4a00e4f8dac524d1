"""Steps of the personalised methods Per-FedAvg and pFedMe, on dicts of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fedskew.errors import require
from fedskew.tree import Params

__all__ = [
    "alternated", "descended", "fine_tuned", "hessian_free_gradient", "lookahead", "moreau_mix", "moreau_step",
    "per_fedavg_step",
]  # fmt: skip


def lookahead(params: Params, grads: Params, lr: Tensor | float) -> Params:
    """One step of plain gradient descent.

        w - lr g

    Args:
        params: w, a dict of tensors.
        grads: g, shaped as ``params``.
        lr: Learning rate.

    Returns:
        New parameters, a dict of tensors.

    Example:
        >>> import torch
        >>> from fedskew.functional import lookahead
        >>> lookahead({"w": torch.tensor(0.0)}, {"w": torch.tensor(-2.0)}, lr=0.1)
        {'w': tensor(0.2000)}
    """
    return {name: params[name] - lr * grads[name] for name in params}


def descended(
    params: Params, gradient: Callable[[Params], Params], lr: Tensor | float, steps: int, moving: Sequence[str]
) -> Params:
    """Some steps of gradient descent of some of the parameters.

        w <- w - lr g(w)

    Args:
        params: w, a dict of tensors.
        gradient: g.
        lr: Learning rate.
        steps: Number of steps.
        moving: Names of what moves.

    Returns:
        New parameters, a dict of tensors.

    Example:
        >>> import torch
        >>> from fedskew.functional import descended
        >>> descended({"w": torch.tensor(8.0), "v": torch.tensor(1.0)}, lambda p: p, 0.5, 2, ["w"])
        {'w': tensor(2.), 'v': tensor(1.)}
    """
    for _ in range(steps):
        grads = gradient(params)
        params = {**params, **{name: params[name] - lr * grads[name] for name in moving}}
    return params


def fine_tuned(
    params: Params,
    gradient: Callable[[Params, Tensor], Params],
    batches: Sequence[Tensor],
    lr: float,
    momentum: float,
    moving: Sequence[str],
) -> Params:
    """Stochastic gradient descent of some of the parameters.

        v <- momentum v + g(w, batch),   w <- w - lr v;   v = 0 at the beginning

    Args:
        params: w, a dict of tensors.
        gradient: g, of parameters and a mini-batch.
        batches: Mini-batches, one a step.
        lr: Learning rate.
        momentum: Momentum.
        moving: Names of what moves.

    Returns:
        New parameters, a dict of tensors.

    Example:
        >>> import torch
        >>> from fedskew.functional import fine_tuned
        >>> fine_tuned({"w": torch.tensor(8.0)}, lambda p, at: p, [torch.arange(3)] * 2, 0.5, 0.5, ["w"])
        {'w': tensor(0.)}
    """
    velocity = {name: torch.zeros_like(params[name]) for name in moving}
    for at in batches:
        grads = gradient(params, at)
        velocity = {name: momentum * v + grads[name] for name, v in velocity.items()}
        params = {**params, **{name: params[name] - lr * v for name, v in velocity.items()}}
    return params


def alternated(
    params: Params,
    gradient: Callable[[Params], Params],
    turns: Sequence[tuple[Sequence[str], float, float, float]],
    steps: int,
    cycles: int,
) -> Params:
    """Gradient descent of some of the parameters after others, again and again.

        v <- momentum v + g(w) + decay w,   w <- w - lr v,   for the names of the turn; v = 0 at its beginning

    Args:
        params: w, a dict of tensors.
        gradient: g.
        turns: Names of what moves, learning rate, momentum and weight decay of each turn of a cycle.
        steps: Steps of a turn.
        cycles: Number of cycles.

    Returns:
        New parameters, a dict of tensors.

    Example:
        >>> import torch
        >>> from fedskew.functional import alternated
        >>> w = {"w": torch.tensor(8.0), "v": torch.tensor(9.0)}
        >>> alternated(w, lambda p: p, [(["w"], 0.5, 0.0, 0.0), (["v"], 0.5, 1.0, 1.0)], 1, 2)
        {'w': tensor(2.), 'v': tensor(0.)}
    """
    for moving, lr, momentum, decay in [*turns] * cycles:
        velocity = {name: torch.zeros_like(params[name]) for name in moving}
        for _ in range(steps):
            grads = gradient(params)
            velocity = {n: momentum * v + grads[n] + decay * params[n] for n, v in velocity.items()}
            params = {**params, **{n: params[n] - lr * v for n, v in velocity.items()}}
    return params


def hessian_free_gradient(
    outer: Params, plus: Params, minus: Params, alpha: Tensor | float, delta: Tensor | float
) -> Params:
    """Gradient of Per-FedAvg (HF): the Hessian-vector product comes from two extra gradients.

        g - alpha (grad f(w + delta g) - grad f(w - delta g)) / (2 delta),   g = grad f(w - alpha grad f(w))

    Exact for quadratic f, whatever delta.

    Args:
        outer: g, a dict of tensors.
        plus: grad f(w + delta g), shaped as ``outer``.
        minus: grad f(w - delta g), shaped as ``outer``.
        alpha: Inner learning rate.
        delta: Step of the difference, positive.

    Returns:
        The gradient, a dict of tensors.

    Example:
        >>> import torch
        >>> from fedskew.functional import hessian_free_gradient
        >>> outer, plus, minus = ({"w": torch.tensor(v)} for v in (-1.6, -2.32, -1.68))  # f = (w - 1)^2, delta 0.2
        >>> hessian_free_gradient(outer, plus, minus, alpha=0.1, delta=0.2)
        {'w': tensor(-1.4400)}

    References:
        Fallah, Mokhtari and Ozdaglar 2020, Personalized Federated Learning with Theoretical Guarantees: A
        Model-Agnostic Meta-Learning Approach (NeurIPS), HF variant. https://arxiv.org/abs/2002.07948
    """
    return {name: outer[name] - alpha * (plus[name] - minus[name]) / (2 * delta) for name in outer}


def per_fedavg_step(
    params: Params,
    gradient: Callable[[Params, Any], Params],
    batches: Sequence[Any],
    alpha: Tensor | float,
    beta: Tensor | float,
    delta: float | None = None,
) -> Params:
    """One local step of Per-FedAvg.

        w~ = w - alpha grad f(w; D)
        FO:  w <- w - beta g,   g = grad f(w~; D')
        HF:  w <- w - beta (g - alpha (grad f(w + delta g; D'') - grad f(w - delta g; D'')) / (2 delta))

    Args:
        params: w, a dict of tensors.
        gradient: Function of (params, batch) that returns the gradient, shaped as ``params``.
        batches: Mini-batches (D, D') or (D, D', D''), of any type that ``gradient`` takes.
        alpha: Inner learning rate. 0 gives plain SGD on D'.
        beta: Outer learning rate.
        delta: Step of the Hessian-free difference (HF), positive. None leaves the Hessian out (FO), as the authors'
            code does.

    Returns:
        New parameters, a dict of tensors.

    Raises:
        ConfigError: There are fewer than two batches, or fewer than three with ``delta``.

    Example:
        >>> import torch
        >>> from fedskew.functional import per_fedavg_step
        >>> w, slope = {"w": torch.tensor(0.0)}, lambda params, batch: {"w": 2 * (params["w"] - 1)}  # f = (w - 1)^2
        >>> per_fedavg_step(w, slope, (None, None), alpha=0.1, beta=0.2)
        {'w': tensor(0.3200)}
        >>> per_fedavg_step(w, slope, (None, None, None), alpha=0.1, beta=0.2, delta=0.01)
        {'w': tensor(0.2560)}

    References:
        Fallah, Mokhtari and Ozdaglar 2020, Personalized Federated Learning with Theoretical Guarantees: A
        Model-Agnostic Meta-Learning Approach (NeurIPS), FO and HF variants. https://arxiv.org/abs/2002.07948
    """
    needed = 2 if delta is None else 3
    require(len(batches) >= needed, "batches", f"hold {needed} mini-batches a step", len(batches))
    outer = gradient(lookahead(params, gradient(params, batches[0]), alpha), batches[1])
    if delta is not None:
        plus = gradient(lookahead(params, outer, -delta), batches[2])
        minus = gradient(lookahead(params, outer, delta), batches[2])
        outer = hessian_free_gradient(outer, plus, minus, alpha, delta)
    return lookahead(params, outer, beta)


def moreau_step(
    theta: Params, grads: Params, w: Params, lr: Tensor | float, lam: Tensor | float, decay: float = 0.0
) -> Params:
    """One inner step of pFedMe, on the Moreau envelope's objective f(theta) + (lambda / 2) ||theta - w||^2.

        theta <- theta - lr (g + lambda (theta - w) + decay theta)

    Args:
        theta: Personal parameters, a dict of tensors.
        grads: g = grad f(theta), shaped as ``theta``.
        w: Local parameters, shaped as ``theta``.
        lr: Inner learning rate.
        lam: lambda, at least 0.
        decay: Weight decay. The authors' code has 0.001, the paper none.

    Returns:
        New theta, a dict of tensors.

    Example:
        >>> import torch
        >>> from fedskew.functional import moreau_step
        >>> theta = w = {"w": torch.tensor(0.0)}
        >>> moreau_step(theta, {"w": torch.tensor(-2.0)}, w, lr=0.1, lam=2.0)
        {'w': tensor(0.2000)}

    References:
        T. Dinh, Tran and Nguyen 2020, Personalized Federated Learning with Moreau Envelopes (NeurIPS).
        https://arxiv.org/abs/2006.08848
    """
    return {n: theta[n] - lr * (grads[n] + lam * (theta[n] - w[n]) + decay * theta[n]) for n in theta}


def moreau_mix(w: Params, theta: Params, lr: Tensor | float, lam: Tensor | float) -> Params:
    """Move pFedMe's local parameters towards the personal ones.

        w <- w - lr lambda (w - theta)

    Args:
        w: Local parameters, a dict of tensors.
        theta: Personal parameters, shaped as ``w``.
        lr: Learning rate.
        lam: lambda, at least 0. lr lambda = 1 gives theta.

    Returns:
        New w, a dict of tensors.

    Example:
        >>> import torch
        >>> from fedskew.functional import moreau_mix
        >>> moreau_mix({"w": torch.tensor(0.0)}, {"w": torch.tensor(0.32)}, lr=0.05, lam=2.0)
        {'w': tensor(0.0320)}

    References:
        T. Dinh, Tran and Nguyen 2020, Personalized Federated Learning with Moreau Envelopes (NeurIPS).
        https://arxiv.org/abs/2006.08848
    """
    return {name: w[name] - lr * lam * (w[name] - theta[name]) for name in w}
