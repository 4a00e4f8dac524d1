"""Whether two records are of one run."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fedskew.config.recorded import Run
from fedskew.errors import RecordError
from fedskew.records.folder import TIMES

NEAR = 1e-6  # relative to the larger of 1 and the value: what another processor or number of threads may round
UNLIKE = {f"total_{name}" for name in TIMES}


def require_same(first: Run | None, second: Run, where: str) -> None:
    """Raise RecordError where two runs of one address differ in a number.

    Args:
        first: A run.
        second: Another, of the same address.
        where: What they stand in, as the message says it.
    """
    summary, other = first.summary if first else {}, second.summary
    comparison = compared({name: value for name, value in summary.items() if name in other}, other)
    if comparison.verdict == "differs":
        raise RecordError(f"run {second.address} must be the same in {where}; {comparison.words}")


class Comparison(NamedTuple):
    """How two summaries compare.

    Attributes:
        verdict: "bits" where all is equal to the bit, "near" within `NEAR`, else "differs".
        words: The entry that differs most, as in "final_accuracy is 0.5 and 0.25"; "" where none does.
    """

    verdict: str
    words: str = ""


def compared(summary: Mapping[str, Any], other: Mapping[str, Any]) -> Comparison:
    """Compare two summaries.

    What only the second one has is not looked at: a later fedskew writes more.

    Args:
        summary: Content of a summary.json.
        other: Another.

    Returns:
        The verdict, and what differs most.

    Example:
        >>> compared({"rounds": 3, "total_wall_s": 1.0}, {"rounds": 3, "total_wall_s": 9.0}).verdict
        'bits'
        >>> compared({"final_loss": 0.5}, {"final_loss": 0.5000001}).verdict
        'near'
        >>> compared({"final_loss": 0.5}, {"final_loss": 0.6}).words
        'final_loss is 0.5 and 0.6'
    """
    entries, other_entries = dict(_leaves(summary)), dict(_leaves(other))
    worst, comparison = 0.0, Comparison("bits")
    for entry, first in entries.items():
        second = other_entries.get(entry, "missing")
        apart = _apart(first, second)
        if apart > worst:
            words = f"{entry} is {first!r} and {second!r}"
            worst, comparison = apart, Comparison("near" if apart <= NEAR else "differs", words)
    return comparison


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """(place, value) of everything in a summary that is no time."""
    if isinstance(value, Mapping | list):
        if isinstance(value, list):
            yield f"{place}.length", len(value)
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            if key not in UNLIKE:
                yield from _leaves(inner, f"{place}.{key}".lstrip("."))
    else:
        yield place, value


def _apart(first: Any, second: Any) -> float:
    """How far two values are apart, relative to the larger of 1 and themselves; infinite for other kinds."""
    plain = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (first, second))
    if not plain:
        return 0.0 if type(first) is type(second) and first == second else math.inf
    if first == second or (first != first and second != second):
        return 0.0
    distance = abs(first - second) / max(1.0, abs(first), abs(second))
    return distance if math.isfinite(distance) else math.inf
