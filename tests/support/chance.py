"""Faults by the place where they strike: drawn from a seed, or those of a schedule and no others.

Each place (a message that leaves, a write of a machine, a wait, ...) counts its events. Whether the n-th one meets a
fault is drawn from the seed, the place and n alone. So a schedule, the list of faults that struck, gives the same run
again, and a part of it is a run, too.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

__all__ = ["Chance", "Strike"]


class Strike(NamedTuple):
    """One fault: what happened to the n-th event of a place."""

    place: str
    number: int
    kind: str


class Chance:
    """What strikes a run.

    Args:
        seed: Of the run.
        rates: Of each kind of fault, by the first word of the place.
        only: The schedule; None draws one.
    """

    def __init__(self, seed: int, rates: Mapping[str, Mapping[str, float]], only: Iterable[Strike] | None) -> None:
        self.seed, self.rates = seed, rates
        self.only = None if only is None else {(s.place, s.number): s.kind for s in only}
        self.struck: list[Strike] = []
        self.calm = False  # nothing strikes any more
        self._events: Counter[str] = Counter()

    def at(self, place: str) -> tuple[str, random.Random]:
        """(the fault that the next event of a place meets, "" for none; draws that belong to it)."""
        number = self._events[place]
        self._events[place] += 1
        draw = random.Random(f"{self.seed} {place} {number}")
        kind = self._drawn(place, draw.random())
        if self.only is not None:
            kind = self.only.get((place, number), "")
        if self.calm or not kind:
            return "", draw
        self.struck.append(Strike(place, number, kind))
        return kind, draw

    def _drawn(self, place: str, at: float) -> str:
        for kind, rate in self.rates.get(place.partition(" ")[0], {}).items():
            if at < rate:
                return kind
            at -= rate
        return ""
