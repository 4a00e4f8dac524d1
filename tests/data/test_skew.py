"""Skew descriptors: the card's numbers, reference values by hand, and what holds for any counts."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedskew.data import skew
from fedskew.errors import DataError
from support.command import refused

CARD = np.array([[4, 2, 0], [0, 2, 4], [3, 3, 0]])


@st.composite
def matrices(draw):
    clients, classes = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    cells = st.lists(st.integers(0, 50), min_size=classes, max_size=classes)
    counts = np.array(draw(st.lists(cells, min_size=clients, max_size=clients)))
    counts[0, 0] += 1
    return counts


def test_fedla_descriptors_have_the_cards_values():
    assert skew.hellinger(CARD)[0, 1] == 0 and skew.earth_mover(CARD)[0, 1] == 0
    assert skew.earth_mover(CARD)[0, 2] == pytest.approx(1 / 6, abs=1e-12)
    assert skew.overlap(CARD)[0, 1] == 2 and skew.overlap(CARD)[0, 2] == 5
    assert skew.shared(CARD)[:2].tolist() == [6, 2]
    assert skew.diversity(CARD).tolist() == [2, 2, 2]
    assert np.allclose(skew.shapes(CARD)[[0, 2]], [[2 / 3, 1 / 3, 0], [0.5, 0.5, 0]])
    h13 = math.sqrt(1 - math.sqrt(1 / 3) - math.sqrt(1 / 6))  # by H^2 = 1 - sum sqrt(q_1 q_3)
    assert skew.hellinger(CARD)[0, 2] == pytest.approx(h13, abs=1e-12)
    assert skew.entropy(CARD)[2] == pytest.approx(math.log(2))


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
def test_ranges_symmetry_and_bounds(counts):
    full = counts[counts.sum(axis=1) > 0]
    h, emd, tv = skew.hellinger(full), skew.earth_mover(full), skew.to_global(full, "tv")
    assert (h >= 0).all() and (h <= 1 + 1e-12).all() and np.array_equal(h, h.T) and not np.diag(h).any()
    assert (emd >= 0).all() and np.array_equal(emd, emd.T) and not np.diag(emd).any()
    assert (emd <= counts.shape[1] - 1 + 1e-12).all()
    assert np.array_equal(np.diag(skew.overlap(full)), full.sum(axis=1))
    assert (skew.entropy(full) <= np.log(skew.diversity(full)) + 1e-12).all()
    js, kl = skew.to_global(full, "js"), skew.to_global(full, "kl")
    assert (js >= -1e-12).all() and (js <= math.log(2) + 1e-12).all()
    assert (tv >= 0).all() and (2 * tv**2 <= kl + 1e-12).all()  # Pinsker
    assert 1 - 1e-12 <= skew.effective_clients(counts) <= len(full) + 1e-9
    assert -1e-12 <= skew.quantity_gini(counts) <= 1 - 1 / len(counts) + 1e-12
    assert (skew.shared(counts) <= counts.sum(axis=1)).all()


@given(counts=matrices(), factor=st.integers(2, 5))
def test_scale_and_relabelling_leave_shapes_alone_and_torch_equals_numpy(counts, factor):
    assert np.allclose(skew.hellinger(counts * factor), skew.hellinger(counts), atol=1e-7, equal_nan=True)
    assert np.allclose(skew.earth_mover(counts[:, ::-1]), skew.earth_mover(counts), equal_nan=True)
    report = skew.summary(counts)
    assert report == skew.summary(torch.from_numpy(counts)) and json.loads(json.dumps(report, allow_nan=False))
    assert all(isinstance(value, int | float | list) for value in report.values())


def test_identical_clients_are_not_skewed():
    report = skew.summary(np.tile([30, 20, 10], (5, 1)))
    for name in ("hellinger_mean", "emd_mean", "js_mean", "kl_mean", "tv_mean", "quantity_gini", "missing_rate"):
        assert report[name] == pytest.approx(0, abs=1e-12)
    assert report["effective_clients"] == pytest.approx(5) and report["shared_rate"] == 1


def test_clients_without_rows_are_nan_and_left_out_of_the_summary():
    counts = np.vstack([CARD, np.zeros((1, 3), dtype=int)])
    described = [skew.entropy(counts), skew.local_imbalance(counts)]
    for values in (*described, *(skew.to_global(counts, distance) for distance in skew.DISTANCES)):
        assert np.isnan(values).tolist() == [False, False, False, True]
    report, without = skew.summary(counts), skew.summary(CARD)
    assert report["empty_clients"] == 1 and report["clients"] == 4
    assert report["emd_mean"] == without["emd_mean"] and report["js_mean"] == without["js_mean"]
    assert math.isnan(skew.quantity_gini(counts * 0)) and math.isnan(skew.imbalance(counts * 0))


@pytest.mark.parametrize("counts", [np.zeros(3), np.zeros((0, 3)), np.array([[-1, 2]]), np.array([[np.nan]])])
def test_counts_must_be_a_matrix_of_numbers(counts):
    refused(lambda: skew.entropy(counts), "counts must be a non-empty matrix", kind=DataError)


def test_summary_needs_a_row():
    refused(lambda: skew.summary(np.zeros((2, 2))), "at least one row", kind=DataError)


# label distributions, pairs and FedLA's three properties


def test_distances_of_label_distributions_by_hand():
    counts = np.array([[3, 1, 0], [1, 0, 1], [0, 0, 0]])
    a, b = np.array([0.75, 0.25, 0]), np.array([0.5, 0, 0.5])
    m = (a + b) / 2
    js = sum(0.5 * x * math.log(x / c) for p in (a, b) for x, c in zip(p, m, strict=True) if x)
    expected = {
        "js": js, "tv": 0.5, "emd": 1.0, "kl": math.inf,
        "hellinger": math.sqrt(((np.sqrt(a) - np.sqrt(b)) ** 2).sum() / 2),
    }  # fmt: skip
    for name, value in expected.items():
        found = skew.pairwise(counts, name)
        assert found[0, 1] == pytest.approx(value, abs=1e-12), name
        assert found[0, 0] == pytest.approx(0, abs=1e-12) and np.isnan(found[2]).all() and np.isnan(found[:, 2]).all()
    one_way = skew.pairwise(np.array([[1, 1], [3, 1]]), "kl")
    assert one_way[0, 1] == pytest.approx(0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25))
    assert one_way[1, 0] == pytest.approx(0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5))
    refused(lambda: skew.pairwise(counts, "jss"), "unknown distance 'jss'; did you mean 'js'")


def test_distances_to_all_rows_are_distances_to_a_client_that_has_them_all():
    counts = np.array([[30, 1, 0], [1, 0, 14], [2, 9, 3]])
    whole = np.vstack([counts, counts.sum(0)])
    for name in skew.DISTANCES:
        assert np.allclose(skew.pairwise(whole, name)[:3, 3], skew.to_global(counts, name)), name


@given(counts=matrices())
def test_pairwise_distances_are_bounded_and_ordered(counts):
    full = counts[counts.sum(axis=1) > 0]
    js, tv, h = (skew.pairwise(full, name) for name in ("js", "tv", "hellinger"))
    assert np.allclose(js, js.T) and (js >= -1e-12).all() and (js <= math.log(2) + 1e-12).all()
    assert (h**2 <= tv + 1e-12).all() and (tv <= math.sqrt(2) * h + 1e-12).all()  # Le Cam
    assert np.array_equal(skew.pairwise(full, "emd") / 2, tv)
    wide = skew.effective_classes(full)
    assert (wide >= 1 - 1e-12).all() and (wide <= skew.diversity(full) + 1e-9).all()


def test_means_over_pairs_come_from_the_sample():
    counts = np.tile([[5, 1], [1, 5], [0, 0]], (750, 1))  # three times the sample: a spacing would see one kind
    assert len(skew.sample(counts)) == 500 and len(skew.sample(counts, 70)) == 70
    assert np.array_equal(skew.sample(counts), skew.sample(counts))
    few, many = skew.summary(counts[:60]), skew.summary(counts)
    assert many == skew.summary(counts) and many["js_pairs_mean"] == pytest.approx(few["js_pairs_mean"], rel=0.05)
    assert skew.effective_classes(CARD)[2] == pytest.approx(2)
    assert skew.summary(counts, most=40)["pair_clients"] == 40
