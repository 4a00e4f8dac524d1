"""The format of partition files.

A file is an npz (a zip of npy arrays, nothing pickled) with

    header      uint8, UTF-8 JSON: format, version, convention (name and fields of the
                partitioner), seed, clients, classes, training_rows,
                longtail, dataset (name, fingerprint, labels), sha256; overlaps, true where a row has several clients
    offsets     [N + 1]  client k owns rows[offsets[k]:offsets[k + 1]], ascending places in the training set
    rows        [n_used]
    labels      [n_used] the label of each of these rows
    validation, auxiliary   rows set aside, ascending
    test_offsets, test_rows   the rows that each client keeps for its own test, as offsets and rows; absent without a
                local test. A file that has them is of version 2, and its header holds local_test, the fraction
    names       uint8, JSON list of the clients' names; absent where clients are numbers

Arrays are little-endian unsigned integers of 1, 2, 4 or 8 bytes. `sha256` covers the header without itself (JSON, keys
sorted, no spaces), then each other array in the order of the names: name, length, and the values as little-endian
int64. Equal contents give equal files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedskew.data.arrays import Dataset
from fedskew.data.arrays import fingerprint as fingerprint_of
from fedskew.data.partitioners.base import Ints, Partition
from fedskew.data.room import afford
from fedskew.errors import DataError, from_json

__all__ = [
    "ARRAYS",
    "FORMAT",
    "NOBODY",
    "TESTED",
    "TEST_ARRAYS",
    "VERSION",
    "PartitionFile",
    "arrays_of",
    "check_content",
    "content_digest",
    "existing",
    "json_array",
    "labels_digest",
    "read_header",
    "read_names",
    "same_data",
    "write_arrays",
]

FORMAT, VERSION, TESTED = "fedskew-partition", 1, 2  # TESTED: the version with a local test
NOBODY = np.empty(0, np.int64)
ARRAYS = ("auxiliary", "labels", "offsets", "rows", "validation")
TEST_ARRAYS = ("test_offsets", "test_rows")
KEYS = {
    "convention": dict, "seed": (int, type(None)), "clients": int, "classes": int, "training_rows": int,
    "longtail": (int, float, type(None)), "dataset": dict, "sha256": str,
}  # fmt: skip


class PartitionFile(NamedTuple):
    """Checked content of a partition file.

    Attributes:
        header: The header, with ``seed``, ``clients``, ``dataset``, ``sha256`` and more.
        partition: Rows of each client.
        labels: Label of each of these rows, int64 [n_used].
        validation_rows: Rows kept for validation.
        auxiliary_rows: Rows that the server keeps.
        client_names: Names of natural clients; empty where clients are numbers.
        local_test: Rows that each client keeps for its own test; None where the file holds none.
    """

    header: dict[str, Any]
    partition: Partition
    labels: Ints  # [n_used] label of each of the partition's rows
    validation_rows: Ints
    auxiliary_rows: Ints
    client_names: tuple[str, ...] = ()
    local_test: Partition | None = None

    @property
    def counts(self) -> Ints:
        """Label histograms, int64 [N, C]."""
        clients, classes = self.partition.clients, int(self.header["classes"])
        afford(
            8 * clients * classes, "the counts of a partition file", f"it has {clients} clients and {classes} classes"
        )
        cell = np.repeat(np.arange(clients) * classes, self.partition.sizes) + self.labels
        return np.bincount(cell, minlength=clients * classes).reshape(clients, classes)


def labels_digest(labels: npt.ArrayLike) -> str:
    """First 16 hex digits of the sha256 of the labels [n] as little-endian int64."""
    return hashlib.sha256(np.ascontiguousarray(labels, dtype="<i8").data).hexdigest()[:16]


def arrays_of(content: PartitionFile) -> dict[str, npt.NDArray[Any]]:
    """The arrays to write, by name."""
    found = {
        "rows": content.partition.rows, "offsets": content.partition.offsets, "labels": content.labels,
        "validation": content.validation_rows, "auxiliary": content.auxiliary_rows,
    }  # fmt: skip
    if (test := content.local_test) is not None:
        found |= {"test_rows": test.rows, "test_offsets": test.offsets}
    arrays = {name: _narrow(values) for name, values in found.items()}
    return {**arrays, "names": json_array(list(content.client_names))} if content.client_names else arrays


def _narrow(values: Ints) -> npt.NDArray[Any]:
    """The values in the smallest little-endian unsigned type that holds them."""
    top = int(values.max()) if values.size else 0
    return values.astype(next(t for t, bits in (("<u1", 8), ("<u2", 16), ("<u4", 32), ("<u8", 64)) if top < 1 << bits))


def json_array(content: Any) -> npt.NDArray[np.uint8]:
    """JSON as an array of bytes."""
    return np.frombuffer(json.dumps(content, sort_keys=True, separators=(",", ":")).encode(), np.uint8)


def content_digest(header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> str:
    """sha256 of the content, as the module defines it."""
    digest = hashlib.sha256(json_array({k: v for k, v in header.items() if k != "sha256"}).data)
    for name in sorted(arrays):
        digest.update(f"{name} {len(arrays[name])};".encode())
        for at in range(0, len(arrays[name]), 1 << 20):  # a piece at a time: no second copy of all rows
            digest.update(arrays[name][at : at + (1 << 20)].astype("<i8").data)
    return digest.hexdigest()


def write_arrays(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Write the archive to a temporary file, then rename it."""
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
        with os.fdopen(handle, "wb") as opened, zipfile.ZipFile(opened, "w") as archive:
            for name in sorted(arrays):
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:  # of 1980: undated
                    np.lib.format.write_array(member, arrays[name], version=(1, 0), allow_pickle=False)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise DataError(f"cannot write {path}: {error.strerror}") from None


