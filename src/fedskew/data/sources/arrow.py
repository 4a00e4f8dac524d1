"""Your own parquet files, and any dataset of the Hugging Face hub: images, lists, or the columns of a table."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fedskew.data.arrays import Dataset, Reading, build
from fedskew.data.encoding import PLAIN
from fedskew.data.inputs import Inputs, Rows
from fedskew.data.sources import cache, parquet
from fedskew.data.sources.columns import Roles, Table, TableOptions, column_of, known_columns, label_of, owner_columns
from fedskew.data.sources.files import beside, given_file, listed, splits_of
from fedskew.data.sources.images import ImageOptions
from fedskew.data.values import one_order, plain, units_of
from fedskew.errors import claim, from_json
from fedskew.fields import Listed, demand, omit_if_default

X_COLUMNS = ("img", "image", "x", "features", "input")
INDEX = re.compile(r"__index_level_\d+__")  # of a frame without a name, which pandas writes as a column
Y_COLUMNS = ("label", "labels", "fine_label", "y", "target", "class")
_LabelNames = Mapping[str, tuple[str, ...]]  # names of the classes, by column


class _Split(NamedTuple):
    """Training or test rows."""

    file: Path  # what messages call them
    table: Any  # of pyarrow
    rows: Sequence[Any]  # [n] how a message names each row
    files: tuple[tuple[str, int], ...]  # rows of each file
    left_out: tuple[str, ...]  # columns that are the index of a frame


def _of_pandas(table: Any, name: str) -> list[Any]:
    """A list of what pandas told of a frame; empty without it."""
    with suppress(ValueError):
        metadata = from_json((table.schema.metadata or {}).get(b"pandas", b"{}"))
        entry = metadata.get(name) if isinstance(metadata, dict) else None
        return entry if isinstance(entry, list) else []
    return []


def _without_index(table: Any, asked: Sequence[str]) -> tuple[Any, tuple[str, ...]]:
    """(the table without the columns that pandas wrote as an index and no option names; their names)."""
    marked = _of_pandas(table, "index_columns")
    names = [n for n in table.column_names if (INDEX.fullmatch(n) or n in marked) and n not in asked]
    return table.drop_columns(names), tuple(names)


@dataclass(frozen=True)
class ArrowOptions(ImageOptions, TableOptions):
    """Options of tables in parquet files and on the hub: what their number and word columns become."""

    x_column: Listed | None = None
    """column of images or lists, or several number columns, comma-separated; unset: img, image, x, features or input,
    else all except labels and clients"""
    y_column: str | None = None
    """column of labels, numbers 0..C-1 or strings; unset: label, labels, fine_label, y, target or class"""
    standardise: bool | None = omit_if_default()
    """standardise number columns; unset: only if x_column names no columns"""
    categories: Listed = omit_if_default(default="")
    """feature columns with categories, comma-separated, encoded one-hot by the values of the training file; auto: every
    column of words, beside others that are named"""
    exclude: Listed = omit_if_default(default="")
    """columns left out of the features, comma-separated, such as an identifier"""
    named_labels: bool = omit_if_default(default=False)
    """treat every label as a name, also numbers such as 1 to 5; classes are then numbered in the order of the names"""

    @property
    def asks(self) -> bool:
        """Whether an option asks for columns of a table."""
        options = (self.categories, self.exclude, self.named_labels, self.ordinal, self.missing == "fill")
        return any(options) or self.standardise is not None or self.notation != PLAIN or self.missing_labels == "drop"


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
            DataError: The files are absent or damaged, or the extra `hub` is missing.
        """
        place, groups, clients = self.files(path)
        options = {n: getattr(self, n) for n in ("x_column", "y_column", "columns", "pad")}
        key = "" if clients else cache.key_of(self.name, options, [file for group in groups for file in group])

        def read() -> tuple[list[_Split], _LabelNames]:
            return [_split(place, group, clients, _asked(self)) for group in groups], {}

        return beside(_dataset(self, place, place.stem, f"file {place}", key, read), place)

    def files(self, path: str | None) -> tuple[Path, list[list[Path]], bool]:
        """(the path; its training files and, if it has some, its test files; whether each file is a client)."""
        place = given_file(self.name, path)
        train, test = (parquet.parquet_files(place, split) for split in ("train", "test"))
        if train and (test or train != (place / "train.parquet",)):
            return place, [list(group) for group in (train, test) if group], False
        return place, *splits_of(place, ".parquet")

    def rows(self, path: str | None, inputs: Inputs) -> Rows:
        """Every row of a file, or of the test files of a folder."""
        place, groups, _ = self.files(path)
        table, encoding = parquet.read_table(groups[-1]), inputs.encoding
        names = list(table.column_names)
        label = label_of(self, names, encoding)
        y = cells(table, label) if label else None
        if encoding is None:
            column = column_of(self, "x_column", names, X_COLUMNS, "one of the columns")
            x = self.padded(parquet.read_column(table, column))
        else:
            wanted = (*(column.name for column in encoding.columns), *listed(self.split_by))
            x = {name: cells(table, name) for name in wanted if name in names}
        return Rows(str(place), x, y, label, range(len(table)))


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
    columns: Listed | None = omit_if_default()
    """columns with the client of each row, comma-separated, for natural clients; unset: client, if present"""

    def load(self, path: str | None = None) -> Dataset:
        """Download the dataset, or take it from the cache.

        Args:
            path: A local folder in the hub's layout, instead of `repo`.

        Returns:
            The dataset.

        Raises:
            ConfigError: No `repo` is given, or an option breaks a rule.
            DataError: The hub cannot be reached, or the data are unusable.
        """
        repo = self.repo if path is None else str(given_file(self.name, path))
        demand(self, "repo", bool(repo), "name a dataset of the hub", "for example ylecun/mnist")
        names = ("repo", "config", "x_column", "y_column", "train_split", "test_split", "pad")
        files = () if path is None else tuple(sorted(f for f in Path(repo).rglob("*") if f.is_file()))
        asked = {n: getattr(self, n) for n in names} | ({} if self.columns is None else {"columns": self.columns})
        key = cache.key_of(self.name, asked, files)

        def read() -> tuple[list[_Split], _LabelNames]:
            *tables, names = parquet.hub_tables(repo, self.config, self.train_split, self.test_split)
            parts = [_without_index(table, _asked(self)) for table in tables if table is not None]
            return [_Split(Path(repo), t, range(len(t)), ((repo, len(t)),), left) for t, left in parts], names

        data = _dataset(self, Path(repo), repo, f"hub {repo}", key, read)
        note = "the package datasets reads csv files: NA is missing to it, and 01 is 1; the dataset csv keeps the words"
        guessed = any(file.suffix.lower() in (".csv", ".tsv") for file in files)
        return replace(data, notes=(*data.notes, note)) if guessed else data


