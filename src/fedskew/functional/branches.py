"""The divergence between a network and its hybrid paths: FedMLB. B rows, C classes."""

from __future__ import annotations

from torch import Tensor

__all__ = ["hybrid_divergence"]


def hybrid_divergence(logits: Tensor, hybrid: Tensor, temperature: float = 1.0) -> Tensor:
    """Divergence of the local network's outputs from those of a hybrid path.

        KL( softmax(z^h / tau) || softmax(z / tau) )

    There is no factor tau^2, and gradients reach both arguments, as in the authors' code: the hybrid path runs through
    the first blocks of the local network.

    Args:
        logits: Logits z of the local network, [B, C].
        hybrid: Logits z^h of the hybrid path, [B, C].
        temperature: tau, positive.

    Returns:
        Term of each row in nats, [B].

    Example:
        >>> import torch
        >>> from fedskew.functional import hybrid_divergence
        >>> z, hybrid = torch.tensor([[0.0, 0.0]]), torch.tensor([[2.0, 0.0]])
        >>> hybrid_divergence(z, hybrid), hybrid_divergence(z, hybrid, temperature=2.0)
        (tensor([0.3278]), tensor([0.1109]))

    References:
        Kim, Kim and Han 2022, Multi-Level Branched Regularization for Federated Learning (ICML).
        https://arxiv.org/abs/2206.06936
    """
    target, log_p = (hybrid / temperature).log_softmax(-1), (logits / temperature).log_softmax(-1)
    return (target.exp() * (target - log_p)).sum(-1)
