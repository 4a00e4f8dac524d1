"""Gradient alignment of FedGA: calibrated targets and the losses on them. B rows, C classes."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedskew.functional._numeric import choose, counts_for, is_label, nonzero, per_label
from fedskew.functional.losses import class_counts

__all__ = ["fedga_binary_loss", "fedga_binary_targets", "fedga_loss", "fedga_targets"]


def fedga_targets(logits: Tensor, labels: Tensor, counts: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    """Calibrated targets of FedGA, which scale the gradients of the other classes by their counts.

        q_i = 1                            for the label, i = j
        q_i = ((N_j - N_i) / N_j) p_i      for the other classes, p = softmax(z)

    N are the class counts. Under the exact form of `fedga_loss` the gradient of another class is p_i N_i / N_j instead
    of p_i: rows of frequent classes push rare classes down less. Entries are negative where N_i > N_j, and a row need
    not sum to 1. Do not clamp or renormalise: the negative entries enlarge the gradient in rows of rare classes.

    Args:
        logits: Logits z, [B, C]; detached.
        labels: Class numbers j in [0, C), int64 [B].
        counts: Class counts N, [C]. None counts the labels of this batch, as the authors' code and algorithm do.
        mask: Weight of each row when counting, [B]; 0 leaves out a padded row.

    Returns:
        Targets q, [B, C], detached.

    Note:
        The paper writes p as a mean over the rows of a class. The authors' code, and this function, use each row's own
        p; summed over a class both give the same gradient of the logits.

    Example:
        >>> import torch
        >>> from fedskew.functional import fedga_targets
        >>> fedga_targets(torch.zeros(4, 3), torch.tensor([0, 0, 0, 1]))[[0, 3]]
        tensor([[ 1.0000,  0.2222,  0.3333],
                [-0.6667,  1.0000,  0.3333]])

    References:
        Xiao, Zuo and Wang 2024, FedGA: Federated Learning with Gradient Alignment for Error Asymmetry Mitigation,
        calibrated label. https://arxiv.org/abs/2412.16582
    """
    shifted, partition, _ = _log_partition(logits.detach())
    return _calibrated((shifted - partition).exp(), labels, counts, mask)


def _calibrated(probabilities: Tensor, labels: Tensor, counts: Tensor | None, mask: Tensor | None) -> Tensor:
    """Targets of `fedga_targets` from probabilities [B, C]."""
    classes = probabilities.shape[-1]
    if counts is None:
        counts = class_counts(labels, classes, mask)
    counts = counts_for(probabilities, counts)
    own = per_label(counts, labels).unsqueeze(-1)  # N_j, [B, 1]
    share = (own - counts) / nonzero(own)
    return torch.where(is_label(labels, classes), torch.ones_like(probabilities), share * probabilities)


def _log_partition(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Shifted logits z - max [B, C], their logsumexp [B, 1] and the shift max [B, 1].

    p = exp(shifted - logsumexp) then equals the gradient of the logsumexp bit for bit. So p - q of an absent class,
    where q = p, is exactly zero. The shift keeps large logits accurate.
    """
    shift = logits.detach().amax(-1, keepdim=True)
    shifted = logits - shift
    return shifted, shifted.logsumexp(-1, keepdim=True), shift


