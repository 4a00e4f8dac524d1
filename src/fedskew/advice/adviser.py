"""What follows for a federation from what was measured on those nearest to it, and which rule holds elsewhere.

FedAvg's own means come first: the mean of the last models, a fit of the logits, more rounds. A method's gain is that
over FedAvg under the strongest of these controls that is on record, and its verdict is the one rule's,
`fedskew.studies.verdicts`.

The distance of two federations is the root mean square of the differences in their descriptors, each in a unit that
stands in `UNITS`. A federation is near at a distance of at most `NEAR`.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fedskew.advice.evidence import LONGER, MEASURES, MODELS, Gain, Measured, descriptors, packaged
from fedskew.data.describe import Source, counted
from fedskew.errors import require, unknown
from fedskew.methods import METHODS
from fedskew.studies.scores import NO_VERDICT
from fedskew.studies.verdicts import OPEN, OWN, POINT, RAW, verdict
from fedskew.studies.work import Work

NEAR = 1.0  # federations farther apart than this say nothing of each other
NEAREST = 3  # federations that are shown
STRONGEST = ("both", "fitted", "averaged", RAW)  # controls by which a gain is judged where they are on record
COSTS = {  # what FedAvg can have, the cheapest first
    "averaged": "nothing of the clients; the server holds ten models",
    "fitted": "{exchanges} exchanges of sums with every client after training",
    "both": "the same exchanges; the server holds ten models",
    "work": "{times} times the local steps, and as many more rounds",
}
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

    federation: Measured
    distance: float


class Means(NamedTuple):
    """FedAvg with another of its models, or trained longer, and what it gained over the raw model."""

    name: str  # of `COSTS`
    gain: float  # the mean over the near federations that have it
    on: dict[int, Gain]  # by the place of the federation, from 1
    cost: str


class Suggestion(NamedTuple):
    """A method whose gain shows on a near federation, and that is seen to harm on none of those that are shown."""

    method: str
    gain: float  # over FedAvg under the same control, the mean over the federations that are shown and near
    on: dict[int, dict[str, Gain]]  # the gains by each number, by the place of the federation, from 1
    verdicts: dict[int, str]  # what each federation says of the gain
    work: dict[int, list[float | None]]  # steps, contacts, bytes, as multiples of FedAvg's
    needs: str  # what leaves the client beside the model, and what the server must hold


class Rule(NamedTuple):
    """One method for every federation of strong label skew: the best on average, whichever dataset is left out."""

    method: str
    gain: float  # mean over these federations
    best: float  # the same of each federation's best method, known only afterwards
    helps: int  # on how many of them its mean gain is above 0
    federations: int
    datasets: int
    weaker: float  # its mean gain on the federations of weaker skew
    weaker_best: float  # that of the method that is the best on average there


class Advice(NamedTuple):
    """What `advise` found."""

    title: str
    measure: str
    descriptors: dict[str, float]
    fedavg: tuple[Means, ...]  # what FedAvg can have, the cheapest first
    unmeasured: tuple[str, ...]  # of these, what no near federation has on record
    worth_trying: tuple[Suggestion, ...]  # the greatest gain first
    unjudged: dict[str, float]  # mean gain by method, of fewer seeds than a verdict takes
    others: dict[str, float]  # what else was measured nearby: mean gain by method
    neighbours: tuple[Neighbour, ...]  # nearest first
    rule: Rule | None
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        near = [{**n.federation._asdict(), "distance": n.distance} for n in self.neighbours]
        worth = [suggestion._asdict() for suggestion in self.worth_trying]
        plain = {"worth_trying": worth, "neighbours": near, "rule": self.rule and self.rule._asdict(), "near": NEAR}
        return {**self._asdict(), **plain, "fedavg": [means._asdict() for means in self.fedavg]}


def distance(a: dict[str, float], b: dict[str, float]) -> float:
    """sqrt(mean_d ((t_d(a_d) - t_d(b_d)) / u_d)^2) over the descriptors d of both; t is the scale, u the unit."""
    gaps = [(of(a[d]) - of(b[d])) / unit for d, (unit, of) in UNITS.items() if d in a and d in b]
    return math.sqrt(statistics.fmean(gap**2 for gap in gaps))


def advise(
    source: Source,
    evidence: Sequence[Measured] | None = None,
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
    worth, unjudged, others = _methods(close, measure)
    means = _means(close, measure)
    unmeasured = tuple(name for name in COSTS if close and name not in {control.name for control in means})
    notes = []
    for what, mine, theirs in (
        ("data", about.facts.get("dataset"), [f.data for f in close]),
        ("network", model, [f.model for f in close]),
    ):
        if theirs and mine not in theirs:
            yours = f"yours is {mine!r}" if mine else "yours is not named"
            notes.append(f"the {what} there: {', '.join(dict.fromkeys(theirs))}; {yours}, and gains may differ")
    everywhere = rule(known, measure)
    findings = tuple(worth[:top]), unjudged, others, tuple(near), everywhere, tuple(notes)
    return Advice(about.title, measure, here, means, unmeasured, *findings)


def controlled(by: dict[str, Gain], measure: str) -> Gain:
    """The gain over FedAvg under the strongest control that is on record; else of the models as they are."""
    return by[f"{MODELS[strongest(by, measure)]}{measure}"]


def strongest(by: dict[str, Gain], measure: str) -> str:
    """Which control that is."""
    return next(model for model in STRONGEST if f"{MODELS[model]}{measure}" in by)


def _harms(gain: Gain) -> bool:
    """Whether the interval lies below 0 and reaches further than a point."""
    low, high = (gain.mean, gain.mean) if gain.low is None or gain.high is None else (gain.low, gain.high)
    return high < 0 and low < -POINT


def _means(close: Sequence[Measured], measure: str) -> tuple[Means, ...]:
    """What FedAvg can have on these federations, the cheapest first."""
    means = []
    for name, cost in COSTS.items():
        number = f"{MODELS[name]}{measure}"
        on = {place: f.fedavg[number] for place, f in enumerate(close, 1) if number in f.fedavg}
        if on:
            times = [f.works[LONGER][0] for f in close if LONGER in f.works]
            fits = [f.exchanges for f in close if f.exchanges is not None]
            cost_text = cost.format(exchanges=_range(fits, ".0f"), times=_range(times, ".2g"))
            means.append(Means(name, statistics.fmean(gain.mean for gain in on.values()), on, cost_text))
    return tuple(means)


def _range(values: Sequence[float | None], digits: str) -> str:
    known = [value for value in values if value is not None]
    low, high = (f"{end:{digits}}" for end in (min(known, default=math.nan), max(known, default=math.nan)))
    return low if low == high else f"{low} to {high}"


def _methods(close: Sequence[Measured], measure: str) -> tuple[list[Suggestion], dict[str, float], dict[str, float]]:
    """(what is worth trying, mean gains of what has no verdict, of what else was measured), the greatest first."""
    on: dict[str, dict[int, dict[str, Gain]]] = {}
    for place, federation in enumerate(close, 1):
        for method, by in federation.gains.items():
            if measure in by:
                on.setdefault(method, {})[place] = by
    gains = {m: {place: controlled(by, measure) for place, by in there.items()} for m, there in on.items()}
    mean = {m: statistics.fmean(gain.mean for gain in seen.values()) for m, seen in gains.items()}
    worth, unjudged, others = list[Suggestion](), dict[str, float](), dict[str, float]()
    for method in sorted(mean, key=lambda m: -mean[m]):
        works = {place: work for place in on[method] if (work := close[place - 1].works.get(method))}
        verdicts = {place: verdict_on(by, measure, works.get(place)) for place, by in on[method].items()}
        standing = [place for place, words in verdicts.items() if words.startswith((OWN, OPEN))]
        shown = any(gains[method][place].interval.gains for place in standing)
        if shown and mean[method] > 0 and not any(map(_harms, gains[method].values())):
            worth.append(Suggestion(method, mean[method], on[method], verdicts, works, needs(method)))
        else:
            (unjudged if {*verdicts.values()} == {NO_VERDICT} else others)[method] = mean[method]
    return worth, unjudged, others


def verdict_on(by: dict[str, Gain], measure: str, work: Sequence[float | None] | None = None) -> str:
    """The verdict on a method's gains on a federation.

    Args:
        by: Its gains by number.
        measure: accuracy or macro_f1.
        work: Steps, contacts and bytes as multiples of FedAvg's; None where they are not on record.
    """
    of = {model: by[name].interval for model, prefix in MODELS.items() if (name := f"{prefix}{measure}") in by}
    times = [math.nan if ratio is None else ratio for ratio in work or (None, None, None)]
    return verdict(of, Work(*times).dear)


def is_strong(descriptors: dict[str, float]) -> bool:
    """Whether the label skew of a federation is strong."""
    return descriptors["js_mean"] >= STRONG * math.log(2)


def rule(known: Sequence[Measured], measure: str = "accuracy") -> Rule | None:
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

    def mean(method: str, there: Sequence[Measured]) -> float:
        return statistics.fmean(controlled(f.gains[method], measure).mean for f in there) if there else 0.0

    chosen = {max(wide, key=lambda m: mean(m, [f for f in strong if f.data != left])) for left in data if wide}
    if len(chosen) != 1:
        return None
    method = chosen.pop()
    best = statistics.fmean(max(0.0, *(controlled(f.gains[m], measure).mean for m in wide)) for f in strong)
    helps = sum(controlled(f.gains[method], measure).mean > 0 for f in strong)
    elsewhere = mean(method, weak), max(mean(m, weak) for m in wide)
    return Rule(method, mean(method, strong), best, helps, len(strong), len({f.data for f in strong}), *elsewhere)


def needs(method: str) -> str:
    """What a method of the table sends beside the model, and what the server must hold for it."""
    bare = method.partition(" (")[0]
    if bare not in METHODS:
        return "unknown: a composition"
    known = [component for _, component in METHODS[bare]().ingredients()]
    clauses = [", ".join(dict.fromkeys([str(read) for c in known for read in c.reads])) or "nothing beside the model"]
    for what in ("uploads", "downloads"):
        more = dict.fromkeys(getattr(c, what) for c in known if getattr(c, what))
        clauses += [f"{what} {', '.join(more)} more"] if more else []
    rows = max(c.auxiliary for c in known)
    return "; ".join([*clauses, *([f"NEEDS {rows} rows of each class at the server"] if rows else [])])
