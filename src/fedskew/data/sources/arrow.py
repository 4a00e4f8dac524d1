"""Your own parquet files, and any dataset of the Hugging Face hub: images, lists, or the columns of a table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fedskew.data.arrays import Dataset, build
from fedskew.data.encoding import Column, Encoding, lacks_column
from fedskew.data.reading import Reading
from fedskew.data.sources import cache, parquet
from fedskew.data.sources.columns import Roles, Table, TableOptions, column_of, known_columns, owner_columns, units_of
from fedskew.data.sources.files import client_files, given_file, listed, reading
from fedskew.data.sources.images import ImageOptions
from fedskew.data.values import insist_on_values, lacking, words_of
from fedskew.errors import DataError, FieldError, some
from fedskew.fields import Listed, later

X_COLUMNS = ("img", "image", "x", "features", "input")
Y_COLUMNS = ("label", "labels", "fine_label", "y", "target", "class")
_LabelNames = Mapping[str, tuple[str, ...]]  # names of the classes, by column


class _Split(NamedTuple):
    """Training or test rows."""

    file: Path  # what messages call them
    table: Any  # of pyarrow
    rows: Sequence[Any] | None = None  # [n] how a message names each row; None counts from 0


@dataclass(frozen=True)
class ArrowOptions(ImageOptions, TableOptions):
    """Options of tables in parquet files and on the hub: what their number and word columns become."""

    x_column: Listed | None = None
    """column of images or lists, or several number columns, comma-separated; unset: img, image, x, features or input,
    else all except labels and clients"""
    y_column: str | None = None
    """column of labels, numbers 0..C-1 or strings; unset: label, labels, fine_label, y, target or class"""
    standardise: bool | None = later()
    """standardise number columns; unset: only if x_column names no columns"""
    categories: Listed = later(default="")
    """feature columns with categories, comma-separated, encoded one-hot by the values of the training file; auto: every
    column of words"""
    exclude: Listed = later(default="")
    """columns left out of the features, comma-separated, such as an identifier"""
    named_labels: bool = later(default=False)
    """treat every label as a name, also numbers such as 1 to 5; classes are then numbered in the order of the names"""

    @property
    def asks(self) -> bool:
        """Whether an option asks for columns of a table."""
        options = (self.categories, self.exclude, self.named_labels, self.ordinal, self.missing == "fill", self.types)
        return any(options) or self.standardise is not None


@dataclass(frozen=True)
class Parquet(ArrowOptions):
    """A parquet file; a folder with train-*.parquet and, optionally, test-*.parquet; or one file a client.

    Without a column of images or lists its columns are those of a table, as in a csv file. In a folder of other parquet
    files each file is a client, named as the file without its ending; subfolders train and test hold training and test
    rows of clients.
    """

    name: ClassVar[str] = "parquet"

    columns: Listed | None = None
    """columns with the client of each row, comma-separated, for natural clients; unset: client, if present"""

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
        key = "" if clients else cache.key_of(self.name, options, [file for group in groups for file in group])

        def read() -> tuple[list[_Split], _LabelNames]:
            return [_split(place, group, clients) for group in groups], {}

        return _dataset(self, place.stem, f"file {place}", key, read)

    def files(self, path: str | None) -> tuple[Path, list[tuple[Path, ...]], bool]:
        """(the path; its training files and, if it has some, its test files; whether each file is a client)."""
        place = given_file(self.name, path)
        if place.is_file():
            return place, [(place,)], False
        if train := parquet.parquet_files(place, "train"):
            test = parquet.parquet_files(place, "test")
            return place, [train, test] if test else [train], False
        return place, [tuple(group) for group in client_files(place, ".parquet", "train-*.parquet")], True


@dataclass(frozen=True)
class Hub(ArrowOptions):
    """Any dataset of the Hugging Face hub with a column of labels, and one of images or number and word columns."""

    name: ClassVar[str] = "hub"

    repo: str = ""
    """id on the hub, for example ylecun/mnist; a path names a local folder in the hub's layout instead"""
    config: str | None = None
    """configuration of the dataset, if it has several"""
    train_split: str = "train"
    """split to train on"""
    test_split: str | None = None
    """split to test on; unset: the split test, else a stratified 20 % of the training split"""
    columns: Listed | None = later()
    """columns with the client of each row, comma-separated, for natural clients; unset: client, if present"""

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

        def read() -> tuple[list[_Split], _LabelNames]:
            tables = parquet.hub_tables(repo, self.config, self.train_split, self.test_split)
            return [_Split(Path(repo), t) for t in (tables.train, tables.test) if t is not None], tables.names

        return _dataset(self, repo, f"hub {repo}", key, read)


