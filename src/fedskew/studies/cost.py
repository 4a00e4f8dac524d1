"""How long the runs of a study will take, from finished runs like them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedskew.config.own import name_of

if TYPE_CHECKING:
    from fedskew.studies.study import Planned, Study


@dataclass(frozen=True)
class Cost:
    """What the missing runs of a study cost.

    Attributes:
        seconds: Of one process, for all of them.
        runs: How many are missing.
        unknown: How many of them no finished run is like.
    """

    seconds: float = 0.0
    runs: int = 0
    unknown: int = 0


def cost_of(study: Study) -> Cost:
    """The cost of a study's missing runs.

    A run takes as long a round as the median of finished runs of the same method, data and network; else of the same
    data and network.
    """
    known: dict[str, list[float]] = {}
    everything = [*study.trials(), *study.plan()]
    for planned in everything:
        entry = planned.entry(study.store)
        if entry and entry.state == "finished" and entry.summary.get("rounds"):
            rate = entry.summary["total_wall_s"] / entry.summary["rounds"]
            for key in _alike(planned):
                known.setdefault(key, []).append(rate)
    seconds, unknown, missing = 0.0, 0, study.missing(everything)
    for planned in missing:
        experiment = planned.cell.experiment
        rates = next((known[key] for key in _alike(planned) if key in known), None)
        if experiment is not None and rates is not None:
            seconds += statistics.median(rates) * experiment.rounds
        else:
            unknown += 1
    return Cost(seconds, len(missing), unknown)


def _alike(planned: Planned) -> list[str]:
    """What tells the time of a run: runs of the same method, data and network; then of the same data and network."""
    experiment = planned.cell.experiment
    if experiment is None:
        return []
    work = f"{experiment.data.name} {name_of(experiment.model)} {experiment.device} {experiment.cohort}"
    return [f"{planned.cell.label} {planned.cell.setting} {work}", f"{planned.cell.label} {work}", work]
