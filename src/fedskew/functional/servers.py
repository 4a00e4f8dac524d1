"""Server optimizers on dicts of tensors: they add the aggregated delta (local - global), scaled by moments."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from fedskew.functional._numeric import choose
from fedskew.tree import Params

__all__ = ["adagrad_update", "adam_update", "momentum_update", "yogi_update"]

Moments = tuple[Params, Params, Params]
Correction = Literal["none", "torch", "keras", "flower"]
Corrections = tuple[Tensor | float, Tensor | float, Tensor | float]  # (divisor of m, divisor of v, tau)


def momentum_update(
    params: Params, delta: Params, moment: Params, lr: Tensor | float, beta: Tensor | float, nesterov: bool = False
) -> tuple[Params, Params]:
    """Server momentum (FedAvgM).

        m <- beta m + delta;   x <- x + lr m;   with Nesterov's form x <- x + lr (beta m + delta)

    Args:
        params: Global parameters x, a dict of tensors.
        delta: Aggregated delta, shaped as ``params``.
        moment: m, shaped as ``params``; zeros at first.
        lr: Server learning rate.
        beta: Momentum in [0, 1). beta = 0 and lr = 1 give FedAvg.
        nesterov: Take Nesterov's form.

    Returns:
        (new x, new m).

    Example:
        >>> import torch
        >>> from fedskew.functional import momentum_update
        >>> x, m = {"w": torch.tensor(0.2)}, {"w": torch.tensor(0.2)}
        >>> momentum_update(x, {"w": torch.tensor(0.1)}, m, lr=1.0, beta=0.9)
        ({'w': tensor(0.4800)}, {'w': tensor(0.2800)})

    References:
        Hsu, Qi and Brown 2019, Measuring the Effects of Non-Identical Data Distribution for Federated Visual
        Classification. https://arxiv.org/abs/1909.06335
    """
    moment = {name: beta * moment[name] + delta[name] for name in params}
    ahead = {name: beta * moment[name] + delta[name] for name in params} if nesterov else moment
    return {name: params[name] + lr * ahead[name] for name in params}, moment


def _adaptive(
    params: Params,
    delta: Params,
    first: Params,
    second: Params,
    lr: Tensor | float,
    beta1: float,
    accumulate: Callable[[Tensor, Tensor], Tensor],  # (v, delta^2) -> v
    corrections: Corrections,
) -> Moments:
    """One step of the three adaptive rules, which differ in how v accumulates the squared delta."""
    first = {name: beta1 * first[name] + (1 - beta1) * delta[name] for name in params}
    second = {name: accumulate(second[name], delta[name].square()) for name in params}
    c1, c2, tau = corrections
    moved = {n: params[n] + lr * (first[n] / c1) / ((second[n] / c2).sqrt() + tau) for n in params}
    return moved, first, second


def _corrections(beta1: float, beta2: float, tau: float, step: Tensor | int, form: Correction) -> Corrections:
    """(divisor of m, divisor of v, tau) of a form of bias correction.

    Keras and Flower multiply the rate by sqrt(1 - beta2^t) / (1 - beta1^t) and leave v and tau as they are: the same as
    correcting v and dividing tau by sqrt(1 - beta2^t).
    """
    choose("bias_correction", form, ("none", "torch", "keras", "flower"))
    if form == "none":
        return 1.0, 1.0, tau
    t = step + 1 if form == "flower" else step
    c1, c2 = 1 - beta1**t, 1 - beta2**t
    return c1, c2, tau if form == "torch" else tau / c2**0.5


def adagrad_update(
    params: Params,
    delta: Params,
    first: Params,
    second: Params,
    lr: Tensor | float,
    beta1: float,
    beta2: float,
    tau: float,
    step: Tensor | int = 1,
    bias_correction: Correction = "none",
) -> Moments:
    """FedAdagrad: an Adagrad step of the server.

        m <- beta1 m + (1 - beta1) delta;   v <- v + delta^2;   x <- x + lr m / (sqrt(v) + tau)

    Args:
        params: Global parameters x, a dict of tensors.
        delta: Aggregated delta, shaped as ``params``.
        first: m, shaped as ``params``; zeros at first.
        second: v, shaped as ``params``; tau^2 at first in the paper's algorithm.
        lr: Server learning rate.
        beta1: Decay of m, in [0, 1). The paper's experiments have 0 for Adagrad.
        beta2: Not used; present so that the three updates share one signature.
        tau: Degree of adaptivity, positive.
        step: One-based number of this step; used by the bias correction.
        bias_correction: "none" as in the paper's algorithm; the other forms all divide m by 1 - beta1^t, with t = step,
            or step + 1 for "flower". No library has one for Adagrad; this is Adam's, without v's.

    Returns:
        (new x, new m, new v).

    Raises:
        ConfigError: ``bias_correction`` is not one of these words.

    Example:
        >>> import torch
        >>> from fedskew.functional import adagrad_update
        >>> x, delta, zero = ({"w": torch.tensor(v)} for v in ([1.0, 1.0], [0.2, -0.1], [0.0, 0.0]))
        >>> adagrad_update(x, delta, zero, zero, lr=0.1, beta1=0.9, beta2=0.99, tau=1e-3)[0]
        {'w': tensor([1.0100, 0.9901])}

    References:
        Reddi et al. 2021, Adaptive Federated Optimization (ICLR), FedAdagrad. https://arxiv.org/abs/2003.00295
    """
    c1, _, _ = _corrections(beta1, 0.0, tau, step, bias_correction)
    return _adaptive(params, delta, first, second, lr, beta1, lambda v, square: v + square, (c1, 1.0, tau))


def adam_update(
    params: Params,
    delta: Params,
    first: Params,
    second: Params,
    lr: Tensor | float,
    beta1: float,
    beta2: float,
    tau: float,
    step: Tensor | int = 1,
    bias_correction: Correction = "none",
) -> Moments:
    """FedAdam: an Adam step of the server.

        m <- beta1 m + (1 - beta1) delta;   v <- beta2 v + (1 - beta2) delta^2;   x <- x + lr m / (sqrt(v) + tau)

    Args:
        params: Global parameters x, a dict of tensors.
        delta: Aggregated delta, shaped as ``params``.
        first: m, shaped as ``params``; zeros at first.
        second: v, shaped as ``params``; tau^2 at first in the paper's algorithm.
        lr: Server learning rate.
        beta1: Decay of m, in [0, 1). The paper has 0.9.
        beta2: Decay of v, in [0, 1). The paper has 0.99.
        tau: Degree of adaptivity, positive. The paper has 1e-3.
        step: One-based number of this step; used by the bias correction.
        bias_correction: "none" as in the paper's algorithm. "torch" divides m by 1 - beta1^step and v by
            1 - beta2^step. "keras", which the authors' TensorFlow code runs, multiplies the rate by
            sqrt(1 - beta2^step) / (1 - beta1^step) and leaves v and tau as they are: tau acts like
            tau / sqrt(1 - beta2^step). "flower" is Keras's form with step + 1.

    Returns:
        (new x, new m, new v).

    Raises:
        ConfigError: ``bias_correction`` is not one of these words.

    Example:
        >>> import torch
        >>> from fedskew.functional import adam_update
        >>> x, delta, zero = ({"w": torch.tensor(v)} for v in ([1.0, 1.0], [0.2, -0.1], [0.0, 0.0]))
        >>> adam_update(x, delta, zero, zero, lr=0.1, beta1=0.9, beta2=0.99, tau=1e-3)[0]
        {'w': tensor([1.0952, 0.9091])}

    References:
        Reddi et al. 2021, Adaptive Federated Optimization (ICLR), FedAdam. https://arxiv.org/abs/2003.00295
    """
    corrections = _corrections(beta1, beta2, tau, step, bias_correction)
    decayed: Callable[[Tensor, Tensor], Tensor] = lambda v, square: beta2 * v + (1 - beta2) * square
    return _adaptive(params, delta, first, second, lr, beta1, decayed, corrections)


def yogi_update(
    params: Params,
    delta: Params,
    first: Params,
    second: Params,
    lr: Tensor | float,
    beta1: float,
    beta2: float,
    tau: float,
    step: Tensor | int = 1,
    bias_correction: Correction = "none",
) -> Moments:
    """FedYogi: a Yogi step of the server.

        m <- beta1 m + (1 - beta1) delta
        v <- v - (1 - beta2) delta^2 sign(v - delta^2)
        x <- x + lr m / (sqrt(v) + tau)

    Args:
        params: Global parameters x, a dict of tensors.
        delta: Aggregated delta, shaped as ``params``.
        first: m, shaped as ``params``; zeros at first.
        second: v, shaped as ``params``; tau^2 at first in the paper's algorithm. From 0 the first step is FedAdam's.
        lr: Server learning rate.
        beta1: Decay of m, in [0, 1). The paper has 0.9.
        beta2: Rate of v, in [0, 1). The paper has 0.99.
        tau: Degree of adaptivity, positive. The paper has 1e-3.
        step: One-based number of this step; used by the bias correction.
        bias_correction: "none" as in the paper's algorithm; "torch", "keras" or "flower": see `adam_update`.

    Returns:
        (new x, new m, new v).

    Raises:
        ConfigError: ``bias_correction`` is not one of these words.

    Example:
        >>> import torch
        >>> from fedskew.functional import yogi_update
        >>> x, delta, zero = ({"w": torch.tensor(v)} for v in ([1.0, 1.0], [0.2, -0.1], [0.0, 0.0]))
        >>> yogi_update(x, delta, zero, zero, lr=0.1, beta1=0.9, beta2=0.99, tau=1e-3)[0]
        {'w': tensor([1.0952, 0.9091])}

    References:
        Reddi et al. 2021, Adaptive Federated Optimization (ICLR), FedYogi. https://arxiv.org/abs/2003.00295
    """
    corrections = _corrections(beta1, beta2, tau, step, bias_correction)
    signed: Callable[[Tensor, Tensor], Tensor] = lambda v, square: v - (1 - beta2) * square * torch.sign(v - square)
    return _adaptive(params, delta, first, second, lr, beta1, signed, corrections)
