"""Partition files: a split written once and read back to the bit on any machine.

A file is an npz (a zip of npy arrays, nothing pickled) with

    header      uint8, UTF-8 JSON: format, version, convention (name and fields of the
                partitioner), seed, clients, classes, training_rows,
                longtail, dataset (name, fingerprint, labels), sha256
    offsets     [N + 1]  client k owns rows[offsets[k]:offsets[k + 1]], ascending places in the training set
    rows        [n_used]
    labels      [n_used] the label of each of these rows
    validation, auxiliary   rows set aside, ascending
    names       uint8, JSON list of the clients' names; absent where clients are numbers

Arrays are little-endian unsigned integers of 1, 2, 4 or 8 bytes. `sha256` is over the header without itself (JSON, keys
sorted, no spaces), then over each other array in the order of the names: name, length, and the values as little-endian
int64. Equal contents give equal files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fedskew.data.arrays import Dataset
from fedskew.data.arrays import fingerprint as fingerprint_of
from fedskew.data.partitioners.base import Columns, Ints, Partition, Partitioner, Table, table_of
from fedskew.data.sources.readers import read_npz
from fedskew.errors import ConfigError, DataError, require
from fedskew.fields import demand

if TYPE_CHECKING:
    from fedskew.data.federation import Federation

__all__ = ["File", "PartitionFile", "labels_digest", "load_partition", "save_partition", "verify_partition"]

FORMAT, VERSION = "fedskew-partition", 1
NOBODY = np.empty(0, np.int64)
ARRAYS = ("auxiliary", "labels", "offsets", "rows", "validation")
KEYS = {
    "convention": dict, "seed": (int, type(None)), "clients": int, "classes": int, "training_rows": int,
    "longtail": (int, float, type(None)), "dataset": dict, "sha256": str,
}  # fmt: skip


class PartitionFile(NamedTuple):
    """What a partition file holds, checked."""

    header: dict[str, Any]
    partition: Partition
    labels: Ints  # [n_used] label of each of the partition's rows
    validation_rows: Ints
    auxiliary_rows: Ints
    client_names: tuple[str, ...] = ()

    @property
    def counts(self) -> Ints:
        """Label histograms, [N, C]."""
        clients, classes = self.partition.clients, int(self.header["classes"])
        cell = np.repeat(np.arange(clients) * classes, self.partition.sizes) + self.labels
        return np.bincount(cell, minlength=clients * classes).reshape(clients, classes)


def save_partition(
    path: str | Path,
    source: Federation | Partition,
    *,
    dataset: Dataset | None = None,
    labels: npt.ArrayLike | None = None,
    partitioner: Partitioner | None = None,
    seed: int | None = None,
) -> str:
    """Write a federation's partition, or a partition of ``dataset`` or of ``labels`` [n], whole or not at all.

    Returns the content's sha256. ``partitioner`` and ``seed`` say where a bare partition comes from. Raises DataError
    where the rows do not fit the data, ConfigError where neither data nor labels are given or the path has another
    suffix than .npz.
    """
    require(Path(path).suffix == ".npz", "the path of a partition file", "end in .npz", str(path))
    if isinstance(source, Partition):
        content = _of_partition(source, dataset, labels, partitioner, seed)
    else:
        content = _of_federation(source)
    _check(content, str(path))
    arrays = _arrays(content)
    header = {**content.header, "sha256": _digest(content.header, arrays)}
    arrays["header"] = _json(header)
    _write(Path(path), arrays)
    return str(header["sha256"])


def load_partition(
    path: str | Path, dataset: Dataset | None = None, match: Literal["dataset", "labels"] = "dataset"
) -> PartitionFile:
    """The content of a partition file, its hash and its structure checked, and against ``dataset`` where one is given.

    ``match`` "labels" takes a dataset with the same labels and other features (another padding). Raises DataError.
    """
    arrays = read_npz(_existing(path))
    header = _header(arrays, str(path))
    for name in ARRAYS:
        if name not in arrays or arrays[name].ndim != 1 or arrays[name].dtype.kind != "u":
            raise DataError(f"{path} is not a partition file: array {name!r} is missing or not a vector of integers")
    if _digest(header, {n: a for n, a in arrays.items() if n != "header"}) != header["sha256"]:
        raise DataError(f"{path} was altered or damaged: its content does not have the hash {header['sha256'][:16]}…")
    names = _names(arrays["names"], str(path)) if "names" in arrays else ()
    plain = {name: arrays[name].astype(np.int64) for name in ARRAYS}
    partition = Partition(plain["rows"], plain["offsets"])
    content = PartitionFile(header, partition, plain["labels"], plain["validation"], plain["auxiliary"], names)
    _check(content, str(path))
    if dataset is not None:
        _same_data(content, dataset, match, str(path))
    return content


def verify_partition(
    path: str | Path, dataset: Dataset | None = None, match: Literal["dataset", "labels"] = "dataset"
) -> dict[str, Any]:
    """The header of a partition file that is whole and, where a dataset is given, made for it; else DataError."""
    content = load_partition(path, dataset, match)
    sizes = content.partition.sizes
    facts = {"rows": len(content.partition.rows), "empty_clients": int((sizes == 0).sum())}
    checked = "no dataset was given" if dataset is None else f"same {match}"
    return {**content.header, **facts, "content": "intact", "data": checked}


@dataclass(frozen=True)
class File(Partitioner):
    """A split from a partition file: exactly its rows, whatever the seed; refused for other data than it was made for.

    Rows set aside for validation and for the server come from the file, too.
    """

    name: ClassVar[str] = "file"
    formula: ClassVar[str] = "the row lists of the file"
    users: ClassVar[str] = "FL-bench, PFLlib and LEAF by files of their own"
    limits: ClassVar[str] = "as the partitioner that made it"
    path: str = ""
    """The partition file, .npz."""
    match: Literal["dataset", "labels"] = "dataset"
    """What must equal: the whole dataset, or its labels only (images padded or scaled otherwise)."""
    sha256: str = ""
    """The file's hash or its first digits: a run records it, and another file is refused then; empty takes any."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(self.path))
        super().__post_init__()

    @property
    def decides(self) -> bool:
        """The file says how many clients there are."""
        return True

    def count(self, columns: Columns) -> int:
        """Clients of the file."""
        return self.load().partition.clients

    def load(self, dataset: Dataset | None = None) -> PartitionFile:
        """The file's content. Raises ConfigError where no path is given, DataError as `load_partition`."""
        demand(self, "path", bool(self.path), "name a partition file", "make one by save_partition")
        content = load_partition(self.path, dataset, self.match)
        found = content.header["sha256"]
        if not found.startswith(self.sha256):
            raise DataError(f"{self.path} must be the file of the run, sha256 {self.sha256}…; got {found[:16]}…")
        return content

    def split(self, labels: npt.ArrayLike, clients: int, seed: int, columns: Columns | None = None) -> Partition:
        """The file's partition, if it was made for these labels."""
        table_of(labels, columns)
        content = self.load()
        wanted = content.partition.clients
        require(clients == wanted, "clients", "equal those of the partition file", clients, f"use {wanted}")
        if labels_digest(labels) != content.header["dataset"].get("labels"):
            raise DataError(f"{self.path} was made for other labels than these {len(np.asarray(labels))}")
        return content.partition

    def draw(self, table: Table, clients: int, gen: np.random.Generator) -> Partition:
        """The file's partition."""
        return self.load().partition


