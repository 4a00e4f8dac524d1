"""The pages of the papers: what was run, what holds, and every number beside ours. Markdown."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from fedskew.seam import FEWEST, TAIL, table_from
from fedskew_papers import names
from fedskew_papers.arbiter import header, line
from fedskew_papers.rows import STATES, TOTAL, Row, coverage
from fedskew_papers.runs import Runs, measured
from fedskew_papers.tables import SPANS, Reading, protocol, respanned
from fedskew_papers.verdicts import VERDICTS, Evidence, claims, verdict_of

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


# What is said of a row


def command_of(row: Row) -> str:
    """What repeats ours."""
    return f"fedskew reproduce {row.study} --scale {row.scale or 'paper'}" if row.study else ""


def hours_of(row: Row) -> float | None:
    """Hours that our runs took, each on one thread or on the card that `how_of` names; None without ours."""
    return None if row.ours is None else sum(e.summary.get("total_wall_s", 0.0) for e in row.entries) / 3600


def how_of(row: Row) -> str:
    """How our runs were run: "batched on cuda, tf32"."""
    told = set()
    for entry in row.entries:
        config = entry.config
        engine = config.get("engine_used") or "engine not recorded"
        where = "" if config.get("device", "cpu") == "cpu" else " on cuda"
        kinds = dict.fromkeys(config.get(name, "float32") for name in ("dtype", "precision"))
        told.add(f"{engine}{where}" + "".join(f", {kind}" for kind in kinds if kind != "float32"))
    return "computed" if row.computed else "; ".join(sorted(told))


def swing_of(row: Row) -> float | None:
    """How far the last evaluation is from the mean of the last ten rounds, the median over our runs.

    None where the metric is of no span of rounds, or where those rounds have one evaluation.
    """
    rule = protocol(row.study).metrics[row.number.metric] if row.entries else ""
    if rule.partition("_")[0] not in SPANS.values():
        return None
    swings = []
    for entry in row.entries:
        ends = [measured(respanned(rule, Reading("metric", which)), entry) for which in ("last", "mean10")]
        if entry.config.get("eval_every", 1) * 2 <= TAIL and ends[0] is not None and ends[1] is not None:
            swings.append(abs(ends[0] - ends[1]))
    return statistics.median(swings) if swings else None


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
    "swing": lambda row: "" if (swing := swing_of(row)) is None else f"{swing:.3g}",
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
            hows = "; ".join(sorted({how for row in listed if (how := how_of(row))}))
            told = f"{one.title}.{reduced} Engine: {hows}. `{command_of(listed[0])}`"
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