def existing(path: str | Path) -> Path:
    """The path of an existing file."""
    if not Path(path).is_file():
        raise DataError(f"a partition file must exist; got '{path}'")
    return Path(path)


def read_header(arrays: dict[str, npt.NDArray[Any]], path: str) -> dict[str, Any]:
    """The checked header."""
    try:
        header = from_json(arrays["header"].astype(np.uint8).tobytes())
    except (KeyError, ValueError):
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise DataError(f"{path} is not a partition file of fedskew: it has no header of format {FORMAT!r}")
    if (found := header.get("version")) not in (VERSION, TESTED):
        raise DataError(f"{path} has version {found!r} of the format; this fedskew reads {VERSION} and {TESTED}")
    share = header.get("local_test")
    if (found == TESTED) != isinstance(share, float) or any(
        (name in arrays) != (found == TESTED) for name in TEST_ARRAYS
    ):
        raise DataError(f"{path} is not a partition file: its local test and its version do not belong together")
    for key, kind in KEYS.items():
        if key not in header or not isinstance(header[key], kind) or isinstance(header[key], bool):  # type: ignore[arg-type]
            raise DataError(f"{path} is not a partition file: its header lacks {key!r}")
    return header


def read_names(values: npt.NDArray[Any], path: str) -> tuple[str, ...]:
    """The clients' names."""
    try:
        names = from_json(values.astype(np.uint8).tobytes())
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"{path} is not a partition file: its clients' names are not a list of words")
    return tuple(names)


def check_content(content: PartitionFile, path: str) -> None:
    """Raise DataError unless offsets, rows and labels agree, and a row has one owner, or the header tells of more."""
    rows = content.partition.rows
    n, header = int(content.header["training_rows"]), content.header
    parts = [content.partition, *([] if content.local_test is None else [content.local_test])]
    whole = all(_ordered(part) and header["clients"] == len(part.offsets) - 1 for part in parts)
    if not whole or len(content.labels) != len(rows):
        raise DataError(f"{path}: offsets, rows and labels do not belong together")
    owned = np.unique(rows) if header.get("overlaps") is True else rows  # a client has a row once: see _ascending
    every = np.concatenate([owned, *(part.rows for part in parts[1:]), content.validation_rows, content.auxiliary_rows])
    if every.size and not 0 <= every.min() <= every.max() < n:
        raise DataError(f"{path}: rows must be 0..{n - 1}; got {every.min()}..{every.max()}")
    if len(twice := np.flatnonzero(np.diff(np.sort(every)) == 0)):
        raise DataError(f"{path}: row {int(np.sort(every)[twice[0]])} has two owners")
    if not all(map(_ascending, parts)):
        raise DataError(f"{path}: the rows of a client must be in ascending order")
    if len(rows) and not 0 <= content.labels.min() <= content.labels.max() < header["classes"]:
        raise DataError(f"{path}: labels must be 0..{header['classes'] - 1}; got up to {content.labels.max()}")
    if len(content.client_names) not in (0, header["clients"]):
        raise DataError(f"{path}: {len(content.client_names)} names for {header['clients']} clients")


def _ordered(part: Partition) -> bool:
    """Whether the offsets cut the rows."""
    offsets = part.offsets
    return (
        len(offsets) > 1 and offsets[0] == 0 and offsets[-1] == len(part.rows) and bool((np.diff(offsets) >= 0).all())
    )


def _ascending(part: Partition) -> bool:
    """Whether each client's rows are in ascending order."""
    starts = np.zeros(len(part.rows) + 1, dtype=bool)
    starts[part.offsets[:-1]] = True
    return not len(part.rows) or bool(((np.diff(part.rows) > 0) | starts[1:-1]).all())


def same_data(content: PartitionFile, dataset: Dataset, match: str, path: str) -> None:
    """Raise DataError unless the file was made for these data."""
    about = content.header["dataset"]
    y = dataset.y.numpy()
    same_labels = labels_digest(y) == about.get("labels")
    found = dataset.fingerprint or fingerprint_of(dataset)
    told = f"{path} was made for {about.get('name')!r}, fingerprint {about.get('fingerprint') or 'unknown'}"
    if not same_labels:
        raise DataError(f"{told}; the data are {dataset.name!r}, {found}, with other labels")
    if match == "dataset" and about.get("fingerprint") != found:
        hint = "the labels agree: use match='labels' if the features may differ"
        raise DataError(f"{told}; the data are {dataset.name!r}, {found}; {hint}")
    if not np.array_equal(y[content.partition.rows], content.labels):
        raise DataError(f"{path}: the labels of its rows are not those of the data")
