"""File formats: csv, idx, npz, MATLAB 5, tables of counts. None of them can run anything."""

import csv
import gzip
import io
import math
import struct
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedskew.data.encoding import number_of
from fedskew.data.sources.files import reading
from fedskew.data.values import RATIO, allowed
from fedskew.errors import DataError, content_of, opened

AXES = 4  # most of an array of images
Ints = npt.NDArray[np.int64]
LARGEST = 2.0**53  # rows of a cell: whole numbers below it are exact in float64


def read_idx(path: Path) -> np.ndarray:
    """Read an idx file of bytes, gzipped or not.

    The format is: magic 0, 0, 8, number of axes; big-endian sizes; the bytes.

    Args:
        path: The file.

    Returns:
        uint8 array.

    Raises:
        DataError: The file is damaged, truncated or of another format.
    """
    with reading(path, "is damaged"), opened(path) as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        content: Any = gzip.GzipFile(fileobj=file) if packed else file
        start = content.read(4)
        if start[:3] != b"\x00\x00\x08" or len(start) < 4 or start[3] > AXES:
            raise DataError(f"{path} is not an idx file of bytes; its first bytes are {start.hex()}, expected 000008..")
        shape = struct.unpack(f">{start[3]}I", content.read(4 * start[3]))
        expected = math.prod(shape)
        if expected > allowed(path.stat().st_size):
            raise DataError(f"{path} is truncated or altered: it cannot hold the {expected} bytes that it declares")
        body = content.read(expected + 1)  # one more than it declares is too many
    if len(body) != expected or not body:
        raise DataError(f"{path} is truncated or altered: expected {expected} bytes of data, got {len(body)}")
    return np.frombuffer(body, np.uint8).reshape(shape)


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
    with (
        reading(file, "is not a csv file"),
        io.TextIOWrapper(opened(file), encoding="utf-8-sig", newline="") as text,
    ):
        reader = csv.reader(text, delimiter=separator, strict=True)
        return [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]


class Npz(NamedTuple):
    """An open npz file."""

    archive: zipfile.ZipFile
    size: int  # bytes of the file
    members: dict[str, zipfile.ZipInfo]  # by the name of the array

    def read(self, name: str) -> np.ndarray:
        """One of its arrays. Raises ValueError for more than the file can fill; nothing is allocated then."""
        info = self.members[name]
        if info.file_size > RATIO * min(info.compress_size, self.size) + 1024:
            raise ValueError(f"{info.filename} declares {info.file_size:,} bytes, more than the archive can hold")
        with self.archive.open(info) as content:
            return read_array(content, info.file_size, info.filename)


@contextmanager
def open_npz(path: Path) -> Iterator[Npz]:
    """Open an npz file, whose arrays are read one by one.

    Args:
        path: The file.

    Yields:
        The open file.

    Raises:
        DataError: As `read_npz`, also for what is read within the block.
    """
    if path.is_file() and not zipfile.is_zipfile(path):
        raise DataError(f"{path} is not a readable npz file: it is no zip archive, as numpy.savez writes")
    fault = "is not a readable npz file of plain arrays"
    with reading(path, fault), opened(path) as file, zipfile.ZipFile(file) as archive:
        whole, members = path.stat().st_size, archive.infolist()
        if (total := sum(m.file_size for m in members)) > RATIO * whole + 1024 * len(members):
            raise ValueError(f"its members declare {total:,} bytes, more than its {whole:,} bytes can hold")
        yield Npz(archive, whole, {m.filename.removesuffix(".npy"): m for m in members})


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Read every array of an npz file.

    Args:
        path: The file.

    Returns:
        Arrays by name.

    Raises:
        DataError: The file is damaged, is not an npz file, or holds arrays of objects, which would need pickle.
    """
    with open_npz(path) as file:
        return {name: file.read(name) for name in file.members}


def read_array(file: IO[bytes], size: int, what: str) -> np.ndarray:
    """Read an npy file, after its head was compared with its size.

    Args:
        file: The file.
        size: Its bytes.
        what: Its name in error messages.

    Returns:
        The array.

    Raises:
        ValueError: It is damaged, holds Python objects, or declares more values than it has bytes.
    """
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy warns of heads that Python 2 wrote
        shape, _, dtype = read(file)
        if math.prod(shape) * max(dtype.itemsize, 1) > size:
            told = f"declares an array of shape {shape} and type {dtype}"
            raise ValueError(f"{what} {told}, more than its {size:,} bytes can hold")
        file.seek(0)
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def read_bytes(path: Path) -> bytes:
    """The content of a file. Raises DataError when it cannot be read."""
    with reading(path, "cannot be read"):
        return content_of(path)


def counts_matrix(values: npt.NDArray[Any], what: str) -> Ints:
    """Check a matrix of counts.

    Args:
        values: Array to check.
        what: Its name in the error message.

    Returns:
        The counts, int64 [N, C].

    Raises:
        DataError: It is not a non-empty matrix of whole numbers of at least 0, or it is all 0.
    """
    fine = values.ndim == 2 and values.size and values.dtype.kind in "iuf"
    bounded = fine and bool((np.abs(values.astype(np.float64)) < LARGEST).all())  # false for NaN and infinity
    whole = values.astype(np.int64) if bounded else None
    if whole is None or not (whole == values).all() or whole.min() < 0 or not whole.any():
        got = f"{values.dtype} of shape {values.shape}"
        raise DataError(f"{what} must be a matrix [clients, classes] of whole numbers >= 0, not all 0; got {got}")
    return whole


def read_counts(path: str | Path) -> tuple[Ints, tuple[str, ...]]:
    r"""Read a matrix of counts from a file.

    Args:
        path: A csv file, with or without a line of class names, or an npy file.

    Returns:
        The counts [N, C] and the class names, if any.

    Raises:
        DataError: The file is absent or damaged, or does not hold a matrix of counts.

    Example:
        >>> from pathlib import Path
        >>> from fedskew.data.sources.readers import read_counts
        >>> _ = Path("counts.csv").write_text("cat,dog\n5,0\n1,4\n")
        >>> read_counts("counts.csv")[0].tolist()
        [[5, 0], [1, 4]]
    """
    file = Path(path)
    kind = file.suffix.lower()
    if kind == ".csv":
        return _of_csv(file)
    if kind == ".npy":
        with reading(file, "is not a readable npy file of numbers"), opened(file) as content:
            values = read_array(content, file.stat().st_size, "it")
        return counts_matrix(values, str(path)), ()
    raise DataError(f"a file of counts must end in .csv or .npy; got '{path}'")


def _of_csv(file: Path) -> tuple[Ints, tuple[str, ...]]:
    """The numbers of a csv file, and its line of class names if it has one."""
    rows = [(number, cells) for number, cells in read_table(file) if any(cells)]
    head: tuple[str, ...] = ()
    if rows and not all(np.isfinite(number_of(cell)) for cell in rows[0][1]):
        head, rows = tuple(rows[0][1]), rows[1:]
    if not rows or len({len(cells) for _, cells in rows} | ({len(head)} if head else set())) != 1:
        raise DataError(f"{file} must hold as many numbers on each line, after a head of class names or none")
    for number, cells in rows:
        for cell in cells:
            if not np.isfinite(number_of(cell)):
                raise DataError(f"{file} line {number}: a count must be a whole number; got {cell!r}")
    return counts_matrix(np.array([cells for _, cells in rows], dtype=np.float64), str(file)), head
