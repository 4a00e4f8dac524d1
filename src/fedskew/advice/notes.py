"""What an advice consists of, and what a reader must know before believing it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from fedskew.advice.evidence import Descriptors, Setting
from fedskew.advice.margins import Margin, spreads_of

__all__ = ["NEAR", "About", "Neighbour", "Recommendation", "left_out", "notes_of"]

NEAR = 1.0  # federations farther apart than this say nothing of each other


class About(NamedTuple):
    """The federation that is advised on."""

    title: str
    descriptors: Descriptors
    data: str | None  # None: not known
    model: str | None
    fingerprint: str = ""
    division: str = ""  # partitioner, options and clients


class Neighbour(NamedTuple):
    """A measured federation and how far it is."""

    name: str
    source: str
    distance: float
    near: bool
    same_data: bool | None  # by the datasets' fingerprints, else by their names; None: nothing tells
    same_model: bool | None  # None: no network was named
    yours: bool  # the same data, divided in the same way over as many clients; the seed may differ
    methods: int
    seeds: int  # the most of any method
    controlled: bool  # whether both baselines were run
    baseline: str  # the stronger of those that were
    baseline_score: float
    differs: dict[str, list[float]]  # descriptors more than one unit apart: [here, there]


class Recommendation(NamedTuple):
    """A method, what it gained on near federations, and what it asks for."""

    method: str
    gain: float  # by the measure of the advice
    gains: dict[str, float]  # by every measure, and that of the advice after the fit where it is on record
    likely: tuple[float, float] | None  # nine of ten such federations: see `margins.predicted`
    confidence: str
    reason: str  # of the confidence
    margins: tuple[Margin, ...]
    discloses: tuple[str, ...]  # what leaves the client beside the model
    uploads: tuple[str, ...]  # more numbers up, a client and round
    downloads: tuple[str, ...]
    server_rows: int  # rows of each class that the server must hold
    personal: bool  # made for models of the clients' own; the gain is that of its common model


def left_out(settings: Sequence[Setting], usable: Sequence[Setting], left: Sequence[str]) -> list[str]:
    """Runs that are no evidence, told and not hidden."""
    bare = [s.name for s in settings if s not in usable]
    told = [f"left out, with no run of FedAvg to compare with: {len(bare)}, as {bare[0]!r}"] if bare else []
    return told + ([f"left out, not usable: {len(left)} runs, as {left[0]}"] if left else [])


def notes_of(
    about: About,
    neighbours: Sequence[Neighbour],
    near: Sequence[tuple[float, Setting]],
    first: Sequence[Recommendation],
    usable: Sequence[Setting],
    measure: str,
) -> list[str]:
    """What a reader must know before believing it."""
    close = [n for n in neighbours if n.near]
    if not close:
        first_far = [f"the nearest, {n.name!r}, is {n.distance:.1f} away" for n in neighbours[:1]]
        where = first_far[0] if first_far else "none is known"
        return [
            f"no measured federation is near (near: at most {NEAR:g}; {where}): no method is recommended",
            "measure your own: run fedavg and a few methods over three seeds, and add them by --evidence FOLDER",
        ]
    notes = [] if first else ["no method measured nearby was better than the stronger baseline"]
    if first and all(r.confidence == "weak" for r in first):
        notes.append(
            "weak evidence: take this as an order in which to try, and compare over three seeds before deciding"
        )
    data = ", ".join(dict.fromkeys(s.facts["data"]["name"] for _, s in near))
    if not any(n.same_data for n in close):
        if any(n.same_data is None for n in close):
            what = (
                "counts say nothing of the data behind them" if about.data is None else f"{about.data!r} names no data"
            )
            notes.append(f"{what}: these federations hold {data}, and the order may differ on yours")
        else:
            notes.append(f"no near federation was measured with your data, but with {data}: the order may differ")
    networks = ", ".join(dict.fromkeys(s.facts["model"]["name"] for _, s in near))
    if about.model is None:
        notes.append(f"no network was named: the grades hold for {networks}, with which these runs were made")
    elif not any(n.same_model for n in close):
        notes.append(f"no near federation was measured with your network, but with {networks}: the order may differ")
    bare = [i for i, n in enumerate(close, 1) if not n.controlled]
    if bare:
        told = ", ".join(f"[{i}]" for i in bare)
        notes.append(f"{told} has runs of one baseline only, and the other is often stronger: its margins look large")
    notes += _of_seeds(close, usable, measure)
    return notes


def _of_seeds(close: Sequence[Neighbour], usable: Sequence[Setting], measure: str) -> list[str]:
    """What a margin of one seed is worth, by the spread where there are several."""
    notes = []
    spreads = [v for s in usable for v in spreads_of(s, measure)]
    single = sum(n.seeds < 3 for n in close)
    if single and spreads:
        sd = 100 * math.sqrt(statistics.fmean(v**2 for v in spreads))
        notes.append(
            f"{single} of the {len(close)} near federations were measured with fewer than three seeds; where there are "
            f"three, margins vary by {sd:.1f} points (one standard deviation): smaller ones may be chance"
        )
    most = max(n.methods for n in close)
    if most >= 10:
        notes.append(f"the best of {most} methods looks better than it is: expect less than the gains shown")
    return notes
