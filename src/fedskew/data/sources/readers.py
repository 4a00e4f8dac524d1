"""File formats: csv, idx, CIFAR's pickles, MATLAB, npz. Pickles are read without running anything in them."""

from __future__ import annotations

import csv
import io
import math
import pickle
import pickletools
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedskew.data.room import RATIO, allowed, unpacked
from fedskew.data.sources.files import reading
from fedskew.errors import DataError, content_of, opened

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
    with reading(path, "is damaged"), opened(path) as file, unpacked(file) as content:
        shape = _idx_shape(content, path)
        expected = math.prod(shape)
        if expected > allowed(path.stat().st_size):
            raise DataError(f"{path} is truncated or altered: it cannot hold the {expected} bytes that it declares")
        body = content.read(expected + 1)  # one more than it declares is too many
    if len(body) != expected:
        got = f"more than {expected}" if len(body) > expected else len(body)
        raise DataError(f"{path} is truncated or altered: expected {expected} bytes of data, got {got}")
    if not body:
        raise DataError(f"{path} must hold rows; got none")
    return np.frombuffer(body, np.uint8).reshape(shape)


def _idx_shape(content: IO[bytes], path: Path) -> tuple[int, ...]:
    """The sizes in the head of an idx file. Raises DataError."""
    start = content.read(4)
    axes = start[3] if len(start) == 4 else 0
    sizes = content.read(4 * min(axes, AXES))
    if start[:3] != b"\x00\x00\x08" or len(start) < 4 or len(sizes) < 4 * min(axes, AXES):
        raise DataError(f"{path} is not an idx file of bytes; its first bytes are {start.hex()}, expected 000008..")
    if axes > AXES:
        raise DataError(f"{path} must have at most {AXES} axes; its head declares {axes}")
    return struct.unpack(f">{axes}I", sizes)


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


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Read every array of an npz file.

    Args:
        path: The file.

    Returns:
        Arrays by name.

    Raises:
        DataError: The file is damaged, is not an npz file, or holds arrays of objects, which would need pickle.
    """
    if path.is_file() and not zipfile.is_zipfile(path):
        raise DataError(f"{path} is not a readable npz file: it is no zip archive, as numpy.savez writes")
    fault = "is not a readable npz file of plain arrays"
    with reading(path, fault), opened(path) as file, zipfile.ZipFile(file) as archive:
        whole, members = path.stat().st_size, archive.infolist()
        if (total := sum(m.file_size for m in members)) > RATIO * whole + 1024 * len(members):
            raise ValueError(f"its members declare {total:,} bytes, more than its {whole:,} bytes can hold")
        return {m.filename.removesuffix(".npy"): _member(archive, m, whole) for m in members}


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, whole: int) -> np.ndarray:
    """An array of an npz file of ``whole`` bytes; nothing is allocated that the file cannot fill."""
    if info.file_size > RATIO * min(info.compress_size, whole) + 1024:
        raise ValueError(f"{info.filename} declares {info.file_size:,} bytes, more than the archive can hold")
    with archive.open(info) as content:
        return read_array(content, info.file_size, info.filename)


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


def read_mat(path: Path, names: Sequence[str]) -> list[np.ndarray]:
    """Read uint8 arrays of a MATLAB 5 file.

    Args:
        path: The file.
        names: Names of the arrays.

    Returns:
        The arrays, in the order of the names.

    Raises:
        DataError: The file is damaged or lacks an array.
    """
    from scipy.io import loadmat

    with reading(path, "is not a whole MATLAB 5 file"), opened(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy warns of variables that it cannot read
        content = loadmat(file, variable_names=list(names))
    arrays = [content.get(name) for name in names]
    for name, array in zip(names, arrays, strict=True):
        if not isinstance(array, np.ndarray) or array.dtype != np.uint8:
            raise DataError(f"{path} must hold {name!r}, an array of bytes; it is truncated or another file")
    return arrays


def read_bytes(path: Path) -> bytes:
    """The content of a file. Raises DataError when it cannot be read."""
    with reading(path, "cannot be read"):
        return content_of(path)


def read_members(path: Path, members: Sequence[str]) -> dict[str, bytes]:
    """Read members of a tar archive in one pass, without extracting files.

    Args:
        path: The archive.
        members: Names of the members.

    Returns:
        Contents by ``path:member``, in the order asked for.

    Raises:
        DataError: The archive is damaged or lacks a member.
    """
    found: dict[str, bytes] = {}
    with (
        reading(path, "is truncated or damaged"),
        opened(path) as packed,
        unpacked(packed) as stream,
        tarfile.open(fileobj=stream, mode="r|") as archive,
    ):
        for info in archive:
            if info.issparse():
                raise tarfile.ReadError(f"{info.name} declares holes, which no published archive has")
            if info.name in members and info.isfile() and (content := archive.extractfile(info)):
                found[info.name] = content.read()
    if lacking := [m for m in members if m not in found]:
        raise DataError(f"{path} must hold {lacking[0]!r}; it is not in the archive")
    return {f"{path}:{m}": found[m] for m in members}


def read_cifar(batches: Sequence[tuple[str, bytes]], keys: Sequence[str]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Decode official CIFAR batches.

    Args:
        batches: (name, content) of each batch.
        keys: Keys of the label lists to read.

    Returns:
        (images, uint8 [n, 3, 32, 32]; labels, int64 [n], for each key).

    Raises:
        DataError: A batch is not a pickle of arrays, or lacks rows or labels.
    """
    images, labels = [], []
    for what, raw in batches:
        content = safe_unpickle(raw, what)
        batch = {_text(k): v for k, v in content.items()} if isinstance(content, dict) else {}
        x = batch.get("data")
        if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or x.ndim != 2 or x.shape[1] != 3072:
            raise DataError(f"{what} must hold 'data' of uint8 rows with 3072 bytes")
        images.append(x.reshape(-1, 3, 32, 32))
        labels.append([_label_list(batch, key, len(x), what) for key in keys])
    return np.concatenate(images), [np.concatenate(column) for column in zip(*labels, strict=True)]


