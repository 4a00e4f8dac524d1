"""The ledger: every printed number, ours beside it, and whether they agree."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from fedskew.functional import label_aware_weights
from fedskew.seam import FEWEST, NO_VERDICT, WITHIN, Run, t_interval
from fedskew_papers import names
from fedskew_papers.printed import FIVE, THIRD, Printed, printed
from fedskew_papers.rules import Gain, Seeds, gain_of, level_of
from fedskew_papers.runs import Cells, Runs, cells, fitted_of, values_of
from fedskew_papers.tables import Protocol, protocol

COUNTS = ((700.0, 0.0, 0.0), (200.0, 100.0, 25.0), (100.0, 0.0, 25.0))  # rows of label a, b, c at clients c1, c2, c3


def worked() -> dict[str, float]:
    """Our value of each number of the table that is not an input, by its id.

    Example:
        >>> from fedskew_papers.rows import worked
        >>> len(worked())
        18
    """
    return {p.id: _value(p) for p in printed() if (p.paper, p.table, p.kind) == ("FedLA", "I", "result")}


def _value(number: Printed) -> float:
    counts = torch.tensor(COUNTS, dtype=torch.float64)
    shares = counts / counts.sum(0)  # [clients, labels]: n_ij / S_j
    words = number.setting.split()  # "client c1 label a" or "client c1"
    client = int(words[1][1:]) - 1
    if number.metric == "client_weight_per_label":
        return float(shares[client, "abc".index(words[3])])
    if number.metric == "client_weight_all_labels":
        return float(shares[client].sum())
    weights = label_aware_weights(counts) if number.method == "FedLA" else counts.sum(1) / counts.sum()
    return float(weights[client])


STATES = ("agrees", "differs", "not resolved", WITHIN, "level only", NO_VERDICT, "not run", "input", "no data")
TOTAL = "all five"  # the row of `coverage` that sums the five papers


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
        study: The protocol that gives it.
        computed: Whether ours follows from a formula, without a run.
        entries: Our runs.
        each: Ours of every seed.
        fitted: The same under fitted biases and a temperature, of the seeds that have it.
        gain: The gain over the reference method, printed and ours; None of the reference itself.
    """

    number: Printed
    ours: float | None = None
    low: float | None = None
    high: float | None = None
    seeds: int = 0
    planned: int = 0
    scale: str = ""
    study: str = ""
    computed: bool = False
    entries: tuple[Run, ...] = ()
    each: Seeds = field(default_factory=dict)
    fitted: Seeds = field(default_factory=dict)
    gain: Gain | None = None

    @property
    def state(self) -> str:
        """One of `STATES`. A number with ours is judged by its gain; one that is computed has no seeds, but a level."""
        if self.ours is None:
            return self.number.kind if self.number.kind != "result" else "not run"
        if self.computed:
            return "agrees" if self.level == "within" else "differs"
        if self.judged:
            return self.gain.verdict if self.gain is not None else "level only"
        return NO_VERDICT

    @property
    def judged(self) -> bool:
        """Whether ours has the seeds of a verdict."""
        return self.computed or (self.gain.seeds if self.gain is not None else self.seeds) >= FEWEST

    @property
    def level(self) -> str:
        """Whether ours is at the printed level: "within" or "outside"; "" of a gain, and below `FEWEST` seeds."""
        if self.ours is None or not self.judged or " minus " in self.number.method:
            return ""
        ends = None if self.low is None or self.high is None else (self.low, self.high)
        return level_of(self.number, self.ours, ends)

    @property
    def texts(self) -> tuple[str, str, str, str]:
        """Printed number with its spread, ours, its interval and its seeds, for a table: "3 of 5"."""
        n = self.number
        ours = "" if self.ours is None else "never" if math.isinf(self.ours) else f"{self.ours:.4g}"
        span = "" if self.low is None else f"{self.low:.4g} to {self.high:.4g}"
        return n.text, ours, span, f"{self.seeds} of {self.planned}" if self.planned else ""


