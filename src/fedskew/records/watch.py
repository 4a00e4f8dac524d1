"""Which round was the best by a validation metric, and how long ago: for early stopping and the model that is kept."""

from __future__ import annotations

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
        by: The least improvement that counts for ``idle``, >= 0.
        best: The best round, whatever the improvement; the first of equals.
        mark: The last round that improved by more than ``by``.
        idle: Evaluations since ``mark``.
    """

    metric: str
    by: float = 0.0
    best: Best | None = None
    mark: Best | None = None
    idle: int = 0

    def saw(self, row: Row) -> Watch:
        """The watch after one more round. A value that is not a number improves nothing."""
        value = row.get(self.metric)
        if value is None:
            return self
        now = Best(row["round"], value)
        best = now if self._improves(value, self.best, 0.0) else self.best
        if self._improves(value, self.mark, self.by):
            return self._replace(best=best, mark=now, idle=0)
        return self._replace(best=best, idle=self.idle + 1)

    def _improves(self, value: float, than: Best | None, by: float) -> bool:
        """Whether a value is better by more than ``by``: a loss that is smaller, another metric that is larger."""
        gain = 0.0 if than is None else (than.value - value if self.metric.endswith("loss") else value - than.value)
        return value == value if than is None else gain > by


def watched(rows: Iterable[Row], metric: str, by: float = 0.0) -> Watch:
    """The watch after these rounds.

    Example:
        >>> from fedskew.records.watch import watched
        >>> rows = [{"round": r, "val_loss": v} for r, v in enumerate([0.9, 0.5, 0.6, 0.49], 1)]
        >>> watched(rows, "val_loss").best, watched(rows, "val_loss", by=0.1).idle
        (Best(round=4, value=0.49), 2)
    """
    watch = Watch(metric, by)
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
