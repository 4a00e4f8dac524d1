"""What a run gives for a printed metric: by the rule of a protocol, under fitted biases, and how far it swings."""

from __future__ import annotations

import math
import re

from fedskew.config.recorded import Run
from fedskew.errors import ConfigError, require
from fedskew.records.summary import TAIL
from fedskew.studies.fitted import fitted_name
from fedskew.studies.papers.found import Cells
from fedskew.studies.papers.printed import Printed
from fedskew.studies.targets import reach

__all__ = ["fitted_of", "is_count", "is_whole", "measured", "swing", "values_of"]

VALUE = re.compile(r"(\w+)(?:\s*\*\s*([-+.\deE]+))?")
SPANS = ("final", "best", "mean10", "mean50")


def is_count(number: Printed) -> bool:
    """Whether a metric counts rounds, rows or times, and is no share: its gain is then a ratio, and no difference."""
    share = number.metric in ("accuracy", "macro_F1") or "weight" in number.metric
    return not share and not number.metric.endswith(("_pct", "_points"))


def values_of(held: Cells, method: str, number: Printed, rule: str) -> dict[int, float]:
    """What a rule gives for every seed of a method under the setting of a number."""
    word, _, reference = rule.partition(" ")
    reference = held.protocol.spec.reference if word == "change" else reference
    bases = held.entries.get((reference, number.setting), {})
    found = {}
    for seed, entry in held.entries.get((method, number.setting), {}).items():
        value = measured(rule, entry, bases.get(seed))
        if value is not None:
            found[seed] = value
    return found


def fitted_of(rule: str) -> str | None:
    """The rule of the same metric under fitted biases and a temperature; None where it has none.

    Example:
        >>> from fedskew.studies.papers.measures import fitted_of
        >>> fitted_of("final_accuracy * 100"), fitted_of("rounds_to FedAvg")
        ('final_fitted_accuracy * 100', None)
    """
    name, star, factor = rule.partition(" ")
    try:
        return f"{fitted_name(name)}{star}{factor}"
    except ConfigError:
        return None


def swing(rule: str, entry: Run) -> float | None:
    """How far the last evaluation of a run is from the mean of its last ten rounds, as the rule's metric counts.

    None where the rule is of no metric, or where those rounds have one evaluation.
    """
    name = rule.partition(" ")[0]
    span, _, metric = name.partition("_")
    if span not in SPANS or entry.config.get("eval_every", 1) * 2 > TAIL:
        return None
    ends = [measured(rule.replace(name, f"{which}_{metric}", 1), entry) for which in ("final", "mean10")]
    return None if ends[0] is None or ends[1] is None else abs(ends[0] - ends[1])


def measured(rule: str, entry: Run, base: Run | None = None) -> float | None:
    """What a rule of a protocol gives for a run.

    Args:
        rule: "NAME" or "NAME * FACTOR" of an entry of the summary; "rounds_to LABEL", the first round whose accuracy
            reaches the final one of the base; "speedup LABEL", rounds of the base over these; "change NAME", the change
            against the base in percent.
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
    found = VALUE.fullmatch(rule)
    require(found is not None, "metrics", "be NAME, NAME * FACTOR, rounds_to LABEL, speedup LABEL or change NAME", rule)
    assert found is not None
    value = entry.summary.get(found[1])
    return None if value is None else float(value) * float(found[2] or 1)


def is_whole(entry: Run) -> bool:
    """Whether the curve is whole: archives may hold some of its rounds, or none, and then tell when too late."""
    every = entry.config.get("eval_every", 1)
    seen = [row["round"] for row in entry.rows if row.get("accuracy") is not None]
    wanted = {*range(every, entry.summary["rounds"] + 1, every), entry.summary["rounds"]}
    return wanted.issubset(seen)
