"""Metrics of classifiers from confusion matrices, probabilities and label mixes. Pure functions in float64.

`METRICS` is the table of all of them: what a metric is made of, what it is called, and where it appears. Settings,
records, archives, summaries, reports and the command read it.

C classes, B rows, N clients. Rows of a confusion matrix are true classes, columns are predictions; support_c is the
sum of row c.

Absent classes. A class is "present" when the test labels contain it (support > 0).

- recall_c is 0 for an absent class, precision_c is 0 for a class that is never predicted, and F1_c is 0 where
  precision_c + recall_c is 0. Where ``support`` is 0, a 0 means "not measured".
- macro-F1, balanced accuracy, G-mean and worst-class recall cover the present classes, as do AUROC and AUPRC; the
  G-mean is 0 if one of them has recall 0.
- a group (head, mid, tail) without a test row has no entry.

Metrics of probabilities. "One against rest": the rows of class c are the positives, all others the negatives, and the
score of a row is its probability of c. A class is "ranked" when it has positives and negatives. A metric of a class
that is not ranked is NaN, and a macro mean covers the ranked classes.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedskew.errors import DataError, require

__all__ = [
    "METRICS", "Groups", "Metric", "auprc", "auroc", "calibration_error", "confusion", "error_asymmetry",
    "from_confusion", "from_mixes", "from_probabilities", "groups_by_counts", "macro", "mean_probabilities",
    "mix_accuracy", "recall_at_precision",
]  # fmt: skip

Metrics = dict[str, float | list[float] | list[int]]
Values = dict[str, float | list[float | None] | None]

QUANTILES = (10, 25, 50, 75, 90)
PRECISION = 0.9  # at which recall is measured by default
BINS = 15
CELLS = 1 << 21  # rows times classes that are sorted at a time


# The table


class Matrix(NamedTuple):
    """What metrics of a confusion matrix are made of; numbers of each class are float64 [C]."""

    rows: Tensor  # all of them, []
    hits: Tensor
    precision: Tensor
    recall: Tensor
    f1: Tensor
    present: Tensor  # bool [C]


class RankScores(NamedTuple):
    """What metrics of predicted probabilities are made of; numbers of each class are float64 [C]."""

    labels: Tensor  # [B]
    probabilities: Tensor  # [B, C]
    auroc: Tensor
    auprc: Tensor
    recall_at_precision: Tensor


Needs = Literal["matrix", "loss", "probabilities", "mixes"]
Where = Literal["monitor", "personal", "archive", "client table", "class table", "report", "line", "brief"]


@dataclass(frozen=True)
class Metric:
    """A metric, as the table `METRICS` has it.

    Attributes:
        name: As records name it.
        needs: What it is made of. "matrix": a confusion matrix, in every evaluation and of all rows; "loss": the mean
            cross-entropy, likewise; "probabilities" and "mixes": predicted probabilities, and the label mixes of
            clients, on test rows of the last model.
        of: The function: of a `Matrix`, the loss, `RankScores`, or the sorted accuracies of clients with a mix.
        title: In a sentence.
        head: At the head of a column.
        unit: "share", in [0, 1], whose differences are told in points; or "nats".
        higher_is_better: Whether more is better.
        per_class: Whether it is a list of C numbers.
        client: Its name in a client's row of clients.jsonl; "" where a client's row does not have it. A mean over
            classes is there over those with enough rows of the client.
        where: Further places. "monitor": a run may choose a round by it. "personal": measured of what each client
            would use, too, and kept in archives. "archive": kept in archives. "client table", "class table": a column
            there. "report": stands beside the metric that is compared. "line": in the line of ``fedskew evaluate``.
            "brief": in the log of a server.
    """

    name: str
    needs: Needs
    of: Callable[[Any], Any]
    title: str
    head: str = ""
    unit: Literal["share", "nats"] = "share"
    higher_is_better: bool = True
    per_class: bool = False
    client: str = ""
    where: tuple[Where, ...] = ()

    def value(self, given: Any) -> Any:
        """The metric as JSON has it: a number or a list of them; None for NaN."""
        value = self.of(given)
        return [_json_number(number) for number in value.tolist()] if self.per_class else _json_number(float(value))


def _percentile(q: int, held: Tensor) -> Tensor | float:
    """Of sorted values, with linear interpolation; NaN without one."""
    return torch.quantile(held, q / 100) if len(held) else math.nan


METRICS = (  # in the order in which records have them
    Metric(
        "accuracy", "matrix", lambda m: m.hits.sum() / m.rows, "accuracy", client="accuracy",
        where=("monitor", "personal", "line", "brief"),
    ),
    Metric(
        "macro_f1", "matrix", lambda m: m.f1[m.present].mean(), "macro F1", client="macro_f1",
        where=("monitor", "personal", "report", "line"),
    ),
    Metric(
        "balanced_accuracy", "matrix", lambda m: m.recall[m.present].mean(), "balanced accuracy", "balanced",
        client="balanced_accuracy", where=("monitor", "personal", "client table", "line", "brief"),
    ),
    Metric(
        "g_mean", "matrix", lambda m: m.recall[m.present].log().mean().exp(), "G-mean",  # log 0 = -inf gives 0
        where=("monitor", "report", "line"),
    ),
    Metric(
        "worst_class_recall", "matrix", lambda m: m.recall[m.present].min(), "worst class recall", "worst recall",
        where=("archive", "report", "line"),
    ),
    Metric(
        "loss", "loss", float, "loss", unit="nats", higher_is_better=False, client="loss",
        where=("monitor", "personal", "line", "brief"),
    ),
    Metric("per_class_precision", "matrix", lambda m: m.precision, "precision", per_class=True, where=("class table",)),
    Metric("per_class_recall", "matrix", lambda m: m.recall, "recall", per_class=True, where=("class table",)),
    Metric("per_class_f1", "matrix", lambda m: m.f1, "F1", per_class=True, where=("class table",)),
    Metric(
        "auroc_macro", "probabilities", lambda r: macro(r.auroc), "macro AUROC", "AUROC", client="auroc",
        where=("client table", "line", "brief"),
    ),
    Metric(
        "auprc_macro", "probabilities", lambda r: macro(r.auprc), "macro AUPRC", "AUPRC", client="auprc",
        where=("client table", "line"),
    ),
    Metric(
        "recall_at_precision_macro", "probabilities", lambda r: macro(r.recall_at_precision),
        "macro recall at a precision", "recall at precision",
    ),
    Metric(
        "ece", "probabilities", lambda r: calibration_error(r.labels, r.probabilities), "expected calibration error",
        "ECE", higher_is_better=False, client="ece", where=("client table", "line", "brief"),
    ),
    Metric("per_class_auroc", "probabilities", lambda r: r.auroc, "AUROC", per_class=True, where=("class table",)),
    Metric("per_class_auprc", "probabilities", lambda r: r.auprc, "AUPRC", per_class=True, where=("class table",)),
    Metric(
        "per_class_recall_at_precision", "probabilities", lambda r: r.recall_at_precision, "recall at a precision",
        per_class=True,
    ),
    Metric("mix_accuracy_mean", "mixes", lambda held: macro(held), "accuracy over the clients' mixes", "mean"),
    *(
        Metric(
            f"mix_accuracy_p{q}", "mixes", partial(_percentile, q),
            f"percentile {q} of the accuracy over the clients' mixes", "median" if q == 50 else f"p{q}",
        )
        for q in QUANTILES
    ),
    Metric(
        "mix_accuracy_worst_decile", "mixes", lambda held: macro(held[: -(-len(held) // 10)]),
        "accuracy over the worst decile of the clients' mixes", "worst decile",
    ),
)  # fmt: skip


def named(*needs: Needs, where: Where | None = None, per_class: bool = False) -> tuple[str, ...]:
    """Names of metrics, in the order of the table.

    Args:
        needs: What they are made of; anything unless given.
        where: A place where they are.
        per_class: Whether they are lists of a number for each class.
    """
    chosen = [m for m in METRICS if m.per_class == per_class and (not needs or m.needs in needs)]
    return tuple(m.name for m in chosen if where is None or where in m.where)


def metric_of(name: str) -> Metric | None:
    """The metric that a number is of, whatever stands before its name: spans, rows and models; None of another number.

    Example:
        >>> from fedskew.records.metrics import metric_of
        >>> metric_of("mean10_fitted_macro_f1").title, metric_of("total_samples")
        ('macro F1', None)
    """
    ends = [m for m in METRICS if name == m.name or name.endswith(f"_{m.name}")]
    return max(ends, key=lambda m: len(m.name), default=None)


EVALUATED = named("matrix", "loss")  # of every evaluation
GROUPED = ("head_accuracy", "mid_accuracy", "tail_accuracy")  # of the test rows of frequent and of rare classes
PERSONAL = named(where="personal")  # of what each client would use
RANKED = named("probabilities")
SCORES = named("probabilities", "mixes")  # of the last model
PER_CLASS = named("matrix", per_class=True)
EACH = named("probabilities", per_class=True)


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
    given = Matrix(exact.sum(), hits, precision, recall, f1, support > 0)
    out: Metrics = {**_measured("matrix", given), "support": support.tolist()}
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


def auroc(labels: Tensor, probabilities: Tensor) -> Tensor:
    """Area under the ROC curve of each class, one against rest.

        AUROC_c = (pairs in which the positive scores higher + half of the pairs that tie) / (positives x negatives)

    Args:
        labels: True classes, integers [B].
        probabilities: Predicted probabilities, [B, C].

    Returns:
        Areas, float64 [C], NaN for a class that is not ranked. A constant score has 0.5.

    Raises:
        DataError: The shapes do not fit, there is no row, a label is not in [0, C), or a probability is not finite.

    Example:
        >>> import torch
        >>> from fedskew import metrics
        >>> p = torch.tensor([[0.8, 0.2], [0.4, 0.6], [0.6, 0.4], [0.1, 0.9]])
        >>> metrics.auroc(torch.tensor([0, 0, 1, 1]), p)
        tensor([0.7500, 0.7500], dtype=torch.float64)
    """
    return _ranked(labels, probabilities, None)[0]


def auprc(labels: Tensor, probabilities: Tensor) -> Tensor:
    """Area under the precision-recall curve of each class, one against rest, as average precision.

        AUPRC_c = sum over thresholds t, from the highest, of (recall_t - recall_{t-1}) precision_t

    Thresholds are the scores that occur. Points are not joined by lines, which would be too optimistic.

    Args:
        labels: True classes, integers [B].
        probabilities: Predicted probabilities, [B, C].

    Returns:
        Areas, float64 [C], NaN for a class that is not ranked. A constant score has the share of the class.

    Raises:
        DataError: As for `auroc`.

    Example:
        >>> import torch
        >>> from fedskew import metrics
        >>> p = torch.tensor([[0.8, 0.2], [0.4, 0.6], [0.6, 0.4], [0.1, 0.9]])
        >>> metrics.auprc(torch.tensor([0, 0, 1, 1]), p)
        tensor([0.8333, 0.8333], dtype=torch.float64)
    """
    return _ranked(labels, probabilities, None)[1]


def recall_at_precision(labels: Tensor, probabilities: Tensor, precision: float = PRECISION) -> Tensor:
    """The greatest recall of each class at a threshold where its precision is at least ``precision``.

    Args:
        labels: True classes, integers [B].
        probabilities: Predicted probabilities, [B, C].
        precision: In (0, 1].

    Returns:
        Recalls, float64 [C]: 0 where no threshold has the precision, NaN for a class that is not ranked.

    Raises:
        ConfigError: ``precision`` is not in (0, 1].
        DataError: As for `auroc`.

    Example:
        >>> import torch
        >>> from fedskew import metrics
        >>> p = torch.tensor([[0.8, 0.2], [0.4, 0.6], [0.6, 0.4], [0.1, 0.9]])
        >>> metrics.recall_at_precision(torch.tensor([0, 0, 1, 1]), p, precision=0.9)
        tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    return _ranked(labels, probabilities, precision)[2]


