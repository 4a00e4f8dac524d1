"""What it costs a run to reach a target: rounds, bytes, samples and seconds."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedskew.errors import RecordError, require

__all__ = ["COSTS", "Reached", "reach", "reach_all"]

COSTS = ("rounds", "bytes", "samples", "seconds")
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
    """

    target: float
    reached: bool
    rounds: int
    bytes: float
    samples: float
    seconds: float


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
        >>> found.rounds, found.bytes, found.seconds
        (2, 32.0, 1.0)
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
    return Reached(target, True, rounds[hit], up + down, samples, seconds)


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
