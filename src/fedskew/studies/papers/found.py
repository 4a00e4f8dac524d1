"""Runs that answer a protocol, wherever and however they were run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedskew.config.experiment import Experiment
from fedskew.config.recorded import Run
from fedskew.errors import FedskewError
from fedskew.records.summary import FITTED
from fedskew.studies.address import asked
from fedskew.studies.papers.protocol import Protocol
from fedskew.studies.spec import Cell
from fedskew.studies.store import read_archives

__all__ = ["HERE", "Cells", "Runs", "cells", "likeness"]

HERE = Path("results/papers")  # in the current folder: the finished runs that the repository keeps
# What changes the bits of a run and not what is run: the precision of products; and what is measured beside it
MACHINE = ("precision", "dtype", "fit_logits")


def likeness(experiment: Experiment) -> str:
    """A hash of what is run, which leaves out the engine, the machine, the precision of its products, and fits.

    A run on a card with TF32 answers a protocol as one on a processor does; how it was run is named beside it.
    """
    kept = {name: value for name, value in asked(experiment).items() if name not in MACHINE}
    kept["data"] = repr(experiment.data)  # by name and options: what it holds need not be at hand
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


class Runs:
    """Finished runs of archives, by what they ran.

    Args:
        entries: The runs. Of several that ran the same, the last of those with most fits counts.
    """

    def __init__(self, entries: Iterable[Run]) -> None:
        self._by: dict[str, Run] = {}
        for entry in entries:
            if entry.state != "finished":
                continue
            try:
                key = likeness(Experiment.from_json(entry.config))
            except (FedskewError, KeyError, OSError):
                continue  # of data or a partition that are not at hand, or of a version that this one cannot name
            if _fits(entry) >= _fits(self._by.get(key, entry)):
                self._by[key] = entry

    def get(self, experiment: Experiment | None) -> Run | None:
        """The run of an experiment, or None."""
        if experiment is None:
            return None
        try:
            return self._by.get(likeness(experiment))
        except FedskewError:
            return None

    @staticmethod
    def of(folder: Path) -> Runs:
        """The runs of every archive in a folder. Raises RecordError for a line that is none."""
        return Runs(entry for entry in read_archives(folder) if entry.state == "finished")


def _fits(entry: Run) -> int:
    """How many numbers of its fitted model a run has."""
    return sum(FITTED in name for name in entry.summary)


@dataclass
class Cells:
    """The runs of one protocol at one scale: summaries by (method, setting), each by seed."""

    protocol: Protocol
    scale: str
    entries: dict[tuple[str, str], dict[int, Run]] = field(default_factory=dict)
    planned: dict[tuple[str, str], list[Cell]] = field(default_factory=dict)


def cells(protocol: Protocol, scale: str, runs: Runs, seeds: Sequence[int] = ()) -> Cells:
    """What is there of a protocol, of other seeds than its own where they are named."""
    found, spec = Cells(protocol, scale), protocol.at(scale)
    for cell in (replace(spec, seeds=tuple(seeds)) if seeds else spec).cells():
        key = cell.label, cell.setting
        found.planned.setdefault(key, []).append(cell)
        if (entry := runs.get(cell.experiment)) is not None:
            found.entries.setdefault(key, {})[cell.seed] = entry
    return found
