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
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedskew.data.encoding import folded, number_of
from fedskew.data.sources.files import reading
from fedskew.data.values import FARTHEST, RATIO, allowed
from fedskew.errors import DataError, claim, content_of, one_line, opened, some

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
Ints = npt.NDArray[np.int64]
CLIENTS = ("client", "site")  # columns of names in a table of counts
FACTS = ("failure", "up", "down", "step_s", "speed")  # columns there that are no classes
SUMS = ("total", "totals", "sum", "grand total")
OWNER = re.compile(  # a name of a column that tells whose the counts are
    r"(?i)(client|site|hospital|cent(re|er)|clinic|institution|silo|node|user|party)s?([ _-]?(id|no|nr|number|name))?"
    r"|(.*[ _-])?id"
)
THOUSAND = re.compile(r"\d{1,3}\.000")  # 1.000 may be one thousand


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


def read_table(file: Path, separator: str = ",", encoding: str = "utf-8") -> list[tuple[int, list[str]]]:
    """The rows of a csv file that are not blank.

    Args:
        file: The file. A byte order mark says that it is UTF-8, UTF-16 or UTF-32. A first line ``sep=;`` says the
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
                told = re.fullmatch(r"[sS][eE][pP]=(.)\s*", first)
                lines, apart = ([], told[1]) if told else ([first], separator)
                reader = csv.reader(chain(lines, text), delimiter=apart, strict=True)
                rows = [(number, [cell.strip() for cell in row]) for number, row in enumerate(reader, 1) if row]
            except UnicodeError as error:
                rule = f"must be a text in {encoding}"
                raise DataError(f"{file} {rule}: {one_line(error)}; set encoding, for example to cp1252") from None
        if any("\0" in cell for _, row in rows[:2] for cell in row):
            raise DataError(f"{file} must be a text in {encoding}; it holds NUL; set encoding, such as utf-16-le")
        return rows


def insist_on_width(file: Path, rows: Sequence[tuple[int, list[str]]], width: int, hint: str = "") -> None:
    """Raise DataError for the first row that has not ``width`` cells."""
    number, row = next(((n, row) for n, row in rows if len(row) != width), (0, None))
    claim(row is None, file, f"have {width} values a row; row {number} has {len(row or ())}", hint=hint)


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
        if dtype.hasobject:
            raise ValueError(f"{what} holds Python objects, not numbers or strings; save it as array.astype(str)")
        if math.prod(shape) * max(dtype.itemsize, 1) > size:
            told = f"declares an array of shape {shape} and type {dtype}"
            raise ValueError(f"{what} {told}, more than its {size:,} bytes can hold")
        file.seek(0)
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def read_mat(path: Path, names: Sequence[str]) -> list[np.ndarray]:
    """Read arrays of bytes of a MATLAB 5 file, of a little-endian machine. scipy's reader ends the process on damage.

    Raises:
        DataError: It is damaged, or lacks one.
    """
    found: dict[str, np.ndarray] = {}
    with reading(path, "is not a whole MATLAB 5 file"):
        raw = memoryview(content_of(path))
        if bytes(raw[124:128]) != b"\x00\x01IM":
            raise ValueError("it has another head")
        for kind, body in _elements(raw[128:]):
            if kind == 15:  # compressed
                stream = zlib.decompressobj()
                kind, body = next(_elements(memoryview(stream.decompress(body, allowed(len(raw))))))
                if not stream.eof:
                    raise ValueError("a variable is cut off, or becomes too large")
            (_, flags), (_, dims), (_, name), *values = _elements(body)
            if kind == 14 and flags[0] == 9 and values[0][0] == 2:  # an array of bytes, in columns
                shape = np.frombuffer(dims, "<i4").tolist()
                found[bytes(name).decode("latin-1")] = np.frombuffer(values[0][1], np.uint8).reshape(shape, order="F")
    if absent := [name for name in names if name not in found]:
        raise DataError(f"{path} must hold {absent[0]!r}, an array of bytes; got {', '.join(found) or 'no such array'}")
    return [found[name] for name in names]


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
    bounded = fine and bool((np.abs(values.astype(np.float64)) < FARTHEST).all())  # false for NaN and infinity
    whole = values.astype(np.int64) if bounded else None
    if whole is None or not (whole == values).all() or whole.min() < 0 or not whole.any():
        got = f"{values.dtype} of shape {values.shape}"
        raise DataError(f"{what} must be a matrix [clients, classes] of whole numbers >= 0, not all 0; got {got}")
    return whole


class CountTable(NamedTuple):
    """A table of class counts, a row a client."""

    counts: Ints  # [N, C]
    classes: tuple[str, ...] = ()  # empty where the file does not name them
    clients: tuple[str, ...] = ()  # as well
    facts: Mapping[str, list[str]] = MappingProxyType({})  # columns of `FACTS`, as the file has them
    rows: tuple[int, ...] = ()  # number of each client's row in the file


def read_counts(path: str | Path) -> tuple[Ints, tuple[str, ...]]:
    r"""Read a matrix of counts from a file, see `count_table`.

    Args:
        path: A csv or npy file.

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
    found = count_table(path)
    if found.facts:
        told = f"{', '.join(found.facts)}, which are facts of a site for `fedskew rehearse`"
        raise DataError(f"{path} must have columns of classes; got {told}; take them out, or rename the classes")
    return found.counts, found.classes


