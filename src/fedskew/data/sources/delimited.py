"""Your own csv files: columns with roles, and one line that says what is wrong in which row and column."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from fedskew.data.arrays import Dataset, build, fingerprint
from fedskew.data.classes import ClassOptions
from fedskew.data.encoding import Column, Encoding, is_absent, numbers_of
from fedskew.data.encoding import categories as one_hot
from fedskew.data.sources.files import places
from fedskew.data.values import words_of
from fedskew.errors import DataError, FieldError, closest, require
from fedskew.fields import demand

__all__ = ["Csv", "Table", "read_table"]

LABELS = ("label", "labels", "y", "target", "class")
TAB = "\t"
SEPARATORS = {",": "commas", ";": "semicolons", TAB: "tabs", "|": "bars"}
IDENTIFIER = re.compile(r"(?i:(?:^|[_\s-])(?:id|uuid|guid|index|key)$|^(?:unnamed: ?\d+)?$)|[a-z](?:Id|ID)$")
LIKELY = 20  # rows from which different whole numbers in every row look like an identifier


class Table(NamedTuple):
    """A csv file as text."""

    file: Path
    columns: dict[str, np.ndarray]  # strings [n], by the names of the first line
    rows: np.ndarray  # [n] number of each row in the file; the line of names is row 1

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.columns)


@dataclass(frozen=True)
class Csv(ClassOptions):
    """A csv file with a line of column names, or a folder with train.csv and test.csv, in UTF-8.

    Features are number columns, standardised by the training rows' mean and standard deviation, and the columns that
    ``categories`` names, one-hot. Without test.csv a stratified 20 % of the rows becomes the test set. A missing value
    is an error that names row and column; row 1 is the line of names.
    """

    name: ClassVar[str] = "csv"

    x_column: str | None = None
    """columns of features, comma-separated; unset: every column but those of labels and of clients"""
    y_column: str | None = None
    """column of labels, numbers 0..C-1 or strings; unset: label, labels, y, target or class"""
    columns: str | None = None
    """columns that say whose a row is, comma-separated, for natural clients; unset: client, where there is one"""
    standardise: bool = True
    """standardise the features; false leaves them as they are"""
    categories: str = ""
    """columns of features that hold categories, comma-separated: one-hot over the values of the training file"""
    exclude: str = ""
    """columns left out of the features, comma-separated, such as an identifier"""
    named_labels: bool = False
    """take every label as a name, also numbers such as 1 to 5; classes are then numbered in the order of the names"""
    separator: str = ","
    """what separates the values of a row: one character, or tab"""

    def __post_init__(self) -> None:
        super().__post_init__()
        demand(self, "separator", len(self.separator) == 1 or self.separator == "tab", "be one character, or tab")

    def load(self, path: str | None = None) -> Dataset:
        """Load the file or folder.

        Args:
            path: The file or folder.

        Returns:
            The dataset. ``notes`` name columns that look like identifiers, and classes that only test.csv has.

        Raises:
            ConfigError: No path is given, or a column is unknown.
            DataError: The file is absent or damaged, a value is missing, or a column does not hold what it must.

        Example:
            >>> from pathlib import Path
            >>> from fedskew.data import load
            >>> rows = [f"{i % 7},{i % 3},{'ab'[i % 2]},site{i % 2}" for i in range(20)]
            >>> _ = Path("mine.csv").write_text(chr(10).join(["age,dose,label,client", *rows]))
            >>> data = load("csv", "mine.csv")
            >>> data.shape, data.label_names, data.column_names
            ((2,), ('a', 'b'), {'client': ('site0', 'site1')})
        """
        place, files = self.files(path)
        tables = [self.read_rows(file) for file in files]
        label, groups, features = self._chosen(tables[0])
        for table in tables:
            _filled(table, [label, *(groups if table is tables[0] else ())])
        encoding = self._encoding(tables[0], features, label)
        splits = [encoding.encode(t.columns, str(t.file), t.rows.tolist()) for t in tables]
        labels, names = self._labels(tables, label)
        pairs = [part for pair in zip(splits, labels, strict=True) for part in pair]
        owners = {name: tables[0].columns[name] for name in groups}
        notes = [note for name in features if (note := self._identifies(tables[0], name))]
        data = build(
            place.stem, *pairs, columns=owners, label_names=names, source=f"file {place}", notes=notes,
            encoding=encoding,
        )  # fmt: skip
        data = self.of_classes(data)
        return _standardised(data) if self.standardise else data

    def files(self, path: str | None) -> tuple[Path, list[Path]]:
        """(the path, the file or train.csv and test.csv of a folder). Raises ConfigError and DataError."""
        require(bool(path), "path", "name the file of dataset 'csv'", path or "")
        place = next(iter(places(path, ())))
        files = [place] if place.is_file() else [f for f in (place / "train.csv", place / "test.csv") if f.is_file()]
        if not files or (place.is_dir() and files[0].name != "train.csv"):
            raise DataError(f"path must name a csv file or a folder with train.csv; got '{place}'")
        return place, files

    def read_rows(self, file: Path) -> Table:
        """The file as text. Raises DataError; FieldError where another separator is likely."""
        mark = TAB if self.separator == "tab" else self.separator
        table = read_table(file, mark)
        alone = table[0][1][0] if table and len(table[0][1]) == 1 else ""
        others = [other for other in SEPARATORS if other != mark and other in alone]
        if others:
            told = f"the first line of {file} has {SEPARATORS[others[0]]}: use {others[0].replace(TAB, 'tab')!r}"
            raise FieldError(type(self).__name__, "separator", "separate the columns", self.separator, told)
        return _table(file, table)

    def _chosen(self, table: Table) -> tuple[str, list[str], list[str]]:
        """(column of labels, columns of clients, columns of features)."""
        names = table.names
        guessed = next((n for n in LABELS if n in names), None)
        if self.y_column is None and guessed is None:
            rule = f"name the column of labels, one of {', '.join(names)}"
            raise FieldError(type(self).__name__, "y_column", rule, None)
        label = self._known("y_column", [self.y_column or str(guessed)], table)[0]
        groups = [n for n in names if n == "client"] if self.columns is None else self._listed("columns", table)
        dropped = {label, *groups, *self._listed("exclude", table)}
        asked = self._listed("x_column", table)
        features = [n for n in names if n not in dropped] if self.x_column is None else asked
        demand(self, "x_column", bool(features), "name a column of features")
        demand(self, "x_column", label not in features, f"not hold the column of labels, {label!r}")
        for name in self._listed("categories", table):
            demand(self, "categories", name in features, f"name columns of features; {name!r} is none")
        return label, groups, features

    def _listed(self, field: str, table: Table) -> list[str]:
        """The columns that a field names."""
        listed = [name.strip() for name in (getattr(self, field) or "").split(",") if name.strip()]
        return self._known(field, listed, table)

    def _known(self, field: str, listed: list[str], table: Table) -> list[str]:
        for name in listed:
            if name not in table.names:
                hint = closest(name, table.names).removeprefix("; ")
                raise FieldError(type(self).__name__, field, f"name columns of {table.file.name}", name, hint)
        return listed

    def _encoding(self, table: Table, features: Sequence[str], label: str) -> Encoding:
        """Features without standardisation: their columns and categories. Raises DataError for what is no number."""
        hint = "leave the column out by Csv.exclude, or name it in Csv.categories or Csv.columns"
        grouped, made = self._listed("categories", table), []
        for name in features:
            cells, where = table.columns[name], f"{table.file}: column {name!r}"
            if name in grouped:
                known = tuple(str(value) for value in np.unique(cells))
                one_hot(cells, [value for value in known if value], where, table.rows.tolist())
                made.append(Column(name, known))
            else:
                numbers_of(cells, where, table.rows.tolist(), hint=hint)
                made.append(Column(name))
        return Encoding(tuple(made), label=label)

    def _labels(self, tables: Sequence[Table], name: str) -> tuple[list[np.ndarray], tuple[str, ...]]:
        """(labels of each file as numbers 0..C-1 or strings, names of the classes where they are settled here)."""
        cells = [table.columns[name] for table in tables]
        every = np.concatenate(cells)
        where = f"{tables[0].file}: column {name!r}"
        if len(np.unique(every)) < 2:
            told = f"has one class, {str(every[0])!r}, in all {len(every)} rows"
            raise DataError(f"{where} {told}; a classifier needs two; is another column meant by Csv.y_column?")
        values = [_number(cell) for cell in every.tolist()]
        if any(value is None for value in values):
            return cells, ()
        numbers = np.array(values, dtype=np.float64)
        if not self.named_labels:
            self._check_numbers(numbers, tables, name)
            return np.split(numbers.astype(np.int64), [len(cells[0])])[: len(cells)], ()
        names = sorted(set(every.tolist()), key=lambda cell: (float(cell), cell))
        codes = np.array([names.index(cell) for cell in every.tolist()])
        return np.split(codes, [len(cells[0])])[: len(cells)], tuple(names)

    def _check_numbers(self, numbers: np.ndarray, tables: Sequence[Table], name: str) -> None:
        """Raise one line unless labels that are numbers are 0..C-1."""
        places = [(table.file, row) for table in tables for row in table.rows]
        parted = np.flatnonzero(numbers != np.floor(numbers))
        if len(parted):
            file, row = places[int(parted[0])]
            hint = "cut a measured value into classes, or name another column by Csv.y_column"
            told = f"row {row} has {numbers[parted[0]]:g}"
            raise DataError(f"{file}: column {name!r} must hold classes, whole numbers or words; {told}; {hint}")
        found = np.unique(numbers)
        odd = np.flatnonzero(found != np.arange(len(found)))
        if len(odd):
            file, row = places[int(np.flatnonzero(numbers == found[odd[0]])[0])]
            low, high, here = (f"{number:.17g}" for number in (found[0], found[-1], found[odd[0]]))
            told = f"column {name!r} of {file} has {low} to {high}, and {here} in row {row}"
            rule = f"be true where labels are numbers other than 0 to {len(found) - 1}"
            raise FieldError(type(self).__name__, "named_labels", rule, self.named_labels, told)

    def _identifies(self, table: Table, name: str) -> str:
        """A note on a feature that looks like an identifier; "" for another."""
        if name in self._listed("categories", table):
            return ""
        values = table.columns[name].astype(np.float64)
        apart = len(np.unique(values)) == len(values) >= LIKELY and bool((values == np.floor(values)).all())
        if not apart and not IDENTIFIER.search(name):
            return ""
        why = f"its {len(values)} values are all different whole numbers" if apart else "by its name"
        return f"feature {name!r} looks like an identifier, {why}; Csv.exclude {name} leaves it out"


def read_table(file: Path, separator: str = ",") -> list[tuple[int, list[str]]]:
    """The rows of a csv file that are not blank.

    Args:
        file: The file, in UTF-8.
        separator: One character.

    Returns:
        (number of the row in the file, its cells without blanks around them); the line of names is row 1.

    Raises:
        DataError: It is not a csv file.
    """
    try:
        with file.open(newline="", encoding="utf-8-sig") as opened:
            reader = csv.reader(opened, delimiter=separator, strict=True)
            return [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file} is not a csv file: {error}") from None


def _table(file: Path, content: list[tuple[int, list[str]]]) -> Table:
    """The columns of a file. Raises DataError for ragged rows and names that occur twice."""
    (_, names), *rows = content or [(1, [])]
    for number, row in rows:
        if len(row) != len(names):
            hint = "a value that holds the separator needs quotes"
            raise DataError(f"{file} must have {len(names)} values a row; row {number} has {len(row)}; {hint}")
    if not rows or len(set(names)) != len(names):
        twice = next((name for name in names if names.count(name) > 1), None)
        told = f"got {len(rows)} rows" if twice is None else f"got {twice!r} twice"
        raise DataError(f"{file} must have rows below a line of different column names; {told}")
    columns = zip(names, zip(*(r for _, r in rows), strict=True), strict=True)
    cells = {name: words_of(column, f"{file}: column {name!r}") for name, column in columns}
    return Table(file, cells, np.array([number for number, _ in rows]))


def _filled(table: Table, names: Sequence[str]) -> None:
    """Raise DataError unless these columns have a value in every row."""
    for name in names:
        if name not in table.columns:
            known = closest(name, table.names)
            raise DataError(f"{table.file} must have the column {name!r}, as train.csv has{known}")
        blank = np.flatnonzero([not cell or cell.lower() == "nan" for cell in table.columns[name].tolist()])
        if len(blank):
            cells, hint = table.columns[name], "fill them, or leave those rows out"
            told = (
                f"row {table.rows[blank[0]]} has {str(cells[blank[0]])!r}, {len(blank)} of {len(cells)} rows lack one"
            )
            raise DataError(f"{table.file}: column {name!r} must have a value in every row; {told}; {hint}")


def _number(cell: str) -> float | None:
    """A label that is a finite number; None for a word."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if np.isfinite(value) and not is_absent(cell) else None


def _standardised(data: Dataset) -> Dataset:
    """A dataset with its numbers standardised by the training rows; the encoding says by which values."""
    assert data.encoding is not None
    x = data.x.numpy().astype(np.float64)
    single = np.concatenate([np.full(c.width, not c.values) for c in data.encoding.columns])  # numbers, not categories
    std = x.std(axis=0)
    mean, std = np.where(single, x.mean(axis=0), 0.0), np.where(single & (std > 0), std, 1.0)
    scaled = [((part.numpy().astype(np.float64) - mean) / std).astype(np.float32) for part in (data.x, data.x_test)]
    at = np.cumsum([0, *(c.width for c in data.encoding.columns)])
    columns: Any = (
        replace(c, mean=float(mean[i]), std=float(std[i])) for c, i in zip(data.encoding.columns, at[:-1], strict=True)
    )
    encoding = replace(data.encoding, columns=tuple(columns))
    made = replace(data, x=torch.from_numpy(scaled[0]), x_test=torch.from_numpy(scaled[1]), encoding=encoding)
    return replace(made, fingerprint=fingerprint(made))
