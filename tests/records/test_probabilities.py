"""AUROC, AUPRC, recall at a precision, calibration and label mixes against scikit-learn; degenerate input."""

from __future__ import annotations

import json
import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk
from sklearn.calibration import calibration_curve
from torch import Tensor

from fedskew import metrics
from fedskew.errors import ConfigError, DataError
from fedskew.records import metrics as module

PRECISIONS = (0.05, 0.3, 0.5, 0.9, 1.0)


def curves(y: np.ndarray, p: np.ndarray, c: int, precision: float) -> tuple[float, float, float]:
    """(AUROC, AUPRC, recall at a precision) of a class by scikit-learn."""
    positive = y == c
    if positive.all() or not positive.any():
        return math.nan, math.nan, math.nan
    purity, recall, _ = sk.precision_recall_curve(positive, p[:, c])
    area = sk.roc_auc_score(positive, p[:, c])
    return area, sk.average_precision_score(positive, p[:, c]), recall[purity >= precision].max()


def calibration(y: np.ndarray, p: np.ndarray, bins: int) -> float:
    """The sum over scikit-learn's bins."""
    top, hit = p.max(1), (p.argmax(1) == y).astype(float)
    accuracy, confidence = calibration_curve(hit, top, n_bins=bins, strategy="uniform")
    rows = np.bincount(np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], top), minlength=bins)
    return float((rows[rows > 0] / len(y) * np.abs(accuracy - confidence)).sum())


def check(labels: Tensor, p: Tensor) -> None:
    y, chances, classes = labels.numpy(), p.double().numpy(), p.shape[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for precision in PRECISIONS:
            wanted = np.array([curves(y, chances, c, precision) for c in range(classes)]).T
            recall = metrics.recall_at_precision(labels, p, precision)
            got = torch.stack([metrics.auroc(labels, p), metrics.auprc(labels, p), recall])
            assert got.dtype == torch.float64
            np.testing.assert_allclose(got.numpy(), wanted, rtol=0, atol=1e-12, equal_nan=True)
        for bins in (1, 7, 15, 100):
            wanted = calibration(y, chances, bins)
            assert metrics.calibration_error(labels, p, bins) == pytest.approx(wanted, abs=1e-12)


@st.composite
def scored(draw: Any) -> tuple[Tensor, Tensor]:
    """Rows of few levels, so that scores tie; some classes have no row."""
    classes, rows = draw(st.integers(2, 6)), draw(st.integers(1, 30))
    seen = draw(st.lists(st.integers(0, classes - 1), min_size=1, max_size=classes))
    labels = draw(st.lists(st.sampled_from(seen), min_size=rows, max_size=rows))
    levels = draw(st.sampled_from([1, 2, 4, 1000]))
    weights = draw(st.lists(st.integers(0, levels), min_size=rows * classes, max_size=rows * classes))
    p = torch.tensor(weights, dtype=torch.float64).view(rows, classes) + 1e-3
    return torch.tensor(labels), p / p.sum(1, keepdim=True)


@given(scored())
def test_ranks_agree_with_scikit_learn(case: tuple[Tensor, Tensor]) -> None:
    check(*case)


@pytest.mark.parametrize(("rows", "classes", "dtype"), [(1000, 10, torch.float64), (500, 40, torch.float32)])
def test_many_rows_agree_with_scikit_learn(rows: int, classes: int, dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(rows)
    p = torch.randn(rows, classes, generator=draw, dtype=dtype).mul(3).softmax(1)
    labels = torch.where(torch.rand(rows, generator=draw) < 0.5, p.argmax(1), 3 * torch.arange(rows) % classes)
    check(labels, p)
    found, chances = metrics.from_probabilities(labels, p), p.double().numpy()
    each = np.stack([labels.numpy() == c for c in range(classes)], 1)
    for name, score in (("auroc_macro", sk.roc_auc_score), ("auprc_macro", sk.average_precision_score)):
        assert found[name] == pytest.approx(score(each, chances, average="macro"), abs=1e-12)


def test_classes_are_ranked_alike_in_blocks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(5)
    p, labels = torch.rand(60, 7, generator=draw).mul(4).round().softmax(1), torch.randint(0, 6, (60,), generator=draw)
    whole = metrics.from_probabilities(labels, p)
    for cells in (1, 60, 121, 1 << 30):
        monkeypatch.setattr(module, "CELLS", cells)
        assert metrics.from_probabilities(labels, p) == whole


# Degenerate input


def test_a_class_without_rows_or_with_all_of_them_is_not_ranked() -> None:
    p = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1]])
    found = metrics.from_probabilities(torch.tensor([0, 1]), p)
    assert found["per_class_auroc"] == [1.0, 1.0, None] and found["auroc_macro"] == 1.0
    alone = metrics.from_probabilities(torch.tensor([1, 1]), p)
    for name in ("auroc", "auprc", "recall_at_precision"):
        assert alone[f"per_class_{name}"] == [None] * 3 and alone[f"{name}_macro"] is None
    assert 0 <= alone["ece"] <= 1  # type: ignore[operator]
    assert metrics.from_probabilities(torch.tensor([0]), p[:1])["auroc_macro"] is None


