"""Scores of new rows by a trained model: class and probabilities of each row, and metrics where rows have labels.

This is what ``fedskew evaluate`` prints and writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fedskew.data.sources.rows import Rows
from fedskew.errors import RecordError, require
from fedskew.records.probabilities import PRECISION
from fedskew.records.sheets import csv_text

if TYPE_CHECKING:
    from fedskew.data.arrays import Dataset
    from fedskew.engines.trained import Trained

__all__ = ["Scores", "scores_of"]


@dataclass(frozen=True, eq=False)
class Scores:
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
    """

    what: str
    label_names: tuple[str, ...]
    probabilities: Tensor
    labels: Tensor | None
    metrics: dict[str, Any]
    numbers: tuple[int, ...]
    beside: dict[str, list[str]]
    notes: tuple[str, ...] = ()

    @property
    def predicted(self) -> list[str]:
        """Name of the most probable class of each row."""
        return [self.label_names[c] for c in self.probabilities.argmax(1).tolist()]

    def text(self) -> str:
        """A csv line for each row: its number, whose it is, its label, the predicted class, p_CLASS of each class."""
        known = self.labels is not None
        heads = ["row", *self.beside, *(["label"] if known else []), "predicted", *(f"p_{n}" for n in self.label_names)]
        rows: list[list[object]] = [[*heads]]
        labels = [] if self.labels is None else [[self.label_names[c]] for c in self.labels.tolist()]
        for i, (number, name) in enumerate(zip(self.numbers, self.predicted, strict=True)):
            owner = [values[i] for values in self.beside.values()]
            chances = [f"{p:.6g}" for p in self.probabilities[i].tolist()]
            rows.append([number, *owner, *(labels[i] if known else []), name, *chances])
        return csv_text(rows)

    def write(self, path: str | Path) -> None:
        """Write `text` to a file that is not there yet.

        Raises:
            ConfigError: The file exists.
            RecordError: It cannot be written.
        """
        require(not Path(path).exists(), "out", "be a new file", str(path))
        try:
            Path(path).write_text(self.text(), encoding="utf-8")
        except OSError as error:
            raise RecordError(f"cannot write {path}: {error.strerror}") from None

    def to_json(self) -> dict[str, Any]:
        """Plain values: the metrics, and of rows without labels the scores."""
        content = {"rows": len(self.numbers), "label_names": list(self.label_names)}
        if self.labels is not None:
            return {**content, **self.metrics}
        return {**content, "predicted": self.predicted, "probabilities": self.probabilities.tolist()}


def scores_of(trained: Trained, source: Rows | Dataset, recall_at: float = PRECISION, fitted: bool = False) -> Scores:
    """Score rows.

    Args:
        trained: The model.
        source: Rows, or a dataset, whose test rows are scored.
        recall_at: Precision at which the recall of each class is measured, in (0, 1].
        fitted: Whether the biases and the temperature that the run fitted are applied.

    Returns:
        The scores.

    Raises:
        ConfigError: ``fitted`` is asked for and the run has no fit.
        DataError: A column or a value is missing, a category is unknown, or a label is no class of the model.
    """
    if not isinstance(source, Rows):
        x, y = trained.test_rows(source)
        metrics = trained.of_labelled(x, y, recall_at, fitted)
        chances = trained.of_samples(x, fitted)
        return Scores(source.name, trained.label_names, chances, y, metrics, tuple(range(len(y))), {})
    notes: list[str] = []
    x = trained.inputs.samples(source.x, what=source.what, rows=source.numbers, notes=notes)
    labels = None
    if source.y is not None:
        labels = trained.inputs.labels(source.y, f"{source.what}: column {source.label!r}", source.numbers)
    metrics = {} if labels is None else trained.of_labelled(x, labels, recall_at, fitted)
    beside = {name: [str(value) for value in values.tolist()] for name, values in source.beside.items()}
    chances = trained.of_samples(x, fitted)
    numbers = tuple(source.numbers)
    return Scores(source.what, trained.label_names, chances, labels, metrics, numbers, beside, tuple(notes))
