"""The pages of the papers: what was run, what holds, and every number beside ours. Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from papers_verdicts import VERDICTS, Evidence, claims, verdict_of

from fedskew.papers.arbiter import header, line
from fedskew.papers.rows import STATES, TOTAL, Row, coverage
from fedskew.papers.rules import FEWEST
from fedskew.papers.runs import Runs
from fedskew.papers.tables import names, protocol
from fedskew.studies.spec import table_from

TEXTS = table_from(Path(__file__).with_suffix(".toml"))


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
    head = TEXTS["head"].replace("APPENDIX", appendix)
    return "\n".join([head, *_counts(rows), *_claims(rows, runs), *_judged(judged)]) + "\n"


def appendix_of(rows: Sequence[Row], page: str = "papers.md") -> str:
    """The appendix: what has no verdict, and what was not run."""
    return "\n".join([TEXTS["tail"].replace("PAGE", page), *_unjudged(rows), *_missing(rows)]) + "\n"


# The page


def _counts(rows: Sequence[Row]) -> Iterator[str]:
    yield "## What was run\n"
    yield from header("paper", *STATES)
    for paper, mine in coverage(rows).items():
        states = [sum(row.state == state for row in mine) for state in STATES]
        yield line(paper, *(n if paper == TOTAL else n or "" for n in states))
    yield ""


def _claims(rows: Sequence[Row], runs: Runs) -> Iterator[str]:
    evidence = Evidence(rows, runs)
    found = [verdict_of(claim, evidence) for claim in claims()]
    yield "## What holds\n"
    told = {word: sum(one.word == word for one in found) for word in VERDICTS}
    yield ", ".join(f"{n} {word}" for word, n in told.items() if n) + ".\n"
    yield TEXTS["words"]
    yield from header("paper", "claim", "verdict", "seeds", "evidence", "why we differ, or what was tried")
    for one in found:
        seeds = " to ".join(map(str, one.seeds))
        yield line(one.claim.paper, one.claim.claim, f"**{one.word}**", seeds, one.evidence, one.claim.cause)
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
    yield TEXTS["numbers"]
    for one, some in _sections(rows):
        yield one
        columns = {name: [shown(row) for row in some] for name, shown in COLUMNS.items()}
        columns = {name: cells for name, cells in columns.items() if any(cells)}
        yield from header(*columns)
        yield from (line(*cells) for cells in zip(*columns.values(), strict=True))
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
        yield from header("setting", "method", "metric", "printed", "ours", "95 %", "swing", "seeds")
        for row in some:
            n, (*texts, seeds) = row.number, row.texts
            yield line(n.setting, n.method, n.metric, *texts, COLUMNS["swing"](row), seeds)
        yield ""


def _missing(rows: Sequence[Row]) -> Iterator[str]:
    """What was not run, by study."""
    yield "## Not run\n"
    yield from header("paper", "table", "data set", "numbers", "study")
    left = [row for row in rows if row.state == "not run"]
    places = Counter((row.number.paper, row.number.table, row.number.dataset, row.study) for row in left)
    for (paper, table, dataset, study), count in places.items():
        command = f"`fedskew reproduce {study} --scale paper`" if study in names() else ""
        yield line(paper, table, dataset, count, command)