def calibration_error(labels: Tensor, probabilities: Tensor, bins: int = BINS) -> float:
    """Expected calibration error of the most probable class.

        ECE = sum_b n_b / B |accuracy_b - confidence_b|

    A row's confidence is the probability of its most probable class. ``bins`` bins of equal width divide [0, 1]: bin b
    holds the rows with a confidence in ((b - 1) / bins, b / bins]; the first one holds 0, too. n_b are the rows of a
    bin, accuracy_b is the share of them that is predicted correctly, confidence_b their mean confidence.

    Args:
        labels: True classes, integers [B].
        probabilities: Predicted probabilities, [B, C].
        bins: Number of bins, at least 1.

    Returns:
        The error, in [0, 1]; less is better.

    Raises:
        ConfigError: ``bins`` is below 1.
        DataError: As for `auroc`.

    Example:
        >>> import torch
        >>> from fedskew import metrics
        >>> p = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.3, 0.7]])
        >>> round(metrics.calibration_error(torch.tensor([0, 1, 1]), p), 4)
        0.3667

    References:
        Guo et al. 2017, On Calibration of Modern Neural Networks, equation 3. https://arxiv.org/abs/1706.04599
    """
    require(bins >= 1, "bins", "be at least 1", bins)
    labels, probabilities = _checked(labels, probabilities)
    confidence, guess = probabilities.max(1)
    edges = torch.arange(1, bins, dtype=torch.float64) / bins
    gaps = torch.zeros(bins, dtype=torch.float64)
    gaps.index_add_(0, torch.bucketize(confidence, edges), (guess == labels).double() - confidence)
    return float(gaps.abs().sum() / len(labels))


