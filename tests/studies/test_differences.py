"""Paired differences and ranks: the tests are scipy's and statsmodels', and words say no more than the pairs allow."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from fedskew import rng
from fedskew.errors import ConfigError
from fedskew.studies.differences import (
    Difference,
    average_ranks,
    critical_difference,
    differences,
    holm,
    signed_rank,
    smallest_p,
)
from fedskew.studies.scores import Scores, reach, summaries
from support.paths import ROOT
from support.scores import drawn, study


def gained(*values: float, m: int = 2, higher_is_better: bool = True) -> Difference:
    """The difference of a method that gains these values, pair by pair; of m - 1 equal methods."""
    k = len(values)
    rows = [np.full(k, 0.5), *[0.5 + np.array(values)] * (m - 1)]
    return differences(study(np.array(rows)[:, None], higher_is_better), "m0")[0]


FIVE = (0.1, 0.11, 0.12, 0.13, 0.14)


# The tests


@pytest.mark.parametrize("n", [1, 2, 5, 6, 10, 25, 50])
def test_the_signed_rank_test_is_scipys_where_no_sizes_are_equal(n: int) -> None:
    for seed in range(20):
        d = rng.generator(seed, "signed").normal(0.3, 1, size=n)
        assert signed_rank(d) == pytest.approx(scipy.stats.wilcoxon(d, method="exact").pvalue, rel=1e-9)


def by_enumeration(d: list[float]) -> float:
    """Every assignment of signs to the ranks of the differences that are not zero."""
    d = [v for v in d if v]
    ranks = scipy.stats.rankdata(np.abs(d))
    w = sum(r for r, v in zip(ranks, d, strict=True) if v > 0)
    sums = [sum(itertools.compress(ranks, signs)) for signs in itertools.product((0, 1), repeat=len(d))]
    low, high = (sum(s <= w for s in sums), sum(s >= w for s in sums))
    return min(1.0, 2 * min(low, high) / len(sums))


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=9))
def test_the_signed_rank_test_is_exact_with_ties_and_zeros(d: list[int]) -> None:
    expected = by_enumeration(list(map(float, d))) if any(d) else 1.0
    assert signed_rank([v / 359 for v in d]) == pytest.approx(expected, abs=1e-12)


def test_ties_survive_rounding() -> None:
    """0.9 - 0.8 and 0.8 - 0.7 differ in their last bits, and are one difference."""
    a, b = np.array([0.9, 0.8, 0.7]), np.array([0.8, 0.7, 0.8])
    assert len(set(np.abs(a - b))) > 1
    found = differences(study(np.array([b, a])[:, None]), "m0")[0]
    assert len(set(np.abs(found.values))) == 1 and found.p == by_enumeration([1, 1, -1])


def test_the_t_test_is_scipys() -> None:
    values = drawn(2, 1, 8)
    found = differences(study(values), "m0")[0]
    theirs = scipy.stats.ttest_rel(values[1, 0], values[0, 0])
    assert (found.low, found.high) == pytest.approx(theirs.confidence_interval(0.95), rel=1e-9)
    assert (found.mean, found.sd) == pytest.approx((np.mean(d := values[1, 0] - values[0, 0]), np.std(d, ddof=1)))


@pytest.mark.thorough
def test_holms_correction_is_statsmodels() -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    for seed in range(20):
        p = rng.generator(seed, "holm").uniform(0, 0.2, size=7)
        assert holm(list(p)) == pytest.approx(multitest.multipletests(p, method="holm")[1], rel=1e-12)


def test_holms_correction_by_hand() -> None:
    """Sorted 0.005, 0.01, 0.03, 0.04, times 4, 3, 2, 1: 0.02, 0.03, 0.06, 0.04; the last is raised to 0.06."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert holm([None, 0.5, None]) == (None, 0.5, None) and holm([]) == () and holm([0.9, 0.9]) == (1.0, 1.0)


# What five pairs cannot show


def test_five_pairs_cannot_reach_five_percent() -> None:
    assert [smallest_p(n) for n in (0, 1, 4, 5, 6)] == [1, 1, 0.125, 0.0625, 0.03125]


