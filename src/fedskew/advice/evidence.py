"""Measured federations: how skewed each one is, and what methods gained there over FedAvg."""

import json
from importlib import resources
from typing import Any, NamedTuple

from fedskew.data import skew

MEASURES = {"accuracy": "mean10_accuracy", "macro_f1": "mean10_macro_f1"}  # means over the last ten rounds
WORST = "worst_recall"  # the recall of the worst class after the last round
KEPT = ("js_mean", "missing_rate", "quantity_gini", "classes", "clients", "size_median")  # of `skew.summary`


class Gain(NamedTuple):
    """What a method has more than FedAvg, paired by seed."""

    mean: float
    low: float | None  # 95 % interval of Student's t over the seeds; None below two
    high: float | None
    seeds: int


class Federation(NamedTuple):
    """A measured federation."""

    name: str
    source: str
    data: str
    model: str
    fingerprint: str  # of the dataset; "": not on record
    descriptors: dict[str, float]
    baseline: str  # the weighting of FedAvg with the higher accuracy
    level: float  # its mean accuracy
    fitted: float | None  # that of the better weighting with fitted logits; None: not on record
    gains: dict[str, dict[str, Gain]]  # method -> number -> gain over the weighting that is better by that number


def descriptors(counts: Any, cohort: int | None = None) -> dict[str, float]:
    """What federations are compared by: numbers of `skew.summary`, and the share of clients that train in a round.

    Args:
        counts: Label histograms, [N, C].
        cohort: Clients of a round; None: not known, and the share is left out.
    """
    found = skew.summary(counts, most=2)  # none of these numbers is over pairs of clients
    told = {name: round(float(found[name]), 4) for name in KEPT}  # type: ignore[arg-type]
    return told | ({} if cohort is None else {"participation": round(cohort / told["clients"], 4)})


def packaged() -> list[Federation]:
    """The federations that come with fedskew, from scripts/make_evidence.py."""
    text = resources.files("fedskew.advice").joinpath("evidence.json").read_text(encoding="utf-8")
    plain = [Federation(**content) for content in json.loads(text)]
    return [
        f._replace(gains={m: {n: Gain(*values) for n, values in by.items()} for m, by in f.gains.items()})
        for f in plain
    ]