def _label_list(batch: dict[str, Any], key: str, rows: int, what: str) -> np.ndarray:
    """The whole-number labels of a batch under one key."""
    values = batch.get(key)
    if not isinstance(values, list | np.ndarray) or len(values) != rows:
        raise DataError(f"{what} must hold {key!r} with {rows} labels")
    try:
        return np.array(values, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{what} must hold {key!r} with whole numbers") from None


class _Dtype:
    """Replaces numpy.dtype in pickles; plain numbers only."""

    def __init__(self, code: str | bytes, *_: object) -> None:
        self.value = np.dtype(_text(code))
        if self.value.kind not in "uif" or self.value.fields is not None:
            raise pickle.UnpicklingError(f"dtype {code!r} is not allowed")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in (">", b">"):
            self.value = self.value.newbyteorder(">")


class _Array:
    """Replaces numpy.ndarray in pickles, so that numpy's own unpickling never runs."""

    value: np.ndarray

    def __init__(self, *_: object) -> None:
        self.value = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, raw = state
        self.value = _frombuffer(raw, dtype, shape, "F" if fortran else "C").value


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _frombuffer(raw: bytes | bytearray | str, dtype: _Dtype, shape: Any, order: Any = "C") -> _Array:
    made = _Array()
    data = raw.encode("latin1") if isinstance(raw, str) else raw
    made.value = np.frombuffer(bytes(data), dtype.value).reshape(tuple(shape), order="F" if order == "F" else "C")
    return made


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"encoding {encoding!r} is not allowed")
    return text.encode("latin1")


ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _frombuffer,
    ("numpy._core.numeric", "_frombuffer"): _frombuffer,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
}


PUTS = ("PUT", "BINPUT", "LONG_BINPUT")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is neither an array nor a container")
        allowed = ALLOWED[module, name]
        # a fresh function each time: a pickle may set attributes on what it is given
        return allowed if isinstance(allowed, type) else lambda *given: allowed(*given)


def safe_unpickle(raw: bytes, what: str) -> Any:
    """Read dicts, lists, strings, numbers and arrays from a pickle.

    Args:
        raw: The pickle.
        what: Its name in error messages.

    Returns:
        The content.

    Raises:
        DataError: The pickle names anything else, which is then not called.
    """
    with reading(what, "is refused as a pickle of arrays"):
        _bounded(raw)
        return _plain(_Unpickler(io.BytesIO(raw), encoding="bytes").load())


def _bounded(raw: bytes) -> None:
    """Refuse a place in the pickle's memo that it cannot have used: Python would allocate all places before it."""
    for opcode, place, _ in pickletools.genops(raw):
        if opcode.name in PUTS and place is not None and place > len(raw):
            raise pickle.UnpicklingError(f"it declares {place:,} remembered objects in {len(raw):,} bytes")


def _plain(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _plain(value) for key, value in node.items()}
    return node.value if isinstance(node, _Array) else node


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)
