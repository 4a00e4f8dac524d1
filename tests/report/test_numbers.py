"""The report's statistics agree with scipy's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fedskew.report.numbers import differences, estimate, ranks
from fedskew.studies.differences import smallest_p


def test_the_interval_is_students() -> None:
    gen = np.random.Generator(np.random.PCG64(0))
    for n in (2, 3, 5, 30):
        x = gen.normal(0.5, 0.1, n)
        found = estimate(x)
        low, high = stats.t.interval(0.95, n - 1, x.mean(), stats.sem(x))
        assert found.n == n and np.allclose([found.low, found.high, found.sd], [low, high, x.std(ddof=1)])


def test_a_difference_is_the_paired_t_test_over_the_seeds_that_both_have() -> None:
    gen = np.random.Generator(np.random.PCG64(1))
    values = gen.normal(0.5, 0.1, (3, 8))
    values[1, 2] = np.nan
    found = differences(values, 0)
    both = np.isfinite(values[1])
    assert found[0] is None and found[1] is not None and found[1].n == 7
    assert math.isclose(found[1].p, stats.wilcoxon(values[1][both] - values[0][both], method="exact").pvalue)


def test_holm_corrects_for_every_comparison_that_has_a_p() -> None:
    base = np.linspace(0.1, 0.8, 8)
    mixed = np.array([0.1, 0.3, -0.1, 0.2, -0.2, 0.1, -0.3, 0.2])
    alone = np.full(8, np.nan)
    alone[0] = 0.5
    values = np.array([base, base + np.linspace(0.01, 0.08, 8), base + mixed, alone])
    _, first, second, none = differences(values, 0)
    assert first is not None and second is not None and none is not None
    assert math.isclose(first.holm, 2 * first.p) and math.isclose(second.holm, max(second.p, 2 * first.p))
    assert first.significant and not second.significant and math.isnan(none.holm) and not none.significant


def test_equal_methods_do_not_differ_and_a_constant_gap_does() -> None:
    row = np.linspace(0.1, 0.6, 6)
    equal = differences(np.array([row, row]), 0)[1]
    assert equal is not None and equal.p == 1 and not equal.significant
    apart = differences(np.array([row, row + 0.5]) * 8, 0)[1]
    assert apart is not None and apart.significant


def test_ranks_are_friedmans_and_the_critical_difference_is_nemenyis() -> None:
    gen = np.random.Generator(np.random.PCG64(2))
    means = gen.normal(size=(4, 10))
    found = ranks(means)
    assert math.isclose(found.p, stats.friedmanchisquare(*means).pvalue)
    assert math.isclose(sum(found.average), 10) and math.isclose(
        found.critical, 2.569 * math.sqrt(20 / 60), rel_tol=1e-3
    )
    assert ranks(-means, higher=False).average == found.average


@pytest.mark.parametrize("means", [np.full((3, 4), 0.5), np.full((2, 3), np.nan), np.ones((1, 5))])
def test_ranks_of_what_cannot_be_ranked(means: np.ndarray) -> None:
    assert math.isnan(ranks(means).p)


@pytest.mark.parametrize("pairs", [3, 4, 5, 6, 7])
def test_the_least_p_of_a_rank_test(pairs: int) -> None:
    assert smallest_p(pairs) == stats.wilcoxon(np.arange(1, pairs + 1), mode="exact").pvalue
