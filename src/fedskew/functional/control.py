"""Control variates of SCAFFOLD, option II, on dicts of tensors."""

from __future__ import annotations

from torch import Tensor

from fedskew.tree import Params

__all__ = ["scaffold_control", "scaffold_correction", "scaffold_server_control"]


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