def labels_digest(labels: npt.ArrayLike) -> str:
    """First 16 hex digits of the sha256 of the labels [n] as little-endian int64."""
    return hashlib.sha256(np.ascontiguousarray(labels, dtype="<i8").data).hexdigest()[:16]


# what a file is made of


def _of_federation(fed: Federation) -> PartitionFile:
    data = fed.dataset
    about = {"name": data.name, "fingerprint": data.fingerprint or fingerprint_of(data)}
    header = _described(fed.partitioner, fed.seed, fed.partition, data.y.numpy(), data.classes, about)
    labels = data.y.numpy()[fed.partition.rows]
    aside = np.sort(fed.validation_rows), np.sort(fed.auxiliary_rows)
    return PartitionFile({**header, "longtail": fed.longtail}, fed.partition, labels, *aside, fed.client_names)


def _of_partition(
    source: Partition,
    dataset: Dataset | None,
    labels: npt.ArrayLike | None,
    partitioner: Partitioner | None,
    seed: int | None,
) -> PartitionFile:
    if (dataset is None) == (labels is None):
        raise ConfigError("save_partition must be given a dataset or labels beside a bare partition, one of both")
    about: dict[str, Any] = {"name": "labels", "fingerprint": ""}
    y, classes = np.asarray(labels), 0
    if dataset is not None:
        y, classes = dataset.y.numpy(), dataset.classes
        about = {"name": dataset.name, "fingerprint": dataset.fingerprint or fingerprint_of(dataset)}
    table_of(y, None)
    if source.rows.size and not 0 <= source.rows.min() <= source.rows.max() < len(y):
        raise DataError(f"the partition must have rows 0..{len(y) - 1} of the data; got up to {source.rows.max()}")
    header = _described(partitioner, seed, source, y, classes or int(y.max()) + 1, about)
    return PartitionFile(header, source, y[source.rows].astype(np.int64), NOBODY, NOBODY)


def _described(
    partitioner: Partitioner | None,
    seed: int | None,
    partition: Partition,
    y: Ints,
    classes: int,
    about: dict[str, Any],
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "convention": _spec(partitioner),
        "seed": seed,
        "clients": partition.clients,
        "classes": classes,
        "training_rows": len(y),
        "longtail": None,
        "dataset": {**about, "labels": labels_digest(y)},
    }


