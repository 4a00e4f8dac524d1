"""The ratio loss and its monitor (FedRL), from changes of the classifier on auxiliary data of one class at a time.

P = C classes. ``delta_w`` [P, C, F] is the change of the classifier's weight [C, F] after training the global model on
auxiliary data of class p alone.
"""

from typing import Literal

import torch
from torch import Tensor

from fedskew.functional._numeric import choose, nonzero, per_label
from fedskew.functional.losses import cross_entropy

__all__ = ["ratio_loss", "ratio_masks", "ratio_monitor", "ratio_of_changes", "ratio_of_rows", "ratio_weights"]


def _largest_other(values: Tensor) -> Tensor:
    """max_{q != p} values_q for every p, along the first axis [P, ...]."""
    first, second = values.topk(2, dim=0).values
    return torch.where(values == first, second, first)  # a tie makes first and second equal


def _mean_other(delta_w: Tensor) -> Tensor:
    """mean_{q != p} delta_w_q for every p, [P, C, F]."""
    return (delta_w.sum(0, keepdim=True) - delta_w) / (len(delta_w) - 1)


By = Literal["signed", "magnitude", "quotient"]


def ratio_masks(delta_w: Tensor, threshold: float = 0.8, by: By = "signed", zeros: bool = False) -> Tensor:
    """Weights of the classifier that belong to one class: where it changes most and the others change little.

        M_p = {weights where delta_w_p is the largest and |delta_w_q| <= threshold |delta_w_p| for all q != p}

    Args:
        delta_w: Changes of the classifier's weight, [P, C, F].
        threshold: Largest change of another class, as a share, in [0, 1].
        by: What "largest" compares. "signed" compares values, as the authors' code does, "magnitude" absolute values;
            the threshold compares magnitudes in both. "quotient", the copy of FedGA's authors, compares values in both:
            delta_w_p > 0 and delta_w_q <= threshold delta_w_p, so that no large negative change excludes a weight.
        zeros: A largest change of exactly 0, where every other class has a negative one, gives the weight to its class,
            as in both codes. Its own change adds 0 to the ratio, and the others' changes add to the divisor. False
            gives such a weight to no class: by the formula, 0 has no share of 80 %. "magnitude" has no such weights.

    Returns:
        M, bool [P, C, F]. A tie belongs to no class.

    Raises:
        ConfigError: ``by`` is not "signed", "magnitude" or "quotient".

    Example:
        >>> import torch
        >>> from fedskew.functional import ratio_masks
        >>> delta_w = torch.tensor([[[0.6, -0.2], [-0.1, 0.3]], [[-0.3, 0.1], [0.5, 0.4]]])
        >>> ratio_masks(delta_w)
        tensor([[[ True, False],
                 [False, False]],
        <BLANKLINE>
                [[False, False],
                 [ True,  True]]])

    References:
        Wang et al. 2021, Addressing Class Imbalance in Federated Learning (AAAI), ratio loss.
        https://arxiv.org/abs/2008.06217
    """
    choose("by", by, ("signed", "magnitude", "quotient"))
    size, other = delta_w.abs(), _largest_other(delta_w)
    if by == "quotient":
        masks = (delta_w > 0) & (delta_w > other) & (other <= threshold * delta_w)
    else:
        largest = delta_w > other if by == "signed" else size > _largest_other(size)
        masks = largest & (_largest_other(size) <= threshold * size)
    return masks | ((delta_w == 0) & (other < 0)) if zeros and by != "magnitude" else masks


def ratio_of_changes(
    delta_w: Tensor,
    threshold: float = 0.8,
    nan_value: float = 10.0,
    cap: float = 5000.0,
    by: By = "signed",
    zeros: bool = False,
) -> Tensor:
    """Ratio of each class's change to the other classes', over the weights that belong to it.

        Ra_p = |sum_{M_p} delta_w_p| / |sum_{M_p} mean_{q != p} delta_w_q|

    Args:
        delta_w: Changes of the classifier's weight, [P, C, F].
        threshold: Share that defines M; see `ratio_masks`.
        nan_value: Result where the denominator is 0.
        cap: Largest result.
        by: "signed", "magnitude" or "quotient"; see `ratio_masks`.
        zeros: Whether a largest change of 0 gives a weight to its class; see `ratio_masks`.

    Returns:
        Ra, [P]: large for classes that the global model fits badly.

    Raises:
        ConfigError: ``by`` is not "signed", "magnitude" or "quotient".

    Example:
        >>> import torch
        >>> from fedskew.functional import ratio_of_changes
        >>> delta_w = torch.tensor([[[0.6, -0.2], [-0.1, 0.3]], [[-0.3, 0.1], [0.5, 0.4]]])
        >>> ratio_of_changes(delta_w)
        tensor([2.0000, 4.5000])

    References:
        Wang et al. 2021, Addressing Class Imbalance in Federated Learning (AAAI), ratio loss.
        https://arxiv.org/abs/2008.06217
    """
    masks = ratio_masks(delta_w, threshold, by, zeros)
    own_change = (delta_w * masks).sum((-2, -1)).abs()
    rest = (_mean_other(delta_w) * masks).sum((-2, -1)).abs()
    return torch.where(rest > 0, own_change / nonzero(rest), nan_value).clamp(max=cap)