def fedga_loss(
    logits: Tensor,
    labels: Tensor,
    counts: Tensor | None = None,
    mask: Tensor | None = None,
    form: Literal["softce", "exact"] = "softce",
) -> Tensor:
    """Loss of FedGA on its calibrated targets.

        "softce":  L = -sum_i q_i log p_i              gradient by z: (sum_i q_i) p - q
        "exact":   L = logsumexp(z) - sum_i q_i z_i    gradient by z: p - q

    A batch with equally many rows of every class gives plain cross-entropy in both forms.

    Args:
        logits: Logits z, [B, C].
        labels: Class numbers in [0, C), int64 [B].
        counts: Class counts, [C]; None counts the labels of this batch.
        mask: Weight of each row when counting, [B].
        form: "softce" is what the authors' code runs. "exact" is what the paper's derivation needs: only then do
            classes that are absent from the batch get no gradient.

    Returns:
        Loss of each row, [B]. It may be negative.

    Raises:
        ConfigError: ``form`` is not "softce" or "exact".

    Example:
        >>> import torch
        >>> from fedskew.functional import fedga_loss
        >>> logits, labels = torch.zeros(4, 3, requires_grad=True), torch.tensor([0, 0, 0, 1])
        >>> fedga_loss(logits, labels).mean()
        tensor(1.4648, grad_fn=<MeanBackward0>)
        >>> torch.autograd.grad(fedga_loss(logits, labels, form="exact").sum(), logits)[0][[0, 3]]
        tensor([[-0.6667,  0.1111,  0.0000],
                [ 1.0000, -0.6667,  0.0000]])

    References:
        Xiao, Zuo and Wang 2024, FedGA: Federated Learning with Gradient Alignment for Error Asymmetry Mitigation,
        calibrated label. https://arxiv.org/abs/2412.16582
    """
    choose("form", form, ("softce", "exact"))
    if form == "exact":
        targets = fedga_targets(logits, labels, counts, mask)
        _, partition, shift = _log_partition(logits)
        return (partition + shift).squeeze(-1) - (targets * logits).sum(-1)
    scores = logits.log_softmax(-1)
    return -(_calibrated(scores.detach().exp(), labels, counts, mask) * scores).sum(-1)


def fedga_binary_targets(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """Calibrated targets of FedGA for two classes and one sigmoid output.

        y = 0:  q = max(0, (N_0 - N_1) / N_0) p
        y = 1:  q = 1 - max(0, (N_1 - N_0) / N_1) (1 - p),   p = sigmoid(z)

    The residual p - q of the larger class shrinks to the smaller one's share, which brings the error asymmetry to 1.

    Args:
        logits: Logit z of class 1, [B]; detached.
        labels: 0 or 1, [B].
        counts: Rows (N_0, N_1) of the two classes, [2].

    Returns:
        Targets q in [0, 1], [B], detached.

    Example:
        >>> import torch
        >>> from fedskew.functional import fedga_binary_targets
        >>> fedga_binary_targets(torch.zeros(2), torch.tensor([0, 1]), torch.tensor([90, 10]))
        tensor([0.4444, 1.0000])

    References:
        Xiao, Zuo and Wang 2024, FedGA: Federated Learning with Gradient Alignment for Error Asymmetry Mitigation,
        binary form. https://arxiv.org/abs/2412.16582
    """
    counts = counts_for(logits, counts)
    probability = logits.detach().sigmoid()
    excess = ((counts - counts.flip(-1)) / nonzero(counts)).clamp(min=0)  # [2]
    return torch.where(labels == 1, 1 - excess[..., 1] * (1 - probability), excess[..., 0] * probability)


def fedga_binary_loss(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """Binary cross-entropy of two logits under `fedga_binary_targets`.

        L = -q log sigmoid(s) - (1 - q) log sigmoid(-s),   s = z_1 - z_0

    The residual p - q reaches the two logits with opposite signs. Equal counts give plain cross-entropy.

    Args:
        logits: Logits (z_0, z_1), [B, 2].
        labels: 0 or 1, [B].
        counts: Rows of the two classes, [2].

    Returns:
        Loss of each row in nats, [B].

    Example:
        >>> import torch
        >>> from fedskew.functional import fedga_binary_loss
        >>> logits, labels = torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 1])
        >>> fedga_binary_loss(logits, labels, torch.tensor([50, 50]))
        tensor([1.3133, 0.3133])
        >>> fedga_binary_loss(logits, labels, torch.tensor([90, 10]))
        tensor([0.6634, 0.3133])

    References:
        Xiao, Zuo and Wang 2024, FedGA: Federated Learning with Gradient Alignment for Error Asymmetry Mitigation,
        binary form. https://arxiv.org/abs/2412.16582
    """
    score = logits[..., 1] - logits[..., 0]
    targets = fedga_binary_targets(score, labels, counts)
    return -(targets * F.logsigmoid(score) + (1 - targets) * F.logsigmoid(-score))
