"""What the papers claim, and what our runs say of it: the program finds the word and the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedskew.studies.papers.quantities import Evidence, Outcome
from fedskew.studies.spec import table_from

__all__ = ["VERDICTS", "Claim", "Verdict", "claims", "verdict_of"]

VERDICTS = ("holds", "holds in part", "does not hold here", "not resolved", "no verdict", "not testable here")


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, and what would decide it.

    Attributes:
        paper: The paper.
        claim: What it says, in our words.
        evidence: What we say of it, in sentences; a quantity in braces is replaced by its value, see
            `fedskew.studies.papers.quantities`, and a sentence of which one has no value is left out.
        conditions: What the claim comes to: conditions on quantities. None where nothing that can be run decides it.
        cause: Why we differ, or what was tried.
    """

    paper: str
    claim: str
    evidence: tuple[str, ...]
    conditions: tuple[str, ...] = ()
    cause: str = ""


@dataclass(frozen=True)
class Verdict:
    """What our runs say of a claim.

    Attributes:
        claim: The claim.
        word: One of `VERDICTS`.
        evidence: The text with its numbers.
        seeds: The fewest and the most seeds that it rests on; empty where it rests on none.
    """

    claim: Claim
    word: str
    evidence: str
    seeds: tuple[int, ...] = ()


def claims() -> tuple[Claim, ...]:
    """Every claim, in the order of the papers.

    Example:
        >>> from fedskew.studies.papers.verdicts import claims
        >>> claims()[0].paper
        'FedBal'
    """
    content = table_from(Path(__file__).parent / "verdicts.toml")
    return tuple(
        Claim(**{**one, "evidence": tuple(one["evidence"]), "conditions": tuple(one.get("conditions", ()))})
        for one in content["claim"]
    )


def verdict_of(claim: Claim, evidence: Evidence) -> Verdict:
    """What the runs say of a claim.

    Raises:
        ConfigError: A quantity or a condition of it is none.
    """
    found = [outcome for condition in claim.conditions for outcome in evidence.outcomes(condition)]
    seeds = sorted({outcome.seeds for outcome in found if outcome.there and outcome.seeds})
    told = [text for sentence in claim.evidence if (text := evidence.fill(sentence))]
    return Verdict(claim, word_of(found), " ".join(told), tuple(seeds[:1] + seeds[1:][-1:]))


def word_of(found: Sequence[Outcome]) -> str:
    """The word for what became of the conditions of a claim, each under each of its settings.

    "holds": all are met. "holds in part": more are met than refuted. "does not hold here": at least as many are refuted
    as met, and one is. "not resolved": the runs decide none. "no verdict": there are too few runs. "not testable here":
    the claim has no condition.

    Example:
        >>> from fedskew.studies.papers.quantities import Outcome
        >>> from fedskew.studies.papers.verdicts import word_of
        >>> word_of([Outcome(True, 5), Outcome(None, 5)]), word_of([Outcome(True, 5), Outcome(False, 5)])
        ('holds in part', 'does not hold here')
    """
    if not found:
        return "not testable here"
    if not any(outcome.there for outcome in found):
        return "no verdict"
    met, refuted = (sum(outcome.met is is_ for outcome in found) for is_ in (True, False))
    if met == len(found):
        return "holds"
    return "holds in part" if met > refuted else "does not hold here" if refuted else "not resolved"
