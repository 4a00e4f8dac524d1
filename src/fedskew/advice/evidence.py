"""Measured federations: how skewed each one is, and what methods gained there over FedAvg."""

import json
import math
from importlib import resources
from typing import Any, NamedTuple

from fedskew.data import skew
from fedskew.records.summary import AVERAGED, FITTED
from fedskew.studies.verdicts import RAW, Interval

MEASURES = {"accuracy": "mean10_accuracy", "macro_f1": "mean10_macro_f1"}  # means over the last ten rounds
WORST = "worst_recall"  # the recall of the worst class after the last round
MODELS = {RAW: "", "averaged": AVERAGED, "fitted": FITTED, "both": f"{AVERAGED}{FITTED}", "work": "work_"}  # prefixes
LONGER = "fedavg, longer"
DESCRIPTORS = ("js_mean", "missing_rate", "quantity_gini", "classes", "clients", "size_median")  # of `skew.summary`


class Gain(NamedTuple):
    """What a method has more than FedAvg, paired by seed."""

    mean: float
    low: float | None  # 95 % interval at Holm's level among the methods; None below two seeds
    high: float | None
    seeds: int

    @property
    def interval(self) -> Interval:
        """With no ends where there are none."""
        if self.low is None or self.high is None:
            return Interval(self.mean, -math.inf, math.inf, self.seeds)
        return Interval(self.mean, self.low, self.high, self.seeds)


class Measured(NamedTuple):
    """A measured federation. Numbers of a model are called by its prefix of `MODELS`: "fitted_accuracy"."""

    name: str
    source: str
    data: str
    model: str
    fingerprint: str  # of the dataset; "": not on record
    descriptors: dict[str, float]
    baseline: str  # the weighting of FedAvg with the higher accuracy
    level: float  # its mean accuracy, of the raw model
    fedavg: dict[str, Gain]  # number of another model -> its gain over the raw one; of the better weighting by each
    gains: dict[str, dict[str, Gain]]  # method -> number -> gain over the weighting that is better by that number
    works: dict[str, list[float | None]]  # method -> steps, contacts, bytes, as multiples of FedAvg's
    exchanges: float | None = None  # with every client, for a fit


def descriptors(counts: Any, cohort: int | None = None) -> dict[str, float]:
    """What federations are compared by: numbers of `skew.summary`, and the share of clients that train in a round.

    Args:
        counts: Label histograms, [N, C].
        cohort: Clients of a round; None: not known, and the share is left out.
    """
    summary = skew.summary(counts, most=2)  # none of these numbers is over pairs of clients
    values = {name: round(float(summary[name]), 4) for name in DESCRIPTORS}  # type: ignore[arg-type]
    return values | ({} if cohort is None else {"participation": round(cohort / values["clients"], 4)})


def packaged() -> list[Measured]:
    """The federations that come with fedskew, from scripts/make_evidence.py."""
    text = resources.files("fedskew.advice").joinpath("evidence.json").read_text(encoding="utf-8")
    plain = [Measured(**content) for content in json.loads(text)]
    return [
        f._replace(
            fedavg={n: Gain(*values) for n, values in f.fedavg.items()},
            gains={m: {n: Gain(*values) for n, values in by.items()} for m, by in f.gains.items()},
        )
        for f in plain
    ]