def macro(values: Tensor) -> float:
    """Mean of the values that are no NaN, [C]; NaN where there is none.

    Example:
        >>> import torch
        >>> from fedskew import metrics
        >>> metrics.macro(torch.tensor([0.5, float("nan"), 1.0]))
        0.75
    """
    known = values[~values.isnan()].double()
    return float(known.mean()) if len(known) else math.nan


def from_probabilities(labels: Tensor, probabilities: Tensor, precision: float = PRECISION) -> Values:
    """Every metric of predicted probabilities, as plain numbers.

    Args:
        labels: True classes, integers [B].
        probabilities: Predicted probabilities, [B, C].
        precision: At which recall is measured, in (0, 1].

    Returns:
        ``auroc_macro``, ``auprc_macro``, ``recall_at_precision_macro`` and ``ece``; and ``per_class_auroc``,
        ``per_class_auprc`` and ``per_class_recall_at_precision`` as lists of C. What is not defined is None.

    Raises:
        ConfigError: As for `recall_at_precision`.
        DataError: As for `auroc`.

    Example:
        >>> import torch
        >>> from fedskew import metrics
        >>> p = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.6, 0.1]])
        >>> found = metrics.from_probabilities(torch.tensor([0, 1, 1]), p)
        >>> found["auroc_macro"], found["per_class_auroc"]
        (1.0, [1.0, 1.0, None])
    """
    return _measured("probabilities", RankScores(labels, probabilities, *_ranked(labels, probabilities, precision)))


