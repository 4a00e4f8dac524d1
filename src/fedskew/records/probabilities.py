"""Metrics of predicted probabilities, and of a global model on the clients' label mixes. Pure functions in float64.

C classes, B rows, N clients. "One against rest": the rows of class c are the positives, all others the negatives, and
the score of a row is its probability of c. A class is *ranked* when it has positives and negatives. A metric of a class
that is not ranked is NaN, and a macro mean covers the ranked classes.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from fedskew.errors import DataError, require

Values = dict[str, float | list[float | None] | None]

QUANTILES = (10, 25, 50, 75, 90)
MIXES = tuple([f"mix_accuracy_{name}" for name in ("mean", *[f"p{q}" for q in QUANTILES], "worst_decile")])
RANKED = ("auroc_macro", "auprc_macro", "recall_at_precision_macro", "ece")  # of the probabilities alone
SCORES = (*RANKED, *MIXES)  # as records name them
EACH = ("per_class_auroc", "per_class_auprc", "per_class_recall_at_precision")
PRECISION = 0.9  # at which recall is measured by default
BINS = 15
CELLS = 1 << 21  # rows times classes that are sorted at a time


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
    each = dict(zip(("auroc", "auprc", "recall_at_precision"), _ranked(labels, probabilities, precision), strict=True))
    out: Values = {f"{name}_macro": _plain(macro(values)) for name, values in each.items()}
    out["ece"] = calibration_error(labels, probabilities)
    return out | {f"per_class_{name}": [_plain(v) for v in values.tolist()] for name, values in each.items()}


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
    worst = -(-len(held) // 10)
    at = [float(torch.quantile(held, q / 100)) if len(held) else math.nan for q in QUANTILES]
    return dict(zip(MIXES, map(_plain, (macro(held), *at, macro(held[:worst]))), strict=True))


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


def _plain(value: float) -> float | None:
    """A number for JSON, which has no NaN."""
    return None if math.isnan(value) else value
