"""Parquet files and datasets of the hub, as arrays. The packages of the extra ``hub`` are imported when needed."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedskew.data.sources.files import EXTRA, one_line
from fedskew.data.sources.pictures import ImageMode, decode_images
from fedskew.data.sources.rowgroups import affordable, arrow
from fedskew.data.values import lacking, words_of
from fedskew.errors import DataError, FieldError, closest, from_json

__all__ = [
    "Chosen",
    "Columns",
    "HubTables",
    "arrays_of",
    "arrow",
    "choose",
    "hub_installed",
    "hub_tables",
    "offline",
    "parquet_files",
    "read_column",
    "read_table",
    "schema_names",
]

_OFFLINE: ContextVar[bool] = ContextVar("offline", default=False)
X_COLUMNS = ("img", "image", "x", "features", "input")
Y_COLUMNS = ("label", "labels", "fine_label", "y", "target", "class")


class Columns(NamedTuple):
    """Decoded columns of one or two tables."""

    x: np.ndarray  # [n, channels, H, W] uint8, or [n, F] float32
    y: np.ndarray  # [n] int64
    x_test: np.ndarray | None
    y_test: np.ndarray | None
    label_names: tuple[str, ...]
    label: str = ""  # name of the column of labels
    numbers: tuple[str, ...] = ()  # names of the number columns that are features; empty for images and lists


class Chosen(NamedTuple):
    """The columns that a dataset's options name."""

    owner: str  # class of the options, for errors
    x_column: str | None
    y_column: str | None


class HubTables(NamedTuple):
    """A downloaded dataset: pyarrow tables, and label names by column."""

    train: Any
    test: Any | None
    names: dict[str, tuple[str, ...]]


def parquet_files(folder: Path, split: str) -> tuple[Path, ...]:
    """Files ``<split>-*.parquet`` or ``<split>.parquet`` of a folder or its subfolder data, sorted by name.

    Args:
        folder: The folder.
        split: "train" or "test".

    Returns:
        The files; empty if there are none.

    Raises:
        DataError: A file of a numbered set (-00000-of-00002) is missing.
    """
    for place in (folder, folder / "data"):
        files = sorted((*place.glob(f"{split}-*.parquet"), *place.glob(f"{split}.parquet")))
        if not files:
            continue
        total = files[0].stem.rpartition("-of-")[2]
        if total.isdigit() and int(total) != len(files):
            raise DataError(f"{place} must hold {int(total)} files {split}-*.parquet; got {len(files)}")
        return tuple(files)
    return ()


def read_table(files: Sequence[Path], columns: Sequence[str] | None = None) -> Any:
    """Read parquet files as one pyarrow table.

    Args:
        files: The files.
        columns: Columns to read; None reads all.

    Returns:
        The table.

    Raises:
        DataError: A file is damaged, or the extra ``hub`` is missing.
    """
    pa, pq = arrow()
    tables = []
    how = {"columns": list(columns) if columns else None, "partitioning": None, "page_checksum_verification": True}
    for file in files:
        try:
            affordable(file)
            tables.append(pq.read_table(file, **how))
            tables[-1].validate(full=True)
        except DataError:
            raise
        except Exception as error:  # a damaged file can fail at any element
            raise DataError(f"{file} is not a whole parquet file: {one_line(error)}") from None
    try:
        return pa.concat_tables(tables)
    except pa.ArrowException as error:
        raise DataError(f"{files[0].parent} must hold files of one schema: {one_line(error)}") from None


def choose(names: Sequence[str], given: str | None, guesses: Sequence[str], field: tuple[str, str]) -> str:
    """The column asked for, else the first guess that exists.

    Args:
        names: Columns of the table.
        given: The column asked for, or None.
        guesses: Names to try.
        field: Class and field that name the column, for errors.

    Returns:
        Name of the column.

    Raises:
        FieldError: The column is unknown, or no guess exists.
    """
    found = given if given is not None else next((g for g in guesses if g in names), None)
    if found is None or found not in names:
        hint = "" if given is None else closest(given, names).removeprefix("; ").partition("known: ")[0]
        raise FieldError(*field, f"name one of the columns {', '.join(names)}", given, hint)
    return found