def count_table(path: str | Path) -> CountTable:
    r"""Read a table of class counts, a row a client.

    A csv file has a head of class names or none; 0, 1, 2 and 1, 2, 3 are such names. Clients are named by a column
    ``client`` or ``site``, by a first column without a name, as pandas and R write it, or by one that the head leaves
    out, as R's ``write.table`` does. What can be read in two ways is refused: a column that numbers the rows, and one
    that is the sum of the others.

    Args:
        path: A csv file, parted by commas, semicolons or tabs, or an npy file.

    Returns:
        The table.

    Raises:
        DataError: The file is absent or damaged, or does not hold counts, or can be read in two ways.

    Example:
        >>> from pathlib import Path
        >>> from fedskew.data.sources.readers import count_table
        >>> _ = Path("sites.csv").write_text('"","cat","dog"\n"va",5,0\n"paris",1,4\n')
        >>> count_table("sites.csv").clients
        ('va', 'paris')
    """
    file = Path(path)
    kind = file.suffix.lower()
    if kind == ".csv":
        return _of_csv(file)
    if kind != ".npy":
        raise DataError(f"a file of counts must end in .csv or .npy; got '{path}'")
    with reading(file, "is not a readable npy file of numbers"), opened(file) as content:
        return CountTable(counts_matrix(read_array(content, file.stat().st_size, "it"), str(path)))


def _of_csv(file: Path) -> CountTable:
    """The table of a csv file."""
    rows = [(number, cells) for number, cells in _parted(file) if any(cells)]
    width = Counter(len(row) for _, row in rows[1:] or rows).most_common(1)[0][0] if rows else 0
    head = rows[0][1] if rows and (len(rows[0][1]) == width - 1 or _names(file, rows[0][1])) else []
    numbers, cells = [n for n, _ in rows[bool(head) :]], [row for _, row in rows[bool(head) :]]
    head = [name.lstrip("# ") for name in head]  # of numpy.savetxt
    head = ["", *head] if head and len(head) == width - 1 else head  # of R's write.table
    if not cells:
        raise DataError(f"{file} must have a line of counts for each client, after a head of class names or none")
    insist_on_width(file, [(1, head or cells[0]), *rows[bool(head) :]], width)
    usual = [name.lower() if name.lower() in (*CLIENTS, *FACTS) else name for name in head]
    keys = [folded(name) for name in usual]
    if twice := next((name for at, name in enumerate(usual) if keys[at] in keys[:at]), None):
        raise DataError(f"{file} must have different column names; got {twice!r} twice")
    if "" in usual[1:] or {*CLIENTS} <= {*usual}:
        raise DataError(f"{file} must name each class, and have one column of client names; got {','.join(head)}")
    words = head and all(not np.isfinite(number_of(row[0])) for row in cells)  # no counts
    index = [0] if head and (not head[0] or words) else []
    named = [at for at, name in enumerate(usual) if name in CLIENTS] or index
    aside = {*named, *index, *(at for at, name in enumerate(usual) if name in FACTS)}
    places = [at for at in range(width) if at not in aside]
    clients = tuple(row[named[0]] or str(i) for i, row in enumerate(cells, 1)) if named else ()
    if len({*map(folded, clients)}) < len(clients):
        raise DataError(f"{file} must name each client or site once; got {some(clients)}")
    classes = tuple(head[at] for at in places) if head else ()
    for number, row in zip(numbers, cells, strict=True):
        for at in places:
            if not 0 <= (value := number_of(row[at])) < FARTHEST or value != int(value) or THOUSAND.fullmatch(row[at]):
                what = f"the cases of {head[at]!r}" if head else "a count"
                raise DataError(f"{file} line {number}: {what} must be a whole number >= 0; got {row[at]!r}")
    values = np.array([[float(row[at]) for at in places] for row in cells]).reshape(len(cells), -1)
    table = CountTable(values.astype(np.int64), classes, clients)
    _insist_on_counts(file, table)
    facts = {name: [row[at] for row in cells] for at, name in enumerate(usual) if name in FACTS}
    return table._replace(facts=facts, rows=tuple(numbers))