def test_five_clear_pairs_conclude_nothing_and_show_an_interval() -> None:
    found = gained(0.1, 0.11, 0.12, 0.13, 0.14)
    assert found.p == 0.0625 and not found.significant and found.ranked == "open"
    assert found.low is not None and found.low > 0 and found.verdict == "a gain"


def test_six_clear_pairs_conclude() -> None:
    found = gained(0.1, 0.11, 0.12, 0.13, 0.14, 0.15)
    assert found.p == found.p_holm == 0.03125 and found.ranked == "better"
    assert gained(0.1, 0.11, 0.12, 0.13, 0.14, 0.15, higher_is_better=False).ranked == "worse"
    assert gained(-0.1, -0.11, -0.12, -0.13, -0.14, -0.15).ranked == "worse"


def test_pairs_that_are_equal_do_not_count() -> None:
    assert gained(0.1, 0.11, 0.12, 0.13, 0.14, 0.0).p == 0.0625


def test_the_ranks_decide_where_the_mean_points_the_other_way() -> None:
    found = gained(*(0.01 * i for i in range(1, 10)), -9.0)
    assert found.mean is not None and found.mean < 0 and found.ranked == "open"
    assert gained(*(0.01 * i for i in range(1, 15)), -9.0).ranked == "better"


def test_of_a_loss_less_is_a_gain() -> None:
    found = gained(*FIVE, higher_is_better=False)
    assert found.verdict == "a loss" and found.gain == (-found.mean, -found.high, -found.low, 5)  # type: ignore[operator]
    assert gained(*FIVE).gain[:3] == (gained(*FIVE).mean, gained(*FIVE).low, gained(*FIVE).high)
    assert gained(0.1).gain == (pytest.approx(0.1), -math.inf, math.inf, 1), "of one pair nothing is known"


def test_intervals_are_at_holms_levels_over_the_methods_of_a_setting() -> None:
    alone, among = gained(*FIVE), gained(*FIVE, m=5)
    assert among.mean == alone.mean and among.low < alone.low and among.high > alone.high  # type: ignore[operator]
    expected = scipy.stats.ttest_1samp(among.values, 0).confidence_interval(1 - 0.05 / 4)
    assert (among.low, among.high) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("values", [[0.0, 0.0], [0.1], [math.nan], [0.1, 0.1]])
def test_what_nothing_can_be_concluded_from(values: list[float]) -> None:
    assert gained(*values).ranked == "open" and gained(*values).verdict == "no verdict"


# Pairs, settings, families


def test_a_missing_run_drops_its_pair_and_is_counted() -> None:
    values = drawn(2, 1, 5)
    values[0, 0, 1] = values[1, 0, 3] = math.nan
    found = differences(study(values), "m0")[0]
    assert (found.seeds, found.pairs, found.dropped) == ((0, 2, 4), 3, 2)
    assert found.values == pytest.approx(values[1, 0, [0, 2, 4]] - values[0, 0, [0, 2, 4]])


def test_over_settings_the_unit_is_the_seed() -> None:
    values = drawn(3, 2, 6)
    values[1, 1, 5] = math.nan
    told = differences(study(values), "m0")
    assert [(d.method, d.setting) for d in told] == [
        *((m, s) for s in ("s0", "s1") for m in ("m1", "m2")), ("m1", None), ("m2", None)
    ]  # fmt: skip
    part, whole = told[-2:]
    assert part.seeds == (0, 1, 2, 3, 4) and part.dropped == 1 and whole.pairs == 6
    assert whole.values == pytest.approx((values[2] - values[0]).mean(axis=0))


def test_a_setting_that_refuses_a_method_takes_no_seed_from_the_others() -> None:
    values = drawn(2, 3, 6)
    values[1, 1] = math.nan
    found = differences(study(values), "m0")[-1]
    assert (found.settings, found.pairs) == (2, 6)


def test_holms_correction_is_made_over_the_methods_of_one_setting() -> None:
    values = drawn(4, 2, 10)
    values[3, 0] = math.nan  # no comparison there
    told = differences(study(values), "m0")
    for setting, m in (("s0", 2), ("s1", 3), (None, 3)):
        family = [d for d in told if d.setting == setting]
        assert sum(d.p is not None for d in family) == m
        assert [d.p_holm for d in family] == list(holm([d.p for d in family]))


