"""Parquet files and datasets of the hub, as arrays. The packages of the extra `hub` are imported when needed."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from fedskew.data.sources.files import insist_on_different, reading
from fedskew.data.sources.pictures import ImageMode, decode_images
from fedskew.data.values import allowed, lacks
from fedskew.errors import FieldError, claim, closest, from_json, of_extra, quietly, regular

PART = 1 << 27  # bytes of words that are decoded at a time
CELL = 8  # bytes that a value takes at least, of whatever type
WORDS = "BYTE_ARRAY"  # the physical type whose values say their own length


def arrow() -> tuple[Any, Any]:
    """(pyarrow, pyarrow.parquet). Raises DataError without the extra `hub`."""
    pa, pq = (of_extra("hub", name, "reading parquet files") for name in ("pyarrow", "pyarrow.parquet"))
    return pa, pq


def parquet_files(folder: Path, split: str) -> tuple[Path, ...]:
    """Files `<split>-*.parquet` or `<split>.parquet` of a folder or its subfolder data, sorted by name.

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
        whole = not total.isdigit() or int(total) == len(files)
        claim(whole, place, f"hold {total.lstrip('0')} files {split}-*.parquet", len(files))
        return tuple(files)
    return ()


def read_table(files: Sequence[Path]) -> Any:
    """Read parquet files as one pyarrow table.

    Args:
        files: The files.

    Returns:
        The table.

    Raises:
        DataError: A file is damaged, or the extra `hub` is missing.
    """
    pq, tables = arrow()[1], []
    for file in files:
        with reading(file, "is not a whole parquet file"):
            affordable(file)
            tables.append(pq.read_table(file, partitioning=None, page_checksum_verification=True))
            tables[-1].validate(full=True)
    return together(files, tables)


def together(files: Sequence[Path], tables: Sequence[Any]) -> Any:
    """Tables of several files as one; columns of numbers take the widest type. Raises DataError where types differ."""
    with reading(files[0].parent, "must hold columns of one type in all files"):
        return arrow()[0].concat_tables(tables, promote_options="permissive")


def read_column(table: Any, name: str, mode: ImageMode | None = None, account: list[str] | None = None) -> np.ndarray:
    """Decode a column of a table.

    Args:
        table: A pyarrow table.
        name: Name of the column.
        mode: As for `decode_images`.
        account: As for `decode_images`.

    Returns:
        Images, uint8 [n, channels, H, W]; lists, [n, ...]; or values, [n]. Images are encoded bytes, or the hub's
        struct of bytes and path.

    Raises:
        DataError: There are nulls, ragged rows or unreadable images.
    """
    pa, what = arrow()[0], f"column {name!r}"
    claim(name in table.column_names, what, "be in each table", ", ".join(table.column_names))
    declared = table.schema.field(name).type
    with reading(what, "cannot be read"):
        chunks = table.column(name).chunks
        if pa.types.is_struct(declared):
            claim("bytes" in {field.name for field in declared}, what, "hold images, lists or values", declared)
            chunks = [pa.compute.struct_field(chunk, "bytes") for chunk in chunks]
        claim(chunks, what, "have rows", "none")
        if any(chunk.null_count for chunk in chunks):
            valid = np.concatenate([chunk.is_valid().to_numpy(zero_copy_only=False) for chunk in chunks])
            raise lacks(what, np.flatnonzero(~valid), len(table))
        kind = chunks[0].type
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            pictures = [content for chunk in chunks for content in chunk.to_pylist()]
            return decode_images(pictures, what, mode, account=account)
        if pa.types.is_nested(kind):
            return np.concatenate([_lists(chunk, name) for chunk in chunks])
        return np.concatenate([chunk.to_numpy(zero_copy_only=False) for chunk in chunks])


def _lists(rows: Any, name: str) -> np.ndarray:
    """Lists of numbers as an array [n, ...]; bytes as uint8, other whole numbers as int64, others as float64."""
    types, values, shape = arrow()[0].types, rows, [len(rows)]
    while types.is_list(values.type) or types.is_large_list(values.type) or types.is_fixed_size_list(values.type):
        lengths = np.unique(values.value_lengths().to_numpy(zero_copy_only=False))
        even = not values.null_count and len(lengths) < 2
        claim(even, f"column {name!r}", "have lists of one length", "ragged rows")
        shape.append(int(lengths[0]) if len(lengths) else 0)
        values = values.flatten()
    numbers = types.is_integer(values.type) or types.is_floating(values.type) or types.is_boolean(values.type)
    claim(numbers, f"column {name!r}", "hold lists of numbers", rows.type)
    array: np.ndarray = values.to_numpy(zero_copy_only=False).reshape(shape)
    if types.is_uint8(values.type) and not values.null_count:
        return array  # of pictures, as in an npz file
    return array.astype(np.int64 if types.is_integer(values.type) and not values.null_count else np.float64)


