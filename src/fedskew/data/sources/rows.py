"""New rows for a trained model: all rows of a file of yours, with or without labels, or the test rows of a dataset."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedskew.data.arrays import Dataset
from fedskew.data.encoding import Encoding
from fedskew.data.inputs import Inputs
from fedskew.data.sources import parquet
from fedskew.data.sources.arrow import X_COLUMNS, Parquet, cells
from fedskew.data.sources.columns import LABELS, column_of, owner_columns
from fedskew.data.sources.delimited import Csv
from fedskew.data.sources.files import listed
from fedskew.data.sources.folders import Images
from fedskew.data.sources.npz import Npz
from fedskew.data.sources.table import Source
from fedskew.errors import DataError


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


def rows_of(source: Source, path: str | None, inputs: Inputs) -> Rows | Dataset:
    """The rows that a source names.

    Args:
        source: Of `Csv`, `Images`, `Npz` and `Parquet` all rows are taken (where there are test rows, those), with
            labels where they are there. Of any other source the dataset is loaded; its test rows count.
        path: File or folder.
        inputs: Of the model, whose columns are read, or to whose size images are scaled.

    Returns:
        The rows, or the dataset.

    Raises:
        ConfigError: An option breaks a rule, or names a column that is not there.
        DataError: The file is absent or damaged, or lacks a column.
    """
    if isinstance(source, Csv):
        return _of_csv(source, path, inputs.encoding)
    if isinstance(source, Images):
        files, x, notes = source.pictures(path, inputs.shape)
        names = [str(file.relative_to(files.root)) for file in files.files]
        beside = {"client": np.array(files.clients)} if files.clients else {}
        return Rows(str(files.root), x, files.classes or None, "class", names, beside, notes)
    if isinstance(source, Npz):
        return _of_npz(source, path)
    if isinstance(source, Parquet):
        return _of_parquet(source, path, inputs.encoding)
    return source.load(path)


def _of_csv(source: Csv, path: str | None, encoding: Encoding | None) -> Rows:
    """Every row of a csv file, or of the test rows of a folder that has some, else of all its files."""
    table = source.tables(path)[1][-1]
    label = _label(source, [*table.columns], encoding)
    beside = {name: table.columns[name] for name in owner_columns(source, [*table.columns])}
    y = table.columns[label] if label else None
    return Rows(str(table.file), table.columns, y, label, list(table.rows), beside)


def _of_npz(source: Npz, path: str | None) -> Rows:
    """x_test and y_test of an npz file, else x and, where it is there, y."""
    file, arrays = source.arrays(path)
    x_name, y_name = ("x_test", "y_test") if "x_test" in arrays else ("x", "y")
    if x_name not in arrays:
        raise DataError(f"{file} must hold x, or x_test; got {', '.join(arrays) or 'no arrays'}")
    x = arrays[x_name]
    y = arrays.get(y_name)
    return Rows(str(file), source.padded(x), y, y_name, range(len(x)))


def _of_parquet(source: Parquet, path: str | None, encoding: Encoding | None) -> Rows:
    """Every row of a parquet file, or of the test files of a folder."""
    place, groups, _ = source.files(path)
    table = parquet.read_table(groups[-1])
    names = list(table.column_names)
    label = _label(source, names, encoding)
    y = parquet.read_column(table, label) if label else None
    if encoding is None:
        column = column_of(source, "x_column", names, X_COLUMNS, "one of the columns")
        x = source.padded(parquet.read_column(table, column))
    else:
        wanted = (*(column.name for column in encoding.columns), *listed(source.split_by))
        x = {name: cells(table, name) for name in wanted if name in names}
    return Rows(str(place), x, y, label, range(len(table)))


def _label(source: Csv | Parquet, names: Sequence[str], encoding: Encoding | None) -> str:
    """The column of labels: the one asked for, else that of the training table, else a usual name; "" for none."""
    features = [column.name for column in encoding.columns] if encoding else []
    usual = [name for name in (encoding.label if encoding else "", *LABELS) if name in names and name not in features]
    asked = source.y_column is not None
    return column_of(source, "y_column", names, usual, "columns of the file:") if asked or usual else ""


def same_file(path: str | None, other: str | None) -> bool:
    """Whether two paths name one file that exists."""
    if not path or not other:
        return False
    one, two = Path(path).expanduser(), Path(other).expanduser()
    return one.exists() and two.exists() and one.samefile(two)