@given(st.integers(0, 10**6), st.floats(-50, 50), st.booleans())
def test_neither_the_order_of_seeds_nor_a_shift_changes_a_conclusion(seed: int, shift: float, better: bool) -> None:
    values = np.round(drawn(3, 2, 7, seed=seed), 2)
    values[0, 0, 0] = math.nan
    order = rng.generator(seed, "order").permutation(7)
    told = differences(study(values, better), "m0")
    for a, b in zip(told, differences(study(values[..., order], better), "m0"), strict=True):
        assert (a.mean, a.low, a.high, a.p_holm) == (b.mean, b.low, b.high, b.p_holm)
    for a, b in zip(told, differences(study(values + shift, better), "m0"), strict=True):
        assert (a.p, a.p_holm, a.ranked) == (b.p, b.p_holm, b.ranked)
        assert b.mean == pytest.approx(a.mean, abs=1e-9)


@given(st.integers(0, 10**6))
def test_baseline_and_method_exchanged_turn_the_signs_alone(seed: int) -> None:
    values = np.round(drawn(2, 1, 8, seed=seed), 2)
    a, b = (differences(study(values), name)[0] for name in ("m0", "m1"))
    assert a.p == b.p and a.values == tuple(-v for v in b.values)
    assert (a.low, a.high) == pytest.approx((-(b.high or 0), -(b.low or 0)), abs=1e-12)
    assert {a.ranked, b.ranked} in ({"open"}, {"better", "worse"})


def test_an_unknown_baseline_is_one_line() -> None:
    with pytest.raises(ConfigError, match="unknown method 'fedavg'"):
        differences(study(drawn(2, 1, 3)), "fedavg")


# Average ranks agree with scipy and Demsar's paper, and say what few settings cannot show


def clear(methods: int, places: int) -> Scores:
    """Method i scores i everywhere."""
    return study(np.broadcast_to(np.arange(methods)[:, None, None], (methods, places, 1)))


# The table of the two-tailed Nemenyi test in Demsar (2006), table 5 (a): q at 0.05 for 2 to 10 methods.
Q05 = [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164]


@pytest.mark.parametrize("k", range(2, 11))
def test_critical_differences_are_those_of_demsars_table(k: int) -> None:
    q = critical_difference(k, 1) / math.sqrt(k * (k + 1) / 6)
    assert q == pytest.approx(Q05[k - 2], abs=1.1e-3)  # the table was rounded twice


def test_ranks_are_scipys_ties_included() -> None:
    values = np.round(drawn(4, 9, 1), 1)
    found = average_ranks(study(values))
    expected = scipy.stats.rankdata(-values[:, :, 0], axis=0).mean(axis=1)
    assert dict(zip(found.methods, found.ranks, strict=True)) == pytest.approx(
        {f"m{i}": v for i, v in enumerate(expected)}
    )


def test_friedmans_p_for_few_settings_is_that_of_all_permutations() -> None:
    """Three methods ranked alike in three settings: 6 of 216 arrangements are as extreme."""
    found = average_ranks(clear(3, 3))
    assert found.p == pytest.approx(6 / 216, abs=4 * math.sqrt(6 / 216 / 10_000))


def test_ranks_by_hand() -> None:
    """Means over seeds: (0.2, 0.5, 0.5) and (0.3, 0.1, 0.6); so ranks 3, 1.5, 1.5 and 2, 3, 1."""
    values = np.array([[[0.1, 0.3], [0.2, 0.4]], [[0.5, 0.5], [0.1, 0.1]], [[0.4, 0.6], [0.6, 0.6]]])
    found = average_ranks(study(values))
    assert (found.methods, found.ranks) == (("m2", "m1", "m0"), (1.25, 2.25, 2.5))
    assert average_ranks(study(values, False)).ranks == (1.5, 1.75, 2.75)


def test_scores_that_differ_by_rounding_are_tied() -> None:
    values = np.array([[[0.1 + 0.2]], [[0.3]], [[0.1]]])
    assert average_ranks(study(np.repeat(values, 2, axis=1))).ranks == (1.5, 1.5, 3.0)


