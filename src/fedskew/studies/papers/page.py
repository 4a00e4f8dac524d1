"""The page of the papers: what was run, what holds, and every number beside ours. Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from fedskew.studies.papers.ledger import STATES, TOTAL, Row, coverage
from fedskew.studies.papers.protocol import names, protocol
from fedskew.studies.papers.verdicts import VERDICTS, verdicts

__all__ = ["page_of"]

HEAD = """# The five papers, and ours beside every number

`fedskew ledger --page` writes this page from [ledger.csv](../../results/ledger.csv) and the verdicts of
`fedskew.studies.papers`. The runs are in `results/papers`, one line a run. `fedskew reproduce NAME` repeats a table.
[protocols.md](protocols.md) says what the papers leave open and what we run. `python scripts/evidence.py` prints the
gains and counts of the verdicts.

**How a number is judged.** Where a spread is printed and we have two seeds or more, ours agrees if its 95 % t interval
and the printed mean plus and minus its spread overlap. Else it agrees if both are within one point, or, for rounds,
rows and ratios, within a tenth of the printed number. An interval of two seeds is wide: agreement with it says little.
One seed can differ by more than a point and lie inside the printed spread: that is "differs", too. "3 of 5" seeds are
three, where the study has five: others are not run, or failed. "never": a run does not get there. "small" is a
reduced run: what is reduced stands beside it. A level at small scale says little, an order of methods more. "input" is
a setting that the paper prints, "no data" a data set that is not at hand.

The five papers print 1039 numbers. Flower is a third party: the README of its NIID-Bench baseline prints 60 numbers of
FedAvg, SCAFFOLD, FedProx and FedNova. They stand beside the papers' numbers, and no total counts them.
"""


def page_of(rows: Sequence[Row]) -> str:
    """The page.

    Args:
        rows: The ledger.

    Returns:
        Markdown that ends in a newline.
    """
    return "\n".join([HEAD, *_counts(rows), *_claims(), *_tables(rows), *_missing(rows)]) + "\n"


def _counts(rows: Sequence[Row]) -> Iterator[str]:
    yield "## What was run\n"
    yield from _header("paper", *STATES, "ours at paper scale", "ours at small scale")
    for paper, mine in coverage(rows).items():
        states = [sum(row.state == state for row in mine) for state in STATES]
        scales = [sum(row.scale == s and row.ours is not None for row in mine) for s in ("paper", "small")]
        yield _line(paper, *(n if paper == TOTAL else n or "" for n in (*states, *scales)))
    yield ""


def _claims() -> Iterator[str]:
    found = verdicts()
    yield "## What holds\n"
    told = {v: sum(one.verdict == v for one in found) for v in VERDICTS}
    yield ", ".join(f"{n} {v}" for v, n in told.items() if n) + ".\n"
    yield from _header("paper", "claim", "verdict", "evidence", "why we differ, or what was tried")
    for one in found:
        evidence = f"{one.evidence} `{one.command}`" if one.command else one.evidence
        yield _line(one.paper, one.claim, f"**{one.verdict}**", evidence, one.cause)
    yield ""


def _tables(rows: Sequence[Row]) -> Iterator[str]:
    """Printed numbers and ours, a section for each study that was run."""
    ours = sorted(
        (row for row in rows if row.ours is not None), key=lambda row: (row.number.paper, row.study, row.scale)
    )
    yield "## Number by number\n"
    for (study, scale), some in groupby(ours, key=lambda row: (row.study, row.scale)):
        listed = list(some)
        yield f"### {study or 'FedLA, Table I'}\n"
        if study:
            one = protocol(study)
            reduced = f" Reduced: {one.reduced(scale)}." if one.reduced(scale) else ""
            hows = sorted({row.how for row in listed if row.how})
            how = f" Engine: {'; '.join(hows)}." if hows else ""
            yield f"{one.title}. {one.reading} Scale: {scale}.{reduced}{how} `{listed[0].command}`\n"
        yield from _header("setting", "method", "metric", "printed", "ours", "95 %", "seeds", "")
        for row in listed:
            n = row.number
            yield _line(n.setting, n.method, n.metric, *row.texts, row.state)
        yield ""


def _missing(rows: Sequence[Row]) -> Iterator[str]:
    """What was not run, by study, and what all of its runs would take."""
    yield "## Not run\n"
    yield "Hours are of one thread and all seeds: the time of a step and of an evaluation, measured into"
    yield "`results/costs.csv`, times their number. Work of a method beside plain training is not in them. Tables that"
    yield "share runs name their hours each.\n"
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
