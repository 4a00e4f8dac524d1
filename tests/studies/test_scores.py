"""Scores: built from runs in any order, checked in one line, and never written to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fedskew.errors import ConfigError, FieldError
from fedskew.records.summary import more_is_better
from fedskew.studies.scores import Scores, quantum_of

RUNS = [("fedavg", "alpha 1", 1, 0.6), ("fedla", "alpha 1", 0, 0.7), ("fedavg", "alpha 0.1", 0, 0.5)]


def test_runs_fill_their_places_and_what_is_missing_is_nan() -> None:
    scores = Scores.of(RUNS, metric="mean10_accuracy")
    assert (scores.methods, scores.settings, scores.seeds) == (("fedavg", "fedla"), ("alpha 1", "alpha 0.1"), (0, 1))
    expected = [[[math.nan, 0.6], [0.5, math.nan]], [[0.7, math.nan], [math.nan, math.nan]]]
    assert np.array_equal(scores.values, expected, equal_nan=True)
    assert scores.counts.tolist() == [[1, 1], [1, 0]]
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


GOOD: dict[str, Any] = {"metric": "m", "methods": ("a",), "settings": ("s",), "seeds": (0,), "values": [[[0.5]]]}
BAD = {
    "a text for names": ({"methods": "fedavg"}, "have the shape [6, 1, 1] of methods"),
    "no method": ({"methods": ()}, "hold at least one, each once; got ()"),
    "a method twice": ({"methods": ("a", "a")}, "Scores.methods must hold at least one, each once; got ('a', 'a')"),
    "another shape": (
        {"values": [[[0.5, 0.5]]]},
        "have the shape [1, 1, 1] of methods, settings and seeds; got [1, 1, 2]",
    ),
    "infinite": ({"values": [[[math.inf]]]}, "Scores.values must be finite; got inf; a run that failed is NaN"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_field_is_one_line(case: str) -> None:
    fields, said = BAD[case]
    with pytest.raises(FieldError) as caught:
        Scores(**{**GOOD, **fields})
    assert said in str(caught.value) and "\n" not in str(caught.value)


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
