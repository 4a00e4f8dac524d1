"""Which methods to try first on a federation: what was measured on federations like it, and what each method discloses.

The distance of two federations is the root mean square of seven differences, each in a unit that stands in `UNITS`;
near is a distance of at most `NEAR`. What is near is fitted as score = method + federation (least squares, weights
falling from 1 at distance 0 to 0 at `NEAR`), so that a method run on easy federations only gains nothing by it; a gain
is the method's term less the larger of the terms of FedAvg and of FedAvg under uniform weights.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedskew.advice.evidence import MEASURES, Descriptors, Setting, descriptors, method_of, packaged, read
from fedskew.advice.margins import BASELINES, Margin, baseline_of, margin, predicted, scores_of
from fedskew.advice.notes import NEAR, About, Neighbour, Recommendation, left_out, notes_of
from fedskew.config.experiment import Experiment
from fedskew.data.describe import Counted, Source, counted
from fedskew.data.partitioners import PARTITIONERS
from fedskew.errors import ConfigError, plural, require, unknown
from fedskew.fields import documented
from fedskew.method import Component, Method
from fedskew.records.summary import FITTED

__all__ = [
    "NEAR",
    "NEAREST",
    "UNITS",
    "Advice",
    "Neighbour",
    "Recommendation",
    "advise",
    "advise_on",
    "distance",
]

UNITS: dict[str, tuple[float, Callable[[float], float], str]] = {  # descriptor -> one unit, of what, in words
    "js_mean": (0.15, lambda v: v / math.log(2), "Jensen-Shannon to all rows, over log 2"),
    "missing_rate": (0.2, float, "missing-class rate"),
    "quantity_gini": (0.3, float, "Gini coefficient of the sizes"),
    "imbalance_global": (math.log(2), lambda v: math.log(max(v, 1.0)), "global imbalance, a factor of 2"),
    "classes": (math.log(2), lambda v: math.log(max(v, 1.0)), "classes, a factor of 2"),
    "clients": (math.log(3), lambda v: math.log(max(v, 1.0)), "clients, a factor of 3"),
    "size_median": (math.log(3), lambda v: math.log(max(v, 1.0)), "median rows of a client, a factor of 3"),
}
ANONYMOUS = {"arrays", "csv", "hub", "labels", "npz", "parquet", "unknown"}  # names that many datasets share
NEAREST = 3  # federations that are told of where none is near
LEVELS = ("weak", "moderate", "strong")


class Advice(NamedTuple):
    """What `advise` found."""

    title: str
    measure: str
    descriptors: Descriptors
    recommendations: tuple[Recommendation, ...]  # best first; empty where no measured federation is near
    others: tuple[Recommendation, ...]  # measured nearby, and not better than the baselines, or below the first ones
    neighbours: tuple[Neighbour, ...]  # nearest first
    notes: tuple[str, ...]
    terms: dict[str, str]  # what the options in the names of the federations mean

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        listed = {"recommendations": self.recommendations, "others": self.others}
        plain = {
            k: [{**r._asdict(), "margins": [m._asdict() for m in r.margins]} for r in v] for k, v in listed.items()
        }
        return {**self._asdict(), **plain, "neighbours": [n._asdict() for n in self.neighbours], "threshold": NEAR}


def distance(a: Descriptors, b: Descriptors) -> float:
    """sqrt(mean_d ((t_d(a_d) - t_d(b_d)) / u_d)^2) over the descriptors d of `UNITS`, t its scale and u its unit."""
    return math.sqrt(statistics.fmean(g**2 for g in _gaps(a, b).values()))


def _gaps(a: Descriptors, b: Descriptors) -> dict[str, float]:
    return {name: abs(of(a[name]) - of(b[name])) / unit for name, (unit, of, _) in UNITS.items()}


def advise(
    source: Source,
    evidence: str | Path | Sequence[str | Path] | tuple[Setting, ...] | None = None,
    *,
    model: str | None = None,
    measure: str = "accuracy",
    top: int = 5,
) -> Advice:
    """Which methods to try first on a federation, by what was measured on federations like it.

    ``source`` is a federation, a partition file, a file of counts, or a matrix of counts [N, C]. ``evidence`` is None
    for the runs that come with fedskew; a folder of run folders, or a table of runs, or several, which are added to
    them; or settings of `fedskew.advice.evidence`, used alone. ``model`` is the network's name: what was measured on
    other data or another network is weak evidence, and without it the grades hold for the measured network. ``measure``
    is accuracy or macro_f1, the mean of the
    last ten rounds. Raises DataError, RecordError for files that hold no such thing, ConfigError for other mistakes.
    """
    require(isinstance(top, int) and top >= 1, "top", "be at least 1", top)
    if measure not in MEASURES:
        raise unknown("measure", measure, MEASURES)
    found = counted(source)
    settings, left = _settings(evidence)
    return advise_on(_about(found, model), settings, left, measure, top)


def _about(found: Counted, model: str | None) -> About:
    facts = found.facts
    division = ""
    if "partition" in facts:
        division = _division({"name": facts["partition"], **facts["partition_options"]}, len(found.counts))
    known = facts.get("dataset"), model, facts.get("fingerprint", ""), division
    return About(found.title, descriptors(found.counts), *known)


def _division(partition: Mapping[str, Any], clients: int) -> str:
    """How data were divided, by what is set."""
    return json.dumps([{k: v for k, v in partition.items() if v is not None}, clients], sort_keys=True)


def advise_on(about: About, settings: Sequence[Setting], left: Sequence[str], measure: str, top: int) -> Advice:
    """The advice on a federation by measured ones. ``left`` is what was left out of them, and why."""
    usable = [s for s in settings if any(r.method in BASELINES for r in s.runs)]
    placed = sorted(((distance(about.descriptors, s.descriptors), s) for s in usable), key=lambda pair: pair[0])
    near = [(d, s) for d, s in placed if d <= NEAR]
    neighbours = tuple(_neighbour(d, s, about, measure) for d, s in placed)
    ranked = _ranked(near, [n for n in neighbours if n.near], measure)
    better = [r for r in ranked if r.gain > 0]
    first = tuple(sorted(better, key=lambda r: -LEVELS.index(r.confidence))[:top])  # a stable sort: gains stay in order
    others = tuple(r for r in ranked if r not in first)
    notes = (*notes_of(about, neighbours, near, first, usable, measure), *left_out(settings, usable, left))
    terms = _terms([s for _, s in near or placed[:NEAREST]])
    return Advice(about.title, measure, about.descriptors, first, others, neighbours, notes, terms)


def _terms(shown: Sequence[Setting]) -> dict[str, str]:
    """The options in the names of federations, and what they mean."""
    found: dict[str, str] = {}
    own = documented(Experiment)
    for setting in shown:
        partition = setting.facts["partition"]
        helps = documented(PARTITIONERS[partition["name"]]) if partition["name"] in PARTITIONERS else {}
        for name in [k for k, v in partition.items() if v is not None and k in helps]:
            found[f"{name} (of {partition['name']})"] = " ".join(helps[name].split())
        for name in ("longtail", "validation", "auxiliary"):
            if name in setting.facts:
                found[name] = " ".join(own[name].split()).partition("; unset")[0]
    return found


def _settings(evidence: Any) -> tuple[list[Setting], list[str]]:
    """(settings, what was left out)."""
    if evidence is None:
        return list(packaged()), []
    given = [evidence] if isinstance(evidence, str | Path | Setting) else list(evidence)
    alone = [e for e in given if isinstance(e, Setting)]
    if alone and len(alone) == len(given):
        return alone, []
    own = []
    for one in given:
        if not isinstance(one, str | Path):
            raise ConfigError(f"evidence must be a folder of runs, a table of them, or settings; got {one!r}")
        own.append(read(one))
    return [*packaged(), *(s for some, _ in own for s in some)], [note for _, notes in own for note in notes]


def _neighbour(d: float, s: Setting, about: About, measure: str) -> Neighbour:
    here = about.descriptors
    scores, base = scores_of(s, measure), baseline_of(s, measure)
    apart = {n: [here[n], s.descriptors[n]] for n, gap in _gaps(here, s.descriptors).items() if gap > 1}
    same = _same_data(about, s), _same(about.model, s.facts["model"]["name"])
    divided = _division(s.facts["partition"], s.facts.get("clients", 0))
    yours = same[0] is True and about.division == divided
    seeds, both = max(map(len, scores.values())), all(b in scores for b in BASELINES)
    level = statistics.fmean(scores[base].values())
    return Neighbour(s.name, s.source, d, d <= NEAR, *same, yours, len(scores), seeds, both, base, level, apart)


def _same_data(about: About, s: Setting) -> bool | None:
    """Whether two federations share their dataset: by fingerprint; a name that many share says nothing else."""
    there = s.facts["data"]["name"]
    if about.fingerprint and s.fingerprint and (about.fingerprint == s.fingerprint or {about.data, there} & ANONYMOUS):
        return about.fingerprint == s.fingerprint
    return _same(about.data, there)


def _same(known: str | None, there: str) -> bool | None:
    """Whether two names are of the same; None where one is no name of anything in particular."""
    return None if known is None or {known, there} & ANONYMOUS else known == there


def _ranked(
    near: Sequence[tuple[float, Setting]], neighbours: Sequence[Neighbour], measure: str
) -> list[Recommendation]:
    """Every method measured nearby but the baselines, largest gain first."""
    each = {m: _gains(near, m) for m in (*MEASURES, f"{FITTED}{measure}")}
    gains = each[measure]
    out = []
    for method in sorted((m for m in gains if m not in BASELINES), key=lambda m: -gains[m]):
        pairs = [
            (margin(s, method, measure, i + 1), n) for i, ((_, s), n) in enumerate(zip(near, neighbours, strict=True))
        ]
        seen = [(m, n) for m, n in pairs if m is not None]
        if seen:
            setting = next(s for _, s in near if any(r.method == method for r in s.runs))
            facts = _facts(method_of(setting, method))
            both = {m: found[method] for m, found in each.items() if method in found}
            margins = tuple(m for m, _ in seen)
            weighed = [(m.mean, weight_of(near[m.place - 1][0])) for m in margins]
            likely = predicted(weighed)
            out.append(Recommendation(method, gains[method], both, likely, *_confidence(seen), margins, **facts))
    return out


def weight_of(distance: float) -> float:
    """What a near federation counts: 1 at distance 0, falling to 0 at `NEAR`, but at least 0.05."""
    return max(1 - distance / NEAR, 0.05)


def _gains(near: Sequence[tuple[float, Setting]], measure: str) -> dict[str, float]:
    """The terms of the methods in score = method + federation, less the larger of the baselines' terms."""
    tables = [(i, d, scores_of(s, measure)) for i, (d, s) in enumerate(near)]
    cells = [
        (m, i, statistics.fmean(by.values()), weight_of(d))
        for i, d, known in tables
        if any(b in known for b in BASELINES)  # of fitted models there may be none
        for m, by in known.items()
    ]
    if not cells:
        return {}
    names = sorted({m for m, *_ in cells})
    design = np.zeros((len(cells), len(names) + len(near)))
    for row, (m, i, _, _) in zip(design, cells, strict=True):
        row[names.index(m)] = row[len(names) + i] = 1
    weight = np.sqrt([w for *_, w in cells])
    score = np.array([v for _, _, v, _ in cells])
    terms = np.linalg.lstsq(design * weight[:, None], score * weight, rcond=None)[0]
    found = dict(zip(names, terms.tolist(), strict=False))
    best = max(found[b] for b in BASELINES if b in found)
    return {m: v - best for m, v in found.items()}


