"""The recorded A/A studies: FedAvg against itself under other seeds, 4000 pairs on the digits (notes/levels.md)."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Iterator

import numpy as np

from fedskew.studies.differences import differences
from fedskew.studies.scores import Scores, t_interval
from fedskew.studies.verdicts import verdict
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


def verdicts(size: int) -> Counter[str]:
    """How many studies of ``size`` pairs get each verdict; raw and fitted models are on record, mean models are not."""
    both = zip(*(studies(recorded(which), size) for which in ("right", "fitted")), strict=True)
    gaps = ([differences(scores, "first")[0].gain for scores in pair] for pair in both)
    return Counter(verdict({"raw": raw, "fitted": fitted}) for raw, fitted in gaps)
