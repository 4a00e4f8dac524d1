"""Metrics against scikit-learn on random data, the golden error asymmetry, and the rules for absent classes."""

import json
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk

from fedskew.errors import ConfigError, DataError
from fedskew.records.metrics import confusion, error_asymmetry, from_confusion, groups_by_counts, mean_probabilities
from support.paths import GOLDEN


@st.composite
def predictions(draw):
    classes = draw(st.integers(2, 7))
    pairs = st.tuples(st.integers(0, classes - 1), st.integers(0, classes - 1))
    rows = draw(st.lists(pairs, min_size=1, max_size=40))
    labels, guesses = (torch.tensor(column) for column in zip(*rows, strict=True))
    return labels, guesses, classes


@given(predictions())
def test_agrees_with_scikit_learn(case):
    labels, guesses, classes = case
    y, p, names = labels.numpy(), guesses.numpy(), list(range(classes))
    m = confusion(labels, guesses, classes)
    assert m.dtype == torch.int64
    assert (m.numpy() == sk.confusion_matrix(y, p, labels=names)).all()
    got = from_confusion(m)
    precision, recall, f1, support = sk.precision_recall_fscore_support(y, p, labels=names, zero_division=0.0)
    assert got["accuracy"] == pytest.approx(sk.accuracy_score(y, p), abs=1e-12)
    wanted = sk.f1_score(y, p, labels=np.unique(y), average="macro", zero_division=0)
    assert got["macro_f1"] == pytest.approx(wanted, abs=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of predicted classes that no label has
        assert got["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(y, p), abs=1e-12)
    assert got["per_class_precision"] == pytest.approx(precision.tolist(), abs=1e-12)
    assert got["per_class_recall"] == pytest.approx(recall.tolist(), abs=1e-12)
    assert got["per_class_f1"] == pytest.approx(f1.tolist(), abs=1e-12)
    assert got["support"] == support.tolist()
    present = recall[support > 0]
    assert got["worst_class_recall"] == pytest.approx(present.min(), abs=1e-12)
    assert got["g_mean"] == pytest.approx(present.prod() ** (1 / len(present)), abs=1e-9)


def test_values_are_python_numbers():
    got = from_confusion(torch.eye(3, dtype=torch.int64), groups_by_counts(torch.tensor([3, 2, 1])))
    for name, value in got.items():
        kinds = {type(v) for v in value} if isinstance(value, list) else {type(value)}
        assert kinds == {int} if name == "support" else kinds == {float}, name
    assert json.loads(json.dumps(got, allow_nan=False)) == got


def test_large_counts_are_exact():
    big = 2**40
    got = from_confusion(torch.tensor([[big, 1], [0, big]]))
    assert 1 - got["per_class_recall"][0] == pytest.approx(1 / (big + 1), rel=1e-3)


@pytest.mark.parametrize(
    ("counts", "head", "mid", "tail"),
    [
        ([5, 50, 20, 1, 7, 300, 2, 4, 8, 9], [1, 2, 5], [0, 4, 8, 9], [3, 6, 7]),
        ([10, 10, 10, 10], [0], [1, 2], [3]),  # ties: the lower class id counts as more frequent
        ([0, 1], [1], [], [0]),
        ([3, 2, 1], [0], [1], [2]),
    ],
)
def test_groups_by_counts(counts, head, mid, tail):
    groups = groups_by_counts(torch.tensor(counts))
    assert [g.tolist() for g in groups] == [head, mid, tail]


def test_group_accuracy_pools_rows():
    m = torch.tensor([[9, 1, 0], [5, 5, 0], [1, 1, 0]])
    got = from_confusion(m, groups_by_counts(torch.tensor([100, 10, 1])))
    assert (got["head_accuracy"], got["mid_accuracy"], got["tail_accuracy"]) == (0.9, 0.5, 0.0)
    four = torch.tensor([[1, 0, 0, 0], [3, 2, 0, 0], [5, 0, 0, 0], [0, 0, 0, 5]])
    got = from_confusion(four, groups_by_counts(torch.tensor([9, 8, 7, 6])))
    assert got["mid_accuracy"] == pytest.approx(2 / 10)  # classes 1 and 2: 5 rows each


def test_group_without_rows_has_no_entry():
    got = from_confusion(torch.tensor([[4, 0, 0], [0, 4, 0], [0, 0, 0]]), groups_by_counts(torch.tensor([3, 2, 1])))
    assert "tail_accuracy" not in got
    assert got["head_accuracy"] == 1.0
    assert "mid_accuracy" not in from_confusion(torch.eye(2).long(), groups_by_counts(torch.tensor([2, 1])))


def test_error_asymmetry_golden():
    vector = GOLDEN["error_asymmetry"]
    asymmetry, ratio = error_asymmetry(torch.tensor(vector["mean_pred_by_true_class"], dtype=torch.float64))
    assert asymmetry == pytest.approx(vector["EA"], abs=1e-10)
    assert ratio == pytest.approx(vector["ratio_max_min"], abs=1e-10)


def test_error_asymmetry_leaves_unmeasured_classes_out():
    p = torch.tensor([[0.8, 0.2, 0.0], [0.4, 0.6, 0.0], [math.nan] * 3])
    asymmetry, ratio = error_asymmetry(p.double())
    assert asymmetry[:2] == pytest.approx([0.5, 2.0])
    assert math.isnan(asymmetry[2])
    assert ratio == pytest.approx(4.0)
    perfect, ratio = error_asymmetry(torch.eye(3, dtype=torch.float64))
    assert all(map(math.isnan, perfect)) and math.isnan(ratio)


def test_error_asymmetry_of_a_class_that_takes_nothing_is_infinite():
    asymmetry, ratio = error_asymmetry(torch.tensor([[1.0, 0.0], [1.0, 0.0]], dtype=torch.float64))
    assert asymmetry == [0.0, math.inf]
    assert ratio == math.inf


def test_mean_probabilities():
    labels = torch.tensor([0, 0, 2])
    rows = torch.tensor([[0.6, 0.2, 0.2], [0.8, 0.2, 0.0], [0.1, 0.1, 0.8]])
    p = mean_probabilities(labels, rows, 3)
    assert p.dtype == torch.float64
    assert p[0].tolist() == pytest.approx([0.7, 0.2, 0.1])
    assert p[2].tolist() == pytest.approx([0.1, 0.1, 0.8])
    assert p[1].isnan().all()


def test_confusion_errors():
    for labels, guesses, told in (
        ([0, 3], [0, 1], r"labels must lie in \[0, 3\); got 0 to 3"),
        ([0, 1], [-1, 1], r"predictions must lie in \[0, 3\); got -1 to 1"),
        ([0, 1, 2], [0, 1], r"both be \[B\]"),
    ):
        with pytest.raises(DataError, match=told):
            confusion(torch.tensor(labels), torch.tensor(guesses), 3)
    assert not confusion(torch.tensor([]), torch.tensor([]), 3).any(), "no row is none"


def test_matrix_errors():
    with pytest.raises(DataError, match="hold a row"):
        from_confusion(torch.zeros(3, 3, dtype=torch.int64))
    with pytest.raises(DataError, match=r"must be \[C, C\]"):
        from_confusion(torch.ones(2, 3, dtype=torch.int64))
    with pytest.raises(ConfigError, match="counts must be"):
        groups_by_counts(torch.tensor([1]))
    with pytest.raises(ConfigError, match="mean_probabilities must be"):
        error_asymmetry(torch.ones(2, 3))