def ledger(runs: Runs) -> list[Row]:
    """Every printed number with ours beside it; the larger scale counts where there are two.

    Args:
        runs: Our finished runs.

    Returns:
        One row a printed number, in the order of `printed`.
    """
    ours = worked()
    by_id = {p.id: Row(p, ours=ours[p.id], scale="paper", computed=True) if p.id in ours else Row(p) for p in printed()}
    tables = [protocol(name) for name in names()]
    for table in [table for table in tables if not table.cells]:  # numbers of its own are judged by the arbiter
        for scale in ("small", "paper"):
            for row in rows_of(table, scale, runs):
                if row.ours is not None or not by_id[row.number.id].study:
                    by_id[row.number.id] = row
    return list(by_id.values())


def rows_of(table: Protocol, scale: str, runs: Runs, seeds: Sequence[int] = ()) -> list[Row]:
    """The printed numbers that a protocol answers, with ours at one scale, of other seeds than its own where named."""
    numbers = table.numbers()
    if not any(number.kind == "result" for number in numbers):  # nothing to plan: it takes seconds
        return [Row(number, study=table.name) for number in numbers]
    held = cells(table, scale, runs, seeds)
    rows = [row for row in (_row(number, held) for number in numbers) if row is not None]
    by = {(*place(row.number), row.number.labels): row for row in rows}
    reference = table.spec.reference
    return [_gained(row, by.get((*place(row.number), (reference,))), reference) for row in rows]


def place(number: Printed) -> tuple[str, str, str]:
    """Where the numbers stand that are held against each other: table, setting and metric."""
    return number.table, number.setting, number.metric


def _row(number: Printed, held: Cells) -> Row | None:
    """A printed number as a protocol answers it; None where it does not."""
    wanted = [(name, number.setting) for name in number.labels]
    if any(key not in held.planned for key in wanted):
        return None
    rule = held.protocol.metrics[number.metric]
    blank, each = Row(number, study=held.protocol.name), values_in(held, number, rule)
    if not each:
        return blank
    ours = np.array(list(each.values()), dtype=np.float64)
    ends = t_interval(ours) if len(ours) > 1 and np.isfinite(ours).all() else None
    entries = [held.entries[key][seed] for key in wanted for seed in each]
    fitted = fitted_of(rule)
    return replace(
        blank, ours=float(ours.mean()), low=ends[0] if ends else None, high=ends[1] if ends else None, seeds=len(ours),
        planned=len({cell.seed for key in wanted for cell in held.planned[key]}), scale=held.scale, each=each,
        fitted=values_in(held, number, fitted) if fitted else {}, entries=tuple(entries),
    )  # fmt: skip


def values_in(held: Cells, number: Printed, rule: str) -> dict[int, float]:
    """Ours of every seed that all methods of a number have: their difference, or their mean."""
    values = [values_of(held, name, number, rule) for name in number.labels]
    shared = sorted(set(values[0]).intersection(*values[1:]))
    if " minus " in number.method:
        return {seed: values[0][seed] - values[1][seed] for seed in shared}
    return {seed: statistics.fmean(value[seed] for value in values) for seed in shared}


def _gained(row: Row, base: Row | None, reference: str) -> Row:
    """A number with its gain over the reference, raw and fitted where all of its pairs have both."""
    number, against = row.number, base.number if base is not None else None
    gain = gain_of(number, against, row.each, base.each if base else {}, reference)
    if gain is None:
        return row
    fitted = gain_of(number, against, row.fitted, base.fitted if base else {}, reference)
    if fitted is not None and fitted.seeds == gain.seeds:
        gain = replace(gain, fitted=fitted.ours)
    return replace(row, gain=gain)


def coverage(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each of the five papers, of all five (`TOTAL`), and of each third party, which no total counts."""
    listed = list(rows)
    by_paper = {paper: [row for row in listed if row.number.paper == paper] for paper in (*FIVE, *THIRD)}
    return {
        **{paper: by_paper[paper] for paper in FIVE},
        TOTAL: [row for paper in FIVE for row in by_paper[paper]],
        **{paper: by_paper[paper] for paper in THIRD},
    }
