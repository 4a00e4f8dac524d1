"""The ledger: every printed number, ours beside it, and whether they agree."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedskew.errors import require
from fedskew.records.sheets import csv_text
from fedskew.studies.intervals import t_interval
from fedskew.studies.papers.costs import Costs
from fedskew.studies.papers.found import Cells, Runs, cells
from fedskew.studies.papers.printed import FIVE, THIRD, Printed, printed
from fedskew.studies.papers.protocol import Protocol, names, protocol
from fedskew.studies.papers.worked import worked
from fedskew.studies.store import Entry
from fedskew.studies.targets import reach

__all__ = ["STATES", "TOTAL", "Row", "coverage", "ledger", "measured", "rows_of", "state_of", "text_of"]

STATES = ("agrees", "differs", "not run", "input", "no data")
TOTAL = "all five"  # the row of `coverage` that sums the five papers
POINT = 0.01  # one point, where no spread is printed or there is one seed of ours
SHARE = 0.1  # of the printed number, where it counts rounds, samples or a ratio
VALUE = re.compile(r"(\w+)(?:\s*\*\s*([-+.\deE]+))?")


@dataclass(frozen=True)
class Row:
    """A printed number and ours.

    Attributes:
        number: What is printed.
        ours: Mean over our seeds, None where nothing was run; infinite where a run never gets there.
        low: Lower end of its 95 % t interval, None below two seeds, and of a mean that is infinite.
        high: Upper end.
        seeds: How many seeds of ours there are. A run that failed is not among them.
        planned: How many seeds the study has at this scale.
        scale: "paper" or "small".
        state: One of `STATES`.
        study: The protocol that gives it.
        how: Engine, device and precision of our runs.
        hours: Hours that the runs took, each on one thread or on the card that ``how`` names; of a number that was not
            run, what all seeds of the paper would take on one thread, by measured steps.
        prices: These hours by (study, setting, method), since numbers share runs.
    """

    number: Printed
    state: str
    ours: float | None = None
    low: float | None = None
    high: float | None = None
    seeds: int = 0
    planned: int = 0
    scale: str = ""
    study: str = ""
    how: str = ""
    hours: float | None = None
    prices: tuple[tuple[tuple[str, str, str], float], ...] = ()

    @property
    def command(self) -> str:
        """What repeats ours."""
        return f"fedskew reproduce {self.study} --scale {self.scale or 'paper'}" if self.study else ""

    @property
    def texts(self) -> tuple[str, str, str, str]:
        """Printed number with its spread, ours, its interval and its seeds, for a table: "3 of 5"."""
        n = self.number
        printed_ = "" if n.mean is None else f"{n.mean:g}{'' if n.spread is None else f' ± {n.spread:g}'}"
        ours = "" if self.ours is None else "never" if math.isinf(self.ours) else f"{self.ours:.4g}"
        span = "" if self.low is None else f"{self.low:.4g} to {self.high:.4g}"
        return printed_, ours, span, f"{self.seeds} of {self.planned}" if self.planned else ""


def ledger(runs: Runs, scales: Sequence[str] = ("small", "paper"), costs: Costs | None = None) -> list[Row]:
    """Every printed number with ours beside it; the larger scale counts where there are two.

    Args:
        runs: Our finished runs.
        scales: The scales that count, the smaller first.
        costs: What runs at the scale of the paper cost.

    Returns:
        One row a printed number, in the order of `printed`.
    """
    found: dict[str, Row] = {p.id: Row(p, p.kind if p.kind != "result" else "not run") for p in printed()}
    ours = worked()
    for computed in [row for row in found.values() if row.number.id in ours]:
        done = replace(computed, ours=ours[computed.number.id], scale="paper", how="computed", hours=0.0)
        found[computed.number.id] = replace(done, state=state_of(done))
    for name in names():
        for scale in scales:
            for row in rows_of(protocol(name), scale, runs):
                if row.ours is not None or not found[row.number.id].study:
                    found[row.number.id] = row
    return [_priced(row, costs or {}) for row in found.values()]


def _priced(row: Row, costs: Costs) -> Row:
    """A number that was not run, with what its runs would take."""
    if row.state != "not run" or not row.study:
        return row
    seeds = len(protocol(row.study).spec.seeds)
    keys = [(row.study, row.number.setting, label) for label in row.number.labels]
    prices = tuple((key, costs[key] * seeds) for key in keys if key in costs)
    if len(prices) < len(keys):
        return row
    return replace(row, hours=sum(hours for _, hours in prices), prices=prices)


def rows_of(one: Protocol, scale: str, runs: Runs, seeds: Sequence[int] = ()) -> list[Row]:
    """The printed numbers that a protocol answers, with ours at one scale, of other seeds than its own where named."""
    numbers = one.numbers()
    if not any(number.kind == "result" for number in numbers):  # nothing to plan: it takes seconds
        return [_blank(number, one) for number in numbers]
    held = cells(one, scale, runs, seeds)
    found = (_row(number, held) for number in numbers)
    return [row for row in found if row is not None]


def _blank(number: Printed, one: Protocol) -> Row:
    """A printed number that no run of ours answers."""
    return Row(number, number.kind if number.kind == "no data" else "not run", study=one.name)


def _row(number: Printed, held: Cells) -> Row | None:
    """A printed number as a protocol answers it; None where it does not."""
    wanted = [(name, number.setting) for name in number.labels]
    if any(key not in held.planned for key in wanted):
        return None
    blank = _blank(number, held.protocol)
    values = [_values(held, name, number) for name in number.labels]
    shared = sorted(set(values[0]).intersection(*values[1:]))
    if not shared:
        return blank
    held_by = np.array([[value[s] for s in shared] for value in values], dtype=np.float64)
    each = held_by[0] - held_by[1] if " minus " in number.method else held_by.mean(0)
    ends = t_interval(each) if len(each) > 1 and np.isfinite(each).all() else None
    entries = [held.entries[key][seed] for key in wanted for seed in shared]
    row = replace(
        blank, ours=float(each.mean()), low=ends[0] if ends else None, high=ends[1] if ends else None, seeds=len(each),
        planned=len({cell.seed for key in wanted for cell in held.planned[key]}), scale=held.scale, how=how(entries),
        hours=sum(e.summary.get("total_wall_s", 0.0) for e in entries) / 3600,
    )  # fmt: skip
    return replace(row, state=state_of(row))


def state_of(row: Row) -> str:
    """Whether ours and the printed number agree.

    With a printed spread s and two seeds or more of ours, they do if [low, high] and [mean - s, mean + s] overlap;
    else if they are within one point, or within a tenth of the printed number where it is no share.

    Example:
        >>> from fedskew.studies.papers.ledger import Row, state_of
        >>> from fedskew.studies.papers.printed import printed
        >>> number = printed()[2]  # FedBal's Table 2: 54.81, in percent
        >>> state_of(Row(number, "", ours=55.5)), state_of(Row(number, "", ours=57.0))
        ('agrees', 'differs')
    """
    number, ours = row.number, row.ours
    if ours is None:
        return "not run"
    if number.mean is None or math.isnan(ours):
        return "differs"
    if number.spread is not None and row.low is not None and row.high is not None:
        near = row.low <= number.mean + number.spread and number.mean - number.spread <= row.high
        return "agrees" if near else "differs"
    return "agrees" if abs(ours - number.mean) <= within(number) * (1 + 1e-9) else "differs"


def within(number: Printed) -> float:
    """How far ours may be where no interval decides, in the unit of the printed number."""
    if number.metric.endswith(("_pct", "_points")):
        return 100 * POINT
    if number.metric in ("accuracy", "macro_F1") or "weight" in number.metric:
        return POINT
    return SHARE * abs(number.mean or 0.0)


def _values(held: Cells, method: str, number: Printed) -> dict[int, float]:
    """A metric of every seed."""
    runs = held.entries.get((method, number.setting), {})
    word, _, reference = held.protocol.metrics[number.metric].partition(" ")
    found = {}
    for seed, entry in runs.items():
        base = held.entries.get((reference, number.setting), {}).get(seed)
        if word == "change":
            base = held.entries.get((held.protocol.spec.reference, number.setting), {}).get(seed)
        value = measured(held.protocol.metrics[number.metric], entry, base)
        if value is not None:
            found[seed] = value
    return found


def measured(rule: str, entry: Entry, base: Entry | None = None) -> float | None:
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
        if base is None or not _has_every_evaluation(entry):
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


def _has_every_evaluation(entry: Entry) -> bool:
    """Whether the curve is whole: archives may hold some of its rounds, or none, and then tell when too late."""
    every = entry.config.get("eval_every", 1)
    seen = [row["round"] for row in entry.rows if row.get("accuracy") is not None]
    wanted = {*range(every, entry.summary["rounds"] + 1, every), entry.summary["rounds"]}
    return wanted.issubset(seen)


def how(entries: Iterable[Entry]) -> str:
    """How runs were run: "batched on cuda, tf32"."""
    told = set()
    for entry in entries:
        config = entry.config
        engine = config.get("engine_used") or "engine not recorded"
        where = "" if config.get("device", "cpu") == "cpu" else " on cuda"
        kinds = dict.fromkeys(config.get(name, "float32") for name in ("dtype", "precision"))
        told.add(f"{engine}{where}" + "".join(f", {kind}" for kind in kinds if kind != "float32"))
    return "; ".join(sorted(told))


# The file

COLUMNS = (
    "id", "paper", "table", "dataset", "setting", "model", "method", "metric", "printed", "spread", "ours", "low",
    "high", "seeds", "planned", "scale", "state", "study", "how", "core_hours", "command", "note",
)  # fmt: skip


def text_of(rows: Iterable[Row]) -> str:
    """The ledger as CSV."""
    return csv_text([COLUMNS, *(_line(row) for row in rows)])


def _line(row: Row) -> list[object]:
    n = row.number
    hours = "" if row.hours is None else f"{row.hours:.3g}"
    return [
        *(getattr(n, name) for name in COLUMNS[:8]), *map(_shown, (n.mean, n.spread, row.ours, row.low, row.high)),
        row.seeds or "", row.planned or "", row.scale, row.state, row.study, row.how, hours, row.command, n.note,
    ]  # fmt: skip


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def coverage(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each of the five papers, of all five (`TOTAL`), and of each third party, which no total counts."""
    listed = list(rows)
    found = {paper: [row for row in listed if row.number.paper == paper] for paper in (*FIVE, *THIRD)}
    return {
        **{paper: found[paper] for paper in FIVE},
        TOTAL: [row for paper in FIVE for row in found[paper]],
        **{paper: found[paper] for paper in THIRD},
    }