def _spec(partitioner: Any) -> dict[str, Any]:
    """Name and fields of a partitioner, and of its base; a matrix is left out: the rows hold it."""
    if partitioner is None:
        return {"name": "unknown"}
    fields = dataclasses.fields(partitioner) if dataclasses.is_dataclass(partitioner) else ()
    values = {f.name: getattr(partitioner, f.name) for f in fields if f.name != "matrix"}
    told = {n: _spec(v) if isinstance(v, Partitioner) else v for n, v in values.items()}
    plain = {n: v if isinstance(v, str | int | float | bool | dict | None) else str(v) for n, v in told.items()}
    return {"name": partitioner.name, **plain}


def _arrays(content: PartitionFile) -> dict[str, npt.NDArray[Any]]:
    found = {
        "rows": content.partition.rows, "offsets": content.partition.offsets, "labels": content.labels,
        "validation": content.validation_rows, "auxiliary": content.auxiliary_rows,
    }  # fmt: skip
    arrays = {name: _narrow(values) for name, values in found.items()}
    return {**arrays, "names": _json(list(content.client_names))} if content.client_names else arrays


def _narrow(values: Ints) -> npt.NDArray[Any]:
    """The smallest little-endian unsigned type that holds the values; all must be >= 0."""
    top = int(values.max()) if values.size else 0
    return values.astype(next(t for t, bits in (("<u1", 8), ("<u2", 16), ("<u4", 32), ("<u8", 64)) if top < 1 << bits))


def _json(content: Any) -> npt.NDArray[np.uint8]:
    return np.frombuffer(json.dumps(content, sort_keys=True, separators=(",", ":")).encode(), np.uint8)


def _digest(header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> str:
    digest = hashlib.sha256(_json({k: v for k, v in header.items() if k != "sha256"}).data)
    for name in sorted(arrays):
        digest.update(f"{name} {len(arrays[name])};".encode())
        for at in range(0, len(arrays[name]), 1 << 20):  # a piece at a time: no second copy of all rows
            digest.update(arrays[name][at : at + (1 << 20)].astype("<i8").data)
    return digest.hexdigest()


def _write(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
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


# what is checked


def _existing(path: str | Path) -> Path:
    if not Path(path).is_file():
        raise DataError(f"a partition file must exist; got '{path}'")
    return Path(path)


def _header(arrays: dict[str, npt.NDArray[Any]], path: str) -> dict[str, Any]:
    try:
        header = json.loads(arrays["header"].astype(np.uint8).tobytes().decode())
    except (KeyError, ValueError):
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise DataError(f"{path} is not a partition file of fedskew: it has no header of format {FORMAT!r}")
    if header.get("version") != VERSION:
        raise DataError(f"{path} has version {header.get('version')!r} of the format; this fedskew reads {VERSION}")
    for key, kind in KEYS.items():
        if key not in header or not isinstance(header[key], kind) or isinstance(header[key], bool):  # type: ignore[arg-type]
            raise DataError(f"{path} is not a partition file: its header lacks {key!r}")
    return header


def _names(values: npt.NDArray[Any], path: str) -> tuple[str, ...]:
    try:
        names = json.loads(values.astype(np.uint8).tobytes().decode())
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"{path} is not a partition file: its clients' names are not a list of words")
    return tuple(names)


def _check(content: PartitionFile, path: str) -> None:
    """DataError unless offsets, rows and labels belong together and no row has two owners."""
    rows, offsets = content.partition
    n, header = int(content.header["training_rows"]), content.header
    ordered = len(offsets) > 1 and offsets[0] == 0 and offsets[-1] == len(rows) and bool((np.diff(offsets) >= 0).all())
    if not ordered or header["clients"] != len(offsets) - 1 or len(content.labels) != len(rows):
        raise DataError(f"{path}: offsets, rows and labels do not belong together")
    every = np.concatenate([rows, content.validation_rows, content.auxiliary_rows])
    if every.size and not 0 <= every.min() <= every.max() < n:
        raise DataError(f"{path}: rows must be 0..{n - 1}; got {every.min()}..{every.max()}")
    if len(every) and (owners := np.bincount(every, minlength=n)).max() > 1:
        raise DataError(f"{path}: row {int(owners.argmax())} has two owners")
    starts = np.zeros(len(rows) + 1, dtype=bool)
    starts[offsets[:-1]] = True
    if len(rows) and not ((np.diff(rows) > 0) | starts[1:-1]).all():
        raise DataError(f"{path}: the rows of a client must be in ascending order")
    if len(rows) and not 0 <= content.labels.min() <= content.labels.max() < header["classes"]:
        raise DataError(f"{path}: labels must be 0..{header['classes'] - 1}; got up to {content.labels.max()}")
    if len(content.client_names) not in (0, header["clients"]):
        raise DataError(f"{path}: {len(content.client_names)} names for {header['clients']} clients")


def _same_data(content: PartitionFile, dataset: Dataset, match: str, path: str) -> None:
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