def arrays_of(train: Any, test: Any | None, chosen: Chosen, names: Mapping[str, tuple[str, ...]]) -> Columns:
    """Decode one or two tables.

    Args:
        train: Training table.
        test: Test table, or None.
        chosen: Column of samples, or several number columns with commas between, which become features; and the column
            of labels. None guesses.
        names: Label names by column.

    Returns:
        Samples, labels and label names.

    Raises:
        FieldError: A column is unknown.
        DataError: A column has nulls, ragged rows or unreadable images.
    """
    x_field, y_field = (chosen.owner, "x_column"), (chosen.owner, "y_column")
    x_names = [] if chosen.x_column is None else [n.strip() for n in chosen.x_column.split(",")]
    x_names = [choose(train.column_names, n, (), x_field) for n in x_names]
    x_names = x_names or [choose(train.column_names, None, X_COLUMNS, x_field)]
    y_name = choose(train.column_names, chosen.y_column, Y_COLUMNS, y_field)
    tables = [train] if test is None else [train, test]
    for name in (*x_names, y_name):
        if name not in tables[-1].column_names:
            raise DataError(f"the test split must have the column {name!r}{closest(name, tables[-1].column_names)}")
    x = [_features(table, x_names) for table in tables]
    y, found = _labels([read_column(table, y_name) for table in tables])
    labels = found or names.get(y_name) or schema_names(train, y_name)
    flat = x[0].ndim == 2 and (len(x_names) > 1 or x[0].shape[1] == 1)
    numbers = tuple(x_names) if flat else ()
    return Columns(
        x[0], y[0], x[1] if test is not None else None, y[1] if test is not None else None, labels, y_name, numbers
    )


def read_column(table: Any, name: str, rows: int | None = None, mode: ImageMode | None = None) -> np.ndarray:
    """Decode a column of a table.

    Args:
        table: A pyarrow table.
        name: Name of the column.
        rows: Number of rows to read from the start; None reads all.
        mode: As for `decode_images`.

    Returns:
        Images, uint8 [n, channels, H, W]; lists, [n, ...]; or values, [n]. Images are encoded bytes, or the hub's
        struct of bytes and path.

    Raises:
        DataError: There are nulls, ragged rows or unreadable images.
    """
    with _sound(name):
        return _read_column(table, name, rows, mode)


@contextmanager
def _sound(name: str) -> Iterator[None]:
    """Say which column cannot be read: of a damaged file any element can fail."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"column {name!r} cannot be read: {one_line(error)}") from None


def _read_column(table: Any, name: str, rows: int | None, mode: ImageMode | None) -> np.ndarray:
    pa, _ = arrow()
    chunks = table.column(name).slice(0, rows).chunks
    empty = sum(chunk.null_count for chunk in chunks)
    if pa.types.is_struct(table.schema.field(name).type):
        if "bytes" not in {field.name for field in table.schema.field(name).type}:
            raise DataError(f"column {name!r} must hold images, lists or values; got {table.schema.field(name).type}")
        chunks = [chunk.field("bytes") for chunk in chunks]
        empty += sum(chunk.null_count for chunk in chunks)
    if empty or not chunks:
        blank = [i for i, value in enumerate(v for chunk in chunks for v in chunk.is_valid().to_pylist()) if not value]
        told = f"got {empty} nulls in {len(table)} rows" + (f", the first in row {blank[0]}" if blank else "")
        raise DataError(f"column {name!r} must have a value in every row; {told}; fill them, or leave those rows out")
    kind = chunks[0].type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return decode_images([content for chunk in chunks for content in chunk.to_pylist()], f"column {name!r}", mode)
    if pa.types.is_nested(kind):
        return np.concatenate([_lists(chunk, name) for chunk in chunks])
    return np.concatenate([chunk.to_numpy(zero_copy_only=False) for chunk in chunks])


def _lists(rows: Any, name: str) -> np.ndarray:
    """Lists of numbers as an array [n, ...]; whole numbers as int64, others as float64."""
    pa, values, shape = arrow()[0], rows, [len(rows)]
    while (
        pa.types.is_list(values.type) or pa.types.is_large_list(values.type) or pa.types.is_fixed_size_list(values.type)
    ):
        lengths = np.unique(values.value_lengths().to_numpy(zero_copy_only=False))
        if values.null_count or len(lengths) > 1:
            raise DataError(f"column {name!r} must have lists of one length; got ragged rows")
        shape.append(int(lengths[0]) if len(lengths) else 0)
        values = values.flatten()
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_boolean(values.type)):
        raise DataError(f"column {name!r} must hold lists of numbers; got {rows.type}")
    found: np.ndarray = values.to_numpy(zero_copy_only=False).reshape(shape)
    return found.astype(np.int64 if pa.types.is_integer(values.type) and not values.null_count else np.float64)


def hub_installed() -> bool:
    """Whether the package ``datasets`` can be imported."""
    try:
        import datasets  # noqa: F401
    except ImportError:
        return False
    return True


@contextmanager
def offline() -> Iterator[None]:
    """Within it the hub is not asked: a data set that is not at hand is missing at once."""
    token = _OFFLINE.set(True)
    try:
        yield
    finally:
        _OFFLINE.reset(token)


def hub_tables(
    repo: str, config: str | None = None, train: str = "train", test: str | None = None, *, columns: Sequence[str] = ()
) -> HubTables:
    """Load a dataset of the hub with `datasets.load_dataset`.

    Args:
        repo: Id on the hub, or a local folder in the hub's layout.
        config: Configuration, for a dataset with several.
        train: Split to train on.
        test: Split to test on; None takes "test" if it exists.
        columns: Columns to read; empty reads all.

    Returns:
        Tables and label names.

    Raises:
        ConfigError: A split is unknown.
        DataError: The hub cannot be reached, or the extra ``hub`` is missing.
    """
    try:
        import datasets
    except ImportError:
        raise DataError(f"downloading {repo!r} needs the extra hub: {EXTRA}") from None
    if _OFFLINE.get():
        raise DataError(f"the hub dataset {repo!r} is not at hand, and the hub is not asked here")
    try:
        with _quiet():
            splits = datasets.load_dataset(repo, config)
    except Exception as error:  # requests, hub and parser errors share no base
        raise DataError(f"the hub dataset {repo!r} could not be loaded: {one_line(error)}") from None
    for field, split in (("train_split", train), ("test_split", test)):
        if split is not None and split not in splits:
            raise FieldError("Hub", field, "name a split", split, closest(split, splits).removeprefix("; "))
    chosen = test or ("test" if "test" in splits and train != "test" else None)
    features = splits[train].features
    names = {c: tuple(f.names) for c, f in features.items() if isinstance(f, datasets.ClassLabel)}
    tables = [None if s is None else _rows(splits[s], columns) for s in (train, chosen)]
    return HubTables(tables[0], tables[1], names)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the hub's warnings about single attempts; the final error says what failed."""
    loggers = [logging.getLogger(name) for name in ("huggingface_hub", "datasets", "fsspec", "urllib3", "httpx")]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _rows(split: Any, columns: Sequence[str]) -> Any:
    from datasets.table import embed_table_storage

    split = split.select_columns(list(columns)) if columns else split
    table = split.with_format("arrow")[:]  # images stay encoded: they are decoded here
    return embed_table_storage(table) if _apart(table, split.features) else table