def _dataset(
    options: Parquet | Hub, name: str, source: str, key: str, read: Callable[[], tuple[list[_Split], _LabelNames]]
) -> Dataset:
    """The dataset of a training split and, if there is one, a test split.

    Args:
        options: What its columns become.
        name: Its name.
        source: Where it comes from.
        key: Key in the cache; "" where the dataset is not kept there.
        read: Reads the splits, and the names of classes by column.
    """
    asks, key = options.asks, "" if options.split_by else key
    if not asks and key and (stored := cache.fetch(key)) is not None:
        return options.finish(stored)
    splits, label_names = read()
    schema = splits[0].table.schema
    label = column_of(options, "y_column", schema.names, Y_COLUMNS, "the column of labels, one of")
    names = label_names.get(label) or parquet.schema_names(splits[0].table, label)
    table_alone = all(map(_plain, schema)) and not set(X_COLUMNS) & set(schema.names)
    if not asks and (options.x_column is not None or not table_alone):
        data = _of_samples(options, name, source, splits, label, names)
        if key:
            cache.store(key, data)
        return options.finish(data)
    options.padded(np.empty((1, 1)))
    standardise = True if options.standardise is None else options.standardise
    chosen = replace(options, y_column=label, standardise=standardise)
    data = Roles(chosen, names).dataset([_cells(chosen, split) for split in splits], name, source)
    return replace(options, classes=(), relabel=True).finish(data)


def _of_samples(
    options: Parquet | Hub, name: str, source: str, splits: Sequence[_Split], label: str, names: Sequence[str]
) -> Dataset:
    """The dataset of a column of images or lists, or of the number columns that ``x_column`` names."""
    there = splits[0].table.column_names
    usual = column_of(options, "x_column", there, X_COLUMNS, "one of the columns") if options.x_column is None else ""
    columns = [usual] if usual else known_columns(options, "x_column", there)
    if not columns:
        raise FieldError(type(options).__name__, "x_column", f"name one of the columns {some(there)}", options.x_column)
    parts = []
    for split in splits:
        held = split.table.column_names
        if absent := next((column for column in (*columns, label) if column not in held), None):
            raise lacks_column(f"{split.file}: the test split", absent, held)
        parts += [options.padded(_samples(split.table, columns)), parquet.read_column(split.table, label)]
    numbers = parts[0].ndim == 2 and (len(columns) > 1 or parts[0].shape[1] == 1)
    encoding = Encoding(tuple(map(Column, columns)), label=label) if numbers else None
    owners = {n: parquet.read_column(splits[0].table, n) for n in owner_columns(options, there)}
    units, apart = None, known_columns(options, "split_by", there)
    if apart:
        cells_of = [parquet.read_column(split.table, apart[0]) for split in splits]
        units = units_of(f"{splits[-1].file}: column {apart[0]!r}", cells_of)
    known = {n: parquet.read_column(s.table, n) for s in splits[1:] for n in owners if n in s.table.column_names}
    return build(
        name, *parts, label_names=names, columns=owners, source=source, encoding=encoding, units=units,
        columns_test=known, reading=Reading(),
    )  # fmt: skip


def _cells(options: Parquet | Hub, split: _Split) -> Table:
    """The columns of a split that may have a role."""
    left_out = [*listed(options.exclude), *(name for name, kind in options.typed.items() if kind == "drop")]
    asked, owners = listed(options.x_column), listed("client" if options.columns is None else options.columns)
    roles = {*asked, str(options.y_column), *owners, *listed(options.split_by)}
    names = [name for name in split.table.column_names if not asked or name in roles]
    columns = {name: np.empty(0) if name in left_out else cells(split.table, name) for name in names}
    return Table(split.file, columns, range(len(split.table)) if split.rows is None else split.rows)


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


def _samples(table: Any, columns: Sequence[str]) -> np.ndarray:
    """A column of images or lists, [n, ...], or number columns as float32 features [n, F]."""
    parts = [parquet.read_column(table, name) for name in columns]
    if len(parts) == 1 and parts[0].ndim > 1:
        return parts[0]
    for name, part in zip(columns, parts, strict=True):
        if part.ndim != 1 or part.dtype.kind not in "fiub":
            raise DataError(f"feature column {name!r} must hold numbers; got {part.dtype} of shape {part.shape}")
        insist_on_values(part, f"feature column {name!r}")
    with np.errstate(over="ignore"):  # infinite where float32 does not hold it, which `build` refuses
        return np.stack([part.astype(np.float32) for part in parts], axis=1)


def _split(place: Path, files: Sequence[Path], clients: bool) -> _Split:
    """The rows of files; where each is a client, with a column that says which."""
    what = files[0] if len(files) == 1 else place
    if not clients:
        return _Split(what, parquet.read_table(files))
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
    with reading(files[0].parent, "must hold files of one schema"):
        whole = pa.concat_tables([table.cast(tables[0].schema) for table in tables])
    rows = [f"{i} of {file.name}" for file, table in zip(files, tables, strict=True) for i in range(len(table))]
    return _Split(what, whole, rows)