def ratio_of_rows(delta_w: Tensor, nan_value: float = 10.0, cap: float = 5000.0) -> Tensor:
    """Ratio of each class's change to the other classes', on the class's own row of the classifier.

    This is the form of the CLIMB authors' code.

        Ra_p = |mean_j ( delta_w_p[p, j] / mean_{q != p} delta_w_q[p, j] )|

    Args:
        delta_w: Changes of the classifier's weight, [P, C, F].
        nan_value: Result where every divisor is 0. Single weights with divisor 0 are left out.
        cap: Largest result.

    Returns:
        Ra, [P].

    Example:
        >>> import torch
        >>> from fedskew.functional import ratio_of_rows
        >>> delta_w = torch.tensor([[[0.6, -0.2], [-0.1, 0.3]], [[-0.3, 0.1], [0.5, 0.4]]])
        >>> ratio_of_rows(delta_w)
        tensor([2.0000, 1.8333])

    References:
        Shen et al. 2022, An Agnostic Approach to Federated Learning with Class Imbalance (ICLR), the ratio loss of its
        code. https://openreview.net/forum?id=Xo0lbDt975
    """
    own_row, rest = (torch.diagonal(d, dim1=0, dim2=1).mT for d in (delta_w, _mean_other(delta_w)))  # [P, F]
    valid = rest != 0
    mean = torch.where(valid, own_row / nonzero(rest), 0.0).sum(-1) / nonzero(valid.sum(-1))
    return torch.where(valid.any(-1), mean.abs(), nan_value).clamp(max=cap)


def ratio_weights(ratios: Tensor, alpha: float = 1.0, beta: float = 0.1) -> Tensor:
    """Class weights of the ratio loss.

        w_c = alpha + beta Ra_c

    Args:
        ratios: Ra, [C], from `ratio_of_changes`.
        alpha: Weight of every class. The paper has 1.
        beta: Weight of the ratio. The paper has 0.1; 0 gives plain cross-entropy.

    Returns:
        Weights, [C].

    Example:
        >>> import torch
        >>> from fedskew.functional import ratio_weights
        >>> ratio_weights(torch.tensor([2.0, 4.5]))
        tensor([1.2000, 1.4500])

    References:
        Wang et al. 2021, Addressing Class Imbalance in Federated Learning (AAAI), ratio loss.
        https://arxiv.org/abs/2008.06217
    """
    return alpha + beta * ratios


def ratio_loss(
    logits: Tensor, labels: Tensor, weights: Tensor, broken_broadcast: bool = False, mask: Tensor | None = None
) -> Tensor:
    """Ratio loss: cross-entropy weighted by the class of the row.

        L_b = w_y (-log softmax(z_b)_y)

    Average with a plain mean, not divided by the sum of weights.

    Args:
        logits: Logits z, [B, C].
        labels: Class numbers y in [0, C), int64 [B].
        weights: w, [C], from `ratio_weights`. Ones give cross-entropy.
        broken_broadcast: Reproduce the authors' code. Its product broadcasts to [B, B], so its mean is mean(w_y) *
            mean(cross-entropy): weights do not act by class.
        mask: Weight of each row in the batch's mean weight, [B]; used with ``broken_broadcast`` only.

    Returns:
        Loss of each row, [B].

    Example:
        >>> import torch
        >>> from fedskew.functional import ratio_loss
        >>> ratio_loss(torch.tensor([[2.0, 1.0]]), torch.tensor([0]), torch.tensor([1.2, 1.45]))
        tensor([0.3759])

    References:
        Wang et al. 2021, Addressing Class Imbalance in Federated Learning (AAAI), ratio loss.
        https://arxiv.org/abs/2008.06217
    """
    factor = per_label(weights, labels)
    if broken_broadcast:
        real = torch.ones_like(factor) if mask is None else mask
        factor = (factor * real).sum(-1, keepdim=True) / nonzero(real.sum(-1, keepdim=True))
    return factor * cross_entropy(logits, labels)


def ratio_monitor(
    delta_w: Tensor,
    update: Tensor,
    total: Tensor | float,
    scale: Tensor | float = 1.0,
    threshold: float = 0.8,
    by: By = "signed",
) -> Tensor:
    """Estimate how many rows of each class a cohort trained on, from one global update (the monitoring scheme).

    Solves, for every weight in M_p, with rest_p = mean_{q != p} delta_w_q:

        delta_w_p N_p + rest_p (n - N_p) = scale (x+ - x)

    An estimate is valid if 0 < N_p < 1.5 n / C. The result is the mean over valid weights, or n / C without any.

    Args:
        delta_w: Changes of the classifier's weight, [P, C, F].
        update: x+ - x, the change of the classifier's weight in one round, [C, F].
        total: n, rows of the cohort.
        scale: Auxiliary rows of each class times number of participants.
        threshold: Share that defines M; see `ratio_masks`.
        by: "signed", "magnitude" or "quotient"; see `ratio_masks`.

    Returns:
        Estimated rows N_p of each class, [P].

    Raises:
        ConfigError: ``by`` is not "signed", "magnitude" or "quotient".

    Example:
        >>> import torch
        >>> from fedskew.functional import ratio_monitor
        >>> delta_w = torch.tensor([[[0.6, -0.2], [-0.1, 0.3]], [[-0.3, 0.1], [0.5, 0.4]]])
        >>> update = 70 * delta_w[0] + 30 * delta_w[1]  # 70 rows of class 0, 30 of class 1
        >>> ratio_monitor(delta_w, update, total=100.0)
        tensor([70.0000, 30.0000])

    References:
        Wang et al. 2021, Addressing Class Imbalance in Federated Learning (AAAI), monitoring scheme.
        https://arxiv.org/abs/2008.06217
    """
    rest = _mean_other(delta_w)
    slope = delta_w - rest
    estimate = (scale * update - total * rest) / nonzero(slope)  # [P, C, F]
    even = total / len(delta_w)
    valid = ratio_masks(delta_w, threshold, by) & (slope != 0) & (estimate > 0) & (estimate < 1.5 * even)
    count = valid.sum((-2, -1))
    return torch.where(count > 0, torch.where(valid, estimate, 0.0).sum((-2, -1)) / nonzero(count), even)
