"""What a parquet file becomes when it is decoded, before it is: a dictionary of one word can stand for 10^9 rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedskew.data.room import allowed
from fedskew.data.sources.files import EXTRA
from fedskew.errors import DataError, regular

__all__ = ["affordable", "arrow"]

PART = 1 << 27  # bytes of words that are decoded at a time
CELL = 8  # bytes that a value takes at least, of whatever type
WORDS = "BYTE_ARRAY"  # the physical type whose values say their own length


def arrow() -> tuple[Any, Any]:
    """(pyarrow, pyarrow.parquet). Raises DataError without the extra ``hub``."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise DataError(f"reading parquet files needs the extra hub: {EXTRA}") from None
    return pa, pq


def affordable(path: Path) -> None:
    """Raise DataError where a file becomes more than `fedskew.data.room.allowed` says.

    How many numbers there are, and how wide, is known from the file's foot. Words are read a few rows at a time, and
    only counted: no word is longer than what decoding the first row of its row group took, its dictionary included.
    """
    with arrow()[1].ParquetFile(regular(path), memory_map=True) as file:
        most, total = allowed(path.stat().st_size), 0
        for size in _sizes(file, most):
            total += size
            if total > most:
                raise DataError(f"{path} must become at most {most:,} bytes when it is decoded; it becomes more")


def _sizes(file: Any, most: int) -> Iterator[int]:
    """Bytes of each column of each row group: first those that the foot tells, then of words beyond that."""
    groups = [(group, file.metadata.row_group(group)) for group in range(file.metadata.num_row_groups)]
    places = range(file.metadata.num_columns)
    flat = [file.schema.column(place).path for place in places if not file.schema.column(place).max_repetition_level]
    for group, facts in groups:
        # what `column` finds damaged ends the process, in pyarrow 26; a reader raises an error instead
        next(file.iter_batches(1, row_groups=[group], columns=flat, use_threads=False), None)
        for place in places:
            yield int(facts.column(place).num_values) * max(CELL, file.schema.column(place).length or 0)
    for group, facts in groups:
        for place in places:
            if (column := facts.column(place)).physical_type == WORDS:
                yield _counted(file, group, column.path_in_schema, int(column.num_values), most)


def _counted(file: Any, group: int, path: str, values: int, most: int) -> int:
    """Bytes of the words of a column; the count ends where they are more than ``most``."""
    longest, total = _longest(file, group, path), 0
    if values * longest <= most // 16:
        return int(values * longest)
    for batch in file.iter_batches(max(1, PART // longest), row_groups=[group], columns=[path], use_threads=False):
        total += sum(map(_decoded, batch.columns))
        if total > most:
            break
    return int(total)


def _longest(file: Any, group: int, path: str) -> int:
    """Bytes that no word of a column exceeds: what its first row takes to decode, page and dictionary with it."""
    pool = arrow()[0].default_memory_pool()
    before = pool.bytes_allocated()
    batches = file.iter_batches(1, row_groups=[group], columns=[path], use_threads=False)
    next(batches, None)
    return max(1, int(pool.bytes_allocated() - before))


def _decoded(array: Any) -> int:
    """Bytes of an array without dictionaries."""
    pa = arrow()[0]
    if pa.types.is_dictionary(array.type):
        return int(array.dictionary_decode().nbytes)
    if pa.types.is_nested(array.type) and not pa.types.is_map(array.type):
        inner = array.flatten()
        return sum(map(_decoded, inner if isinstance(inner, list) else [inner]))
    return int(array.nbytes)
