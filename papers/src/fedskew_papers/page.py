"""The page of the papers: what was run, and what holds. Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedskew.seam import TAIL, table_from
from fedskew_papers.arbiter import header, line
from fedskew_papers.rows import STATES, TOTAL, Row, coverage
from fedskew_papers.runs import Runs, measured
from fedskew_papers.tables import SPANS, Reading, protocol, respanned
from fedskew_papers.verdicts import VERDICTS, Evidence, claims, verdict_of

TEXTS = table_from(Path(__file__).with_suffix(".toml"))


def page_of(rows: Sequence[Row], runs: Runs) -> str:
    """The page, as Markdown: what was run, and what holds.

    Args:
        rows: The ledger.
        runs: The runs that it was made from.
    """
    return "\n".join([TEXTS["head"], *_counts(rows), *_claims(rows, runs)]).rstrip() + "\n"


# What is said of a row


def command_of(row: Row) -> str:
    """What repeats ours."""
    return f"fedskew reproduce {row.study} --scale {row.scale or 'paper'}" if row.study else ""


def hours_of(row: Row) -> float | None:
    """Hours that our runs took, each on one thread or on the card that `how_of` names; None without ours."""
    return None if row.ours is None else sum(e.summary.get("total_wall_s", 0.0) for e in row.entries) / 3600


def how_of(row: Row) -> str:
    """How our runs were run: "batched on cuda, tf32"."""
    setups = set()
    for entry in row.entries:
        config = entry.config
        engine = config.get("engine_used") or "engine not recorded"
        where = "" if config.get("device", "cpu") == "cpu" else " on cuda"
        kinds = dict.fromkeys(config.get(name, "float32") for name in ("dtype", "precision"))
        setups.add(f"{engine}{where}" + "".join(f", {kind}" for kind in kinds if kind != "float32"))
    return "computed" if row.computed else "; ".join(sorted(setups))


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
    beside = sum(row.ours is not None for row in coverage(rows)[TOTAL])
    yield f"\nOurs stands beside {beside} of the printed numbers. {TEXTS['costs']}"


def _claims(rows: Sequence[Row], runs: Runs) -> Iterator[str]:
    evidence = Evidence(rows, runs)
    verdicts = [verdict_of(claim, evidence) for claim in claims()]
    yield "## What holds\n"
    counts = {word: sum(verdict.word == word for verdict in verdicts) for word in VERDICTS}
    yield ", ".join(f"{n} {word}" for word, n in counts.items() if n) + ".\n"
    yield TEXTS["words"]
    yield from header("paper", "claim", "verdict", "seeds", "evidence", "why we differ, or what was tried")
    for verdict in verdicts:
        claim, seeds = verdict.claim, " to ".join(map(str, verdict.seeds))
        yield line(claim.paper, claim.claim, f"**{verdict.word}**", seeds, verdict.evidence, claim.cause)
    yield ""
