"""Scores of new rows by a trained model: class and probabilities of each row, and metrics where rows have labels.

This is what ``fedskew evaluate`` prints and writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from fedskew.data.arrays import Dataset
from fedskew.data.federation import Federation, On
from fedskew.data.inputs import Rows
from fedskew.records.decisions import Decision, client_names
from fedskew.records.metrics import PRECISION
from fedskew.records.sheets import csv_text

if TYPE_CHECKING:
    from fedskew.engines.trained import Trained


@dataclass(frozen=True, eq=False)
class RowScores:
    """What a model says of rows.

    Attributes:
        what: Where the rows come from.
        label_names: Names of the C classes.
        probabilities: Predicted probabilities, float64 [n, C].
        labels: True classes, int64 [n]; None without labels.
        metrics: Metrics as a round's record has them; empty without labels.
        numbers: Number of each row in its file.
        beside: Columns that say whose a row is.
        notes: What to know of the rows: categories that count as missing.
        owners: Client of each row, -1 for none, int64 [n]; None where rows have no clients.
        clients: Names of the clients; none where they are numbers.
        decision: By which rows are decided; None without.
    """

    what: str
    label_names: tuple[str, ...]
    probabilities: Tensor
    labels: Tensor | None
    metrics: dict[str, Any]
    numbers: tuple[int, ...]
    beside: dict[str, list[str]]
    notes: tuple[str, ...] = ()
    owners: np.ndarray | None = None
    clients: tuple[str, ...] = ()
    decision: Decision | None = None

    @property
    def decided(self) -> list[str]:
        """What is decided of each row: the positive class, or the other one, "not NAME" where there are several."""
        if self.decision is None:
            return []
        rest = [name for name in self.label_names if name != self.decision.positive]
        other = rest[0] if len(rest) == 1 else f"not {self.decision.positive}"
        chosen = self.decision(self.probabilities, self.whose)
        return [self.decision.positive if positive else other for positive in chosen]

    @property
    def whose(self) -> list[str] | None:
        """Name of each row's client, "" for none; None where rows have no clients."""
        return None if self.owners is None else client_names(self.owners, self.clients)

    @property
    def predicted(self) -> list[str]:
        """Name of the most probable class of each row."""
        return [self.label_names[c] for c in self.probabilities.argmax(1).tolist()]

    def text(self) -> str:
        """A csv line for each row: its number, whose it is, its label, predicted and decided class, p_CLASS of each."""
        columns: list[tuple[str, Sequence[object]]] = [("row", self.numbers), *self.beside.items()]
        if self.labels is not None:
            columns.append(("label", [self.label_names[c] for c in self.labels.tolist()]))
        columns.append(("predicted", self.predicted))
        if self.decision is not None:
            columns.append(("decided", self.decided))
        for name, chances in zip(self.label_names, self.probabilities.T.tolist(), strict=True):
            columns.append((f"p_{name}", [f"{p:.6g}" for p in chances]))
        return csv_text([[name for name, _ in columns], *zip(*(values for _, values in columns), strict=True)])

    def to_json(self) -> dict[str, Any]:
        """Plain values: the metrics, and of rows without labels the scores."""
        content = {"rows": len(self.numbers), "label_names": list(self.label_names)}
        if self.labels is not None:
            return {**content, **self.metrics}
        content |= {"decided": self.decided} if self.decision else {}
        return {**content, "predicted": self.predicted, "probabilities": self.probabilities.tolist()}


def scores_of(
    trained: Trained, source: Rows | Dataset | Federation, recall_at: float = PRECISION, fitted: bool = False,
    on: On = "test", decision: Decision | None = None,
) -> RowScores:  # fmt: skip
    """Score rows.

    Args:
        trained: The model.
        source: Rows; a dataset, whose test rows are scored; or a federation, whose rows know their clients.
        recall_at: Precision at which the recall of each class is measured, in (0, 1].
        fitted: Whether the biases and the temperature that the run fitted are applied.
        on: Which rows of a federation; see `fedskew.data.Federation.rows_on`.
        decision: By which rows are decided.

    Returns:
        The scores.

    Raises:
        ConfigError: ``fitted`` is asked for and the run has no fit, or the federation has no such rows.
        DataError: A column or a value is missing, a category is unknown, or a label is no class of the model.
    """
    notes: list[str] = []
    clients: tuple[str, ...] = ()
    owners, labels, beside, numbers = None, None, {}, source.numbers if isinstance(source, Rows) else ()
    if isinstance(source, Rows):
        what, x = source.what, trained.inputs.samples(source.x, what=source.what, rows=numbers, notes=notes)
        if source.y is not None:
            labels = trained.inputs.labels(source.y, f"{what}: column {source.label!r}", numbers)
        beside = {name: [str(value) for value in values.tolist()] for name, values in source.beside.items()}
        for values in beside.values():
            names, places = np.unique(values, return_inverse=True)
            if owners is None and 2 * len(names) <= len(values):  # a hospital, and no patient's number
                clients, owners = tuple(map(str, names)), places
    elif isinstance(source, Federation):
        what, numbers = f"{source.dataset.name}, {on} rows", source.rows_on(on)[0].tolist()
        (x, labels, owners), clients = trained.rows_on(source, on), source.client_names
        beside = {"client": client_names(owners, clients)}
    else:
        what, (x, labels) = source.name, trained.test_rows(source)
        numbers = range(len(labels))
    metrics = {} if labels is None else trained.of_labelled(x, labels, recall_at, fitted)
    chances = trained.of_samples(x, fitted)
    numbers = tuple(numbers)
    of_rows = numbers, beside, tuple(notes), owners, clients
    return RowScores(what, trained.label_names, chances, labels, metrics, *of_rows, decision)
