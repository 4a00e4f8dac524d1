"""Average ranks agree with scipy, scikit-posthocs and Demsar's paper, and say what few settings cannot show."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from fedskew import rng
from fedskew.errors import ConfigError
from fedskew.studies.differences import average_ranks, critical_difference
from fedskew.studies.scores import Scores
from support.scores import drawn, study


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
