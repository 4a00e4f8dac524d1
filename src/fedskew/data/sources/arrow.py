"""Your own parquet files, and any dataset of the Hugging Face hub: images, lists, or the columns of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from fedskew.data.arrays import Dataset, build
from fedskew.data.encoding import Column, Encoding
from fedskew.data.sources import cache, parquet
from fedskew.data.sources.columns import Roles, Table
from fedskew.data.sources.files import client_files, given_file
from fedskew.data.sources.images import ImageOptions
from fedskew.data.values import lacking, words_of
from fedskew.errors import DataError, FieldError
from fedskew.fields import later

__all__ = ["Hub", "Parquet", "cells"]


@dataclass(frozen=True)
class ArrowOptions(ImageOptions):
    """Options of tables in parquet files and on the hub: what their number and word columns become."""

    standardise: bool | None = later()
    """standardise number columns by the training rows; unset: where x_column names no columns"""
    categories: str = later("")
    """columns of features that hold categories, comma-separated: one-hot over the values of the training file; auto:
    every column of words"""
    exclude: str = later("")
    """columns left out of the features, comma-separated, such as an identifier"""
    named_labels: bool = later(False)
    """take every label as a name, also numbers such as 1 to 5; classes are then numbered in the order of the names"""
    missing: Literal["refuse", "fill"] = later("refuse")
    """missing feature values: refuse, or fill a number by the median of the training rows and a blank category by a
    category of its own, to which categories that no training row has belong too"""
    ordinal: str = later("")
    """columns of features with ordered categories, comma-separated: the place as a number, in the order of the sorted
    values or in that of grade=low<mid<high"""

    def _asks(self) -> bool:
        """Whether an option asks for columns of a table."""
        options = (self.categories, self.exclude, self.named_labels, self.ordinal, self.missing == "fill")
        return any(options) or self.standardise is not None

    def _as_table(self, table: Any) -> bool:
        """Whether an arrow table has number and word columns, and not a column of images or lists."""
        if getattr(self, "x_column", None) is not None or self._asks():
            return self._asks()
        return not set(parquet.X_COLUMNS) & set(table.column_names) and all(map(_plain, table.schema))

    def _table(self, name: str, tables: Sequence[Table], source: str, names: tuple[str, ...]) -> Dataset:
        """A dataset of number and word columns."""
        self.padded(np.empty((1, 1)))
        kept = replace(self, classes=(), relabel=True)
        standardise = True if self.standardise is None else self.standardise
        return kept.finish(Roles(replace(self, standardise=standardise), names).dataset(tables, name, source))


@dataclass(frozen=True)
class Parquet(ArrowOptions):
    """A parquet file; a folder with train-*.parquet and, optionally, test-*.parquet; or one file a client.

    Without a column of images or lists its columns are those of a table, as in a csv file. In a folder of other parquet
    files each file is a client, named as the file without its ending; subfolders train and test hold training and test
    rows of clients.
    """

    name: ClassVar[str] = "parquet"

    x_column: str | None = None
    """column of images or lists, or several number columns, comma-separated; unset: img, image, x, features, input, and
    where there is none of these every column but those of labels and of clients"""
    y_column: str | None = None
    """column of labels, numbers 0..C-1 or strings; unset: label, labels, fine_label, y, target or class"""
    columns: str | None = None
    """columns that say whose a row is, comma-separated, for natural clients; unset: client, where there is one"""

    def load(self, path: str | None = None) -> Dataset:
        """Load the file or folder.

        Args:
            path: The file or folder.

        Returns:
            The dataset. Without test files a stratified 20 % of the rows becomes the test set.

        Raises:
            ConfigError: No path is given, or an option breaks a rule.
            DataError: The files are absent or damaged, or the extra ``hub`` is missing.
        """
        place, groups, clients = self.files(path)
        options = {n: getattr(self, n) for n in ("x_column", "y_column", "columns", "pad")}
        key = cache.key_of(self.name, options, [file for group in groups for file in group])
        data = cache.fetch(key) if not self._asks() and not clients else None
        if data is None:
            read = [_clients(group) if clients else (parquet.read_table(group), None) for group in groups]
            if self._as_table(read[0][0]):
                return self._own(place, groups, read)
            columns = {n: parquet.read_column(read[0][0], n) for n in _columns(self, read[0][0].column_names)}
            test = read[1][0] if len(read) > 1 else None
            data = _of_tables(self, place.stem, read[0][0], test, {}, f"file {place}", columns)
            if not clients:
                cache.store(key, data)
        return self.finish(data)

    def files(self, path: str | None) -> tuple[Path, list[tuple[Path, ...]], bool]:
        """(the path; its training files and, if it has some, its test files; whether each file is a client)."""
        place = given_file(self.name, path)
        if place.is_file():
            return place, [(place,)], False
        if train := parquet.parquet_files(place, "train"):
            test = parquet.parquet_files(place, "test")
            return place, [train, test] if test else [train], False
        groups = client_files(place, ".parquet")
        if not groups:
            told = "a parquet file, or a folder with train-*.parquet or one parquet file a client"
            raise DataError(f"path must name {told}; got '{place}'")
        return place, [tuple(group) for group in groups], True

    def _own(self, place: Path, groups: Sequence[Sequence[Path]], read: Sequence[tuple[Any, Any]]) -> Dataset:
        tables = [
            _cells_of(self, files[0] if len(files) == 1 else place, *t) for files, t in zip(groups, read, strict=True)
        ]
        label = self.y_column or next((n for n in parquet.Y_COLUMNS if n in tables[0].names), "")
        names = parquet.schema_names(read[0][0], label)
        return replace(self, y_column=label or None)._table(place.stem, tables, f"file {place}", names)


@dataclass(frozen=True)
class Hub(ArrowOptions):
    """Any dataset of the Hugging Face hub with a column of labels, and one of images or number and word columns."""

    name: ClassVar[str] = "hub"

    repo: str = ""
    """id on the hub, for example ylecun/mnist; a path names a local folder in the hub's layout instead"""
    config: str | None = None
    """configuration of the dataset, where it has several"""
    x_column: str | None = None
    """column of images or lists, or several number columns, comma-separated; unset: img, image, x, features, input, and
    where there is none of these every column but those of labels and of clients"""
    y_column: str | None = None
    """column of labels, numbers 0..C-1 or strings; unset: label, labels, fine_label, y, target or class"""
    train_split: str = "train"
    """split to train on"""
    test_split: str | None = None
    """split to test on; unset: the split test, or a stratified 20 % of the training split where there is none"""
    columns: str | None = later()
    """columns that say whose a row is, comma-separated, for natural clients; unset: client, where there is one"""

    def load(self, path: str | None = None) -> Dataset:
        """Download the dataset, or take it from the cache.

        Args:
            path: A local folder in the hub's layout, instead of ``repo``.

        Returns:
            The dataset.

        Raises:
            ConfigError: No ``repo`` is given, or an option breaks a rule.
            DataError: The hub cannot be reached, or the data are unusable.
        """
        repo = self.repo if path is None else str(given_file(self.name, path))
        hint = "for example ylecun/mnist"
        if not repo:
            raise FieldError(type(self).__name__, "repo", "name a dataset of the hub", repo, hint)
        names = ("repo", "config", "x_column", "y_column", "train_split", "test_split", "pad")
        files = () if path is None else tuple(sorted(f for f in Path(repo).rglob("*") if f.is_file()))
        asked = {n: getattr(self, n) for n in names} | ({} if self.columns is None else {"columns": self.columns})
        key = cache.key_of(self.name, asked, files)
        data = cache.fetch(key) if not self._asks() else None
        if data is None:
            t = parquet.hub_tables(repo, self.config, self.train_split, self.test_split)
            if self._as_table(t.train):
                return self._own(repo, [table for table in (t.train, t.test) if table is not None], t.names)
            columns = {n: parquet.read_column(t.train, n) for n in _columns(self, t.train.column_names)}
            data = _of_tables(self, repo, t.train, t.test, t.names, f"hub {repo}", columns)
            cache.store(key, data)
        return self.finish(data)

    def _own(self, repo: str, read: Sequence[Any], names: Mapping[str, tuple[str, ...]]) -> Dataset:
        tables = [_cells_of(self, Path(repo), table) for table in read]
        label = self.y_column or next((n for n in parquet.Y_COLUMNS if n in tables[0].names), "")
        chosen = replace(self, y_column=label or None)
        return chosen._table(repo, tables, f"hub {repo}", names.get(label, ()))