def test_pairs_that_swap_at_random_and_one_that_is_always_last_are_told_apart() -> None:
    """Twenty settings, CD 1.36 of five methods: two pairs that swap at random, and one that is always last."""
    g, rows = rng.generator(0, "groups"), []
    for _ in range(20):
        first, second = g.permutation([5.0, 4.0]), g.permutation([3.0, 2.0])
        rows.append([*first, *second, 1.0])
    found = average_ranks(study(np.array(rows).T[:, :, None]))
    assert found.significant
    assert "differ by 1.36 or more are significantly different at 5 % (Nemenyi)" in found.conclusion


def test_nothing_found_is_no_equality() -> None:
    found = average_ranks(study(drawn(4, 6, 2)))
    assert not found.significant
    assert found.conclusion.endswith("no significant difference at 5 %. This does not show that the methods are equal.")


def test_ends_a_critical_difference_apart_do_not_differ_where_friedmans_test_finds_nothing() -> None:
    """Ten equal methods, a draw in which the extremes are far apart by chance."""
    found = average_ranks(study(drawn(10, 20, 1, seed=113)))
    assert found.critical_difference is not None and found.ranks[-1] - found.ranks[0] > found.critical_difference
    assert not found.significant


def test_methods_that_are_tied_everywhere_do_not_differ() -> None:
    found = average_ranks(study(np.full((3, 4, 2), 0.5)))
    assert (found.ranks, found.p) == ((2.0, 2.0, 2.0), 1.0)


def test_what_few_settings_cannot_show_is_said() -> None:
    conclusion = average_ranks(clear(5, 2)).conclusion
    assert "differ by 4.31 or more" in conclusion and "With 2 settings, average ranks cannot" in conclusion
    assert "Ranks of one setting cannot be tested" in average_ranks(clear(5, 1)).conclusion
    two = average_ranks(clear(2, 4))
    assert two.p is two.critical_difference is None
    assert "Ranks of two methods are not tested: use the paired differences." in two.conclusion


def test_a_setting_counts_the_seeds_that_all_methods_have() -> None:
    values = np.array([[[0.9, 0.1, math.nan]], [[math.nan, 0.2, 0.0]], [[0.8, 0.3, 0.0]]])
    assert average_ranks(study(values)).methods == ("m2", "m1", "m0"), "by seed 1 alone"
    values = np.concatenate([values, values], axis=1)
    values[0, 1, 1] = math.nan
    found = average_ranks(study(values))
    assert (found.settings, found.dropped) == (("s0",), ("s1",))
    assert found.conclusion.endswith("1 setting excluded because runs are missing.")


def test_no_common_run_gives_no_ranks() -> None:
    values = np.array([[[0.9, math.nan]], [[math.nan, 0.2]]])
    found = average_ranks(study(values))
    assert found.ranks == () and found.conclusion.startswith(
        "No setting has runs of all methods, so there are no ranks."
    )


@given(st.integers(0, 10**6), st.floats(-10, 10), st.booleans())
def test_neither_the_order_of_seeds_nor_a_shift_changes_ranks(seed: int, shift: float, better: bool) -> None:
    values = np.round(drawn(3, 4, 5, seed=seed), 1)
    values[0, 0, 0] = math.nan
    order = rng.generator(seed, "order").permutation(5)
    told = average_ranks(study(values, better), permutations=100)
    for other in (values[..., order], values + shift):
        found = average_ranks(study(other, better), permutations=100)
        for name in ("methods", "ranks", "p", "conclusion"):
            assert getattr(found, name) == getattr(told, name)


def test_one_method_has_no_rank() -> None:
    with pytest.raises(ConfigError, match="methods must be at least two to be ranked; got 1"):
        average_ranks(study(drawn(1, 3, 2)))


# The page statistics.md

PAGE = (ROOT / "docs/reference/statistics.md").read_text(encoding="utf-8")


def test_every_statistic_is_explained() -> None:
    for function in (average_ranks, differences, holm, reach, summaries):
        assert re.search(rf"^#+ .*`{function.__name__}`", PAGE, re.M), function


def test_the_pairs_that_are_needed() -> None:
    rows = re.findall(r"^\| (\d+)(?: to (\d+))? \| (\d+) \|$", PAGE, re.M)
    assert len(rows) == 5
    for first, last, pairs in rows:
        for m in (int(first), int(last or first)):
            n = int(pairs)
            assert m * smallest_p(n) <= 0.05 < m * smallest_p(n - 1), m
