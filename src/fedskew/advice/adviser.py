"""What was measured on the federations nearest to yours: which methods helped there, and which rule holds elsewhere.

The distance of two federations is the root mean square of the differences in their descriptors, each in a unit that
stands in `UNITS`. A federation is near at a distance of at most `NEAR`. Gains are those after the fit of the
logits where it is on record: FedAvg can have this fit, too.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fedskew.advice.evidence import MEASURES, Federation, Gain, descriptors, packaged
from fedskew.data.describe import Source, counted
from fedskew.errors import require, unknown
from fedskew.method import Component
from fedskew.methods import METHODS
from fedskew.records.summary import FITTED
from fedskew.studies.fitted import verdict
from fedskew.studies.verdicts import POINT

NEAR = 1.0  # federations farther apart than this say nothing of each other
NEAREST = 3  # federations that are shown
STRONG = 0.3  # js_mean / log 2 from which on label skew is called strong
UNITS: dict[str, tuple[float, Callable[[float], float]]] = {  # descriptor -> (one unit, its scale)
    "js_mean": (0.15, lambda v: v / math.log(2)),
    "missing_rate": (0.2, float),
    "quantity_gini": (0.3, float),
    "classes": (math.log(2), lambda v: math.log(max(v, 1.0))),
    "clients": (math.log(3), lambda v: math.log(max(v, 1.0))),
    "size_median": (math.log(3), lambda v: math.log(max(v, 1.0))),
    "participation": (math.log(3), lambda v: math.log(max(v, 1e-6))),
}


class Neighbour(NamedTuple):
    """A measured federation, and how far it is."""

    federation: Federation
    distance: float


class Suggestion(NamedTuple):
    """A method that helped on a near federation, and is seen to harm on none of those that are shown."""

    method: str
    gain: float  # after the fit, the mean over the federations that are shown and near
    on: dict[int, dict[str, Gain]]  # the gains by each number, by the place of the federation, from 1
    after_fit: dict[int, str]  # what the fitted models say of the gain
    needs: str  # what leaves the client beside the model, and what the server must hold


class Rule(NamedTuple):
    """One method for every federation of strong label skew: the best on average, whichever dataset is left out."""

    method: str
    gain: float  # mean over these federations
    best: float  # the same of each federation's best method, known only afterwards
    helps: int  # on how many of them its interval lies above 0
    federations: int
    datasets: int
    weaker: float  # its mean gain on the federations of weaker skew
    weaker_best: float  # that of the method that is the best on average there


class Advice(NamedTuple):
    """What `advise` found."""

    title: str
    measure: str
    descriptors: dict[str, float]
    worth_trying: tuple[Suggestion, ...]  # the greatest gain first
    others: dict[str, float]  # what else was measured nearby: mean gain by method
    neighbours: tuple[Neighbour, ...]  # nearest first
    rule: Rule | None
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        near = [{**n.federation._asdict(), "distance": n.distance} for n in self.neighbours]
        worth = [suggestion._asdict() for suggestion in self.worth_trying]
        told = {"worth_trying": worth, "neighbours": near, "rule": self.rule and self.rule._asdict(), "near": NEAR}
        return {**self._asdict(), **told}


def distance(a: dict[str, float], b: dict[str, float]) -> float:
    """sqrt(mean_d ((t_d(a_d) - t_d(b_d)) / u_d)^2) over the descriptors d of both; t is the scale, u the unit."""
    gaps = [(of(a[d]) - of(b[d])) / unit for d, (unit, of) in UNITS.items() if d in a and d in b]
    return math.sqrt(statistics.fmean(gap**2 for gap in gaps))


def advise(
    source: Source,
    evidence: Sequence[Federation] | None = None,
    *,
    model: str | None = None,
    cohort: int | None = None,
    measure: str = "accuracy",
    top: int = 5,
) -> Advice:
    """What was measured on the federations nearest to yours, and which methods helped there.

    Args:
        source: A federation, a partition file, a file of counts, or a matrix of counts [N, C].
        evidence: Measured federations; None: those that come with fedskew.
        model: The network's name, for a note where another one was measured.
        cohort: Clients of a round; None: the share of clients is not compared.
        measure: accuracy or macro_f1, the mean over the last ten rounds.
        top: At most so many methods.

    Raises:
        DataError: The source holds no counts.
        ConfigError: Any other mistake.
    """
    require(isinstance(top, int) and top >= 1, "top", "be at least 1", top)
    if measure not in MEASURES:
        raise unknown("measure", measure, MEASURES)
    about = counted(source)
    known = packaged() if evidence is None else evidence
    here = descriptors(about.counts, cohort)
    near = sorted((Neighbour(f, distance(here, f.descriptors)) for f in known), key=lambda n: n.distance)[:NEAREST]
    close = [n.federation for n in near if n.distance <= NEAR]
    worth, others = _methods(close, measure)
    notes = []
    for what, mine, theirs in (
        ("data", about.facts.get("dataset"), [f.data for f in close]),
        ("network", model, [f.model for f in close]),
    ):
        if theirs and mine not in theirs:
            yours = f"yours is {mine!r}" if mine else "yours is not named"
            notes.append(f"the {what} there: {', '.join(dict.fromkeys(theirs))}; {yours}, and gains may differ")
    found = rule(known, measure)
    return Advice(about.title, measure, here, tuple(worth[:top]), others, tuple(near), found, tuple(notes))


def _after_fit(by: dict[str, Gain], measure: str) -> Gain:
    """The gain of the fitted models, where it is on record; else of the models as they are."""
    return by.get(f"{FITTED}{measure}") or by[measure]


def _helps(gain: Gain) -> bool:
    """Whether the interval lies above 0."""
    return (gain.low or 0) > 0


def _harms(gain: Gain) -> bool:
    """Whether the interval lies below 0 and reaches further than a point."""
    low, high = (gain.mean, gain.mean) if gain.low is None or gain.high is None else (gain.low, gain.high)
    return high < 0 and low < -POINT


def _methods(close: Sequence[Federation], measure: str) -> tuple[list[Suggestion], dict[str, float]]:
    """(what is worth trying, the mean gains of what else was measured), the greatest gain first."""
    on: dict[str, dict[int, dict[str, Gain]]] = {}
    for place, federation in enumerate(close, 1):
        for method, by in federation.gains.items():
            if measure in by:
                on.setdefault(method, {})[place] = by
    gains = {m: [_after_fit(by, measure) for by in there.values()] for m, there in on.items()}
    mean = {m: statistics.fmean(gain.mean for gain in seen) for m, seen in gains.items()}
    worth, others = [], {}
    for method in sorted(mean, key=lambda m: -mean[m]):
        helps = mean[method] > 0 and any(map(_helps, gains[method]))
        if helps and not any(map(_harms, gains[method])):
            fits = {place: told for place, by in on[method].items() if (told := _verdict(by, measure))}
            worth.append(Suggestion(method, mean[method], on[method], fits, needs(method)))
        else:
            others[method] = mean[method]
    return worth, others


def _verdict(by: dict[str, Gain], measure: str) -> str:
    """What the gain of the fitted models says of the raw one; "" where they are not on record."""
    raw, fitted = by[measure], by.get(f"{FITTED}{measure}")
    if fitted is None or None in (raw.low, raw.high, fitted.low, fitted.high):
        return ""
    return verdict(
        (raw.low or 0.0, raw.high or 0.0), (fitted.low or 0.0, fitted.high or 0.0), min(raw.seeds, fitted.seeds)
    )


def is_strong(found: dict[str, float]) -> bool:
    """Whether the label skew of a federation is strong."""
    return found["js_mean"] >= STRONG * math.log(2)


def rule(known: Sequence[Federation], measure: str = "accuracy") -> Rule | None:
    """The method that is best on average under strong skew, and what it gains there.

    Methods are compared that were measured with every dataset, on the federations that have all of them. None where
    another method is the best once a dataset is left out.
    """
    strong = [f for f in known if is_strong(f.descriptors)]
    data = {f.data for f in strong}
    of = {d: {m for f in strong if f.data == d for m, by in f.gains.items() if measure in by} for d in data}
    wide = sorted(set.intersection(*of.values())) if len(of) > 1 else []
    whole = [f for f in known if wide and all(measure in f.gains.get(m, {}) for m in wide)]
    strong, weak = ([f for f in whole if is_strong(f.descriptors) is side] for side in (True, False))

    def mean(method: str, there: Sequence[Federation]) -> float:
        return statistics.fmean(_after_fit(f.gains[method], measure).mean for f in there) if there else 0.0

    chosen = {max(wide, key=lambda m: mean(m, [f for f in strong if f.data != left])) for left in data if wide}
    if len(chosen) != 1:
        return None
    method = chosen.pop()
    best = statistics.fmean(max(0.0, *(_after_fit(f.gains[m], measure).mean for m in wide)) for f in strong)
    helps = sum(_helps(_after_fit(f.gains[method], measure)) for f in strong)
    elsewhere = mean(method, weak), max(mean(m, weak) for m in wide)
    return Rule(method, mean(method, strong), best, helps, len(strong), len({f.data for f in strong}), *elsewhere)


def needs(method: str) -> str:
    """What a method of the table sends beside the model, and what the server must hold for it."""
    bare = method.partition(" (")[0]
    if bare not in METHODS:
        return "unknown: a composition"
    parts = [c for top in METHODS[bare]().components for c in (top, getattr(top, "base", None))]
    known = [c for c in parts if isinstance(c, Component)]
    told = [", ".join(dict.fromkeys(c.discloses for c in known if c.discloses)) or "nothing beside the model"]
    for what in ("uploads", "downloads"):
        more = dict.fromkeys(getattr(c, what) for c in known if getattr(c, what))
        told += [f"{what} {', '.join(more)} more"] if more else []
    rows = max(c.auxiliary for c in known)
    return "; ".join([*told, *([f"NEEDS {rows} rows of each class at the server"] if rows else [])])
