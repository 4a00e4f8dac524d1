"""A/A studies: FedAvg against itself on the digits. What is not there is found as seldom as the level says."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from fedskew import rng
from fedskew.studies.statistics import differences
from support.scripts import script


@pytest.fixture(scope="module")
def aa() -> Any:
    return script("benchmarks/accuracy/aa.py")


def test_two_hundred_studies_of_ten_pairs_find_a_difference_in_2_to_9_percent(aa: Any) -> None:
    pairs = aa.recorded()
    assert pairs.shape == (4000, 2) and np.ptp(pairs) > 0.5, "accuracies that vary"
    for used in (pairs[:2000], pairs):
        for name, (hits, of) in aa.found(used).items():
            assert 0.02 <= hits / of <= 0.09, name


def test_fitted_differences_hold_their_level_and_few_verdicts_claim_one(aa: Any) -> None:
    """Below 7 % by both tests; by the one rule, a gain or a loss is claimed as often as an interval shows one."""
    pairs = aa.recorded(which="fitted")
    assert pairs.shape == (4000, 2) and (pairs - aa.recorded()).mean() > 0.2, "the fit does something"
    for size in (3, 5, 6, 10, 20):
        for name, (hits, of) in aa.found(pairs, size).items():
            assert hits / of < 0.07, (size, name)
    for size, studies in ((5, 800), (10, 400)):
        told = aa.verdicts(size)
        assert sum(told.values()) == studies and (studies - told["no gain shown"]) / studies < 0.07, told
    assert aa.verdicts(3) == {"no verdict": 1333}


def test_five_pairs_find_nothing(aa: Any) -> None:
    assert aa.found(aa.recorded(), size=5)["signed rank, exact"] == (0, 800)


def test_the_mean_share_over_exchanged_pairs_is_that_of_the_exact_test(aa: Any) -> None:
    """Either run of a pair may be called the first. The exact test of ten untied pairs finds one in 4.9 % at most."""
    shares = aa.exchanged(aa.recorded(), times=10)
    assert 0.038 <= np.mean(shares) <= 0.055


def test_a_test_without_pairs_would_not_hold_its_level(aa: Any) -> None:
    """The check sees a wrong test: taking each run twice makes 20 pairs of ten, and finds far more than 9 %."""
    told = [
        d for scores in aa.studies(np.repeat(aa.recorded()[:2000], 2, axis=0), 20) for d in differences(scores, "first")
    ]
    assert np.mean([d.significant for d in told]) > 0.09


def test_simulated_studies_find_a_difference_in_2_to_9_percent(aa: Any) -> None:
    pairs = rng.generator(0, "simulated").normal(size=(4000, 2))
    for name, (hits, of) in aa.found(pairs).items():
        assert 0.02 <= hits / of <= 0.09, name


def test_a_recorded_pair_is_trained_again(aa: Any) -> None:
    """The first pair of the file; another machine may round otherwise, and then a row or two is predicted otherwise."""
    row = json.loads(aa.OUT.read_text(encoding="utf-8").splitlines()[1])
    again = next(aa.trained(range(1)))
    assert again["seeds"] == row["seeds"] and all(
        np.allclose(again[which], row[which], atol=2) for which in ("right", "fitted")
    )