def _confidence(seen: Iterable[tuple[Margin, Neighbour]]) -> tuple[str, str]:
    """(grade, reason). A near federation supports a method where `_lacks` finds nothing.

    Strong: two federations do, or yours does; moderate: one does; weak: none.
    """
    judged = [(_lacks(m, n), n) for m, n in seen]
    solid = [n for lack, n in judged if not lack]
    if any(n.yours for n in solid):
        return "strong", "your data and your split"
    if solid:
        grade = LEVELS[min(len(solid), 2)]
        return grade, f"{plural(len(solid), 'near federation')} with your data"
    return "weak", ", ".join(dict.fromkeys(lack for lack, _ in judged))


def _lacks(m: Margin, n: Neighbour) -> str:
    """Why what was measured on a federation supports nothing; "" where it supports the method."""
    if not n.same_data:
        return "other data" if n.same_data is False else "your data unknown"
    if n.same_model is False:
        return "other network"
    if not n.controlled:
        return "one baseline only"
    if m.low is None:
        return plural(m.seeds, "seed")
    return "" if m.low > 0 else "interval reaches 0"


def _facts(method: Method | None) -> dict[str, Any]:
    """What a method discloses and needs, by the facts that its components declare."""
    if method is None:
        unknown_to_us = ("unknown: a composition of your own",)
        return {
            "discloses": unknown_to_us, "uploads": unknown_to_us, "downloads": (), "server_rows": 0, "personal": False,
        }  # fmt: skip
    parts = [c for top in method.components for c in (top, getattr(top, "base", None)) if isinstance(c, Component)]
    told = {
        f: tuple(dict.fromkeys(getattr(c, f) for c in parts if getattr(c, f)))
        for f in ("discloses", "uploads", "downloads")
    }
    return {
        **told,
        "server_rows": max(c.auxiliary for c in parts),
        "personal": method.personal,
    }
