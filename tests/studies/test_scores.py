"""Scores of runs: in their places, with means and intervals as scipy has them; and what a run costs until a target."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from fedskew.errors import ConfigError, FieldError, RecordError
from fedskew.records.summary import more_is_better
from fedskew.studies.scores import Reached, Scores, quantum_of, reach, reach_all, summaries, t_interval
from fedskew.studies.store import thinned
from support.scores import drawn, study

RUNS = [("fedavg", "alpha 1", 1, 0.6), ("fedla", "alpha 1", 0, 0.7), ("fedavg", "alpha 0.1", 0, 0.5)]


def test_runs_fill_their_places_and_what_is_missing_is_nan() -> None:
    scores = Scores.of(RUNS, metric="mean10_accuracy")
    assert (scores.methods, scores.settings, scores.seeds) == (("fedavg", "fedla"), ("alpha 1", "alpha 0.1"), (0, 1))
    expected = [[[math.nan, 0.6], [0.5, math.nan]], [[0.7, math.nan], [math.nan, math.nan]]]
    assert np.array_equal(scores.values, expected, equal_nan=True)
    assert [v.tolist() for v in scores.of_method("fedla")] == [[0.7], []]


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_a_run_that_failed_is_missing(value: float | None) -> None:
    scores = Scores.of([*RUNS, ("fedla", "alpha 1", 1, value)])
    assert np.isnan(scores.values[1, 0, 1])


def test_scores_hold_a_copy_that_cannot_be_written() -> None:
    given = np.zeros((1, 1, 1))
    held = Scores("loss", ("a",), ("s",), (0,), given)
    given[0, 0, 0] = 1
    assert held.values[0, 0, 0] == 0, "the array is a copy"
    with pytest.raises(ValueError, match="read-only"):
        held.values[0, 0, 0] = 1


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([], "runs must hold at least one run"),
        ([("a", "s", 0, 0.5), ("a", "s", 0, 0.6)], "got ('a', 's', 0) twice"),
    ],
)
def test_a_bad_run_is_one_line(runs: list[Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Scores.of(runs)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    scores = Scores.of(RUNS)
    with pytest.raises(ConfigError, match="unknown method 'fedvag'; did you mean 'fedavg'"):
        scores.index("fedvag")


def test_rounding_is_a_trillionth_of_the_largest_score() -> None:
    assert quantum_of(np.array([0.7, math.nan])) == 2.0**-40
    assert quantum_of(np.array([])) == quantum_of(np.zeros(2)) == 2.0**-40
    assert quantum_of(np.array([-1000.0])) == 2.0**-30


@pytest.mark.parametrize(
    ("metric", "more"),
    [("final_accuracy", True), ("mean10_loss", False), ("val_loss", False), ("ece", False), ("final_ece", False),
     ("total_wall_s", False), ("final_recall_at_precision_macro", True)],
)  # fmt: skip
def test_of_losses_calibration_errors_and_costs_less_is_better(metric: str, more: bool) -> None:
    assert more_is_better(metric) is more


# Means and intervals


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


# Cost until a target: counted as the record counts, and honest about runs that never reach it


def rows(*accuracies: float | None) -> list[dict[str, Any]]:
    """Rounds that cost 1, 2, 3, ... MB up, ten times as many down, 100 samples and half a second."""
    return [
        {"round": r, "upload_bytes": r * 10**6, "download_bytes": r * 10**7, "samples": 100, "steps": 5, "wall_s": 0.5}
        | ({} if a is None else {"accuracy": a})
        for r, a in enumerate(accuracies, 1)
    ]


def test_costs_are_sums_up_to_the_first_evaluation_that_reaches_it() -> None:
    found = reach(rows(0.1, 0.5, 0.6, 0.7), 0.6)
    assert found == Reached(0.6, True, 3, 66e6, 300, 1.5)


def test_a_target_that_is_not_reached_has_no_cost() -> None:
    found = reach(rows(0.1, 0.5), 0.6)
    assert (found.reached, found.rounds, found.bytes) == (False, 2, 33e6)
    assert not reach([], 0.5).reached and not reach(rows(None, None), 0.1).reached


def test_an_archive_that_holds_some_rounds_has_their_numbers_and_all_costs() -> None:
    whole = rows(0.1, 0.2, 0.5, 0.7, 0.8)
    kept = thinned(whole, 3)
    assert [row["round"] for row in kept] == [2, 4, 5] and [row.get("rounds") for row in kept] == [2, 2, None]
    for target in (0.6, 0.75, 0.9):
        one, other = reach(whole, target), reach(kept, target)
        assert (one.rounds, one.bytes, one.samples) == (other.rounds, other.bytes, other.samples)
    with pytest.raises(RecordError, match="round must count"):
        reach(kept[1:], 0.6)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.floats(0, 1), st.floats(0, 1))
def test_a_higher_target_is_not_reached_earlier(accuracies: list[float], a: float, b: float) -> None:
    low, high = (reach(rows(*accuracies), target) for target in sorted((a, b)))
    assert low.reached >= high.reached and low.rounds <= high.rounds and low.bytes <= high.bytes


def test_a_round_that_is_missing_or_has_no_cost_is_one_line() -> None:
    good = rows(0.1, 0.5)
    doubled, lacking = ([*good[:1], {**good[1], "round": 1}], [{k: v for k, v in good[0].items() if k != "wall_s"}])
    for run, said in (
        (lacking, "each round must have 'wall_s'"),
        (doubled, "round must count 1, 2, 3 in the rows of a run; got 1 in row 2"),
        (good[1:], "got 2 in row 1"),
    ):
        with pytest.raises(RecordError, match=said):
            reach(run, 0.5)


def test_several_targets_are_each_the_reach_of_one() -> None:
    gen = np.random.Generator(np.random.PCG64(5))
    made = [
        {"round": r, "accuracy": float(a), "upload_bytes": 3 * r, "download_bytes": 8, "samples": 4, "wall_s": 0.1 * r}
        for r, a in enumerate(gen.uniform(size=40), 1)
    ]
    targets = [0.9, 0.1, 0.5, 2.0]
    assert reach_all(made, targets) == tuple(reach(made, target) for target in targets)
    assert reach_all([], [0.5]) == (reach([], 0.5),) and reach([], 0.5).rounds == 0


def test_an_infinite_score_is_refused() -> None:
    with pytest.raises(FieldError, match=r"must be finite; got inf"):
        Scores("loss", ("fedavg",), ("alpha 1",), (0,), [[[math.inf]]])  # type: ignore[arg-type]
