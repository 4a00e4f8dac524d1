"""Losses that balance the gradients of a client's classes: FedGA and Fed-GraB. B rows, C classes."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedskew.functional._numeric import choose, counts_for, is_label, nonzero, per_label
from fedskew.functional.losses import class_counts

__all__ = [
    "fedga_binary_loss", "fedga_binary_targets", "fedga_loss", "fedga_targets", "fedgrab_map", "fedgrab_pid",
    "fedgrab_prior", "fedgrab_release", "fedgrab_tail", "weighted_bce",
]  # fmt: skip

# FedGA: calibrated targets, and the losses on them


def fedga_targets(
    logits: Tensor,
    labels: Tensor,
    counts: Tensor | None = None,
    mask: Tensor | None = None,
    probability: Literal["row", "class"] = "row",
) -> Tensor:
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
        probability: What p is. "row" is the row's own, as in the authors' code. "class" is its mean over the rows of
            the label in this batch, as in equations 9 and 10. Under the exact form both give the same gradient by the
            logits, summed over the rows of a class, and another one in a single row.

    Returns:
        Targets q, [B, C], detached.

    Raises:
        ConfigError: ``probability`` is not "row" or "class".

    Example:
        >>> import torch
        >>> from fedskew.functional import fedga_targets
        >>> fedga_targets(torch.zeros(4, 3), torch.tensor([0, 0, 0, 1]))[[0, 3]]
        tensor([[ 1.0000,  0.2222,  0.3333],
                [-0.6667,  1.0000,  0.3333]])

    References:
        Xiao, Zuo and Wang 2024, FedGA: Federated Learning with Gradient Alignment for Error Asymmetry Mitigation,
        equation 10. https://arxiv.org/abs/2412.16582
    """
    shifted, partition, _ = _log_partition(logits.detach())
    return _calibrated((shifted - partition).exp(), labels, counts, mask, probability)


def _calibrated(
    probabilities: Tensor,
    labels: Tensor,
    counts: Tensor | None,
    mask: Tensor | None,
    probability: Literal["row", "class"],
) -> Tensor:
    """Targets of `fedga_targets` from probabilities [B, C]."""
    choose("probability", probability, ("row", "class"))
    classes = probabilities.shape[-1]
    if counts is None:
        counts = class_counts(labels, classes, mask)
    counts = counts_for(probabilities, counts)
    label_counts = per_label(counts, labels).unsqueeze(-1)  # N_j, [B, 1]
    share, mine = (label_counts - counts) / nonzero(label_counts), is_label(labels, classes)
    if probability == "class":
        member = mine.to(probabilities)
        weights = member if mask is None else member * mask.to(probabilities).unsqueeze(-1)
        means = weights.mT @ probabilities / nonzero(weights.sum(-2)).unsqueeze(-1)  # [C, C], one row a label
        probabilities = member @ means
    return torch.where(mine, torch.ones_like(probabilities), share * probabilities)


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
    probability: Literal["row", "class"] = "row",
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
        probability: What p of the targets is; see `fedga_targets`. Under "class" a class that is absent from the batch
            gets a gradient in single rows, and none in sum over the rows of a label.

    Returns:
        Loss of each row, [B]. It may be negative.

    Raises:
        ConfigError: ``form`` is not "softce" or "exact", or ``probability`` is not "row" or "class".

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
        equations 8 and 10. https://arxiv.org/abs/2412.16582
    """
    choose("form", form, ("softce", "exact"))
    if form == "exact":
        targets = fedga_targets(logits, labels, counts, mask, probability)
        _, partition, shift = _log_partition(logits)
        return (partition + shift).squeeze(-1) - (targets * logits).sum(-1)
    scores = logits.log_softmax(-1)
    return -(_calibrated(scores.detach().exp(), labels, counts, mask, probability) * scores).sum(-1)


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


# Fed-GraB: a controller of each class weighs positive and negative gradients


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


def fedgrab_prior(weight: Tensor) -> Tensor:
    """Estimate the classes' shares of all rows from a classifier (Fed-GraB's direct prior analyser, DPA).

        s_c = (n_c - min n) / sum_j (n_j - min n),   n_c = ||w_c||_2

    The authors' estimator standardises the norms first, which changes nothing in the ratio.

    Args:
        weight: Rows w_c of the global classifier, [C, F].

    Returns:
        Shares that sum to 1, [C]; the smallest is 0. Equal norms give 1 / C.

    Example:
        >>> import torch
        >>> from fedskew.functional import fedgrab_prior
        >>> fedgrab_prior(torch.tensor([[3.0, 4.0], [0.0, 3.0], [2.0, 0.0]]))
        tensor([0.7500, 0.2500, 0.0000])

    References:
        Xiao et al. 2023, Fed-GraB: Federated Long-tailed Learning with Self-Adjusting Gradient Balancer (NeurIPS),
        direct prior analyser; the form is that of the authors' code (util/wene.py). https://arxiv.org/abs/2310.07587
    """
    norms = torch.linalg.vector_norm(weight, dim=-1)
    above = norms - norms.min()
    total = above.sum()
    return torch.where(total > 0, above / total.clamp(min=1e-30), torch.full_like(above, 1 / len(above)))


def fedgrab_tail(shares: Tensor, most: float = 0.95) -> Tensor:
    """Tell the tail classes: those behind the most frequent ones that hold a given share of the rows (Fed-GraB).

    Args:
        shares: Estimated share of each class, [C].
        most: Share of head and middle classes together. The authors' code has 0.95.

    Returns:
        1 for tail classes, else 0, [C].

    Example:
        >>> import torch
        >>> from fedskew.functional import fedgrab_tail
        >>> fedgrab_tail(torch.tensor([0.02, 0.6, 0.36, 0.02]))
        tensor([1., 0., 0., 1.])

    References:
        Xiao et al. 2023, Fed-GraB: Federated Long-tailed Learning with Self-Adjusting Gradient Balancer (NeurIPS);
        the thresholds are those of the authors' code. https://arxiv.org/abs/2310.07587
    """
    order = shares.argsort(descending=True, stable=True)
    before = shares[order].cumsum(0) - shares[order]
    return torch.zeros_like(shares).index_copy(0, order, (before >= most - 1e-6).to(shares))


def fedgrab_release(draws: Tensor, controlled: Tensor) -> Tensor:
    """Choose at random the classes whose weights stay 1 in one mini-batch, as Fed-GraB's released code does.

    Classes are visited by number. Where r classes are released already, a controlled class is released with probability
    0.1^(r / (n - 1)), n the number of controlled classes: the first of them always.

    Args:
        draws: Uniform draws in [0, 1), [C].
        controlled: 1 for classes under control, else 0, [C].

    Returns:
        True for released classes, bool [C].

    Example:
        >>> import torch
        >>> from fedskew.functional import fedgrab_release
        >>> fedgrab_release(torch.tensor([0.9, 0.5, 0.2, 0.05]), torch.ones(4))
        tensor([ True, False,  True,  True])

    References:
        Xiao et al. 2023, Fed-GraB: Federated Long-tailed Learning with Self-Adjusting Gradient Balancer (NeurIPS), the
        hook of the authors' code (util/losses.py). https://arxiv.org/abs/2310.07587
    """
    several = (controlled.sum() - 1).clamp(min=1)
    released, taken = [], torch.zeros_like(draws[0])
    for draw, mine in zip(draws.unbind(), controlled.unbind(), strict=True):
        chosen = (draw < 0.1 ** (taken / several)) & (mine > 0)
        taken = taken + chosen
        released.append(chosen)
    return torch.stack(released)
