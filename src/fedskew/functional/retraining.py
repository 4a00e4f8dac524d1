"""Classifiers that the server trains anew, on features that CReFF fits to gradients and CCVR draws from Gaussians.

B rows, C classes, F features, K clients.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fedskew.functional._numeric import is_label, nonzero, unit

__all__ = [
    "class_moments", "class_statistics", "creff_head", "creff_head_gradients", "creff_match", "creff_synthesize",
    "gaussian_features", "pooled_statistics", "rows_per_class", "statistics_of_moments",
]  # fmt: skip

# CReFF: gradients at clients, features and head at the server


def rows_per_class(labels: Tensor, draws: Tensor, most: int, classes: int) -> Tensor:
    """Select at most a given number of rows of every class at random.

    Args:
        labels: Class numbers in [0, C), int64 [B].
        draws: A random number for each row, [B]; the rows of a class with the smallest are selected.
        most: Rows selected of each class, at most.
        classes: Number of classes C.

    Returns:
        1 for selected rows, else 0; [B] in the dtype of ``draws``.

    Example:
        >>> import torch
        >>> from fedskew.functional import rows_per_class
        >>> draws = torch.tensor([0.9, 0.1, 0.5, 0.3])
        >>> rows_per_class(torch.tensor([0, 0, 0, 1]), draws, most=2, classes=2)
        tensor([0., 1., 1., 1.])
    """
    order = draws.argsort()
    grouped = order[labels[order].argsort(stable=True)]
    counts = is_label(labels, classes).sum(0)
    starts = counts.cumsum(0) - counts
    rank = torch.arange(len(labels), device=labels.device) - starts[labels[grouped]]
    return torch.zeros_like(draws).index_copy(0, grouped, (rank < most).to(draws))


def creff_head_gradients(
    features: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, mask: Tensor, with_bias: bool = False
) -> Tensor:
    """Gradient of each class's mean cross-entropy by the classifier: what a CReFF client uploads.

        g_c = mean over rows b of class c of (softmax(W f_b + b) - e_c) f_b^T;   by the bias the same without f_b^T

    Args:
        features: Inputs f of the classifier, [B, F].
        weight: W, [C, F].
        bias: b, [C], or None.
        labels: Class numbers in [0, C), int64 [B].
        mask: Weight of each row, [B]; 0 leaves it out.
        with_bias: Append the gradient by the bias as a last column.

    Returns:
        g, [C, C, F], or [C, C, F + 1] with the bias: first axis the class of the rows, then the rows of W. Zeros for a
        class without rows.

    Example:
        >>> import torch
        >>> from fedskew.functional import creff_head_gradients
        >>> features = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
        >>> creff_head_gradients(features, torch.zeros(2, 2), None, torch.tensor([0, 0]), torch.ones(2))[0]
        tensor([[-0.2500, -0.5000],
                [ 0.2500,  0.5000]])

    References:
        Shang et al. 2022, Federated Learning on Heterogeneous and Long-Tailed Data via Classifier Re-Training with
        Federated Features (IJCAI), class-wise gradients. https://arxiv.org/abs/2204.13399
    """
    truth = is_label(labels, len(weight)).to(features)
    error = torch.nn.functional.linear(features, weight, bias).softmax(-1) - truth
    share = truth * mask.unsqueeze(1)
    share = share / nonzero(share.sum(0))
    return torch.einsum("bc,bd,bf->cdf", share, error, _with_ones(features) if with_bias else features)


def _with_ones(features: Tensor) -> Tensor:
    """Features [..., F] with a column of ones, whose gradient is that of the bias."""
    return torch.cat([features, torch.ones_like(features[..., :1])], -1)


def creff_match(synthetic: Tensor, real: Tensor, present: Tensor, eps: float = 0.0, with_bias: bool = False) -> Tensor:
    """Gradient-matching loss of CReFF: cosine distances between synthetic and real gradients.

        sum over present classes c and rows r of 1 - cos(synthetic_cr, real_cr)

    With a bias, the gradient by it counts as one more row, of C entries.

    Args:
        synthetic: Gradients of the synthetic features, [C, F], or [C, R, F] for a head with R rows.
        real: Gradients averaged over the clients, shaped as ``synthetic``.
        present: 1 for classes that count, else 0, [C].
        eps: Added to the product of the norms. The authors' code has 1e-6.
        with_bias: The last column is the gradient by the bias: [C, R, F + 1].

    Returns:
        The loss, (). A zero row has cosine 0.

    Example:
        >>> import torch
        >>> from fedskew.functional import creff_match
        >>> synthetic, real = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[1.0, 1.0], [0.0, 1.0]])
        >>> creff_match(synthetic, real, torch.ones(2))
        tensor(0.2929)

    References:
        Shang et al. 2022, Federated Learning on Heterogeneous and Long-Tailed Data via Classifier Re-Training with
        Federated Features (IJCAI), gradient matching. https://arxiv.org/abs/2204.13399
    """
    if with_bias:  # two comparisons: the rows of the weight, and the bias as one row
        columns = creff_match(synthetic[..., -1], real[..., -1], present, eps)
        return creff_match(synthetic[..., :-1], real[..., :-1], present, eps) + columns
    norms = torch.linalg.vector_norm(synthetic, dim=-1) * torch.linalg.vector_norm(real, dim=-1)
    shrink = norms / nonzero(norms + eps) if eps else 1.0
    distance = 1 - (unit(synthetic) * unit(real)).sum(-1) * shrink
    weight = present.to(distance.dtype).reshape(-1, *[1] * (distance.dim() - 1))
    return (distance * weight).sum()


def _gradients_of(synthetic: Tensor, weight: Tensor, bias: Tensor | None, with_bias: bool) -> Tensor:
    """Classifier gradient of each class's synthetic features [C, n, F]: [C, C, F], or [C, C, F + 1] with the bias."""
    truth = torch.eye(len(weight), dtype=synthetic.dtype, device=synthetic.device).unsqueeze(1)
    error = torch.nn.functional.linear(synthetic, weight, bias).softmax(-1) - truth
    return torch.einsum("cnd,cnf->cdf", error, _with_ones(synthetic) if with_bias else synthetic) / synthetic.shape[1]