def test_values_are_plain_numbers_that_json_has() -> None:
    p = torch.rand(9, 4, generator=torch.Generator().manual_seed(0)).softmax(1)
    labels = torch.arange(9) % 3
    counts = torch.tensor([[3, 0, 0, 1], [0, 0, 0, 4], [0, 0, 0, 0]])
    matrix = metrics.confusion(labels, p.argmax(1), 4)
    found = {**metrics.from_probabilities(labels, p), **metrics.from_mixes(matrix, counts)}
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert set(found) == {*module.SCORES, *module.EACH}


def test_a_confidence_on_an_edge_belongs_to_the_bin_below() -> None:
    p = torch.tensor([[0.5, 0.5], [0.6, 0.4]], dtype=torch.float64)  # with two bins: (0, 0.5] and (0.5, 1]
    assert metrics.calibration_error(torch.tensor([1, 0]), p, bins=2) == pytest.approx((0.5 + 0.4) / 2)
    assert metrics.calibration_error(torch.tensor([1, 0]), p, bins=1) == pytest.approx(abs(1 - 1.1) / 2)


@pytest.mark.parametrize(
    ("labels", "p", "told"),
    [
        ([0, 1], [[1.0, 0.0]], "must be [B] and probabilities [B, C], with a row; got shapes (2,) and (1, 2)"),
        ([], torch.zeros(0, 2).tolist(), "with a row"),
        ([[0]], [[1.0, 0.0]], "must be [B]"),
        ([2], [[1.0, 0.0]], "labels must lie in [0, 2), the columns of probabilities; got 2 to 2"),
        ([-1], [[1.0, 0.0]], "got -1 to -1"),
        ([0, 0], [[1.0, 0.0], [math.nan, 0.5]], "probabilities must be finite; got [nan, 0.5] in row 1"),
        ([0.5], [[1.0, 0.0]], "labels must be integers; got torch.float32"),
    ],
)
def test_what_cannot_be_ranked_is_refused_in_one_line(labels: Any, p: Any, told: str) -> None:
    for function in (metrics.auroc, metrics.auprc, metrics.recall_at_precision, metrics.calibration_error):
        with pytest.raises(DataError) as caught:
            function(torch.tensor(labels), torch.tensor(p))
        assert told in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("precision", [0.0, -1.0, 1.5, math.nan])
def test_a_precision_that_is_none_is_refused(precision: float) -> None:
    with pytest.raises(ConfigError, match=r"precision must be in \(0, 1\]"):
        metrics.recall_at_precision(torch.tensor([0, 1]), torch.eye(2), precision)
    with pytest.raises(ConfigError, match="bins must be at least 1"):
        metrics.calibration_error(torch.tensor([0, 1]), torch.eye(2), 0)


# Clients' label mixes


@st.composite
def mixes(draw: Any) -> tuple[Tensor, Tensor]:
    classes, clients = draw(st.integers(2, 5)), draw(st.integers(1, 25))
    cells = st.lists(st.integers(0, 9), min_size=classes, max_size=classes)
    matrix = torch.tensor(draw(st.lists(cells, min_size=classes, max_size=classes)))
    return matrix, torch.tensor(draw(st.lists(cells, min_size=clients, max_size=clients)))


@given(mixes())
def test_mixes_agree_with_scikit_learn_and_numpy(case: tuple[Tensor, Tensor]) -> None:
    """A client's accuracy is scikit-learn's, of all test rows, weighted by how often the client has their class."""
    m, counts = case
    y, guess = (np.repeat(np.indices(m.shape)[i].ravel(), m.ravel()) for i in (0, 1))
    support, wanted = np.bincount(y, minlength=len(m)), []
    for own in counts.numpy():
        weights = own[y] / support[y]
        wanted.append(sk.accuracy_score(y, guess, sample_weight=weights) if weights.sum() else math.nan)
    np.testing.assert_allclose(metrics.mix_accuracy(m, counts).numpy(), wanted, rtol=0, atol=1e-12, equal_nan=True)
    found, held = metrics.from_mixes(m, counts), np.array([v for v in wanted if not math.isnan(v)])
    if not len(held):
        assert set(found.values()) == {None}
        return
    for q in (10, 25, 50, 75, 90):
        assert found[f"mix_accuracy_p{q}"] == pytest.approx(np.quantile(held, q / 100), abs=1e-12)
    assert found["mix_accuracy_mean"] == pytest.approx(held.mean(), abs=1e-12)
    worst = np.sort(held)[: math.ceil(len(held) / 10)]
    assert found["mix_accuracy_worst_decile"] == pytest.approx(worst.mean(), abs=1e-12)


def test_shapes_of_mixes_are_checked() -> None:
    for m, counts in (((2, 3), (4, 3)), ((3, 3), (4, 2)), ((3, 3), (3,))):
        with pytest.raises(DataError, match=r"m must be \[C, C\] and counts \[N, C\]"):
            metrics.mix_accuracy(torch.ones(m), torch.ones(counts))