def _parted(file: Path) -> list[tuple[int, list[str]]]:
    """The rows of a csv file. A first line without a comma is parted by what it has: counts have no decimal comma."""
    with reading(file, "is not a csv file"), opened(file) as content:
        line = content.readline(1 << 16)
    mark = next((mark for mark in ";\t" if mark.encode() in line and b"," not in line), ",")
    return read_table(file, mark)


def _names(file: Path, line: list[str]) -> bool:
    """Whether the first line has names. Raises DataError where it may as well have counts."""
    if line[0].lower() in ("", *CLIENTS):
        return True
    word = not np.isfinite(number_of(line[0]))
    numbers = np.array([number_of(cell) for cell in line[word:]])
    if not np.isfinite(numbers).all():
        return True
    counted = len(numbers) > 1 and bool((np.diff(numbers) == 1).all())
    if counted and len(numbers) > 2 and numbers[0] in (0, 1):
        return True  # 0, 1, 2 or 1, 2, 3
    if word or (counted and (len(numbers) > 2 or numbers[0] in (0, 1))):
        hint = "name the classes by words and a column of names client, or write the matrix as npy"
        raise DataError(f"{file} must begin with class names or counts; {','.join(line)} may be either; {hint}")
    return False


def _insist_on_counts(file: Path, table: CountTable) -> None:
    """Raise DataError for a column or a row that is probably none of counts: row numbers, and sums."""
    counts, names = table.counts, table.classes
    named = next((name for name in (*names, *table.clients) if folded(name) in SUMS), "")
    told = f"{named!r} is a sum: leave it out" if named else ""
    columns = [f"column {name!r}" for name in names] or [f"column {c + 1}" for c in range(counts.shape[1])]
    first = counts[:, 0] if counts.size else np.zeros(0, np.int64)
    if not table.clients and names and OWNER.fullmatch(names[0]):
        told = f"{columns[0]} tells of clients: name it client, or leave it out"
    if not table.clients and len(first) > bool(names) and first[0] in (0, 1) and (np.diff(first) == 1).all():
        told = f"{columns[0]} numbers the rows: name it client, or leave it out"
    wide = counts.shape[1] > 2 and len(counts) > 1
    if wide and len(sums := np.flatnonzero((2 * counts == counts.sum(1, keepdims=True)).all(0))):
        told = f"{columns[sums[0]]} is the sum of the others: leave it out"
    tall = counts.shape[1] > 1 and len(counts) > 2
    if tall and len(sums := np.flatnonzero((2 * counts == counts.sum(0)).all(1))):
        told = f"row {table.clients[sums[0]] if table.clients else sums[0] + 1} is the sum of the others: leave it out"
    if told:
        raise DataError(f"{file} must hold counts of clients and classes alone; {told}, or write the matrix as npy")
    counts_matrix(counts, str(file))
