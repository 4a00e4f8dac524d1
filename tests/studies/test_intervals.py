"""Means and intervals agree with scipy, and with values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from fedskew import rng
from fedskew.studies.scores import summaries, t_interval
from support.scores import drawn, study


def test_the_t_interval_is_scipys() -> None:
    values = drawn(7)
    low, high = t_interval(values) or (0, 0)
    expected = scipy.stats.t.interval(0.95, 6, loc=values.mean(), scale=scipy.stats.sem(values))
    assert (low, high) == pytest.approx(expected, rel=1e-12)


def test_a_summary_by_hand() -> None:
    """Of 1, 2, 3, 6: mean 3, squares 4 + 1 + 0 + 9 = 14, sd sqrt(14/3); t(3, 0.975) = 3.18245."""
    found = summaries(study(np.array([[[6.0, math.nan, 1, 3, 2]]])))[0]
    half = 3.18245 * math.sqrt(14 / 3) / 2
    assert (found.runs, found.missing, found.mean) == (4, 1, 3.0)
    assert (found.sd, found.low, found.high) == pytest.approx((math.sqrt(14 / 3), 3 - half, 3 + half), rel=1e-5)


def test_few_runs_have_no_spread() -> None:
    none, one = summaries(study(np.array([[[math.nan, math.nan]], [[0.5, math.nan]]])))
    assert none.mean is none.low is None
    assert one.mean == 0.5 and one.missing == 1 and one.sd is one.low is None


@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(2, 7))
def test_permuted_seeds_change_nothing(seed: int, s: int, k: int) -> None:
    values = drawn(2, s, k, seed=seed)
    values[0, 0, 0] = math.nan
    order = rng.generator(seed, "order").permutation(k)
    assert summaries(study(values)) == summaries(study(values[..., order]))


@given(st.integers(0, 10**6), st.floats(-100, 100))
def test_a_shift_moves_every_value_and_no_width(seed: int, shift: float) -> None:
    values = drawn(2, 2, 5, seed=seed)
    for x, y in zip(summaries(study(values)), summaries(study(values + shift)), strict=True):
        assert y.sd == pytest.approx(x.sd, abs=1e-9) and y.low == pytest.approx((x.low or 0) + shift, abs=1e-9)
