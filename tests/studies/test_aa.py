"""A/A studies: FedAvg against itself on the digits. What is not there is found as seldom as the level says."""

from __future__ import annotations

import re

import numpy as np
import pytest

from support import equals
from support.paths import ROOT


def test_two_hundred_studies_of_ten_pairs_find_a_difference_in_2_to_9_percent() -> None:
    pairs = equals.recorded()
    assert pairs.shape == (4000, 2) and np.ptp(pairs) > 0.5, "accuracies that vary"
    for used in (pairs[:2000], pairs):
        for name, (hits, of) in equals.found(used).items():
            assert 0.02 <= hits / of <= 0.09, name


def test_fitted_differences_hold_their_level_and_few_verdicts_claim_one() -> None:
    """Below 7 % by both tests; by the one rule, a gain or a loss is claimed as often as an interval shows one."""
    pairs = equals.recorded("fitted")
    assert pairs.shape == (4000, 2) and (pairs - equals.recorded()).mean() > 0.2, "the fit does something"
    for size in (3, 5, 6, 10, 20):
        for name, (hits, of) in equals.found(pairs, size).items():
            assert hits / of < 0.07, (size, name)
    for size, studies in ((5, 800), (10, 400)):
        told = equals.verdicts(size)
        assert sum(told.values()) == studies and (studies - told["no gain shown"]) / studies < 0.07, told
    assert equals.verdicts(3) == {"no verdict": 1333}


def test_five_pairs_find_nothing() -> None:
    assert equals.found(equals.recorded(), size=5)["signed rank, exact"] == (0, 800)


@pytest.mark.parametrize(("part", "which"), [(0, "right"), (1, "fitted")])
def test_the_page_says_what_the_recorded_runs_say(part: int, which: str) -> None:
    text = (ROOT / "notes/levels.md").read_text(encoding="utf-8").split("finds a fitted difference")[part]
    pairs = equals.recorded(which)
    rows = re.findall(r"^\| (\d+) \| (signed rank, exact|paired t) \| (\d+) \| (\d+) \| ([\d.]+) % \|$", text, re.M)
    assert len(rows) == 8
    for size, test, hits, of, share in rows:
        used = pairs[: int(size) * int(of)]
        assert equals.found(used, int(size))[test] == (int(hits), int(of))
        assert float(share) == round(100 * int(hits) / int(of), 1)
