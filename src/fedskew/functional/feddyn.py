"""FedDyn's dynamic regulariser on dicts of tensors: the client's gradient and state, the server's state and step.

Source: Acar et al. 2021, Federated Learning Based on Dynamic Regularization, algorithm 1,
https://openreview.net/forum?id=B7v4QMR6Z9w.
"""

from __future__ import annotations

from torch import Tensor

from fedskew.tree import Params

__all__ = ["feddyn_correction", "feddyn_server_state", "feddyn_state", "feddyn_update"]


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