def creff_synthesize(
    synthetic: Tensor, weight: Tensor, bias: Tensor | None, real: Tensor, present: Tensor, steps: int, lr: float
) -> Tensor:
    """Fit synthetic ("federated") features so that their head gradients match the clients'.

    Gradient descent on `creff_match` of the two gradients, with eps 1e-6.

    Args:
        synthetic: Features to start from, [C, n, F]: n for each class.
        weight: Classifier weight at which the real gradients were taken, [C, F].
        bias: Its bias, [C], or None.
        real: Real gradients g, [C, C, F], from `creff_head_gradients`; [C, C, F + 1] matches those by the bias too.
        present: 1 for classes with a real gradient, else 0, [C].
        steps: Number of steps.
        lr: Learning rate.

    Returns:
        New features, [C, n, F], detached.

    Example:
        >>> import torch
        >>> from fedskew.functional import creff_head_gradients, creff_match, creff_synthesize
        >>> weight, start = torch.zeros(2, 2), torch.tensor([[[0.0, 1.0]], [[1.0, 0.0]]])
        >>> rows = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
        >>> real = creff_head_gradients(rows, weight, None, torch.tensor([0, 1]), torch.ones(2))
        >>> fitted = creff_synthesize(start, weight, None, real, torch.ones(2), steps=50, lr=0.5)
        >>> fitted.round(decimals=1)
        tensor([[[1.5000, 0.0000]],
        <BLANKLINE>
                [[0.0000, 1.5000]]])

    References:
        Shang et al. 2022, Federated Learning on Heterogeneous and Long-Tailed Data via Classifier Re-Training with
        Federated Features (IJCAI), federated features. https://arxiv.org/abs/2204.13399
    """
    with_bias = real.shape[-1] > weight.shape[-1]
    for _ in range(steps):
        with torch.enable_grad():
            leaf = synthetic.detach().requires_grad_()
            loss = creff_match(_gradients_of(leaf, weight, bias, with_bias), real, present, 1e-6, with_bias)
            (grad,) = torch.autograd.grad(loss, leaf)
        synthetic = synthetic - lr * grad
    return synthetic.detach()