def cells(table: Any, name: str) -> np.ndarray:
    """A column of numbers or words, [n]: numbers and truth values as numbers, all else as words; "" where it is null.

    Raises:
        DataError: It holds neither.
    """
    pa, _ = parquet.arrow()
    field, values = table.schema.field(name), table.column(name)
    if not _plain(field):
        hint = "name it as the only x_column, or exclude it"
        raise DataError(f"column {name!r} must hold numbers or words; got {field.type}; {hint}")
    if pa.types.is_boolean(field.type):
        values = values.cast(pa.int8())
    found = np.concatenate([c.to_numpy(zero_copy_only=False) for c in values.chunks] or [np.empty(0)])
    if found.dtype.kind in "fiu":
        return found
    blank = set(lacking(found).tolist()) if found.dtype.kind == "O" else set()
    return words_of(["" if i in blank else str(v).strip() for i, v in enumerate(found.tolist())], f"column {name!r}")


def _plain(field: Any) -> bool:
    """Whether a column holds numbers or words."""
    types = parquet.arrow()[0].types
    return not (types.is_nested(field.type) or types.is_binary(field.type) or types.is_large_binary(field.type))


def _cells_of(options: Any, place: Path, table: Any, rows: Sequence[Any] | None = None) -> Table:
    """The columns of an arrow table that may have a role."""
    left_out = {name.strip() for name in options.exclude.split(",")}
    asked = None if options.x_column is None else {name.strip() for name in options.x_column.split(",")}
    roles = {name.strip() for name in f"{options.y_column or ''},{options.columns or 'client'}".split(",")}
    roles |= set(parquet.Y_COLUMNS)
    names = [n for n in table.column_names if asked is None or n in asked | roles]
    found = {n: np.empty(0) if n in left_out else cells(table, n) for n in names}
    return Table(place, found, range(len(table)) if rows is None else rows)


