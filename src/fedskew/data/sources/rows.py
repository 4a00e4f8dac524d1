"""New rows for a trained model: all rows of a file of yours, with or without labels, or the test rows of a dataset."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedskew.data.arrays import Dataset
from fedskew.data.inputs import Inputs


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that a model is asked about.

    Attributes:
        what: Where they come from, for messages.
        x: Raw columns by name, or an array of samples.
        y: Labels as the file has them; None without labels.
        label: Name of the column of labels.
        numbers: Number of each row in the file.
        beside: Columns that say whose a row is, to be written beside the scores.
        notes: What was changed or left out.
    """

    what: str
    x: Any
    y: Any | None
    label: str = "y"
    numbers: Sequence[Any] = ()
    beside: dict[str, np.ndarray] = field(default_factory=dict)
    notes: Sequence[str] = ()


def rows_of(source: Any, path: str | None, inputs: Inputs) -> Rows | Dataset:
    """The rows that a source names.

    Args:
        source: Of `Csv`, `Images`, `Npz` and `Parquet`, which have a method ``rows``, all rows are taken (where there
            are test rows, those), with labels where they are there. Of any other source the dataset is loaded; its test
            rows count.
        path: File or folder.
        inputs: Of the model, whose columns are read, or to whose size images are scaled.

    Returns:
        The rows, or the dataset.

    Raises:
        ConfigError: An option breaks a rule, or names a column that is not there.
        DataError: The file is absent or damaged, or lacks a column.
    """
    found: Rows | Dataset = source.rows(path, inputs) if hasattr(source, "rows") else source.load(path)
    return found


def same_file(path: str | None, other: str | None) -> bool:
    """Whether two paths name one file that exists."""
    if not path or not other:
        return False
    one, two = Path(path).expanduser(), Path(other).expanduser()
    return one.exists() and two.exists() and one.samefile(two)
