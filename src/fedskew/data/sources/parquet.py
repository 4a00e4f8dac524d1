"""Parquet files and datasets of the hub, as arrays. The packages of the extra ``hub`` are imported when needed."""

from __future__ import annotations

import io
import json
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from fedskew.errors import ConfigError, DataError, unknown

__all__ = [
    "Columns",
    "HubTables",
    "arrays_of",
    "choose",
    "decode_images",
    "hub_installed",
    "hub_tables",
    "parquet_files",
    "read_column",
    "read_table",
    "schema_names",
]

ImageMode = Literal["L", "RGB"]
EXTRA = "pip install 'fedskew[hub]'"
X_COLUMNS = ("img", "image", "x", "features", "input")
Y_COLUMNS = ("label", "labels", "fine_label", "y", "target", "class")


class Columns(NamedTuple):
    """Decoded columns of one or two tables."""

    x: np.ndarray  # [n, channels, H, W] uint8, or [n, F] float32
    y: np.ndarray  # [n] int64
    x_test: np.ndarray | None
    y_test: np.ndarray | None
    label_names: tuple[str, ...]


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
    pa, pq = _arrow()
    tables = []
    for file in files:
        try:
            tables.append(pq.read_table(file, columns=list(columns) if columns else None, partitioning=None))
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{file} is not a whole parquet file: {_line(error)}") from None
    return pa.concat_tables(tables)


def choose(names: Sequence[str], given: str | None, guesses: Sequence[str], option: str) -> str:
    """The column asked for, else the first guess that exists.

    Args:
        names: Columns of the table.
        given: The column asked for, or None.
        guesses: Names to try.
        option: Name of the option in error messages.

    Returns:
        Name of the column.

    Raises:
        ConfigError: The column is unknown, or no guess exists.
    """
    if given is not None:
        if given not in names:
            raise unknown(option, given, names)
        return given
    found = next((g for g in guesses if g in names), None)
    if found is None:
        raise ConfigError(f"{option} must name one of the columns {', '.join(names)}; got none")
    return found


def arrays_of(
    train: Any, test: Any | None, x_column: str | None, y_column: str | None, names: Mapping[str, tuple[str, ...]]
) -> Columns:
    """Decode one or two tables.

    Args:
        train: Training table.
        test: Test table, or None.
        x_column: Column of samples, or several number columns with commas between, which become features. None guesses.
        y_column: Column of labels. None guesses.
        names: Label names by column.

    Returns:
        Samples, labels and label names.

    Raises:
        ConfigError: A column is unknown.
        DataError: A column has nulls, ragged rows or unreadable images.
    """
    x_names = [] if x_column is None else [n.strip() for n in x_column.split(",")]
    x_names = [choose(train.column_names, n, (), "data.x_column") for n in x_names]
    x_names = x_names or [choose(train.column_names, None, X_COLUMNS, "data.x_column")]
    y_name = choose(train.column_names, y_column, Y_COLUMNS, "data.y_column")
    tables = [train] if test is None else [train, test]
    for name in (*x_names, y_name):
        choose(tables[-1].column_names, name, (), "column of the test split")
    x = [_features(table, x_names) for table in tables]
    y, found = _labels([read_column(table, y_name) for table in tables])
    labels = found or names.get(y_name) or schema_names(train, y_name)
    return Columns(x[0], y[0], x[1] if test is not None else None, y[1] if test is not None else None, labels)


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
    pa, _ = _arrow()
    chunks = table.column(name).slice(0, rows).chunks
    empty = sum(chunk.null_count for chunk in chunks)
    if pa.types.is_struct(table.schema.field(name).type):
        if "bytes" not in {field.name for field in table.schema.field(name).type}:
            raise DataError(f"column {name!r} must hold images, lists or values; got {table.schema.field(name).type}")
        chunks = [chunk.field("bytes") for chunk in chunks]
        empty += sum(chunk.null_count for chunk in chunks)
    if empty or not chunks:
        raise DataError(f"column {name!r} must have a value in every row; got {empty} nulls in {len(table)} rows")
    kind = chunks[0].type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return decode_images([content for chunk in chunks for content in chunk.to_pylist()], f"column {name!r}", mode)
    if pa.types.is_nested(kind):
        return _lists([row for chunk in chunks for row in chunk.to_pylist()], name)
    return np.concatenate([chunk.to_numpy(zero_copy_only=False) for chunk in chunks])


