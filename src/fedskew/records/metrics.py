"""Metrics of classifiers, all from one pooled confusion matrix; and error asymmetry. Pure functions in float64.

C classes, B rows. Rows of a confusion matrix are true classes, columns are predictions; support_c is the sum of row c.

Absent classes. A class is *present* when the test labels contain it (support > 0).

- recall_c is 0 for an absent class, precision_c is 0 for a class that is never predicted, and F1_c is 0 where
  precision_c + recall_c is 0: a 0 beside ``support`` 0 means "not measured".
- macro-F1 is the mean of F1_c over all C classes, absent ones included.
- balanced accuracy, G-mean and worst-class recall run over the present classes; the G-mean is 0 if any of them has
  recall 0.
- a group (head, mid, tail) without a test row gives no entry.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fedskew.errors import DataError, require

__all__ = ["Groups", "confusion", "error_asymmetry", "from_confusion", "groups_by_counts", "mean_probabilities"]

Metrics = dict[str, float | list[float] | list[int]]


class Groups(NamedTuple):
    """Classes by how often the training set holds them; int64 class ids in ascending order, together all classes."""

    head: Tensor  # [H] the frequent classes
    mid: Tensor  # [C - 2H]
    tail: Tensor  # [H] the rare classes


def confusion(labels: Tensor, predictions: Tensor, classes: int) -> Tensor:
    """Counts m[t, p] of rows with true class t and predicted class p: int64 [C, C], on the device of the labels.

    ``labels`` and ``predictions`` are [B] integers. Raises DataError when they differ in length or leave [0, C).
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
    """`confusion` of int64 values that are known to be in range: nothing is read back from the device."""
    cells = labels * classes + predictions
    counts = cells.new_zeros(classes * classes).scatter_add(0, cells, torch.ones_like(cells))
    return counts.reshape(classes, classes)


def groups_by_counts(counts: Tensor) -> Groups:
    """Head, mid and tail classes from training counts [C].

    Classes are sorted by decreasing count, ties by increasing class id. The first max(1, floor(C/3)) are the head, as
    many at the end are the tail, the rest is mid: 3, 4, 3 of ten classes; with two classes mid is empty.
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
    """Every metric of a confusion matrix [C, C], as Python numbers.

    accuracy, macro_f1, balanced_accuracy, g_mean, worst_class_recall: floats. per_class_precision, per_class_recall,
    per_class_f1: lists of C floats. support: C ints. With ``groups``: head_accuracy, mid_accuracy, tail_accuracy, the
    share of the test rows of those classes that are predicted correctly. The module says what absent classes do.

    Raises DataError for a matrix that is not square or holds no row.
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
        "macro_f1": float(f1.mean()),
        "balanced_accuracy": float(seen.mean()),
        "g_mean": float(seen.log().mean().exp()),  # log 0 = -inf gives 0
        "worst_class_recall": float(seen.min()),
        "per_class_precision": precision.tolist(),
        "per_class_recall": recall.tolist(),
        "per_class_f1": f1.tolist(),
        "support": support.tolist(),
    }
    return out | _by_group(hits, exact.sum(1), groups)


def _by_group(hits: Tensor, support: Tensor, groups: Groups | None) -> dict[str, float]:
    out = {}
    for name, ids in (groups._asdict() if groups is not None else {}).items():
        rows = support[ids].sum()
        if rows > 0:
            out[f"{name}_accuracy"] = float(hits[ids].sum() / rows)
    return out


def mean_probabilities(labels: Tensor, probabilities: Tensor, classes: int) -> Tensor:
    """p[c, i], the mean predicted probability of class i over the rows of true class c: float64 [C, C].

    ``labels`` [B] int64, ``probabilities`` [B, C]. The row of a class without labels is NaN.
    """
    sums = probabilities.new_zeros(classes, classes, dtype=torch.float64)
    sums.index_add_(0, labels, probabilities.double())
    return sums / torch.bincount(labels, minlength=classes).unsqueeze(1)


def error_asymmetry(mean_probabilities: Tensor) -> tuple[list[float], float]:
    """Error asymmetry of each class and its ratio, from class-conditional mean probabilities p [C, C].

        EA_i = (1 - p_ii) / sum_{c != i} p_ci          ratio = max_i EA_i / min_i EA_i

    Above 1 a class gives away more probability than it takes. NaN rows (classes without test rows) are left out of
    the sums; their own EA, and a 0/0, is NaN and does not enter the ratio. Measure it on a class-balanced set.

    Source: FedGA, the diagnostic EA(i) and its max/min ratio.
    """
    p = mean_probabilities.detach().cpu().double()
    require(p.ndim == 2 and p.shape[0] == p.shape[1], "mean_probabilities", "be [C, C]", tuple(p.shape))
    off_diagonal = p.nan_to_num(0.0).clone()
    off_diagonal.fill_diagonal_(0.0)
    asymmetry = (1 - p.diagonal()) / off_diagonal.sum(0)
    known = asymmetry[~asymmetry.isnan()]
    ratio = float(known.max() / known.min()) if len(known) else math.nan
    return asymmetry.tolist(), ratio
