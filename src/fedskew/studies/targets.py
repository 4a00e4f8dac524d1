"""What it costs a run to reach a target: rounds, bytes, samples and seconds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedskew.errors import RecordError

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
        RecordError: A round is missing, or a cost of a round.

    Example:
        >>> from fedskew.studies.targets import reach
        >>> costs = {"upload_bytes": 8, "download_bytes": 8, "samples": 4, "wall_s": 0.5}
        >>> rows = [{"round": r, "accuracy": a, **costs} for r, a in ((1, 0.2), (2, 0.6), (3, 0.7))]
        >>> reached = reach(rows, 0.6)
        >>> reached.rounds, reached.bytes, reached.seconds
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
        RecordError: As `reach`.

    Example:
        >>> from fedskew.studies.targets import reach_all
        >>> costs = {"upload_bytes": 8, "download_bytes": 8, "samples": 4, "wall_s": 0.5}
        >>> rows = [{"round": r, "accuracy": a, **costs} for r, a in ((1, 0.2), (2, 0.6), (3, 0.7))]
        >>> [(cost.reached, cost.rounds) for cost in reach_all(rows, [0.6, 0.9])]
        [(True, 2), (False, 3)]
    """
    before = 0
    for i, row in enumerate(rows, 1):  # one of an archive also stands for those before it that were left out
        if row["round"] != before + row.get("rounds", 1):
            raise RecordError(f"round must count 1, 2, 3 in the rows of a run; got {row['round']!r} in row {i}")
        before = row["round"]
    try:
        costs = [[row[name] for name in SUMMED] for row in rows]
    except KeyError as lacking:
        raise RecordError(f"each round must have {lacking}") from None
    spent = np.array(costs, dtype=np.float64).reshape(len(rows), len(SUMMED)).cumsum(axis=0)
    scored = [(i, row[metric]) for i, row in enumerate(rows) if row.get(metric) is not None]
    found = []
    for target in targets:
        hit = next((i for i, value in scored if value >= target), None)
        last = len(rows) - 1 if hit is None else hit
        up, down, samples, seconds = spent[last].tolist() if rows else (0.0,) * 4
        number = int(rows[last]["round"]) if rows else 0
        found.append(Reached(float(target), hit is not None, number, up + down, samples, seconds))
    return tuple(found)
