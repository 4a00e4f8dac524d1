"""Performance profiles and the probability of improvement agree with rliable, and with values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from fedskew import rng
from fedskew.errors import ConfigError
from fedskew.studies.profiles import improvement, profiles
from fedskew.studies.scores import Floats, Scores
from support import rliable


def study(values: Floats, higher_is_better: bool = True) -> Scores:
    m, s, k = values.shape
    names = tuple(f"m{i}" for i in range(m)), tuple(f"s{i}" for i in range(s))
    return Scores("accuracy", *names, tuple(range(k)), values, higher_is_better)


def drawn(*shape: int, seed: int = 0) -> Floats:
    return rng.generator(seed, "test").normal(0.6, 0.1, size=shape)


def test_profiles_are_rliables() -> None:
    theirs, values, taus = rliable.module(), drawn(2, 3, 6), np.linspace(0.4, 0.8, 9)
    for found, one in zip(profiles(study(values), taus), values, strict=True):
        assert found.share == pytest.approx(theirs.score_distributions(one.T, taus), abs=1e-12)


def test_the_bands_of_profiles_are_rliables() -> None:
    theirs, values, taus = rliable.module(), drawn(1, 3, 6), np.linspace(0.45, 0.75, 4)
    low, high = rliable.intervals(lambda x: theirs.score_distributions(x, taus), values[0].T, 4000)
    found = profiles(study(values), taus, resamples=4000)[0]
    assert found.low == pytest.approx(low, abs=1 / 18 + 1e-9) and found.high == pytest.approx(high, abs=1 / 18 + 1e-9)


def test_a_profile_by_hand() -> None:
    """Two settings of two runs; a score that equals tau is not better."""
    values = np.array([[[0.2, 0.4], [0.6, 0.8]]])
    assert profiles(study(values), [0.2, 0.3, 0.6, 0.9])[0].share.tolist() == [0.75, 0.75, 0.25, 0.0]
    assert profiles(study(values, False), [0.2, 0.3, 0.6, 0.9])[0].share.tolist() == [0.0, 0.25, 0.5, 1.0]


def test_a_profile_leaves_out_settings_without_runs_and_says_which() -> None:
    values = drawn(2, 2, 3)
    values[0, 1], values[1] = math.nan, math.nan
    part, none = profiles(study(values), [0.0, 1.0])
    assert part.lacking == ("s1",) and part.share.tolist() == [1, 0]
    assert none.lacking == ("s0", "s1") and np.isnan(none.share).all() and none.low is None


@pytest.mark.parametrize("thresholds", [[], [0.5, 0.4], [0.5, 0.5], [math.nan], [[0.1]], [0.1, math.inf]])
def test_bad_thresholds_are_one_line(thresholds: list[float]) -> None:
    with pytest.raises(ConfigError, match="thresholds must be increasing finite numbers; got") as caught:
        profiles(study(drawn(1, 1, 3)), thresholds)
    assert "\n" not in str(caught.value)


# Probability of improvement


def test_the_probability_of_improvement_is_rliables() -> None:
    metrics = pytest.importorskip("rliable.metrics")
    values = np.round(drawn(2, 4, 6), 1)  # rounded: with ties
    values[1, 0] = values[0, 0]  # a setting where both are equal
    found = improvement(study(values), "m0")[0]
    assert found.value == pytest.approx(metrics.probability_of_improvement(values[1].T, values[0].T), abs=1e-12)
    for better, sign in ((True, 1), (False, -1)):
        u = scipy.stats.mannwhitneyu(sign * values[1, 1], sign * values[0, 1]).statistic / 36
        alone = improvement(study(values, better).select(settings=["s1"]), "m0")[0]
        assert alone.value == pytest.approx(u, abs=1e-12)


def test_the_interval_of_the_probability_is_rliables() -> None:
    metrics = pytest.importorskip("rliable.metrics")
    values = drawn(2, 3, 6)

    def func(x: Floats, y: Floats) -> Floats:
        return np.array([metrics.probability_of_improvement(x, y)])

    low, high = rliable.intervals(func, [values[1].T, values[0].T], 600)[:, 0]
    found = improvement(study(values), "m0")[0]
    assert found.low is not None and found.high is not None
    assert (found.low, found.high) == pytest.approx((low, high), abs=(high - low) / 10)


def test_a_probability_by_hand() -> None:
    """Of 3 x 3 pairs of runs, 0.6 beats 0.5; 0.7 beats 0.5 and 0.6; 0.8 beats all: 6, and two ties count half."""
    values = np.array([[[0.5, 0.6, 0.7]], [[0.6, 0.7, 0.8]]])
    assert improvement(study(values), "m0")[0].value == pytest.approx(7 / 9)
    assert improvement(study(values, False), "m0")[0].value == pytest.approx(2 / 9)


def test_ties_within_rounding_are_ties() -> None:
    values = np.array([[[0.3, 0.3]], [[0.1 + 0.2, 0.3]]])
    assert improvement(study(values), "m0")[0].value == 0.5


def test_complete_separation_has_an_interval_without_width() -> None:
    values = np.array([[[0.1, 0.2, 0.3]], [[0.4, 0.5, 0.6]]])
    found = improvement(study(values), "m0")[0]
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)


def test_few_runs_are_counted() -> None:
    values = drawn(2, 2, 5)
    assert improvement(study(values), "m0")[0].fewest == 5
    values[1, 0, 1:] = math.nan
    one = improvement(study(values), "m0")[0]
    assert one.value is not None and one.low is None and one.fewest == 1
    values[1, 0] = math.nan
    assert improvement(study(values), "m0")[0].settings == 1
    values[1] = math.nan
    assert improvement(study(values), "m0")[0].value is None


def test_the_draws_follow_the_seed() -> None:
    scores = study(drawn(2, 3, 12))
    a, b, c = (improvement(scores, "m0", resamples=500, seed=seed)[0] for seed in (0, 0, 1))
    assert a == b and (a.low, a.high) != (c.low, c.high) and a.value == c.value
    bands = [profiles(scores, [0.55, 0.6, 0.65], resamples=500, seed=seed)[0].low for seed in (0, 0, 1)]
    assert np.array_equal(bands[0], bands[1]) and not np.array_equal(bands[0], bands[2])


@given(st.integers(0, 10**6), st.floats(-10, 10), st.booleans())
def test_neither_the_order_of_seeds_nor_a_shift_changes_a_probability(seed: int, shift: float, better: bool) -> None:
    values = np.round(drawn(3, 2, 6, seed=seed), 1)
    values[0, 0, 0] = math.nan
    order = rng.generator(seed, "order").permutation(6)
    told = improvement(study(values, better), "m0", resamples=100)
    assert told == improvement(study(values[..., order], better), "m0", resamples=100)
    shifted = improvement(study(values + shift, better), "m0", resamples=100)
    assert [(t.value, t.low, t.high) for t in told] == [(t.value, t.low, t.high) for t in shifted]
    assert told[1].value == pytest.approx(1 - (improvement(study(values, better), "m2", resamples=100)[0].value or 0))


def test_an_unknown_baseline_is_one_line() -> None:
    with pytest.raises(ConfigError, match="unknown method 'm9'; known: m0, m1"):
        improvement(study(drawn(2, 1, 3)), "m9")
