"""What it costs to reach a target: rounds, bytes, samples and seconds, of one run and over seeds."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedskew.errors import RecordError, require

__all__ = ["COSTS", "Reached", "Spent", "TargetSummary", "final_value", "over_seeds", "reach", "reach_all"]

COSTS = ("rounds", "bytes", "samples", "seconds")
LAST = 10  # rounds of a final value
SUMMED = ("upload_bytes", "download_bytes", "samples", "wall_s")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Reached:
    """What a run spent until it first reached a target, or in all where it did not.

    Attributes:
        target: The value to reach.
        reached: Whether an evaluation has it.
        rounds: Number of the first evaluated round with it; the last round of the run where none has.
        bytes: Bytes from and to all clients, up to this round and with it.
        samples: Training rows of one epoch, summed over clients and rounds, as in the record.
        seconds: Seconds of these rounds.
        kept: Whether all later evaluations have it, too. A curve that swings touches a target early.
        unseen: Rounds before it without an evaluation, by which it may be late.
    """

    target: float
    reached: bool
    rounds: int
    bytes: float
    samples: float
    seconds: float
    kept: bool = False
    unseen: int = 0


def reach(rows: Sequence[Row], target: float, metric: str = "accuracy") -> Reached:
    """The first evaluation of a run that reaches a target, and what the run spent until then.

    Args:
        rows: All rounds of a run, as rounds.jsonl holds them. A round without the metric was not evaluated.
        target: The value to reach; a metric that is equal reaches it.
        metric: A metric of which more is better.

    Returns:
        What was spent. A run that does not reach the target has what it spent in all.

    Raises:
        ConfigError: The target is not finite.
        RecordError: A round is missing, or a number of a round.

    Example:
        >>> from fedskew.studies.targets import reach
        >>> costs = {"upload_bytes": 8, "download_bytes": 8, "samples": 4, "wall_s": 0.5}
        >>> rows = [{"round": r, "accuracy": a, **costs} for r, a in ((1, 0.2), (2, 0.6), (3, 0.7))]
        >>> found = reach(rows, 0.6)
        >>> found.rounds, found.bytes, found.seconds, found.kept
        (2, 32.0, 1.0, True)
    """
    return reach_all(rows, [target], metric)[0]


def reach_all(rows: Sequence[Row], targets: Sequence[float], metric: str = "accuracy") -> tuple[Reached, ...]:
    """`reach` of several targets; the record is read once.

    Args:
        rows: All rounds of a run, as rounds.jsonl holds them.
        targets: Values to reach, in any order.
        metric: A metric of which more is better.

    Returns:
        What was spent until each target.

    Raises:
        ConfigError: A target is not finite.
        RecordError: As `reach`.

    Example:
        >>> from fedskew.studies.targets import reach_all
        >>> costs = {"upload_bytes": 8, "download_bytes": 8, "samples": 4, "wall_s": 0.5}
        >>> rows = [{"round": r, "accuracy": a, **costs} for r, a in ((1, 0.2), (2, 0.6), (3, 0.7))]
        >>> [(found.reached, found.rounds) for found in reach_all(rows, [0.6, 0.9])]
        [(True, 2), (False, 3)]
    """
    for target in targets:
        good = isinstance(target, numbers.Real) and not isinstance(target, bool) and math.isfinite(target)
        require(good, "target", "be a finite number", target)
    spent = _spent(rows).cumsum(axis=0)  # [R, 4]
    seen = _evaluated(rows, metric)
    counted = [int(row["round"]) for row in rows]
    return tuple(_reached(counted, spent, seen, float(target)) for target in targets)


def _reached(
    rounds: Sequence[int],
    spent: np.ndarray[Any, np.dtype[np.float64]],
    seen: Sequence[tuple[int, float]],
    target: float,
) -> Reached:
    """What was spent until a target: of the rounds' numbers, the costs until each [R, 4], and those evaluated."""
    hit = next((i for i, value in seen if value >= target), None)
    last = len(spent) - 1 if hit is None else hit
    up, down, samples, seconds = spent[last].tolist() if len(spent) else (0.0,) * 4
    if hit is None:
        return Reached(target, False, rounds[last] if rounds else 0, up + down, samples, seconds)
    before = max((i for i, _ in seen if i < hit), default=-1)
    kept = all(value >= target for i, value in seen if i > hit)
    unseen = rounds[hit] - (rounds[before] if before >= 0 else 0) - 1
    return Reached(target, True, rounds[hit], up + down, samples, seconds, kept, unseen)


