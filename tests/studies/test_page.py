"""statistics.md and levels.md: the example runs, the tables are recomputed, and every statistic is named."""

from __future__ import annotations

import doctest
import re

from fedskew.studies import statistics
from fedskew.studies.differences import critical_difference
from support.paths import ROOT
from support.scripts import script

FILE = ROOT / "docs/reference/statistics.md"
PAGE = FILE.read_text(encoding="utf-8")


def test_the_example_runs() -> None:
    failed, tried = doctest.testfile(str(FILE), module_relative=False)
    assert tried > 5 and not failed


def test_every_statistic_is_explained() -> None:
    named = ("average_ranks", "differences", "holm", "reach")
    for name in (*named, "summaries"):
        assert hasattr(statistics, name)
        assert re.search(rf"^#+ .*`{name}`", PAGE, re.M), name


def test_the_pairs_that_are_needed() -> None:
    rows = re.findall(r"^\| (\d+)(?: to (\d+))? \| (\d+) \|$", PAGE, re.M)
    assert len(rows) == 5
    for first, last, pairs in rows:
        for m in (int(first), int(last or first)):
            n = int(pairs)
            assert m * statistics.smallest_p(n) <= 0.05 < m * statistics.smallest_p(n - 1), m


def test_the_findings_of_the_aa_studies_are_those_of_the_recorded_runs() -> None:
    aa = script("benchmarks/accuracy/aa.py")
    raw, fitted = (ROOT / "notes/levels.md").read_text(encoding="utf-8").split("finds a fitted difference")
    for text, which in ((raw, "right"), (fitted, "fitted")):
        pairs = aa.recorded(which=which)
        rows = re.findall(r"^\| (\d+) \| (signed rank, exact|paired t) \| (\d+) \| (\d+) \| ([\d.]+) % \|$", text, re.M)
        assert len(rows) == 10
        for size, test, hits, of, share in rows:
            used = pairs[: int(size) * int(of)]
            assert aa.found(used, int(size))[test] == (int(hits), int(of))
            assert float(share) == round(100 * int(hits) / int(of), 1)


def test_the_critical_difference_of_two_settings() -> None:
    assert "critical difference is 4.31" in PAGE and round(critical_difference(5, 2), 2) == 4.31
