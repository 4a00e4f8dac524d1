"""Partitioners by quantity: equal sizes, and sizes that are skewed while labels stay iid."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedskew.data.partitioners import (
    Iid,
    QuantityDir,
)
from support.labels import MIXED, counted
from support.strategies import seeds, tables


@given(labels=tables(), clients=st.integers(1, 50), seed=seeds)
def test_iid_sizes_are_equal(labels, clients, seed):
    sizes = Iid().split(labels, clients, seed).sizes
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize(
    "partitioner",
    [Iid(sizes="power", size_skew=0.0), Iid(sizes="lognormal", size_skew=0.0), QuantityDir(1e9)],
    ids=repr,
)
def test_no_quantity_skew_gives_equal_sizes(partitioner):
    assert np.ptp(partitioner.split(MIXED, 37, 0).sizes) <= 1


@pytest.mark.parametrize(
    "partitioner",
    [Iid(sizes="power", size_skew=60.0), Iid(sizes="lognormal", size_skew=1e4), QuantityDir(1e-6)],
    ids=repr,
)
def test_extreme_quantity_skew_leaves_the_others_their_least(partitioner):
    sizes = np.sort(partitioner.split(MIXED, 20, 0).sizes)
    assert (sizes[:-1] == 1).all() and sizes.sum() == len(MIXED)


@given(clients=st.integers(1, 60), seed=seeds, a=st.floats(0, 3))
def test_power_law_sizes_are_those_of_the_formula(clients, seed, a):
    sizes = np.sort(Iid(sizes="power", size_skew=a).split(MIXED, clients, seed).sizes)[::-1]
    law = np.arange(1, clients + 1) ** -a
    assert np.abs(sizes - 1 - (len(MIXED) - clients) * law / law.sum()).max() < 1 + 1e-9


def test_quantity_skew_leaves_labels_iid():
    counts = counted(Iid(sizes="power", size_skew=1.0), np.repeat(np.arange(10), 6000), 10)
    q = counts / counts.sum(1, keepdims=True)
    assert np.abs(q - 0.1).max() < 5 * (0.09 / counts.sum(1).min()) ** 0.5
