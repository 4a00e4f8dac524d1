"""The pages of the papers: what was run, what holds, and every number beside ours. Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from fedskew.papers.order import tables
from fedskew.papers.rows import STATES, TOTAL, Row, coverage
from fedskew.papers.rules import FEWEST
from fedskew.papers.runs import Runs
from fedskew.papers.tables import names, protocol
from fedskew.papers.verdicts import VERDICTS, Evidence, claims, verdict_of

__all__ = ["appendix_of", "page_of", "pages"]

HEAD = """# The five papers, and ours beside every number

Five papers on label skew print 1039 numbers. This page says which of them come out again here, and what holds of each
claim. `fedskew ledger --page` writes all of it from the runs in `results/papers`; `fedskew reproduce NAME` repeats a
table. Rows of fewer than five seeds, and what was not run, stand in the [appendix](APPENDIX).
[ledger.csv](../results/ledger.csv) has every number, and [protocols.md](protocols.md) what the papers leave open.
Flower is a third party: its README prints 60 numbers of published methods, which no total counts.

**How a number is judged.** By its gain over the reference method of its table (mostly FedAvg), paired by seed, with
five seeds or more. The 90 % interval of our gain less the printed one decides: inside of ±1 point it *agrees*, outside
of it it *differs*, across an end it is *not resolved*. The spread of the printed gain is part of the interval where
spread and number of runs are printed; else the printed gain counts as exact. Counts of rounds and rows are judged by
their ratio to the reference, within a tenth. Levels are judged apart: *within* means that our 95 % interval meets the
printed mean and its spread, or, lacking a spread, that both are within a point. *Level only* is a number without a
printed gain, such as the reference itself.
[statistics.md](../docs/reference/statistics.md#is-a-mean-a-given-number-equivalence) has the formulas.
"""

TAIL = """# The five papers: what has no verdict yet

Numbers of ours with fewer than five seeds, and numbers that were not run. They show that a protocol runs and support
no conclusion: the same seed of a small run ended at 12 % on one machine and at 23 % on another. [papers.md](PAGE) has
the rest.
"""

WORDS = """The word and the numbers are computed: each claim comes to conditions on gains, judged by 95 % intervals.
*Holds*: all are met. *Holds in part*: more are met than refuted. *No verdict*: fewer than five seeds. Gains are points
of accuracy of the last round, with 95 % t intervals, unless it says otherwise.
"""

CHECK = """*Own* is the share of our gains that agree with the printed gain of their own method, *other* with that of
another method of the same cell: a rule that says nothing has both alike. *Tau* is Kendall's, of the printed means and
ours, averaged over the cells of the table. Each p is the share of the ways to hand the methods on, alike in all cells,
that do as well.
"""

ITSELF = """
No order can be expected to agree with another better than with itself: tau of two halves of our seeds, and of the
printed runs, drawn from their means and spreads.
"""

NUMBERS = """Gains are in points. *Fitted*: both models under biases and one temperature fitted on training rows, where
all runs have them. *Swing*: how far the last evaluation is from the mean of the last ten rounds, median over the runs;
empty where only one of these is evaluated. "3 of 5" seeds are three, where the study has five: others are not run, or
failed.
"""

HOURS = """Hours are of one thread and all seeds: the time of a step and of an evaluation, measured into
`results/costs.csv`, times their number. Work of a method beside plain training is not in them. Tables that share runs
name their hours each.
"""


def pages(rows: Sequence[Row], runs: Runs, page: Path) -> dict[Path, str]:
    """The page and its appendix, "papers-appendix.md" beside "papers.md", as Markdown.

    Args:
        rows: The ledger.
        runs: The runs that it was made from.
        page: File of the page.
    """
    beside = page.with_name(f"{page.stem}-appendix{page.suffix}")
    return {page: page_of(rows, runs, beside.name), beside: appendix_of(rows, page.name)}


def page_of(rows: Sequence[Row], runs: Runs, appendix: str = "papers-appendix.md") -> str:
    """The page: what was run, what holds, and the numbers that have a verdict."""
    judged = [row for row in rows if row.ours is not None and row.judged]
    head = HEAD.replace("APPENDIX", appendix)
    return "\n".join([head, *_counts(rows), *_claims(rows, runs), *_orders(rows), *_judged(judged)]) + "\n"


def appendix_of(rows: Sequence[Row], page: str = "papers.md") -> str:
    """The appendix: what has no verdict, and what was not run."""
    return "\n".join([TAIL.replace("PAGE", page), *_unjudged(rows), *_missing(rows)]) + "\n"


# The page


def _counts(rows: Sequence[Row]) -> Iterator[str]:
    yield "## What was run\n"
    yield from _header("paper", *STATES)
    for paper, mine in coverage(rows).items():
        states = [sum(row.state == state for row in mine) for state in STATES]
        yield _line(paper, *(n if paper == TOTAL else n or "" for n in states))
    yield ""


def _claims(rows: Sequence[Row], runs: Runs) -> Iterator[str]:
    evidence = Evidence(rows, runs)
    found = [verdict_of(claim, evidence) for claim in claims()]
    yield "## What holds\n"
    told = {word: sum(one.word == word for one in found) for word in VERDICTS}
    yield ", ".join(f"{n} {word}" for word, n in told.items() if n) + ".\n"
    yield WORDS
    yield from _header("paper", "claim", "verdict", "seeds", "evidence", "why we differ, or what was tried")
    for one in found:
        seeds = " to ".join(map(str, one.seeds))
        yield _line(one.claim.paper, one.claim.claim, f"**{one.word}**", seeds, one.evidence, one.claim.cause)
    yield ""


def _orders(rows: Sequence[Row]) -> Iterator[str]:
    """The check of the rule, and the order of the methods in each cell."""
    found = list(tables(rows))
    if not found:
        return
    yield "## Is the rule worth something, and is the order the printed one?\n"
    yield CHECK
    yield from _header("table", "cells", "methods", "own", "other", "p", "tau", "p of tau")
    for one in found:
        shares = f"{100 * one.own:.0f} %", f"{100 * one.other:.0f} %", f"{one.p_own:.2g}"
        yield _line(one.study, len(one.cells), len(one.methods), *shares, f"{one.tau:.2f}", f"{one.p:.2g}")
    yield ITSELF
    yield from _header("table", "setting", "metric", "tau", "ours with itself", "printed with itself")
    for one in found:
        for cell in one.cells:
            printed = "" if cell.printed is None else f"{cell.printed:.2f}"
            yield _line(one.study, cell.setting, cell.metric, f"{cell.tau:.2f}", f"{cell.ours:.2f}", printed)
    yield ""


COLUMNS: dict[str, Callable[[Row], str]] = {
    "setting": lambda row: row.number.setting,
    "method": lambda row: row.number.method,
    "metric": lambda row: row.number.metric,
    "gain, printed": lambda row: _gain(row, 0),
    "ours": lambda row: _gain(row, 1),
    "ours less printed, 90 %": lambda row: _gain(row, 2),
    "verdict": lambda row: row.state,
    "ours, fitted": lambda row: _gain(row, 3),
    "level, printed": lambda row: row.texts[0] if row.level else "",
    "our level, 95 %": lambda row: (row.texts[2] or row.texts[1]) if row.level else "",
    "level": lambda row: row.level,
    "swing": lambda row: "" if row.swing is None else f"{row.swing:.3g}",
    "seeds": lambda row: row.texts[3],
}


def _gain(row: Row, place: int) -> str:
    return row.gain.texts[place] if row.gain is not None else ""


def _judged(rows: Iterable[Row]) -> Iterator[str]:
    """Printed numbers and ours, a section for each study that has the seeds of a verdict."""
    yield "## Number by number\n"
    yield NUMBERS
    for one, some in _sections(rows):
        yield one
        columns = {name: [shown(row) for row in some] for name, shown in COLUMNS.items()}
        columns = {name: cells for name, cells in columns.items() if any(cells)}
        yield from _header(*columns)
        yield from (_line(*cells) for cells in zip(*columns.values(), strict=True))
        yield ""


def _sections(rows: Iterable[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The heading of each study and its rows: what is compared, what is reduced, and what ran it."""
    ordered = sorted(rows, key=lambda row: (row.number.paper, row.study, row.scale))
    for (study, scale), some in groupby(ordered, key=lambda row: (row.study, row.scale)):
        listed = list(some)
        told = "Computed from the printed counts."
        if study:
            one = protocol(study)
            reduced = f" Reduced: {one.reduced(scale)}." if one.reduced(scale) else ""
            hows = "; ".join(sorted({row.how for row in listed if row.how}))
            told = f"{one.title}.{reduced} Engine: {hows}. `{listed[0].command}`"
        yield f"### {study or 'FedLA, Table I'}\n\n{told}\n", listed


# The appendix


def _unjudged(rows: Sequence[Row]) -> Iterator[str]:
    yield f"## Fewer than {FEWEST} seeds\n"
    for one, some in _sections(row for row in rows if row.ours is not None and not row.judged):
        yield one
        yield from _header("setting", "method", "metric", "printed", "ours", "95 %", "swing", "seeds")
        for row in some:
            n, (*texts, seeds) = row.number, row.texts
            yield _line(n.setting, n.method, n.metric, *texts, COLUMNS["swing"](row), seeds)
        yield ""


def _missing(rows: Sequence[Row]) -> Iterator[str]:
    """What was not run, by study, and what all of its runs would take."""
    yield "## Not run\n"
    yield HOURS
    yield from _header("paper", "table", "data set", "numbers", "study", "core-hours")
    left = [row for row in rows if row.state == "not run"]
    places = Counter((row.number.paper, row.number.table, row.number.dataset, row.study) for row in left)
    for (paper, table, dataset, study), count in places.items():
        mine = [row for row in left if (row.study, row.number.table) == (study, table)]
        hours = sum({key: hours for row in mine for key, hours in row.prices}.values())
        command = f"`fedskew reproduce {study} --scale paper`" if study in names() else ""
        yield _line(paper, table, dataset, count, command, f"{hours:.3g}" if hours else "")


def _header(*cells: str) -> Iterator[str]:
    yield _line(*cells)
    yield _line(*("---" for _ in cells))


def _line(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
