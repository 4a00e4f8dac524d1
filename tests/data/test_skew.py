"""Skew descriptors: the card's numbers, reference values by hand, and what holds for any counts."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedskew.data import skew
from fedskew.data.partitioners import Dirichlet, Iid
from fedskew.errors import ConfigError, DataError

CARD = np.array([[4, 2, 0], [0, 2, 4], [3, 3, 0]])


@st.composite
def matrices(draw):
    clients, classes = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    cells = st.lists(st.integers(0, 50), min_size=classes, max_size=classes)
    counts = np.array(draw(st.lists(cells, min_size=clients, max_size=clients)))
    counts[0, 0] += 1
    return counts


def test_measures_of_a_client_by_hand():
    assert skew.overlap(CARD)[0, 1] == 2 and skew.overlap(CARD)[0, 2] == 5
    assert skew.diversity(CARD).tolist() == [2, 2, 2]
    assert skew.entropy(CARD)[2] == pytest.approx(math.log(2))
    assert skew.effective_classes(CARD)[2] == pytest.approx(2)


def test_imbalance_missing_classes_and_owners():
    counts = np.array([[90, 10, 0, 0], [10, 0, 5, 0]])
    assert skew.imbalance(counts) == 20 and skew.local_imbalance(counts).tolist() == [9, 2]
    assert skew.missing_rate(counts) == 2 / 6  # the last class occurs nowhere
    assert skew.owners(counts).tolist() == [2, 1, 1, 0]


def test_quantity_descriptors():
    counts = np.array([[1, 0], [0, 1], [1, 1], [4, 0]])  # sizes 1, 1, 2, 4
    assert skew.quantity_gini(counts) == pytest.approx(20 / (2 * 4 * 8))  # sum |n_i - n_j| = 20 over ordered pairs
    assert skew.effective_clients(counts) == pytest.approx(64 / 22)


@given(counts=matrices())
def test_ranges_and_bounds(counts):
    full = counts[counts.sum(axis=1) > 0]
    assert np.array_equal(np.diag(skew.overlap(full)), full.sum(axis=1))
    assert (skew.entropy(full) <= np.log(skew.diversity(full)) + 1e-12).all()
    js, kl, tv, h = (skew.to_global(full, name) for name in ("js", "kl", "tv", "hellinger"))
    assert (js >= -1e-12).all() and (js <= math.log(2) + 1e-12).all()
    assert (tv >= 0).all() and (2 * tv**2 <= kl + 1e-12).all()  # Pinsker
    assert (h**2 <= tv + 1e-12).all() and (tv <= math.sqrt(2) * h + 1e-12).all()  # Le Cam
    assert 1 - 1e-12 <= skew.effective_clients(counts) <= len(full) + 1e-9
    assert -1e-12 <= skew.quantity_gini(counts) <= 1 - 1 / len(counts) + 1e-12
    report = skew.summary(counts)
    assert report == skew.summary(torch.from_numpy(counts)) and json.loads(json.dumps(report, allow_nan=False))


def test_identical_clients_are_not_skewed():
    report = skew.summary(np.tile([30, 20, 10], (5, 1)))
    for name in ("js_mean", "kl_mean", "tv_mean", "hellinger_mean", "quantity_gini", "missing_rate"):
        assert report[name] == pytest.approx(0, abs=1e-12)
    assert report["effective_clients"] == pytest.approx(5)


def test_clients_without_rows_are_nan_and_left_out_of_the_summary():
    counts = np.vstack([CARD, np.zeros((1, 3), dtype=int)])
    described = [skew.entropy(counts), skew.local_imbalance(counts)]
    for values in (*described, *(skew.to_global(counts, distance) for distance in skew.DISTANCES)):
        assert np.isnan(values).tolist() == [False, False, False, True]
    report, without = skew.summary(counts), skew.summary(CARD)
    assert report["empty_clients"] == 1 and report["clients"] == 4
    assert report["js_mean"] == without["js_mean"]
    assert math.isnan(skew.quantity_gini(counts * 0)) and math.isnan(skew.imbalance(counts * 0))


def test_dirichlet_is_more_skewed_than_iid():
    labels = np.repeat(np.arange(10), 300)
    wild, tame = (skew.summary(c.split(labels, 20, 0).counts(labels, 10)) for c in (Dirichlet(0.1), Iid()))
    for name in ("js_mean", "missing_rate", "quantity_gini", "imbalance_local_median"):
        assert wild[name] > tame[name]
    assert wild["rows"] == tame["rows"] == 3000


@pytest.mark.parametrize("counts", [np.zeros(3), np.zeros((0, 3)), np.array([[-1, 2]]), np.array([[np.nan]])])
def test_counts_must_be_a_matrix_of_numbers(counts):
    with pytest.raises(DataError, match="counts must be a non-empty matrix"):
        skew.entropy(counts)


def test_summary_needs_a_row():
    with pytest.raises(DataError, match="at least one row"):
        skew.summary(np.zeros((2, 2)))


def test_distances_of_label_distributions_by_hand():
    counts = np.array([[3, 1, 0], [1, 0, 1], [0, 0, 0]])
    a, p = np.array([0.75, 0.25, 0]), np.array([4, 1, 1]) / 6
    m = (a + p) / 2
    expected = {
        "js": sum(0.5 * x * math.log(x / c) for q in (a, p) for x, c in zip(q, m, strict=True) if x),
        "kl": 0.75 * math.log(0.75 * 6 / 4) + 0.25 * math.log(0.25 * 6),
        "tv": np.abs(a - p).sum() / 2,
        "hellinger": math.sqrt(((np.sqrt(a) - np.sqrt(p)) ** 2).sum() / 2),
    }
    for name, value in expected.items():
        found = skew.to_global(counts, name)
        assert found[0] == pytest.approx(value, abs=1e-12) and np.isnan(found[2]), name
    with pytest.raises(ConfigError, match="unknown distance 'jss'; did you mean 'js'"):
        skew.to_global(counts, "jss")
