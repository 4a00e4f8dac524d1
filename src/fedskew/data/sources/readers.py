"""File formats: csv, idx, npz, MATLAB 5, tables of counts. None of them can run anything."""

import codecs
import csv
import gzip
import io
import math
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedskew.data.sources.files import reading
from fedskew.data.values import RATIO, allowed
from fedskew.errors import DataError, claim, content_of, one_line, opened

MARKS = {  # byte order marks; that of UTF-32 begins as that of UTF-16 does
    codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip
PACKED = {  # first bytes of files that are no text, and what to do
    b"\x1f\x8b": "it is gzip: unpack it (gunzip)", b"BZh": "it is bzip2: unpack it (bunzip2)",
    b"\xfd7zXZ": "it is xz: unpack it (unxz)", b"\x28\xb5\x2f\xfd": "it is zstd: unpack it (unzstd)",
    b"PK\x03\x04": "it is a zip archive or an Excel file: unpack it, or save the sheet as csv",
    b"\xd0\xcf\x11\xe0": "it is an Excel file: save the sheet as csv",
    b"PAR1": "it is parquet: use the dataset parquet",
}  # fmt: skip
AXES = 4  # most of an array of images


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
        fine = start[:3] == b"\x00\x00\x08" and len(start) == 4 and start[3] <= AXES
        claim(fine, path, "be an idx file of bytes, beginning with 000008", start.hex())
        shape = struct.unpack(f">{start[3]}I", content.read(4 * start[3]))
        expected = math.prod(shape)
        if expected > allowed(path.stat().st_size):
            raise DataError(f"{path} is truncated or altered: it cannot hold the {expected} bytes that it declares")
        body = content.read(expected + 1)  # one more than it declares is too many
    if len(body) != expected or not body:
        raise DataError(f"{path} is truncated or altered: expected {expected} bytes of data, got {len(body)}")
    return np.frombuffer(body, np.uint8).reshape(shape)


def text_in(file: Path, fault: str = "is not a text in UTF-8") -> str:
    """A text with line feeds alone: in UTF-8, or as its byte order mark says. Raises DataError, with the fault."""
    with reading(file, fault), opened(file) as content:
        start = content.peek(8)
        encoding = next((name for mark, name in MARKS.items() if start.startswith(mark)), "utf-8")
        with io.TextIOWrapper(content, encoding) as text:
            return text.read()


def read_table(file: Path, separator: str = ",", encoding: str = "utf-8") -> list[tuple[int, list[str]]]:
    """The rows of a csv file that are not blank.

    Args:
        file: The file. A byte order mark says that it is UTF-8, UTF-16 or UTF-32. A first line `sep=;` says the
            separator, and counts as no row.
        separator: One character.
        encoding: Of a file without a byte order mark.

    Returns:
        (number of the record in the file, its cells without blanks around them); the line of names is row 1.

    Raises:
        DataError: It is not a csv file.
    """
    with reading(file, "is not a csv file"), opened(file) as content:
        start = content.peek(8)
        for mark, hint in PACKED.items():
            if start.startswith(mark):
                raise DataError(f"{file} must be a text; {hint}")
        encoding = next((name for mark, name in MARKS.items() if start.startswith(mark)), encoding)
        with io.TextIOWrapper(content, encoding=encoding, newline="") as text:
            try:
                first = text.readline()
                match = re.fullmatch(r"[sS][eE][pP]=(.)\s*", first)
                lines, apart = ([], match[1]) if match else ([first], separator)
                reader = csv.reader(chain(lines, text), delimiter=apart, strict=True, skipinitialspace=apart != " ")
                rows = [(number, [cell.strip() for cell in row]) for number, row in enumerate(reader, 1) if row]
            except UnicodeError as error:
                rule = f"must be a text in {encoding}"
                raise DataError(f"{file} {rule}: {one_line(error)}; set encoding, for example to cp1252") from None
        if any("\0" in cell for _, row in rows[:2] for cell in row):
            raise DataError(f"{file} must be a text in {encoding}; it holds NUL; set encoding, such as utf-16-le")
        return rows


def insist_on_width(file: Path, rows: Sequence[tuple[int, list[str]]], width: int, hint: str = "") -> None:
    """Raise DataError for the first row that has not `width` cells."""
    number, row = next(((n, row) for n, row in rows if len(row) != width), (0, None))
    claim(row is None, file, f"have {width} values a row; row {number} has {len(row or ())}", hint=hint)


def read_npz(path: Path, packed: bool = True) -> dict[str, np.ndarray]:
    """Read every array of an npz file.

    Args:
        path: The file.
        packed: Whether its arrays may be compressed. Else they take no more memory than the file.

    Returns:
        Arrays by name.

    Raises:
        DataError: The file is damaged, is not an npz file, or holds arrays of objects, which would need pickle.
    """
    claim(not path.is_file() or zipfile.is_zipfile(path), path, "be an npz file: a zip archive, as numpy.savez writes")
    arrays = {}
    fault = "is not a readable npz file of plain arrays"
    with reading(path, fault), opened(path) as file, zipfile.ZipFile(file) as archive:
        ratio, whole, members = RATIO if packed else 1, path.stat().st_size, archive.infolist()
        if not packed and any(m.compress_type != zipfile.ZIP_STORED for m in members):
            raise ValueError("its arrays are compressed")
        if (total := sum(m.file_size for m in members)) > ratio * whole + 1024 * len(members):
            raise ValueError(f"its members declare {total:,} bytes, more than its {whole:,} bytes can hold")
        for info in members:
            if info.file_size > ratio * min(info.compress_size, whole) + 1024:
                raise ValueError(f"{info.filename} declares {info.file_size:,} bytes, more than the archive can hold")
            with archive.open(info) as content:
                arrays[info.filename.removesuffix(".npy")] = read_array(content, info.file_size, info.filename)
    return arrays


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
        if dtype.hasobject:
            raise ValueError(f"{what} holds Python objects, not numbers or strings; save it as array.astype(str)")
        if math.prod(shape) * max(dtype.itemsize, 1) > size:
            got = f"declares an array of shape {shape} and type {dtype}"
            raise ValueError(f"{what} {got}, more than its {size:,} bytes can hold")
        file.seek(0)
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def read_mat(path: Path, names: Sequence[str]) -> list[np.ndarray]:
    """Read arrays of bytes of a MATLAB 5 file, of a little-endian machine. scipy's reader ends the process on damage.

    Raises:
        DataError: It is damaged, or lacks one.
    """
    named: dict[str, np.ndarray] = {}
    with reading(path, "is not a whole MATLAB 5 file"):
        raw = memoryview(content_of(path))
        if bytes(raw[124:128]) != b"\x00\x01IM":
            raise ValueError("it has another head; save it anew, in MATLAB with -v7")
        for kind, body in _elements(raw[128:]):
            if kind == 15:  # compressed
                stream = zlib.decompressobj()
                kind, body = next(_elements(memoryview(stream.decompress(body, allowed(len(raw))))))
                if not stream.eof:
                    raise ValueError("a variable is cut off, or becomes too large")
            (_, flags), (_, dims), (_, name), *values = _elements(body)
            if kind == 14 and flags[0] == 9 and values[0][0] == 2:  # an array of bytes, in columns
                shape = np.frombuffer(dims, "<i4").tolist()
                named[bytes(name).decode("latin-1")] = np.frombuffer(values[0][1], np.uint8).reshape(shape, order="F")
    if absent := [name for name in names if name not in named]:
        raise DataError(f"{path} must hold {absent[0]!r}, an array of bytes; got {', '.join(named) or 'no such array'}")
    return [named[name] for name in names]


def _elements(raw: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Type and bytes of each element of a MATLAB 5 file. Raises ValueError where one is cut off."""
    at = 0
    while at < len(raw):
        kind, size = struct.unpack_from("<2I", raw, at)
        if kind >> 16:  # of at most 4 bytes, in the place of the size
            yield kind & 0xFFFF, raw[at + 4 : at + 4 + min(kind >> 16, 4)]
            at += 8
            continue
        if size > len(raw) - at - 8:
            raise ValueError(f"it declares {size:,} bytes, and {len(raw) - at - 8:,} are left")
        yield kind, raw[at + 8 : at + 8 + size]
        at += 8 + size + (-size % 8 if kind != 15 else 0)
