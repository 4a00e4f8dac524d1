"""What attacks share: how hard to attack, and a count of what was tried and what survived.

`make attack` runs tests/attack at full strength and prints the counts of every line. `make test` runs the short forms.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

__all__ = ["FULL", "Line", "reports", "some"]

FULL = os.environ.get("FEDSKEW_ATTACK") == "full"
REPORT = "FEDSKEW_ATTACK_REPORT"  # a folder where every line writes what it counted


def some(short: int, full: int) -> int:
    """How many attacks to make: ``short`` of `make test`, ``full`` of `make attack`."""
    return full if FULL else short


class Line:
    """One line of the table that `make attack` prints.

    Example:
        >>> with Line("signals", "SIGKILL at random times") as line:
        ...     line.survived()
    """

    def __init__(self, topic: str, what: str) -> None:
        self.topic, self.what = topic, what
        self.alive, self.lost = 0, []  # type: int, list[str]

    def survived(self, attacks: int = 1) -> None:
        """So many attacks did no harm: they were refused, repaired, or without effect."""
        self.alive += attacks

    def failed(self, why: str) -> None:
        """An attack did harm; the test fails at the end of the line, after the other attacks."""
        self.lost.append(why)

    def check(self, holds: bool, why: str) -> None:
        """`survived` or `failed`."""
        if holds:
            self.survived()
        else:
            self.failed(why)

    def __enter__(self) -> Line:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            self.failed(f"{type(error).__name__}: {error}")
        place = os.environ.get(REPORT)
        if place:
            told = {"topic": self.topic, "what": self.what, "survived": self.alive, "failed": self.lost}
            with open(Path(place) / f"{os.getpid()}.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(told) + "\n")
        if error is None:
            assert self.alive or self.lost, f"{self.topic}, {self.what}: nothing was tried"
            shown = "\n".join(self.lost[:20])
            assert not self.lost, (
                f"{self.topic}, {self.what}: {len(self.lost)} of {self.alive + len(self.lost)}\n{shown}"
            )


def reports(place: Path) -> dict[tuple[str, str], tuple[int, list[str]]]:
    """{(topic, what): (survived, failures)} of all processes that wrote to a folder."""
    found: dict[tuple[str, str], tuple[int, list[str]]] = {}
    for file in sorted(place.glob("*.jsonl")):
        for text in file.read_text(encoding="utf-8").splitlines():
            told = json.loads(text)
            key = (told["topic"], told["what"])
            alive, lost = found.get(key, (0, []))
            found[key] = (alive + told["survived"], lost + told["failed"])
    return found