def _apart(table: Any, features: Mapping[str, Any]) -> bool:
    """Whether an image of a table is a file beside it, as in a folder of images."""
    named = [name for name, kind in features.items() if type(kind).__name__ == "Image"]
    return any(chunk.field("bytes").null_count for name in named for chunk in table.column(name).chunks)


def _features(table: Any, names: Sequence[str]) -> np.ndarray:
    if len(names) == 1:
        x = read_column(table, names[0])
        return x if x.ndim > 1 else _numbers(x, names[0])[:, None]
    return np.stack([_numbers(read_column(table, name), name) for name in names], axis=1)


def _numbers(values: np.ndarray, name: str) -> np.ndarray:
    if values.ndim != 1 or values.dtype.kind not in "fiub":
        raise DataError(f"feature column {name!r} must hold numbers; got {values.dtype} of shape {values.shape}")
    if len(blank := lacking(values)):
        told = f"row {blank[0]} has none, {len(blank)} of {len(values)} rows lack one"
        raise DataError(f"feature column {name!r} has missing values; {told}; fill them, or leave those rows out")
    with np.errstate(over="ignore"):  # infinite where float32 does not hold it, which `build` refuses
        return np.asarray(values.astype(np.float32))


def _labels(columns: Sequence[np.ndarray]) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """Labels as they are; strings become places among the sorted names of both splits."""
    if all(column.dtype.kind in "fiub" for column in columns):
        return list(columns), ()
    for column in columns:
        if len(blank := lacking(column)):
            told = f"row {blank[0]} has none, {len(blank)} of {len(column)} rows lack one"
            raise DataError(f"labels must be in every row; {told}; fill them, or leave those rows out")
    texts = [words_of(column, "the column of labels") for column in columns]
    names, codes = np.unique(np.concatenate(texts), return_inverse=True)
    return np.split(codes.reshape(-1), np.cumsum([len(t) for t in texts])[:-1]), tuple(map(str, names))


def schema_names(table: Any, column: str) -> tuple[str, ...]:
    """Label names that the hub's writer leaves in a parquet file's schema; empty without them."""
    try:
        info = from_json((table.schema.metadata or {})[b"huggingface"])
        return tuple(map(str, info["info"]["features"][column]["names"]))
    except (KeyError, TypeError, ValueError):
        return ()
