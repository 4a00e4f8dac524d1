"""Means and intervals agree with scipy and rliable, and with values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from fedskew import rng
from fedskew.errors import ConfigError
from fedskew.studies.intervals import aggregate, interquartile_mean, summaries, t_interval
from fedskew.studies.scores import Floats, Scores
from support import rliable


def study(values: Floats, higher_is_better: bool = True) -> Scores:
    """Scores of an array [M, S, K], with made-up names."""
    m, s, k = values.shape
    names = tuple(f"m{i}" for i in range(m)), tuple(f"s{i}" for i in range(s))
    return Scores("accuracy", *names, tuple(range(k)), values, higher_is_better)


def drawn(*shape: int, seed: int = 0) -> Floats:
    return rng.generator(seed, "test").normal(0.6, 0.1, size=shape)


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


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8, 25])
def test_the_interquartile_mean_is_scipys(n: int) -> None:
    values = drawn(3, n)
    expected = [np.mean(np.sort(row)[n // 4 : n - n // 4]) for row in values]
    assert interquartile_mean(values) == pytest.approx(expected, rel=1e-12)


def test_aggregates_are_rliables() -> None:
    metrics = pytest.importorskip("rliable.metrics")
    values = drawn(3, 4, 6)
    for name, theirs in (
        ("mean", metrics.aggregate_mean),
        ("iqm", metrics.aggregate_iqm),
        ("median", metrics.aggregate_median),
    ):
        ours = [found.value for found in aggregate(study(values), name, resamples=100)]
        assert ours == pytest.approx([theirs(one.T) for one in values], rel=1e-12)


@pytest.mark.parametrize("name", ["mean", "iqm", "median"])
def test_bootstrap_intervals_are_rliables(name: str) -> None:
    """Both draw 10,000 resamples; the ends differ by the error of such draws, a fiftieth of the width."""
    metrics = pytest.importorskip("rliable.metrics")
    values = drawn(1, 4, 6)
    func = getattr(metrics, f"aggregate_{name}")
    low, high = rliable.intervals(lambda x: np.array([func(x)]), values[0].T, 10_000)[:, 0]
    found = aggregate(study(values), name)[0]
    assert found.low is not None and found.high is not None
    assert (found.low, found.high) == pytest.approx((low, high), abs=(high - low) / 50)


def test_a_bootstrap_interval_by_hand() -> None:
    """Of runs 0 and 1, a resample's mean is 0, 0.5 or 1 with probability 1/4, 1/2, 1/4."""
    found = aggregate(study(np.array([[[0.0, 1.0]]])), resamples=2000)[0]
    assert (found.value, found.low, found.high) == (0.5, 0.0, 1.0)


def test_settings_count_equally_in_the_mean_and_by_runs_in_the_iqm() -> None:
    values = np.array([[[0.0, 0.0, 0.0, 0.0], [1.0, 1.0, math.nan, math.nan]]])
    assert aggregate(study(values), "mean", resamples=100)[0].value == 0.5
    assert aggregate(study(values), "iqm", resamples=100)[0].value == 0.25  # of 0 0 0 0 1 1, one is cut at each end


def test_a_method_that_lacks_a_setting_has_no_value_over_settings() -> None:
    values = drawn(2, 2, 3)
    values[1, 1] = math.nan
    whole, part = aggregate(study(values), resamples=100)
    assert whole.value is not None and part.value is part.low is None and part.lacking == ("s1",)


def test_one_run_has_no_interval_and_the_fewest_runs_are_counted() -> None:
    one, five = (aggregate(study(drawn(1, 2, n)), resamples=100)[0] for n in (1, 5))
    assert one.low is None and one.fewest == 1 and five.low is not None and five.fewest == 5


def test_methods_share_draws_and_no_order_matters() -> None:
    values = drawn(1, 3, 5)
    both = study(np.concatenate([values, values]))
    first, second = aggregate(both, "iqm", resamples=500)
    assert (first.low, first.high) == (second.low, second.high)
    turned = aggregate(both.select(settings=["s2", "s0", "s1"]), "iqm", resamples=500)[0]
    assert (turned.low, turned.high) == (first.low, first.high)


def test_the_draws_follow_the_seed() -> None:
    scores = study(drawn(1, 2, 5))
    a, b, c = (aggregate(scores, resamples=500, seed=seed)[0] for seed in (0, 0, 1))
    assert a == b and a != c


@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(2, 7))
def test_permuted_seeds_change_nothing(seed: int, s: int, k: int) -> None:
    values = drawn(2, s, k, seed=seed)
    values[0, 0, 0] = math.nan
    order = rng.generator(seed, "order").permutation(k)
    for name in ("mean", "iqm"):
        assert aggregate(study(values), name, resamples=100) == aggregate(
            study(values[..., order]), name, resamples=100
        )
    assert summaries(study(values)) == summaries(study(values[..., order]))


@given(st.integers(0, 10**6), st.floats(-100, 100))
def test_a_shift_moves_every_value_and_no_width(seed: int, shift: float) -> None:
    values = drawn(2, 2, 5, seed=seed)
    for name in ("mean", "iqm"):
        for a, b in zip(aggregate(study(values), name), aggregate(study(values + shift), name), strict=True):
            assert (b.value, b.low, b.high) == pytest.approx(
                [v + shift for v in (a.value, a.low, a.high) if v], abs=1e-9
            )
    for x, y in zip(summaries(study(values)), summaries(study(values + shift)), strict=True):
        assert y.sd == pytest.approx(x.sd, abs=1e-9) and y.low == pytest.approx((x.low or 0) + shift, abs=1e-9)


def test_t_intervals_cover_what_they_say() -> None:
    """Of 2,000 samples of five normal scores, 95 % hold the mean: within three standard errors of a share."""
    inside = [low <= 0.6 <= high for low, high in (t_interval(v) or (0, 0) for v in drawn(2000, 5))]
    assert np.mean(inside) == pytest.approx(0.95, abs=3 * math.sqrt(0.95 * 0.05 / 2000))


@pytest.mark.parametrize("resamples", [0, 99, 1.5, "many", True])
def test_a_bad_number_of_resamples_is_one_line(resamples: object) -> None:
    with pytest.raises(ConfigError, match="resamples must be a whole number of at least 100"):
        aggregate(study(drawn(1, 1, 3)), resamples=resamples)  # type: ignore[arg-type]


def test_an_unknown_statistic_is_one_line() -> None:
    with pytest.raises(ConfigError, match="unknown statistic 'iqr'; did you mean 'iqm'"):
        aggregate(study(drawn(1, 1, 3)), "iqr")
