"""Metrics of classifiers from a confusion matrix, and error asymmetry. Pure functions in float64.

Those of predicted probabilities and of clients' label mixes are in `fedskew.records.probabilities`; their names are
here, too.

C classes, B rows. Rows of a confusion matrix are true classes, columns are predictions; support_c is the sum of row c.

Absent classes. A class is *present* when the test labels contain it (support > 0).

- recall_c is 0 for an absent class, precision_c is 0 for a class that is never predicted, and F1_c is 0 where
  precision_c + recall_c is 0. Where ``support`` is 0, a 0 means "not measured".
- macro-F1, balanced accuracy, G-mean and worst-class recall cover the present classes, as do AUROC and AUPRC; the
  G-mean is 0 if one of them has recall 0.
- a group (head, mid, tail) without a test row has no entry.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fedskew.errors import DataError, require
from fedskew.records.probabilities import (
    auprc,
    auroc,
    calibration_error,
    from_mixes,
    from_probabilities,
    macro,
    mix_accuracy,
    recall_at_precision,
)

__all__ = [
    "Groups", "auprc", "auroc", "calibration_error", "confusion", "error_asymmetry", "from_confusion", "from_mixes",
    "from_probabilities", "groups_by_counts", "macro", "mean_probabilities", "mix_accuracy", "recall_at_precision",
]  # fmt: skip

Metrics = dict[str, float | list[float] | list[int]]


class Groups(NamedTuple):
    """Classes grouped by their training counts; class numbers in ascending order, together all classes."""

    head: Tensor  # [H] the frequent classes
    mid: Tensor  # [C - 2H]
    tail: Tensor  # [H] the rare classes


def confusion(labels: Tensor, predictions: Tensor, classes: int) -> Tensor:
    """Confusion matrix of predictions.

    Args:
        labels: True classes, integers [B].
        predictions: Predicted classes, integers [B].
        classes: Number of classes C.

    Returns:
        m[t, p], the rows with true class t and predicted class p, int64 [C, C], on the device of the labels.

    Raises:
        DataError: The lengths differ, or a value is not in [0, C).

    Example:
        >>> import torch
        >>> from fedskew.records.metrics import confusion
        >>> confusion(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 1]), classes=3)
        tensor([[1, 1, 0],
                [0, 1, 0],
                [0, 1, 0]])
    """
    if labels.shape != predictions.shape or labels.ndim != 1:
        shapes = f"{tuple(labels.shape)} and {tuple(predictions.shape)}"
        raise DataError(f"labels and predictions must both be [B]; got shapes {shapes}")
    for what, values in (("labels", labels), ("predictions", predictions)):
        if values.numel() and not 0 <= int(values.min()) <= int(values.max()) < classes:
            span = f"{int(values.min())} to {int(values.max())}"
            raise DataError(f"{what} must lie in [0, {classes}); got {span}; is the number of classes right?")
    return confusion_of(labels.long(), predictions.long().to(labels.device), classes)


def confusion_of(labels: Tensor, predictions: Tensor, classes: int) -> Tensor:
    """`confusion` of int64 values that are known to be in range; it reads nothing back from the device."""
    cells = labels * classes + predictions
    counts = cells.new_zeros(classes * classes).scatter_add(0, cells, torch.ones_like(cells))
    return counts.reshape(classes, classes)


def groups_by_counts(counts: Tensor) -> Groups:
    """Group classes into head, mid and tail by their training counts.

    Classes are sorted by decreasing count, ties by increasing class number. The first max(1, floor(C/3)) are the head,
    as many at the end are the tail, the rest is mid: 3, 4, 3 of ten classes. With two classes mid is empty.

    Args:
        counts: Training rows of each class, [C], C at least 2.

    Returns:
        Class numbers of head, mid and tail.

    Raises:
        ConfigError: ``counts`` is not [C] with C at least 2.

    Example:
        >>> import torch
        >>> from fedskew.records.metrics import groups_by_counts
        >>> groups_by_counts(torch.tensor([5, 90, 40, 8]))
        Groups(head=tensor([1]), mid=tensor([2, 3]), tail=tensor([0]))
    """
    require(counts.ndim == 1 and len(counts) >= 2, "counts", "be [C] with C at least 2", tuple(counts.shape))
    order = torch.sort(counts.cpu(), descending=True, stable=True).indices
    third = max(1, len(counts) // 3)
    parts = order[:third], order[third:-third], order[-third:]
    return Groups(*(part.sort().values for part in parts))


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    """part / whole, and 0 where whole is 0."""
    return torch.where(whole > 0, part / whole.clamp(min=1), 0.0)


def from_confusion(m: Tensor, groups: Groups | None = None) -> Metrics:
    """Every metric of a confusion matrix, as Python numbers.

    The result holds ``accuracy``, ``macro_f1``, ``balanced_accuracy``, ``g_mean`` and ``worst_class_recall`` as floats,
    ``per_class_precision``, ``per_class_recall`` and ``per_class_f1`` as lists of C floats, and ``support`` as C ints.
    With ``groups`` it also holds ``head_accuracy``, ``mid_accuracy`` and ``tail_accuracy``: the share of the test rows
    of these classes that are predicted correctly. The module defines how absent classes count.

    Args:
        m: Confusion matrix, [C, C], rows are true classes.
        groups: Head, mid and tail classes, from `groups_by_counts`.

    Returns:
        Metrics by name.

    Raises:
        DataError: The matrix is not square or holds no row.

    Example:
        >>> import torch
        >>> from fedskew.records.metrics import from_confusion
        >>> found = from_confusion(torch.tensor([[8, 2], [1, 4]]))
        >>> {name: round(found[name], 4) for name in ("accuracy", "macro_f1", "balanced_accuracy", "g_mean")}
        {'accuracy': 0.8, 'macro_f1': 0.7847, 'balanced_accuracy': 0.8, 'g_mean': 0.8}
        >>> found["per_class_recall"], found["support"]
        ([0.8, 0.8], [10, 5])
    """
    if m.ndim != 2 or m.shape[0] != m.shape[1] or int(m.sum()) <= 0:
        raise DataError(f"a confusion matrix must be [C, C] and hold a row; got {tuple(m.shape)}, sum {int(m.sum())}")
    m = m.detach().cpu()
    support = m.sum(1)
    exact = m.double()
    hits = exact.diagonal()
    recall = _ratio(hits, exact.sum(1))
    precision = _ratio(hits, exact.sum(0))
    f1 = _ratio(2 * hits, exact.sum(1) + exact.sum(0))  # = 2PR/(P+R), and 0 where P + R is 0
    seen = recall[support > 0]
    out: Metrics = {
        "accuracy": float(hits.sum() / exact.sum()),
        "macro_f1": float(f1[support > 0].mean()),
        "balanced_accuracy": float(seen.mean()),
        "g_mean": float(seen.log().mean().exp()),  # log 0 = -inf gives 0
        "worst_class_recall": float(seen.min()),
        "per_class_precision": precision.tolist(),
        "per_class_recall": recall.tolist(),
        "per_class_f1": f1.tolist(),
        "support": support.tolist(),
    }
    for name, ids in (groups._asdict() if groups else {}).items():
        if rows := int(support[ids].sum()):
            out[f"{name}_accuracy"] = float(hits[ids].sum() / rows)
    return out


def mean_probabilities(labels: Tensor, probabilities: Tensor, classes: int) -> Tensor:
    """Mean predicted probabilities of each true class.

    Args:
        labels: True classes, int64 [B].
        probabilities: Predicted probabilities, [B, C].
        classes: Number of classes C.

    Returns:
        p[c, i], the mean probability of class i over the rows of class c, float64 [C, C]. The row of a class without
        labels is NaN.

    Example:
        >>> import torch
        >>> from fedskew.records.metrics import mean_probabilities
        >>> mean_probabilities(torch.tensor([0, 0, 1]), torch.tensor([[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]]), 2)
        tensor([[0.8000, 0.2000],
                [0.4000, 0.6000]], dtype=torch.float64)
    """
    sums = probabilities.new_zeros(classes, classes, dtype=torch.float64)
    sums.index_add_(0, labels, probabilities.double())
    return sums / torch.bincount(labels, minlength=classes).unsqueeze(1)


def error_asymmetry(mean_probabilities: Tensor) -> tuple[list[float], float]:
    """Error asymmetry of each class, and its ratio.

        EA_i = (1 - p_ii) / sum_{c != i} p_ci          ratio = max_i EA_i / min_i EA_i

    A class with EA above 1 gives away more probability than it takes. Measure it on a class-balanced set.

    Args:
        mean_probabilities: p, [C, C], from `mean_probabilities`. NaN rows (classes without test rows) are left out of
            sums.

    Returns:
        (EA of each class, ratio). EA is NaN for a class without test rows and for 0/0; these do not enter the ratio.

    Raises:
        ConfigError: ``mean_probabilities`` is not square.

    Example:
        >>> import torch
        >>> from fedskew.records.metrics import error_asymmetry
        >>> each, ratio = error_asymmetry(torch.tensor([[0.7, 0.2, 0.1], [0.3, 0.6, 0.1], [0.2, 0.2, 0.6]]))
        >>> [round(ea, 4) for ea in each], round(ratio, 4)
        ([0.6, 1.0, 2.0], 3.3333)

    References:
        Xiao, Zuo and Wang 2024, FedGA: Federated Learning with Gradient Alignment for Error Asymmetry Mitigation, error
        asymmetry. https://arxiv.org/abs/2412.16582
    """
    p = mean_probabilities.detach().cpu().double()
    require(p.ndim == 2 and p.shape[0] == p.shape[1], "mean_probabilities", "be [C, C]", tuple(p.shape))
    off_diagonal = p.nan_to_num(0.0).clone()
    off_diagonal.fill_diagonal_(0.0)
    asymmetry = (1 - p.diagonal()) / off_diagonal.sum(0)
    known = asymmetry[~asymmetry.isnan()]
    ratio = float(known.max() / known.min()) if len(known) else math.nan
    return asymmetry.tolist(), ratio
