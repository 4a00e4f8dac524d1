"""Runs that answer a protocol, wherever and however they were run, and what each gives for a printed metric."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedskew.errors import ConfigError, FedskewError, require
from fedskew.seam import FITTED, Cell, Experiment, Run, asked, fitted_name, reach, read_archives, repeatable
from fedskew_papers.printed import Printed
from fedskew_papers.tables import Protocol

RESULTS = Path("results/papers")  # in the current folder: the finished runs that the repository keeps
# What changes the bits of a run and not what is run: the precision of products; and what is measured beside it
MACHINE = ("precision", "dtype", "fit_logits")
VALUE = re.compile(r"(\w+)(?:\s*\*\s*([-+.\deE]+))?")


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
                key = likeness(repeatable(entry.config))
            except (FedskewError, KeyError, OSError):
                continue  # of data or a partition that are not at hand, or of names or formulas that are no more
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
    spec, planned = protocol.at(scale), defaultdict[tuple[str, str], list[Cell]](list)
    for cell in (every := list((replace(spec, seeds=tuple(seeds)) if seeds else spec).cells())):
        planned[cell.label, cell.setting].append(cell)
    return Cells(protocol, scale, entries_of(every, runs), dict(planned))


def entries_of(planned: Iterable[Cell], runs: Runs) -> dict[tuple[str, str], dict[int, Run]]:
    """The runs of cells that were run, by (method, setting) and seed."""
    entries: dict[tuple[str, str], dict[int, Run]] = {}
    for cell in planned:
        if (run := runs.get(cell.experiment)) is not None:
            entries.setdefault((cell.label, cell.setting), {})[cell.seed] = run
    return entries


# What a run gives for a printed metric


def values_of(held: Cells, method: str, number: Printed, rule: str) -> dict[int, float]:
    """What a rule gives for every seed of a method under the setting of a number."""
    word, _, reference = rule.partition(" ")
    reference = held.protocol.spec.reference if word == "change" else reference
    bases = held.entries.get((reference, number.setting), {})
    runs = held.entries.get((method, number.setting), {})
    return {seed: v for seed, run in runs.items() if (v := measured(rule, run, bases.get(seed))) is not None}


def fitted_of(rule: str) -> str | None:
    """The rule of the same metric under fitted biases and a temperature; None where it has none.

    Example:
        >>> from fedskew_papers.runs import fitted_of
        >>> fitted_of("final_accuracy * 100"), fitted_of("rounds_to FedAvg")
        ('final_fitted_accuracy * 100', None)
    """
    name, star, factor = rule.partition(" ")
    try:
        return f"{fitted_name(name)}{star}{factor}"
    except ConfigError:
        return None


def measured(rule: str, entry: Run, base: Run | None = None) -> float | None:
    """What a rule of a protocol gives for a run.

    Args:
        rule: "NAME" or "NAME * FACTOR" of an entry of the summary; "rounds_to LABEL", the first round whose accuracy
            reaches the final one of the base; "speedup LABEL", rounds of the base over these; "change NAME", the change
            against the base in percent; "round NUMBER NAME", an entry of that round.
        entry: The run.
        base: The run that it is compared with.

    Returns:
        The value; None where the run has none, infinity where it never reaches the base. A run of which not every
        evaluation is kept has no first round.

    Raises:
        ConfigError: The rule is none.
    """
    word, _, rest = rule.partition(" ")
    if word in ("rounds_to", "speedup"):
        if base is None or not is_whole(entry):
            return None
        first = reach(entry.rows, float(base.summary["final_accuracy"]))
        if word == "rounds_to":
            return float(first.rounds) if first.reached else math.inf
        return base.summary["rounds"] / first.rounds if first.reached else 0.0
    if word == "change":
        ours, theirs = entry.summary.get(rest), base.summary.get(rest) if base else None
        return 100 * (ours / theirs - 1) if ours is not None and theirs else None
    values = entry.summary
    if word == "round":
        number, _, rule = rest.partition(" ")
        values = next((row for row in entry.rows if row["round"] == int(number)), {})
    match = VALUE.fullmatch(rule)
    require(match is not None, "metrics", "be NAME, NAME * FACTOR, rounds_to LABEL, speedup LABEL or change NAME", rule)
    assert match is not None
    value = values.get(match[1])
    return None if value is None else float(value) * float(match[2] or 1)


def is_whole(entry: Run) -> bool:
    """Whether the curve is whole: archives may hold some of its rounds, or none, and then tell when too late."""
    every = entry.config.get("eval_every", 1)
    seen = [row["round"] for row in entry.rows if row.get("accuracy") is not None]
    wanted = {*range(every, entry.summary["rounds"] + 1, every), entry.summary["rounds"]}
    return wanted.issubset(seen)