def _dataset(
    options: Parquet | Hub, place: Path, name: str, source: str, key: str,
    read: Callable[[], tuple[list[_Split], _LabelNames]],
) -> Dataset:  # fmt: skip
    """The dataset of a training split and, if there is one, a test split.

    Args:
        options: What its columns become.
        place: What messages call its files.
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
    features = listed(options.x_column) or list(schema.names)
    table_alone = all(_is_scalar(schema.field(name)) for name in features if name in schema.names)
    if not asks and not table_alone:
        data = _of_samples(options, name, source, splits, label, names)
        if key:
            cache.store(key, data)
        return options.finish(data)
    options.padded(np.empty((1, 1)))
    standardise = options.x_column is None if options.standardise is None else options.standardise
    chosen = replace(options, y_column=label, standardise=standardise)
    return options.finish(Roles(chosen, names).dataset(place, [_cells(chosen, s) for s in splits], name, source))


def _of_samples(
    options: Parquet | Hub, name: str, source: str, splits: Sequence[_Split], label: str, names: Sequence[str]
) -> Dataset:
    """The dataset of a column of images or lists."""
    there = splits[0].table.column_names
    column = column_of(options, "x_column", there, X_COLUMNS, "one of the columns")
    parts, account = [], list[str]()
    for split in splits:
        parts.append(options.padded(parquet.read_column(split.table, column, account=account)))
        parts.append(parquet.read_column(split.table, label))
    owners = {n: parquet.read_column(splits[0].table, n) for n in owner_columns(options, there)}
    units, apart = None, known_columns(options, "split_by", there)
    if apart:
        cells_of = [parquet.read_column(split.table, apart[0]) for split in splits]
        units = units_of(f"{splits[-1].file}: column {apart[0]!r}", cells_of)
    known = {n: parquet.read_column(s.table, n) for s in splits[1:] for n in owners if n in s.table.column_names}
    pictures = tuple(line for line in account if line.startswith("pictures: "))
    sizes = tuple(size for split in splits for size in split.files)
    return build(
        name, *parts, label_names=names, columns=owners, source=source, units=units, columns_test=known,
        reading=Reading(sizes, pictures=pictures), notes=[line for line in account if line not in pictures],
    )  # fmt: skip


def _asked(options: Parquet | Hub) -> list[str]:
    """The columns that the options name, by themselves or by default."""
    owners = "client" if options.columns is None else options.columns
    labels = ",".join(Y_COLUMNS) if options.y_column is None else options.y_column
    return [name for names in (options.x_column, labels, owners, options.split_by) for name in listed(names)]


def _cells(options: Parquet | Hub, split: _Split) -> Table:
    """The columns of a split that may have a role."""
    left_out = listed(options.exclude)
    asked, owners = listed(options.x_column), listed("client" if options.columns is None else options.columns)
    roles = {*asked, str(options.y_column), *owners, *listed(options.split_by)}
    names = [name for name in split.table.column_names if not asked or name in roles]
    columns = {name: np.empty(0) if name in left_out else cells(split.table, name) for name in names}
    orders = {name: _levels(split.table, name) for name in names if name not in left_out}
    levels = {name: order for name, order in orders.items() if order is not None}
    return Table(split.file, columns, split.rows, split.files, levels, split.left_out)


def _levels(table: Any, name: str) -> tuple[tuple[str, ...], bool] | None:
    """(the categories that the file declares for a column, in an order if there is one; whether they are ordered)."""
    types, kind = parquet.arrow()[0].types, table.schema.field(name).type
    if types.is_dictionary(kind) and table.num_rows:
        orders = [[*map(str, chunk.dictionary.to_pylist())] for chunk in table.column(name).chunks]
        return one_order(orders), bool(kind.ordered)
    # of categories that are numbers parquet keeps the numbers, and pandas tells beside them what they were
    facts = [c for c in _of_pandas(table, "columns") if isinstance(c, dict) and c.get("name") == name]
    if not facts or facts[0].get("pandas_type") != "categorical":
        return None
    more = facts[0].get("metadata")
    return (), bool(more.get("ordered")) if isinstance(more, dict) else False


def cells(table: Any, name: str) -> np.ndarray:
    """A column of numbers or words, [n]: numbers and truth values as numbers, all else as words; "" where it is null.

    Raises:
        DataError: It holds neither.
    """
    pa, _ = parquet.arrow()
    field, values = table.schema.field(name), table.column(name)
    of_its_own = b"ARROW:extension:name" in (field.metadata or {}) or isinstance(_kind(field), pa.BaseExtensionType)
    hint = f"{'store it as words or numbers' if of_its_own else 'name it as the only x_column'}, or exclude it"
    # the numbers of a type of its own, such as a period of pandas, mean something else
    claim(_is_scalar(field) and not of_its_own, f"column {name!r}", "hold numbers or words", field.type, hint)
    values = values.cast(pa.int8()) if pa.types.is_boolean(field.type) else values
    parted = pa.types.is_integer(values.type) and values.null_count  # numpy would make floats of them
    array = np.concatenate([c.to_numpy(zero_copy_only=False) for c in values.chunks] or [np.empty(0)])
    return plain(values.to_pylist() if parted else array, f"column {name!r}")


def _kind(field: Any) -> Any:
    """The type of a column's values, also of a dictionary's."""
    return field.type.value_type if parquet.arrow()[0].types.is_dictionary(field.type) else field.type


def _is_scalar(field: Any) -> bool:
    """Whether a column holds numbers or words."""
    types, kind = parquet.arrow()[0].types, _kind(field)
    return not (types.is_nested(kind) or types.is_binary(kind) or types.is_large_binary(kind))


def _split(place: Path, files: Sequence[Path], clients: bool, asked: Sequence[str]) -> _Split:
    """The rows of files; where each is a client, with a column that says which."""
    what, owned, sizes = files[0] if len(files) == 1 else place, "client", []
    pa, tables, left_out = parquet.arrow()[0], [], dict[str, None]()
    for file in files:
        table, index = _without_index(parquet.read_table([file]), asked)
        left_out |= dict.fromkeys(index)
        if clients and owned not in table.column_names:
            table = table.append_column(owned, pa.array([file.stem] * len(table), pa.string()))
        tables.append(table)
        sizes.append((str(file), len(table)))
        got, first = (", ".join(sorted(t.column_names)) for t in (table, tables[0]))
        claim(got == first, file, f"have the columns of {files[0].name}, {first}", got)
    whole = parquet.together(files, tables)
    rows = [f"{i} of {file.name}" for file, table in zip(files, tables, strict=True) for i in range(len(table))]
    return _Split(what, whole, rows if clients else range(len(whole)), tuple(sizes), tuple(left_out))