def hub_tables(
    repo: str, config: str | None = None, train: str = "train", test: str | None = None, *, columns: Sequence[str] = ()
) -> tuple[Any, Any | None, dict[str, tuple[str, ...]]]:
    """Load a dataset of the hub with `datasets.load_dataset`.

    Args:
        repo: Id on the hub, or a local folder in the hub's layout.
        config: Configuration, for a dataset with several.
        train: Split to train on.
        test: Split to test on; None takes "test" if it exists.
        columns: Columns to read; empty reads all.

    Returns:
        (training rows, test rows or None, both pyarrow tables; names of the classes by column).

    Raises:
        ConfigError: A split is unknown.
        DataError: The hub cannot be reached, or the extra `hub` is missing.
    """
    datasets = of_extra("hub", "datasets", f"downloading {repo!r}")
    with reading(f"the hub dataset {repo!r}", "could not be loaded"), quietly():
        splits = datasets.load_dataset(repo, config)
    for field, split in (("train_split", train), ("test_split", test)):
        if split is not None and split not in splits:
            raise FieldError("Hub", field, "name a split", split, closest(split, splits).removeprefix("; "))
    chosen = test or ("test" if "test" in splits and train != "test" else None)
    features = splits[train].features
    names = {c: tuple(f.names) for c, f in features.items() if isinstance(f, datasets.ClassLabel)}
    return _rows(splits[train], columns), _rows(splits[chosen], columns) if chosen else None, names


def _rows(split: Any, columns: Sequence[str]) -> Any:
    from datasets.table import embed_table_storage

    split = split.select_columns(list(columns)) if columns else split
    table = split.with_format("arrow")[:]  # images stay encoded: they are decoded here
    images = [name for name, kind in split.features.items() if type(kind).__name__ == "Image"]
    # whether an image is a file beside the table, as in a folder of images
    apart = any(chunk.field("bytes").null_count for name in images for chunk in table.column(name).chunks)
    return embed_table_storage(table) if apart else table


def schema_names(table: Any, column: str) -> tuple[str, ...]:
    """Label names that the hub's writer leaves in a parquet file's schema; empty without them."""
    try:
        info = from_json((table.schema.metadata or {})[b"huggingface"])
        return tuple(map(str, info["info"]["features"][column]["names"]))
    except (KeyError, TypeError, ValueError):
        return ()


# What a file becomes when it is decoded, before it is: a dictionary of one word can stand for 10^9 rows


def affordable(path: Path) -> None:
    """Raise DataError where a file becomes more than `fedskew.data.values.allowed` says.

    How many numbers there are, and how wide, is known from the file's foot. Words are read a few rows at a time, and
    only counted: no word is longer than what decoding the first row of its row group took, its dictionary included.
    """
    with arrow()[1].ParquetFile(regular(path), memory_map=True) as file:
        insist_on_different(path, file.schema_arrow.names)
        most = allowed(path.stat().st_size)
        for total in accumulate(_sizes(file, most)):
            claim(total <= most, path, f"become at most {most:,} bytes when it is decoded; it becomes more")


def _sizes(file: Any, most: int) -> Iterator[int]:
    """Bytes of each column of each row group: first those that the foot tells, then of words beyond that."""
    groups = [(group, file.metadata.row_group(group)) for group in range(file.metadata.num_row_groups)]
    columns = [file.schema.column(place) for place in range(file.metadata.num_columns)]
    flat = [column.path for column in columns if not column.max_repetition_level]
    for group, facts in groups:
        # what `column` finds damaged ends the process, in pyarrow 26; a reader raises an error instead
        next(file.iter_batches(1, row_groups=[group], columns=flat, use_threads=False), None)
        for place, declared in enumerate(columns):
            yield int(facts.column(place).num_values) * max(CELL, declared.length or 0)
    for group, facts in groups:
        for place in range(len(columns)):
            if (column := facts.column(place)).physical_type == WORDS:
                yield _counted(file, group, column.path_in_schema, int(column.num_values), most)


def _counted(file: Any, group: int, path: str, values: int, most: int) -> int:
    """Bytes of the words of a column; the count ends where they are more than `most`."""
    pool = arrow()[0].default_memory_pool()
    before, total = pool.bytes_allocated(), 0
    batches = file.iter_batches(1, row_groups=[group], columns=[path], use_threads=False)
    next(batches, None)
    longest = max(1, int(pool.bytes_allocated() - before))  # no word is longer than what the first row took to decode
    if values * longest <= most // 16:
        return int(values * longest)
    for batch in file.iter_batches(max(1, PART // longest), row_groups=[group], columns=[path], use_threads=False):
        total += sum(map(_decoded, batch.columns))
        if total > most:
            break
    return int(total)


def _decoded(array: Any) -> int:
    """Bytes of an array without dictionaries."""
    pa = arrow()[0]
    if pa.types.is_dictionary(array.type):
        return int(array.dictionary_decode().nbytes)
    if pa.types.is_nested(array.type) and not pa.types.is_map(array.type):
        inner = array.flatten()
        return sum(map(_decoded, inner if isinstance(inner, list) else [inner]))
    return int(array.nbytes)
