"""Whether a table of ours has the printed order, and whether its agreement is more than any method would have.

A cell is a table, a setting and a metric, and holds one printed number for each of M methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from fedskew.papers.rows import Row, place
from fedskew.papers.rules import gain_of
from fedskew.papers.tables import protocol
from fedskew.studies.orders import permuted, printed_self_agreement, self_agreement, tau_b
from fedskew.studies.scores import Floats

METHODS = 4  # in a cell: of fewer, an order says little


@dataclass(frozen=True)
class Cell:
    """The order of the methods in one cell.

    Attributes:
        setting: The setting.
        metric: The metric.
        tau: Kendall's tau-b of the printed means and ours.
        ours: Mean tau-b of two halves of our seeds.
        printed: The same of the printed runs, drawn from printed means and spreads; None where these are not printed.
    """

    setting: str
    metric: str
    tau: float
    ours: float
    printed: float | None


@dataclass(frozen=True)
class Table:
    """The order of the methods in a table, and the check of the rule.

    Attributes:
        study: The protocol.
        cells: Its cells.
        methods: The methods that all of its cells have.
        tau: Mean tau of its cells.
        p: Share of the ways to hand our methods on, alike in all cells, with as large a mean tau.
        own: Share of the gains of ours that agree with the printed gain of their own method.
        other: The same with the printed gain of another method of the cell.
        p_own: Share of the ways to hand the printed gains on, alike in all cells, with as many that agree.
    """

    study: str
    cells: tuple[Cell, ...]
    methods: tuple[str, ...]
    tau: float
    p: float
    own: float
    other: float
    p_own: float


def tables(rows: Iterable[Row]) -> Iterator[Table]:
    """The tables of which a cell has four methods or more with the seeds of a verdict."""
    held = sorted((row for row in rows if row.judged and row.each and len(row.number.labels) == 1), key=_table)
    for (study, _, _), some in groupby(held, key=_table):
        cells: dict[tuple[str, str, str], dict[str, Row]] = {}
        for row in some:
            cells.setdefault(place(row.number), {})[row.number.method] = row
        full = {key: cell for key, cell in cells.items() if len(cell) >= METHODS}
        if full:
            yield _told(study, full)


def _table(row: Row) -> tuple[str, str, str]:
    return row.study, row.scale, row.number.table


def _told(study: str, cells: dict[tuple[str, str, str], dict[str, Row]]) -> Table:
    first = next(iter(cells.values()))
    methods = tuple(name for name in first if all(name in cell for cell in cells.values()))
    printed = np.array([[cell[name].number.mean for name in methods] for cell in cells.values()], dtype=np.float64)
    ours = np.array([[cell[name].ours for name in methods] for cell in cells.values()], dtype=np.float64)
    ways = permuted(len(methods))
    taus = np.mean([tau_b(np.broadcast_to(p, ways.shape), o[ways]) for p, o in zip(printed, ours, strict=True)], axis=0)
    own, other, p_own = _check(study, cells, methods)
    told = tuple(_cell(key, cell) for key, cell in cells.items())
    return Table(study, told, methods, float(taus[0]), _share(taus), own, other, p_own)


def _cell(key: tuple[str, str, str], cell: dict[str, Row]) -> Cell:
    rows = list(cell.values())
    seeds = sorted(set(rows[0].each).intersection(*(row.each for row in rows)))
    values = np.array([[row.each[seed] for seed in seeds] for row in rows], dtype=np.float64)
    means = np.array([row.number.mean for row in rows], dtype=np.float64)
    spreads, runs = [row.number.spread for row in rows], {row.number.runs for row in rows}
    drawn = None
    if len(runs) == 1 and max(runs) > 1 and None not in spreads:
        drawn = printed_self_agreement(means.tolist(), [s or 0.0 for s in spreads], max(runs))
    return Cell(key[1], key[2], float(tau_b(means, values.mean(1))), self_agreement(values), drawn)


def _check(
    study: str, cells: dict[tuple[str, str, str], dict[str, Row]], methods: tuple[str, ...]
) -> tuple[float, float, float]:
    """How often gains of ours agree with printed ones: of their own method, of another, and p of the first."""
    reference = protocol(study).spec.reference
    others = [name for name in methods if name != reference]
    agree = np.zeros((len(cells), len(others), len(others)))  # of ours [m] with the printed gain of [m']
    for c, cell in enumerate(cells.values()):
        base = cell.get(reference)
        for i, mine in enumerate(others):
            for j, theirs in enumerate(others):
                gain = base and gain_of(cell[theirs].number, base.number, cell[mine].each, base.each)
                agree[c, i, j] = bool(gain) and gain.verdict == "agrees"  # type: ignore[union-attr]
    table: Floats = agree.mean(axis=0)
    ways: NDArray[np.int64] = permuted(len(others))
    found = np.array([table[np.arange(len(others)), way].mean() for way in ways])
    apart = ~np.eye(len(others), dtype=bool)
    return float(found[0]), float(table[apart].mean()), _share(found)


def _share(found: Floats) -> float:
    """p of the first value: how many are as large, itself among them."""
    return float(np.mean(found >= found[0] - 1e-12))