def _clients(files: Sequence[Path]) -> tuple[Any, list[str]]:
    """(the files of clients as one arrow table with the column client, how a message names each row)."""
    pa, _ = parquet.arrow()
    tables = []
    for file in files:
        table = parquet.read_table([file])
        if "client" not in table.column_names:
            table = table.append_column("client", pa.array([file.stem] * len(table), pa.string()))
        tables.append(table)
        if table.column_names != tables[0].column_names:
            got, first = (", ".join(t.column_names) for t in (table, tables[0]))
            raise DataError(f"{file} must have the columns of {files[0].name}, {first}; got {got}")
    try:
        whole = pa.concat_tables([table.cast(tables[0].schema) for table in tables])
    except (pa.ArrowException, ValueError) as error:
        raise DataError(f"{files[0].parent} must hold files of one schema: {error}".splitlines()[0]) from None
    return whole, [f"{i} of {file.name}" for file, table in zip(files, tables, strict=True) for i in range(len(table))]


def _of_tables(
    options: Parquet | Hub, name: str, train: Any, test: Any, label_names: Mapping[str, tuple[str, ...]], source: str,
    columns: dict[str, Any] | None = None,
) -> Dataset:  # fmt: skip
    """A dataset of one or two tables."""
    chosen = parquet.Chosen(type(options).__name__, options.x_column, options.y_column)
    c = parquet.arrays_of(train, test, chosen, label_names)
    samples = options.padded(c.x), c.y, options.padded(c.x_test), c.y_test
    encoding = Encoding(tuple(map(Column, c.numbers)), label=c.label) if c.numbers else None
    return build(name, *samples, label_names=c.label_names, columns=columns, source=source, encoding=encoding)


def _columns(options: Any, there: Sequence[str]) -> list[str]:
    """The columns asked for, else "client" if it exists. Raises FieldError for an unknown column."""
    if options.columns is None:
        return [name for name in there if name == "client"]
    names = [name.strip() for name in options.columns.split(",") if name.strip()]
    return [parquet.choose(list(there), name, (), (type(options).__name__, "columns")) for name in names]
