"""What partitioners share: partitions, largest remainders, Dirichlet draws, a stable order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedskew import rng
from fedskew.data.partitioners import (
    deal,
    largest_remainder,
    log_dirichlet,
)
from support.strategies import seeds


def test_partition_helpers():
    parts = deal(np.array([0, 1, 0, 1, 1]), np.array([[1, 2], [0, 0], [1, 0]]), rng.generator(0))
    assert parts.sizes.tolist() == [3, 0, 1] and len(parts.of(1)) == 0
    assert parts.counts([0, 1, 0, 1, 1], 3).tolist() == [[1, 2, 0], [0, 0, 0], [1, 0, 0]]
    for k in (-1, 3):
        with pytest.raises(IndexError):
            parts.of(k)


@given(
    shares=st.lists(st.floats(0, 1e6), min_size=1, max_size=12).filter(lambda s: sum(s) > 0),
    total=st.integers(0, 10**6),
)
def test_largest_remainder_sums_and_stays_within_one(shares, total):
    out = largest_remainder(np.array([shares]), np.array([total]))[0]
    exact = np.array(shares) / sum(shares) * total
    assert out.sum() == total and (np.abs(out - exact) < 1 + 1e-6).all()


@given(alpha=st.floats(-300, 300).map(lambda e: 10.0**e), seed=seeds)
def test_log_dirichlet_is_normalised_for_any_concentration(alpha, seed):
    logs = log_dirichlet(np.full((5, 30), alpha), rng.generator(seed))
    assert not np.isnan(logs).any() and np.allclose(np.exp(logs).sum(axis=1), 1)


@pytest.mark.parametrize("alpha", [0.05, 0.5, 4.0])
def test_log_dirichlet_has_the_moments_of_the_distribution(alpha):
    shares = np.exp(log_dirichlet(np.full((40_000, 4), alpha), rng.generator(7)))
    variance = 0.25 * 0.75 / (4 * alpha + 1)
    assert np.allclose(shares.mean(axis=0), 0.25, atol=5 * (variance / 40_000) ** 0.5)
    assert np.allclose(shares.var(axis=0), variance, rtol=0.05)
