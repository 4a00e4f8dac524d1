"""statistics.md: the table of pairs is recomputed, and every statistic is named."""

from __future__ import annotations

import re

from fedskew.studies import differences, scores
from support.paths import ROOT

PAGE = (ROOT / "docs/reference/statistics.md").read_text(encoding="utf-8")


def test_every_statistic_is_explained() -> None:
    named = {differences: ("average_ranks", "differences", "holm"), scores: ("reach", "summaries")}
    for module, name in [(module, name) for module, names in named.items() for name in names]:
        assert hasattr(module, name)
        assert re.search(rf"^#+ .*`{name}`", PAGE, re.M), name


def test_the_pairs_that_are_needed() -> None:
    rows = re.findall(r"^\| (\d+)(?: to (\d+))? \| (\d+) \|$", PAGE, re.M)
    assert len(rows) == 5
    for first, last, pairs in rows:
        for m in (int(first), int(last or first)):
            n = int(pairs)
            assert m * differences.smallest_p(n) <= 0.05 < m * differences.smallest_p(n - 1), m