# Clients' label mixes


def mix_accuracy(m: Tensor, counts: Tensor) -> Tensor:
    """Accuracy that a model would have on each client's own label mix.

        accuracy_k = sum_c n_kc recall_c / sum_c n_kc        over the classes c with test rows

    n_kc are the client's training rows of class c. The recalls are those of the whole test set, so no client needs test
    rows of its own, and features are taken to be the same at all clients.

    Args:
        m: Confusion matrix of the test rows, [C, C], rows are true classes.
        counts: Training rows of each client and class, [N, C].

    Returns:
        Accuracies, float64 [N]; NaN for a client without rows of a class that is tested.

    Raises:
        DataError: The shapes do not fit.

    Example:
        >>> import torch
        >>> from fedskew import metrics
        >>> metrics.mix_accuracy(torch.tensor([[9, 1], [5, 5]]), torch.tensor([[10, 0], [5, 5], [0, 0]]))
        tensor([0.9000, 0.7000,    nan], dtype=torch.float64)
    """
    if m.ndim != 2 or m.shape[0] != m.shape[1] or counts.ndim != 2 or counts.shape[1] != len(m):
        raise DataError(f"m must be [C, C] and counts [N, C]; got {tuple(m.shape)} and {tuple(counts.shape)}")
    m, support = m.detach().cpu().double(), m.detach().cpu().sum(1)
    tested = support > 0
    mix = counts.detach().cpu().double()[:, tested]
    return (mix * (m.diagonal()[tested] / support[tested])).sum(1) / mix.sum(1)


def from_mixes(m: Tensor, counts: Tensor) -> Values:
    """How `mix_accuracy` is spread over the clients that have one, as plain numbers.

    Args:
        m: Confusion matrix of the test rows, [C, C].
        counts: Training rows of each client and class, [N, C].

    Returns:
        ``mix_accuracy_mean``, in which every client counts equally; the quantiles ``mix_accuracy_p10``, ``_p25``,
        ``_p50``, ``_p75`` and ``_p90``, with linear interpolation; and ``mix_accuracy_worst_decile``, the mean over the
        worst tenth of the clients, rounded up. None where no client has one.

    Raises:
        DataError: As for `mix_accuracy`.

    Example:
        >>> import torch
        >>> from fedskew import metrics
        >>> found = metrics.from_mixes(torch.tensor([[9, 1], [5, 5]]), torch.tensor([[10, 0], [5, 5], [0, 10]]))
        >>> {name: round(value, 4) for name, value in found.items() if name.endswith(("mean", "p50", "decile"))}
        {'mix_accuracy_mean': 0.7, 'mix_accuracy_p50': 0.7, 'mix_accuracy_worst_decile': 0.5}
    """
    accuracies = mix_accuracy(m, counts)
    held = accuracies[~accuracies.isnan()].sort().values
    return _measured("mixes", held)


