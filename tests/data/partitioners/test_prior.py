"""dir_prior: the two readings of alpha, and the form in which all clients are served at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedskew.data.partitioners import DirPrior
from support.labels import MIXED, content, counted
from support.strategies import alphas, seeds

CIFAR = np.repeat(np.arange(10), 5000)


@given(alpha=st.floats(1e-3, 10), clients=st.integers(1, 40), seed=seeds)
def test_alpha_a_class_is_ten_times_alpha_in_total(alpha, clients, seed):
    for prior in ("uniform", "data"):
        one = DirPrior(alpha, concentration="per_class", prior=prior).split(MIXED, clients, seed)
        ten = counted(DirPrior(10 * alpha, prior=prior), MIXED, clients, seed)
        assert np.abs(one.counts(MIXED, 10) - ten).max() <= 1  # 10 alpha p and alpha C p may differ in the last bit
    named = DirPrior(alpha, concentration="total").split(MIXED, clients, seed)
    assert content(named) == content(DirPrior(alpha).split(MIXED, clients, seed))


def test_seol_and_kims_classes_of_a_client_fit_alpha_a_class():
    """Their case 3: "6 classes, 4 of 6 below average". Means over ten splits of 100 clients."""
    for reading, held, below in (("total", 2.1, 0.7), ("per_class", 6.7, 4.0)):
        n = np.concatenate([counted(DirPrior(0.2, concentration=reading), CIFAR, 100, s) for s in range(10)])
        assert (n > 0).sum(axis=1).mean() == pytest.approx(held, abs=0.15)
        assert ((n > 0) & (n < n.mean(axis=1, keepdims=True))).sum(axis=1).mean() == pytest.approx(below, abs=0.15)


@given(alpha=alphas, clients=st.integers(1, 60), seed=seeds, samples=st.integers(0, 9))
def test_served_together_meets_sizes_and_totals(alpha, clients, seed, samples):
    samples = min(samples, len(MIXED) // clients)
    for prior in ("uniform", "data"):
        counts = counted(DirPrior(alpha, samples=samples, serve="together", prior=prior), MIXED, clients, seed)
        assert (counts.sum(axis=1) == counts.sum(axis=1)[0]).all() and (counts.sum(axis=0) <= np.bincount(MIXED)).all()
