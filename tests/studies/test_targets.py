"""Cost until a target: counted as the record counts, and honest about runs that never reach it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedskew.errors import RecordError
from fedskew.studies.scores import Reached, reach, reach_all
from fedskew.studies.store import thinned


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
