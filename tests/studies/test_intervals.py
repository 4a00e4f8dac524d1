"""Means and intervals agree with scipy, and with values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

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