def _lists(rows: Sequence[Any], name: str) -> np.ndarray:
    try:
        return np.array(rows)
    except ValueError:
        raise DataError(f"column {name!r} must have lists of one length; got ragged rows") from None


def hub_installed() -> bool:
    """Whether the package ``datasets`` can be imported."""
    try:
        import datasets  # noqa: F401
    except ImportError:
        return False
    return True


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
    try:
        with _quiet():
            splits = datasets.load_dataset(repo, config)
    except Exception as error:  # requests, hub and parser errors share no base
        raise DataError(f"the hub dataset {repo!r} could not be loaded: {_line(error)}") from None
    for option, split in (("data.train_split", train), ("data.test_split", test)):
        if split is not None and split not in splits:
            raise unknown(option, split, splits)
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
    split = split.select_columns(list(columns)) if columns else split
    return split.with_format("arrow")[:]  # images stay encoded: they are decoded here


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise DataError(f"reading parquet files needs the extra hub: {EXTRA}") from None
    return pa, pq


def decode_images(encoded: Sequence[bytes | Path], what: str, mode: ImageMode | None = None) -> np.ndarray:
    """Decode PNG, WebP or JPEG images.

    Args:
        encoded: Images as bytes or as files.
        what: Their name in error messages.
        mode: "L" makes all images grey, "RGB" gives them three channels; None takes the first image's mode.

    Returns:
        uint8 [n, channels, H, W].

    Raises:
        DataError: An image is damaged, or has another size than the first.
    """
    try:
        from PIL import Image
    except ImportError:
        raise DataError(f"decoding images needs the extra hub: {EXTRA}") from None
    if not encoded:
        raise DataError(f"{what} must have rows; got none")

    def place(row: int) -> str:
        content = encoded[row]
        return f"row {row}" if isinstance(content, bytes) else f"'{content}'"

    def decode(row: int, mode: str | None) -> np.ndarray:
        content = encoded[row]
        try:
            with Image.open(io.BytesIO(content) if isinstance(content, bytes) else content) as image:
                mode = mode or ("L" if image.mode in ("1", "L") else "RGB")
                return np.asarray(image.convert(mode))
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise DataError(f"{what} has no readable image in {place(row)}: {_line(error)}") from None

    first = decode(0, mode)
    common = "L" if first.ndim == 2 else "RGB"
    out = np.empty((len(encoded), *first.shape), np.uint8)

    def fill(row: int) -> None:
        image = decode(row, common)
        if image.shape != first.shape:
            sizes = f"{image.shape[1]}x{image.shape[0]}, {place(0)} is {first.shape[1]}x{first.shape[0]}"
            raise DataError(f"{what} must have images of one size; {place(row)} is {sizes}")
        out[row] = image

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:  # Pillow releases the lock while it decodes
        for _ in pool.map(fill, range(len(encoded))):
            pass
    return out[:, None] if out.ndim == 3 else np.ascontiguousarray(out.transpose(0, 3, 1, 2))


def _features(table: Any, names: Sequence[str]) -> np.ndarray:
    if len(names) == 1:
        x = read_column(table, names[0])
        return x if x.ndim > 1 else _numbers(x, names[0])[:, None]
    return np.stack([_numbers(read_column(table, name), name) for name in names], axis=1)


def _numbers(values: np.ndarray, name: str) -> np.ndarray:
    if values.ndim != 1 or values.dtype.kind not in "fiub":
        raise DataError(f"feature column {name!r} must hold numbers; got {values.dtype} of shape {values.shape}")
    return values.astype(np.float32)


def _labels(columns: Sequence[np.ndarray]) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """Labels as they are; strings become places among the sorted names of both splits."""
    if all(column.dtype.kind in "fiub" for column in columns):
        return list(columns), ()
    texts = [column.astype(str) for column in columns]
    names, codes = np.unique(np.concatenate(texts), return_inverse=True)
    return np.split(codes.reshape(-1), np.cumsum([len(t) for t in texts])[:-1]), tuple(map(str, names))


def schema_names(table: Any, column: str) -> tuple[str, ...]:
    """Label names that the hub's writer leaves in a parquet file's schema; empty without them."""
    try:
        info = json.loads((table.schema.metadata or {})[b"huggingface"])
        return tuple(map(str, info["info"]["features"][column]["names"]))
    except (KeyError, TypeError, ValueError):
        return ()


def _line(error: BaseException) -> str:
    """An exception as one short line."""
    return (" ".join(str(error).split()) or type(error).__name__)[:300]