def final_value(rows: Sequence[Row], metric: str = "accuracy") -> float | None:
    """The mean of a metric over the evaluations in the last ten rounds of a run: ``mean10_...`` of the summary.

    Args:
        rows: All rounds of a run; of an archive, those that it holds.
        metric: Name of the metric.

    Returns:
        The mean; None where none of these rounds was evaluated.

    Raises:
        RecordError: A round is missing, or its metric is no number.

    Example:
        >>> from fedskew.studies.targets import final_value
        >>> final_value([{"round": 1, "accuracy": 0.5}, {"round": 2, "accuracy": 0.75}])
        0.625
    """
    _ordered(rows)
    first = rows[-1]["round"] - LAST + 1 if rows else 1
    values = [value for i, value in _evaluated(rows, metric) if rows[i]["round"] >= first]
    return sum(values) / len(values) if values else None


def _ordered(rows: Sequence[Row]) -> None:
    """Raise RecordError unless the rows stand for rounds 1 to R: a sum over some of them is too small.

    A row of an archive stands for the rounds before it that were left out, too, and its ``rounds`` says for how many.
    """
    before = 0
    for i, row in enumerate(rows, 1):
        got = row.get("round") if isinstance(row, Mapping) else row
        expected = before + (row.get("rounds", 1) if isinstance(row, Mapping) else 1)
        if got != expected:
            raise RecordError(f"round must count 1, 2, 3 in the rows of a run; got {got!r} in row {i}")
        before = expected


def _spent(rows: Sequence[Row]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The costs of each round, float64 [R, 4]."""
    _ordered(rows)
    for row in rows:
        for name in SUMMED:
            _number(row, name, least=0)
    return np.array([[row[name] for name in SUMMED] for row in rows], dtype=np.float64).reshape(len(rows), len(SUMMED))


def _evaluated(rows: Sequence[Row], metric: str) -> list[tuple[int, float]]:
    """(place of the row, value) of each round that has the metric."""
    return [(i, _number(row, metric)) for i, row in enumerate(rows) if row.get(metric) is not None]


def _number(row: Row, name: str, least: float = -math.inf) -> float:
    """A finite number of a round."""
    got = row.get(name)
    value = float(got) if isinstance(got, numbers.Real) and not isinstance(got, bool) else math.nan
    if not (math.isfinite(value) and value >= least):
        rule = "a finite number" if least < 0 else "a number of at least 0"
        raise RecordError(f"{name} of round {row.get('round')} must be {rule}; got {got!r}")
    return value


# Over seeds


@dataclass(frozen=True)
class Spent:
    """One cost over the runs of a method.

    Attributes:
        median: Median over all runs; None where runs that did not reach the target leave it open.
        at_least: The median is not below this, whatever those runs would have spent.
        least: The least cost of a run that reached the target; None where none did.
        most: The greatest cost of a run that reached it.
    """

    median: float | None
    at_least: float
    least: float | None
    most: float | None


@dataclass(frozen=True)
class TargetSummary:
    """What the runs of a method spent until they reached a target.

    Attributes:
        target: The value to reach; None where each run had its own.
        runs: Number of runs.
        reached: Number of runs that reached it.
        kept: Number of runs that stayed there in all later evaluations.
        rounds: Rounds over the runs.
        bytes: Bytes from and to all clients.
        samples: Training rows of one epoch, summed over clients and rounds.
        seconds: Seconds.
    """

    target: float | None
    runs: int
    reached: int
    kept: int
    rounds: Spent
    bytes: Spent
    samples: Spent
    seconds: Spent


def over_seeds(found: Sequence[Reached]) -> TargetSummary:
    """Summarise what the runs of a method spent, runs that did not reach the target among them.

    Leaving those runs out would favour a method that seldom reaches it. A run that did not reach it needs more than it
    spent. So the median is taken twice, with what it spent and with infinity in its place; where both agree, this is
    the median over all runs, else it is open.

    Args:
        found: What each run spent, from `reach` or `reach_own`.

    Returns:
        The summary.

    Raises:
        ConfigError: There is no run.

    Example:
        >>> from fedskew.studies.targets import Reached, over_seeds
        >>> runs = [Reached(0.8, True, r, 1.0, 1.0, 1.0, True) for r in (10, 30)] + [Reached(0.8, False, 50, 1, 1, 1)]
        >>> found = over_seeds(runs)
        >>> found.reached, found.rounds.median, found.rounds.most
        (2, 30.0, 30.0)
    """
    require(len(found) > 0, "found", "hold at least one run", list(found))
    targets = {run.target for run in found}
    costs = {name: _over(found, name) for name in COSTS}
    reached, kept = sum(run.reached for run in found), sum(run.kept for run in found)
    return TargetSummary(targets.pop() if len(targets) == 1 else None, len(found), reached, kept, **costs)


def _over(found: Sequence[Reached], name: str) -> Spent:
    """One cost over runs."""
    spent = [float(getattr(run, name)) for run in found]
    needed = [cost if run.reached else math.inf for cost, run in zip(spent, found, strict=True)]
    low, high = float(np.median(spent)), float(np.median(needed))
    there = [cost for cost in needed if cost < math.inf]
    return Spent(high if low == high else None, low, min(there, default=None), max(there, default=None))
