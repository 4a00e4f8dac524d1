"""What the papers claim, and what our runs say of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedskew.errors import require
from fedskew.studies.spec import table_from

__all__ = ["VERDICTS", "Verdict", "verdicts"]

VERDICTS = ("holds", "holds in part", "does not hold here", "not testable here", "open")


@dataclass(frozen=True)
class Verdict:
    """A claim of a paper.

    Attributes:
        paper: The paper.
        claim: What it says, in our words.
        verdict: One of `VERDICTS`.
        evidence: Our numbers with interval, seeds and scale, and the control.
        cause: Why we differ, or what was tried.
        command: What repeats the evidence.
    """

    paper: str
    claim: str
    verdict: str
    evidence: str
    cause: str = ""
    command: str = ""

    def __post_init__(self) -> None:
        """Raise ConfigError for a verdict that is none."""
        require(self.verdict in VERDICTS, "verdict", f"be one of {', '.join(VERDICTS)}", self.verdict)


def verdicts() -> tuple[Verdict, ...]:
    """Every claim with its verdict, in the order of the papers."""
    content = table_from(Path(__file__).parent / "verdicts.toml")
    return tuple(Verdict(**entry) for entry in content["verdict"])