def creff_head(
    synthetic: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    epochs: int,
    lr: float,
    batch_size: int = 0,
    order: Callable[[int], Tensor] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Train a linear classifier on synthetic features by gradient descent on cross-entropy.

    Args:
        synthetic: Features, [C, n, F]: n for each class.
        weight: Weight to start from, [C, F].
        bias: Bias to start from, [C], or None.
        epochs: Number of passes over the features.
        lr: Learning rate.
        batch_size: Features of a mini-batch; 0 takes all of them, one step an epoch. The authors' code has 32.
        order: Gives the order of the C n features in an epoch 0, 1, ..., int64 [C n]; None takes them as they are.

    Returns:
        (weight [C, F], bias [C] or None), detached.

    Example:
        >>> import torch
        >>> from fedskew.functional import creff_head
        >>> features = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
        >>> creff_head(features, torch.zeros(2, 2), None, epochs=100, lr=0.1)[0]
        tensor([[ 1.0927, -1.0927],
                [-1.0927,  1.0927]])

    References:
        Shang et al. 2022, Federated Learning on Heterogeneous and Long-Tailed Data via Classifier Re-Training with
        Federated Features (IJCAI), classifier re-training. https://arxiv.org/abs/2204.13399
    """
    with torch.no_grad():
        features = synthetic.flatten(0, 1)
        features = features if bias is None else _with_ones(features)
        truth = torch.eye(len(synthetic), dtype=features.dtype, device=features.device)
        truth = truth.repeat_interleave(synthetic.shape[1], dim=0)
        # the bias is the weight of a last feature, 1; thousands of steps: the gradient is written out, without a tape
        whole = weight.clone() if bias is None else torch.cat([weight, bias.unsqueeze(1)], 1)
        for epoch in range(epochs):
            at = None if order is None else order(epoch)
            rows, labels = (features, truth) if at is None else (features[at], truth[at])
            size = batch_size or len(rows)
            for x, y in zip(torch.split(rows, size), torch.split(labels, size), strict=True):
                error = torch.nn.functional.linear(x, whole).softmax(-1) - y
                whole.addmm_(error.T, x, alpha=-lr / len(x))
    return (whole, None) if bias is None else (whole[:, :-1].contiguous(), whole[:, -1].contiguous())


# CCVR: Gaussians of the classes, which clients upload and the server pools


Statistics = tuple[Tensor, Tensor, Tensor]


def class_statistics(features: Tensor, labels: Tensor, mask: Tensor, classes: int) -> Statistics:
    """Mean, covariance and number of the features of each class at one client.

        mu_c = mean of f_b over the rows of c;   S_c = sum (f_b - mu_c) (f_b - mu_c)^T / (n_c - 1)

    Args:
        features: f, [B, F].
        labels: Class numbers in [0, C), int64 [B].
        mask: 1 for real rows, 0 for padding, [B].
        classes: Number of classes C.

    Returns:
        (mu [C, F], S [C, F, F], n [C]). Zeros for a class without rows; S is 0 for one row.

    Example:
        >>> import torch
        >>> from fedskew.functional import class_statistics
        >>> mean, covariance, n = class_statistics(torch.tensor([[1.0], [3.0]]), torch.tensor([1, 1]), torch.ones(2), 2)
        >>> mean[1], covariance[1], n
        (tensor([2.]), tensor([[2.]]), tensor([0., 2.]))

    References:
        Luo et al. 2021, No Fear of Heterogeneity: Classifier Calibration for Federated Learning with Non-IID Data
        (NeurIPS). https://arxiv.org/abs/2106.05001
    """
    owner = is_label(labels, classes).to(features) * mask.unsqueeze(1).to(features)
    n = owner.sum(0)
    mean = owner.T @ features / nonzero(n).unsqueeze(1)
    centred = features - owner @ mean
    products = torch.einsum("bc,bf,bg->cfg", owner, centred, centred)
    return mean, products / (n - 1).clamp(min=1)[:, None, None], n


def pooled_statistics(means: Tensor, covariances: Tensor, counts: Tensor) -> Statistics:
    """The statistics of all clients' rows together, from those of each client.

        mu_c = sum_k n_kc mu_kc / n_c
        S_c = (sum_k (n_kc - 1) S_kc + sum_k n_kc (mu_kc - mu_c) (mu_kc - mu_c)^T) / (n_c - 1)

    Args:
        means: mu_k, [K, C, F].
        covariances: S_k, [K, C, F, F].
        counts: n_k, [K, C].

    Returns:
        (mu [C, F], S [C, F, F], n [C]), as `class_statistics` of the union.

    Example:
        >>> import torch
        >>> from fedskew.functional import pooled_statistics
        >>> means, counts = torch.tensor([[[1.0]], [[3.0]]]), torch.ones(2, 1)
        >>> pooled_statistics(means, torch.zeros(2, 1, 1, 1), counts)
        (tensor([[2.]]), tensor([[[2.]]]), tensor([2.]))

    References:
        Luo et al. 2021, No Fear of Heterogeneity: Classifier Calibration for Federated Learning with Non-IID Data
        (NeurIPS), equations 2 and 3. https://arxiv.org/abs/2106.05001
    """
    n = counts.sum(0)
    mean = (counts.unsqueeze(-1) * means).sum(0) / nonzero(n).unsqueeze(-1)
    apart = (means - mean) * counts.sqrt().unsqueeze(-1)
    within = ((counts - 1).clamp(min=0)[..., None, None] * covariances).sum(0)
    between = torch.einsum("kcf,kcg->cfg", apart, apart)
    return mean, (within + between) / (n - 1).clamp(min=1)[:, None, None], n


def class_moments(mean: Tensor, covariance: Tensor, count: Tensor) -> Statistics:
    """Sums over a client's rows from which `statistics_of_moments` makes the statistics of all clients' rows.

        (n_c mu_c,   (n_c - 1) S_c + n_c mu_c mu_c^T,   n_c)

    Args:
        mean: mu, [C, F].
        covariance: S, [C, F, F].
        count: n, [C].

    Returns:
        Tensors of the same shapes.

    Example:
        >>> import torch
        >>> from fedskew.functional import class_moments, statistics_of_moments
        >>> own = torch.tensor([[2.0]]), torch.tensor([[[2.0]]]), torch.tensor([3.0])
        >>> class_moments(*own)
        (tensor([[6.]]), tensor([[[16.]]]), tensor([3.]))
        >>> statistics_of_moments(*class_moments(*own))
        (tensor([[2.]]), tensor([[[2.]]]), tensor([3.]))

    References:
        Luo et al. 2021, No Fear of Heterogeneity: Classifier Calibration for Federated Learning with Non-IID Data
        (NeurIPS), equations 2 and 3. https://arxiv.org/abs/2106.05001
    """
    n, outer = count[:, None, None], mean.unsqueeze(-1) * mean.unsqueeze(-2)
    return count.unsqueeze(-1) * mean, (n - 1).clamp(min=0) * covariance + n * outer, count


def statistics_of_moments(first: Tensor, second: Tensor, count: Tensor) -> Statistics:
    """(mu, S, n) of sums of what `class_moments` gives; see there.

    Example:
        >>> import torch
        >>> first, second = torch.tensor([[4.0]]), torch.tensor([[[10.0]]])  # of a class with rows 1 and 3
        >>> statistics_of_moments(first, second, torch.tensor([2.0]))[:2]
        (tensor([[2.]]), tensor([[[2.]]]))
    """
    mean, n = first / nonzero(count).unsqueeze(-1), count[:, None, None]
    return mean, (second - n * mean.unsqueeze(-1) * mean.unsqueeze(-2)) / (n - 1).clamp(min=1), count


def gaussian_features(mean: Tensor, covariance: Tensor, noise: Tensor) -> Tensor:
    """Virtual features of each class: mu_c + R_c xi with R_c R_c^T = S_c.

    R_c is the Cholesky factor, in float64. A small part of the mean variance is added to the diagonal, 1e-12 or a
    thousand times more as often as it takes: features that a ReLU keeps at 0 make S_c singular.

    Args:
        mean: mu, [C, F].
        covariance: S, [C, F, F].
        noise: xi, standard normal, [C, n, F].

    Returns:
        Features, [C, n, F], of the mean's dtype.

    Example:
        >>> import torch
        >>> from fedskew.functional import gaussian_features
        >>> gaussian_features(torch.tensor([[1.0]]), torch.tensor([[[4.0]]]), torch.tensor([[[0.0], [1.0]]]))
        tensor([[[1.],
                 [3.]]])

    References:
        Luo et al. 2021, No Fear of Heterogeneity: Classifier Calibration for Federated Learning with Non-IID Data
        (NeurIPS), algorithm 1. https://arxiv.org/abs/2106.05001
    """
    wide = covariance.double()
    size = wide.diagonal(dim1=-2, dim2=-1).mean(-1).clamp(min=1e-30)[:, None, None]
    eye = torch.eye(wide.shape[-1], dtype=wide.dtype, device=wide.device)
    for part in (1e-12, 1e-9, 1e-6, 1e-3, 1.0):
        root, failed = torch.linalg.cholesky_ex(wide + part * size * eye)
        if not failed.any():
            break
    drawn: Tensor = mean.double().unsqueeze(1) + noise.double() @ root.transpose(-1, -2)
    return drawn.to(mean)
