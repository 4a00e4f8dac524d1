"""Which round was the best by a validation metric, and how long ago: for early stopping and the model that is kept."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fedskew.records.summary import METRICS
from fedskew.records.typed import Row


class Best(NamedTuple):
    """A round and its value."""

    round: int
    value: float


class Watch(NamedTuple):
    """What is known of a metric after some rounds.

    Attributes:
        metric: Name of the metric in a round's row, such as ``val_loss``.
        best: The best round; the first of equals.
        idle: Evaluations since.
    """

    metric: str
    best: Best | None = None
    idle: int = 0

    def saw(self, row: Row) -> Watch:
        """The watch after one more round. A value that is not a number improves nothing."""
        value = row.get(self.metric)
        if value is None:
            return self
        than = self.best.value if self.best else math.nan
        better = value < than if self.metric.endswith("loss") else value > than  # a loss is better where it is less
        if better or (self.best is None and not math.isnan(value)):
            return self._replace(best=Best(row["round"], value), idle=0)
        return self._replace(idle=self.idle + 1)


def watched(rows: Iterable[Row], metric: str) -> Watch:
    """The watch after these rounds.

    Example:
        >>> from fedskew.records.watch import watched
        >>> rows = [{"round": r, "val_loss": v} for r, v in enumerate([0.9, 0.5, 0.6, 0.7], 1)]
        >>> watched(rows, "val_loss").best, watched(rows, "val_loss").idle
        (Best(round=2, value=0.5), 2)
    """
    watch = Watch(metric)
    for row in rows:
        watch = watch.saw(row)
    return watch


def best_of(rows: Sequence[Row], watch: Watch) -> Row:
    """The best round as summary.json has it: the metric, the round, its value, and what its model had on the test set.

    Example:
        >>> from fedskew.records.watch import best_of, watched
        >>> rows = [{"round": 1, "val_loss": 0.9, "accuracy": 0.6}, {"round": 2, "val_loss": 1.1, "accuracy": 0.7}]
        >>> best_of(rows, watched(rows, "val_loss"))
        {'monitor': 'val_loss', 'round': 1, 'value': 0.9, 'accuracy': 0.6}
    """
    if watch.best is None:
        return {}
    row = rows[watch.best.round - 1]
    return {"monitor": watch.metric, **watch.best._asdict(), **{name: row[name] for name in METRICS if name in row}}