# One against rest


def _ranked(labels: Tensor, probabilities: Tensor, precision: float | None) -> tuple[Tensor, Tensor, Tensor]:
    """(AUROC, AUPRC, recall at ``precision``) of each class, [C] each; NaN where a class is not ranked."""
    if precision is not None:
        require(0 < precision <= 1, "precision", "be in (0, 1]", precision)
    labels, probabilities = _checked(labels, probabilities)
    blocks = [torch.stack(part) for part in _blocks(labels, probabilities, 1.0 if precision is None else precision)]
    roc, prc, recall = torch.cat(blocks, 1)
    return roc, prc, recall


def _blocks(labels: Tensor, probabilities: Tensor, precision: float) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """As `_ranked`, of a few classes at a time. Rows are counted from the highest score on, so sums are exact."""
    rows, classes = probabilities.shape
    row, size = torch.arange(rows).unsqueeze(1), max(1, CELLS // rows)
    for a in range(0, classes, size):
        scores, order = probabilities[:, a : a + size].sort(dim=0, descending=True)
        positive = labels[order] == torch.arange(a, a + scores.shape[1])
        hits = positive.cumsum(0)  # positives so far, with this row
        parts = scores[1:] != scores[:-1]  # a threshold lies between a row and the next
        edge = torch.ones(1, scores.shape[1], dtype=torch.bool)
        first = torch.where(torch.cat([edge, parts]), row, 0).cummax(0).values  # of the rows that tie with this one
        last = torch.where(torch.cat([parts, edge]), row, rows).flip(0).cummin(0).values.flip(0)
        above, upto = hits.gather(0, first) - positive.gather(0, first).long(), hits.gather(0, last)
        positives = hits[-1].double()
        pairs = positives * (rows - positives)
        roc = ((above + upto) * ~positive).sum(0) / (2 * pairs)  # each negative: positives above, and half of its ties
        purity = upto.double() / (last + 1)
        # numpy adds a class's values in one order, whatever the number of threads and of classes beside it
        sums = np.ascontiguousarray((purity * positive).numpy().T).sum(1)
        prc = torch.from_numpy(sums) / positives
        recall = torch.where(purity >= precision, upto, 0).amax(0) / positives
        yield tuple(torch.where(pairs > 0, values, math.nan) for values in (roc, prc, recall))  # type: ignore[misc]


def _checked(labels: Tensor, probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """(labels int64 [B], probabilities float64 [B, C]) on the host. Raises DataError."""
    labels, probabilities = torch.as_tensor(labels), torch.as_tensor(probabilities)  # of numpy as well
    if labels.ndim != 1 or probabilities.ndim != 2 or len(labels) != len(probabilities) or not probabilities.numel():
        shapes = f"{tuple(labels.shape)} and {tuple(probabilities.shape)}"
        raise DataError(f"labels must be [B] and probabilities [B, C], with a row; got shapes {shapes}")
    if labels.is_floating_point():
        raise DataError(f"labels must be integers; got {labels.dtype}")
    labels, probabilities = labels.detach().cpu().long(), probabilities.detach().cpu().double()
    least, most, classes = int(labels.min()), int(labels.max()), probabilities.shape[1]
    if least < 0 or most >= classes:
        raise DataError(f"labels must lie in [0, {classes}), the columns of probabilities; got {least} to {most}")
    if not bool(probabilities.isfinite().all()):
        row = int((~probabilities.isfinite()).any(1).int().argmax())
        raise DataError(f"probabilities must be finite; got {probabilities[row].tolist()[:8]} in row {row}")
    return labels, probabilities


def _measured(needs: Needs, given: Any) -> dict[str, Any]:
    """Every metric that is made of this, by name."""
    return {m.name: m.value(given) for m in METRICS if m.needs == needs}


def _json_number(value: float) -> float | None:
    """A number for JSON, which has no NaN."""
    return None if math.isnan(value) else value
