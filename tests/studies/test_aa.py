"""A/A studies: FedAvg against itself under other seeds, 4000 pairs on the digits (notes/levels.md).

What is not there is found as seldom as the level says.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator

import numpy as np
import pytest

from fedskew.studies.differences import differences
from fedskew.studies.scores import Scores, t_interval
from support.paths import ROOT

TEST_ROWS = 359
PAIRS = 10  # of a study


def recorded(which: str = "right") -> np.ndarray:
    """The recorded accuracies, float64 [pairs, 2]; those of the fitted models are "fitted"."""
    _, *lines = lzma.decompress((ROOT / "results/accuracy/aa-digits.jsonl.xz").read_bytes()).splitlines()
    return np.array([json.loads(line)[which] for line in lines]) / TEST_ROWS


def studies(pairs: np.ndarray, size: int = PAIRS) -> Iterator[Scores]:
    """The pairs [P, 2] as studies of two methods with ``size`` seeds; each pair is used once."""
    for at in range(0, len(pairs) - size + 1, size):
        values = pairs[at : at + size].T[:, None]
        yield Scores("accuracy", ("first", "second"), ("digits",), tuple(range(size)), values)


def _apart(values: np.ndarray) -> bool:
    """Whether the 95 % t interval leaves out 0, which is p <= 0.05 of the t test."""
    ends = t_interval(np.array(values))
    return ends is not None and not ends[0] < 0 < ends[1]


def found(pairs: np.ndarray, size: int = PAIRS) -> dict[str, tuple[int, int]]:
    """(studies that find a difference at 5 %, studies) by test."""
    told = [differences(scores, "first")[0] for scores in studies(pairs, size)]
    by = {"signed rank, exact": [d.significant for d in told], "paired t": [_apart(d.values) for d in told]}
    return {name: (sum(said), len(said)) for name, said in by.items()}


def test_two_hundred_studies_of_ten_pairs_find_a_difference_in_2_to_9_percent() -> None:
    pairs = recorded()
    assert pairs.shape == (4000, 2) and np.ptp(pairs) > 0.5, "accuracies that vary"
    for used in (pairs[:2000], pairs):
        for name, (hits, of) in found(used).items():
            assert 0.02 <= hits / of <= 0.09, name


@pytest.mark.thorough
def test_fitted_differences_hold_their_level() -> None:
    """Below 7 % by both tests."""
    pairs = recorded("fitted")
    assert pairs.shape == (4000, 2) and (pairs - recorded()).mean() > 0.2, "the fit does something"
    for size in (3, 5, 6, 10, 20):
        for name, (hits, of) in found(pairs, size).items():
            assert hits / of < 0.07, (size, name)


def test_five_pairs_find_nothing() -> None:
    assert found(recorded(), size=5)["signed rank, exact"] == (0, 800)


@pytest.mark.thorough
def test_the_page_says_what_the_recorded_runs_say() -> None:
    text = (ROOT / "notes/levels.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (signed rank, exact|paired t) \| (.+) \|$", text, re.M)
    assert len(rows) == 8
    for size, test, rest in rows:
        hits, of, share, fitted, fitted_share = rest.split(" | ")
        for which, counted, said in (("right", hits, share), ("fitted", fitted, fitted_share)):
            used = recorded(which)[: int(size) * int(of)]
            assert found(used, int(size))[test] == (int(counted), int(of))
            assert said == f"{100 * int(counted) / int(of):.1f} %"
