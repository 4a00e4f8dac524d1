"""What the advice was worth: on measured federations, given by the others alone."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fedskew.advice.adviser import advise_on
from fedskew.advice.evidence import Setting
from fedskew.advice.margins import BASELINES, margin
from fedskew.advice.notes import About

__all__ = ["FIRST", "Case", "Worth", "cases", "worth"]

FIRST = 3  # methods among which the best one should be


class Case(NamedTuple):
    """The advice on one federation, by the federations of other datasets.

    Margins are over the stronger baseline there, FedAvg or FedAvg with uniform weights; that baseline has margin 0.
    """

    federation: str
    dataset: str
    near: int  # federations that were near
    advised: tuple[str, ...]  # methods, the first one first; none where the baseline was advised
    margins: dict[str, float]  # of every method with all seeds there, and 0 for "baseline"
    covered: tuple[bool, ...]  # of each 90 % interval: whether the margin lies in it

    @property
    def best(self) -> str:
        """The method that was best there."""
        return max(self.margins, key=lambda m: self.margins[m])

    @property
    def first(self) -> str:
        """What was advised first: a method, or "baseline" where the advice names none."""
        return self.advised[0] if self.advised else "baseline"

    @property
    def regret(self) -> float:
        """What the first advice lost against the best method there."""
        return self.margins[self.best] - self.margins[self.first]

    @property
    def hit(self) -> bool:
        """Whether the best method is among the first three."""
        return self.best in (self.advised[:FIRST] or ("baseline",))


class Worth(NamedTuple):
    """The advice on several federations."""

    federations: int
    advised: int  # those for which a method was recommended
    regret: float  # mean, a share
    regret_baseline: float  # of always the stronger baseline
    regret_best: float  # of always the one method with the largest mean margin, known only afterwards
    always: str  # which one that is
    hits: float  # share of federations whose best method is among the first three
    intervals: int
    coverage: float | None  # share of the 90 % intervals that hold the margin


def cases(settings: Sequence[Setting], measure: str = "accuracy") -> list[Case]:
    """Leave each dataset out: advise on each of its federations by those of the other datasets."""
    usable = [s for s in settings if any(r.method in BASELINES for r in s.runs)]
    found = []
    for held in usable:
        name = held.facts["data"]["name"]
        others = [s for s in usable if s.facts["data"]["name"] != name]
        whole = _whole(held)
        margins = {m: g.mean for m in whole if (g := margin(held, m, measure))} | {"baseline": 0.0}
        about = About(held.name, held.descriptors, name, held.facts["model"]["name"])
        advice = advise_on(about, others, (), measure, top=len(margins))
        known = [r for r in (*advice.recommendations, *advice.others) if r.method in margins]
        covered = tuple(r.likely[0] <= margins[r.method] <= r.likely[1] for r in known if r.likely)
        advised = tuple(r.method for r in advice.recommendations if r.method in margins)
        near = sum(n.near for n in advice.neighbours)
        found.append(Case(held.name, name, near, advised, margins, covered))
    return found


def _whole(held: Setting) -> list[str]:
    """The methods with every seed of the baselines: one whose other runs failed is no method to have advised."""
    seeds: dict[str, set[int | str]] = {}
    for run in held.runs:
        seeds.setdefault(run.method, set()).add(run.seed)
    wanted = set.intersection(*(seeds[b] for b in BASELINES if b in seeds))
    return [method for method, has in seeds.items() if method not in BASELINES and has >= wanted]


def worth(of: Iterable[Case]) -> Worth:
    """The figures of several cases."""
    held = list(of)
    covered = [one for case in held for one in case.covered]
    shared = set.intersection(*(set(case.margins) for case in held))
    always = max(sorted(shared), key=lambda m: statistics.fmean(case.margins[m] for case in held))
    best = statistics.fmean(case.margins[case.best] for case in held)
    return Worth(
        len(held),
        sum(bool(case.advised) for case in held),
        statistics.fmean(case.regret for case in held),
        best,
        best - statistics.fmean(case.margins[always] for case in held),
        always,
        statistics.fmean(case.hit for case in held),
        len(covered),
        statistics.fmean(covered) if covered else None,
    )
