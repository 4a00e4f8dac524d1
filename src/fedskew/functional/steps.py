"""Steps of clients and the states behind them, on dicts of tensors: Per-FedAvg, pFedMe, SCAFFOLD, FedDyn, FedSAM."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from fedskew.functional._numeric import choose
from fedskew.tree import Params

__all__ = [
    "alternated", "descended", "feddyn_correction", "feddyn_server_state", "feddyn_state", "feddyn_update",
    "fine_tuned", "hessian_free_gradient", "lookahead", "moreau_mix", "moreau_step", "sam_ascent",
    "scaffold_control", "scaffold_correction", "scaffold_server_control", "unit_columns",
]  # fmt: skip

# Personalised methods: Per-FedAvg and pFedMe


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


# Control variates of SCAFFOLD, option II


def scaffold_correction(grads: Params, own: Params, server: Params) -> Params:
    """Gradient of a local step of SCAFFOLD, corrected for client drift.

        g - c_k + c

    Args:
        grads: Gradient g of the mini-batch, a dict of tensors.
        own: The client's control variate c_k, shaped as ``grads``.
        server: The server's control variate c, shaped as ``grads``.

    Returns:
        Corrected gradient, a dict of tensors.

    Example:
        >>> import torch
        >>> from fedskew.functional import scaffold_correction
        >>> g, own, server = ({"w": torch.tensor(v)} for v in (1.0, 0.25, 0.5))
        >>> scaffold_correction(g, own, server)
        {'w': tensor(1.2500)}

    References:
        Karimireddy et al. 2020, SCAFFOLD: Stochastic Controlled Averaging for Federated Learning (ICML).
        https://arxiv.org/abs/1910.06378
    """
    return {name: grads[name] - own[name] + server[name] for name in grads}


def scaffold_control(own: Params, server: Params, delta: Params, travel: Tensor | float) -> Params:
    """New control variate of a client after its local run (option II).

        c_k+ = c_k - c + (x - y_k) / (tau lr) = c_k - c - delta / travel

    Args:
        own: The client's control variate c_k, a dict of tensors; zeros before its first round.
        server: The server's control variate c.
        delta: y_k - x, local minus global parameters.
        travel: tau lr, the number of steps times this round's learning rate. With local momentum rho use a(tau, rho) lr
            (see `sgd_a_norm`): tau lr would inflate c_k by up to 1 / (1 - rho).

    Returns:
        c_k+, a dict of tensors.

    Example:
        >>> import torch
        >>> from fedskew.functional import scaffold_control
        >>> own, server, delta = ({"w": torch.tensor(v)} for v in (0.0, 0.0, 0.19))
        >>> scaffold_control(own, server, delta, travel=2 * 0.1)
        {'w': tensor(-0.9500)}

    References:
        Karimireddy et al. 2020, SCAFFOLD: Stochastic Controlled Averaging for Federated Learning (ICML), option II.
        https://arxiv.org/abs/1910.06378
    """
    return {name: own[name] - server[name] - delta[name] / travel for name in own}


def scaffold_server_control(server: Params, change: Params, clients: int) -> Params:
    """New control variate of the server.

        c <- c + (1 / N) sum_{k in cohort} (c_k+ - c_k)

    Args:
        server: c, a dict of tensors.
        change: c_k+ - c_k of the participants, stacked: leaves [K, ...].
        clients: Number N of all clients, not of the cohort. The code of FedRepo and FedGR divides by K instead.

    Returns:
        New c, a dict of tensors.

    Example:
        >>> import torch
        >>> from fedskew.functional import scaffold_server_control
        >>> scaffold_server_control({"w": torch.tensor(0.0)}, {"w": torch.tensor([-0.95])}, clients=2)
        {'w': tensor(-0.4750)}

    References:
        Karimireddy et al. 2020, SCAFFOLD: Stochastic Controlled Averaging for Federated Learning (ICML).
        https://arxiv.org/abs/1910.06378
    """
    return {name: server[name] + change[name].sum(0) / clients for name in server}


# FedDyn: the client's gradient and state, the server's state and step
# Acar et al. 2021, Federated Learning Based on Dynamic Regularization, algorithm 1
# https://openreview.net/forum?id=B7v4QMR6Z9w


def feddyn_correction(grads: Params, state: Params, params: Params, start: Params, alpha: Tensor | float) -> Params:
    """Gradient of the client's regularised loss.

    It is g - h_k + alpha (w - x), the gradient of L_k(w) - <h_k, w> + (alpha / 2) ||w - x||^2.

    Args:
        grads: Gradient g of the client's loss at w.
        state: State h_k of the client, zeros before its first round.
        params: Parameters w of the local step.
        start: Parameters x that the server broadcast.
        alpha: Strength of the regulariser.

    Returns:
        The corrected gradient, with the names and shapes of ``grads``.

    Raises:
        KeyError: A name of ``grads`` is missing in another argument.

    Example:
        >>> import torch
        >>> one = {"w": torch.tensor([1.0])}
        >>> feddyn_correction(one, {"w": torch.tensor([0.25])}, one, {"w": torch.zeros(1)}, alpha=0.5)
        {'w': tensor([1.2500])}
    """
    return {name: g - state[name] + alpha * (params[name] - start[name]) for name, g in grads.items()}


def feddyn_state(state: Params, delta: Params, alpha: Tensor | float) -> Params:
    """State of a client after its local run.

    h_k <- h_k - alpha (y_k - x).

    Args:
        state: State h_k before the run.
        delta: Change y_k - x of the parameters in the run.
        alpha: Strength of the regulariser.

    Returns:
        The new state, with the names and shapes of ``state``.

    Raises:
        KeyError: A name of ``state`` is missing in ``delta``.

    Example:
        >>> import torch
        >>> feddyn_state({"w": torch.zeros(1)}, {"w": torch.tensor([0.1])}, alpha=0.5)
        {'w': tensor([-0.0500])}
    """
    return {name: h - alpha * delta[name] for name, h in state.items()}


def feddyn_server_state(state: Params, delta: Params, alpha: Tensor | float, participants: int, clients: int) -> Params:
    """State of the server after a round: the mean of the states of all clients.

    h <- h - (alpha / N) sum_k (y_k - x), the sum over the m participants.

    Args:
        state: State h before the round.
        delta: Mean of the participants' changes y_k - x.
        alpha: Strength of the regulariser.
        participants: Number m of clients that took part.
        clients: Number N of all clients.

    Returns:
        The new state, with the names and shapes of ``state``.

    Raises:
        KeyError: A name of ``state`` is missing in ``delta``.

    Example:
        >>> import torch
        >>> feddyn_server_state({"w": torch.zeros(1)}, {"w": torch.tensor([0.1])}, 0.5, participants=2, clients=4)
        {'w': tensor([-0.0250])}
    """
    return feddyn_state(state, delta, alpha * participants / clients)


def feddyn_update(
    params: Params, delta: Params, state: Params, alpha: Tensor | float, lr: Tensor | float = 1.0
) -> Params:
    """Parameters of the server after a round.

    x <- x + lr mean_k (y_k - x) - h / alpha, with h the server's state after this round.

    Args:
        params: Parameters x before the round.
        delta: Mean of the participants' changes y_k - x.
        state: State h of the server after this round, see `feddyn_server_state`.
        alpha: Strength of the regulariser, positive.
        lr: Server learning rate; the paper has 1.

    Returns:
        The new parameters, with the names and shapes of ``params``.

    Raises:
        KeyError: A name of ``params`` is missing in another argument.

    Example:
        >>> import torch
        >>> feddyn_update({"w": torch.zeros(1)}, {"w": torch.tensor([0.1])}, {"w": torch.tensor([-0.05])}, alpha=0.5)
        {'w': tensor([0.2000])}
    """
    return {name: x + lr * delta[name] - state[name] * (1 / alpha) for name, x in params.items()}


# Perturbations of sharpness-aware minimisation


def sam_ascent(
    direction: Params, rho: Tensor | float, params: Params | None = None, norm: Literal["all", "tensors"] = "all"
) -> Params:
    """The perturbation of sharpness-aware minimisation: a step of length rho along a direction.

        e = rho d / (||d||_2 + 1e-7);   with ``params`` w the adaptive form, e = rho w^2 d / (||w d||_2 + 1e-7)

    Args:
        direction: d, a dict of tensors: the gradient.
        rho: Length of the step, in units of the parameters.
        params: w, shaped as ``direction``; None takes the plain form.
        norm: all: of all parameters together; tensors: the sum of each tensor's norm.

    Returns:
        e, shaped as ``direction``; 0 where d is 0.

    Raises:
        ConfigError: ``norm`` is unknown.

    Example:
        >>> import torch
        >>> from fedskew.functional import sam_ascent
        >>> sam_ascent({"w": torch.tensor([3.0, 4.0])}, rho=0.5)
        {'w': tensor([0.3000, 0.4000])}

    References:
        Foret, Kleiner, Mobahi and Neyshabur 2021, Sharpness-Aware Minimization for Efficiently Improving
        Generalization. https://arxiv.org/abs/2010.01412. Kwon, Kim, Park and Choi 2021, ASAM.
        https://arxiv.org/abs/2102.11600
    """
    choose("norm", norm, ("all", "tensors"))
    scaled = direction if params is None else {n: params[n].abs() * d for n, d in direction.items()}
    squares = torch.stack([d.square().sum() for d in scaled.values()])
    size = squares.sum().sqrt() if norm == "all" else squares.sqrt().sum()
    factor = rho / (size + 1e-7)
    if params is not None:
        return {n: params[n].square() * d * factor for n, d in direction.items()}
    return {n: d * factor for n, d in direction.items()}


def unit_columns(x: Tensor) -> Tensor:
    """A tensor over its norm along the first axis: FedSOL's scale of a perturbation.

        x_i... / max(||x_:...||_2, 1e-8)

    Args:
        x: A parameter's move, [n, ...].

    Returns:
        The scaled tensor, shaped as ``x``. A number () is divided by its size. The floor keeps rounding errors of what
        has not moved from counting as much as a move.

    Example:
        >>> import torch
        >>> from fedskew.functional import unit_columns
        >>> unit_columns(torch.tensor([[3.0, 0.0], [4.0, 0.0]]))
        tensor([[0.6000, 0.0000],
                [0.8000, 0.0000]])

    References:
        Lee et al. 2024, FedSOL: Stabilized Orthogonal Learning with Proximal Restrictions in Federated Learning (CVPR).
        https://arxiv.org/abs/2308.12532
    """
    size = x.abs() if x.ndim == 0 else torch.linalg.vector_norm(x, dim=0, keepdim=True)
    return x / size.clamp(min=1e-8)
