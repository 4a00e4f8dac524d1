"""Partition files: write a division once, read it back identically on any machine.

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
import dataclasses
import hashlib
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fedskew.data.arrays import Dataset
from fedskew.data.arrays import fingerprint as fingerprint_of
from fedskew.data.partitioners import base
from fedskew.data.partitioners.base import Columns, Ints, Partition, Partitioner
from fedskew.data.sources.files import replacing
from fedskew.data.sources.readers import read_npz
from fedskew.errors import ConfigError, DataError, afford, claim, from_json, one_line, require
from fedskew.fields import demand, fits, recorded
from fedskew.types import Federation

FORMAT, VERSION, TESTED = "fedskew-partition", 1, 2  # TESTED: the version with a local test
NOBODY = np.empty(0, np.int64)
MOST_HEADER = 1 << 20  # bytes
ARRAYS = ("auxiliary", "labels", "offsets", "rows", "validation")
TEST_ARRAYS = ("test_offsets", "test_rows")
KEYS: dict[str, Any] = {
    "convention": dict, "seed": int | None, "clients": int, "classes": int, "training_rows": int,
    "longtail": float | None, "dataset": dict, "sha256": str,
}  # fmt: skip


class PartitionFile(NamedTuple):
    """Checked content of a partition file.

    Attributes:
        header: The header, with `seed`, `clients`, `dataset`, `sha256` and more.
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
        size = f"it has {clients} clients and {classes} classes"
        afford(8 * clients * classes, "the counts of a partition file", size)
        return base.label_histograms(self.partition.sizes, self.labels, classes)


def save_partition(
    path: str | Path,
    source: Federation | Partition,
    *,
    dataset: Dataset | None = None,
    labels: npt.ArrayLike | None = None,
    partitioner: Partitioner | None = None,
    seed: int | None = None,
) -> str:
    """Write a partition file, which `federate` takes. A failure leaves no partial file.

    Args:
        path: File to write, ending in .npz.
        source: A federation, or a bare partition with `dataset` or `labels`.
        dataset: Data of a bare partition.
        labels: Labels of a bare partition, integers [n], instead of a dataset.
        partitioner: What made a bare partition, for the header.
        seed: Its seed, for the header.

    Returns:
        The sha256 of the content, 64 hex digits.

    Raises:
        ConfigError: The path does not end in .npz, or a bare partition comes with both data and labels, or with
            neither.
        DataError: The rows do not fit the data, or the file cannot be written.

    Example:
        >>> from fedskew.data import federate, load_partition, save_partition
        >>> fed = federate("digits", "dirichlet", clients=4)
        >>> digest = save_partition("split.npz", fed)
        >>> load_partition("split.npz").header["sha256"] == digest
        True
    """
    require(Path(path).suffix == ".npz", "the path of a partition file", "end in .npz", str(path))
    if isinstance(source, Partition):
        if (dataset is None) == (labels is None):
            raise ConfigError("save_partition must be given a dataset or labels beside a bare partition, one of both")
        y = np.asarray(labels) if dataset is None else dataset.y.numpy()
        base.table_of(y)
        require(seed is None or fits(seed, int), "seed", "be a whole number", seed)
        source = base.checked(source, len(y), "the partition", bool(getattr(partitioner, "overlaps", False)))
        header = _header(partitioner, seed, source, y, dataset)
        content = PartitionFile(header, source, y[source.rows].astype(np.int64), NOBODY, NOBODY)
    else:
        hint = "from_indices makes a partition of row lists"
        rule = "be a federation or a partition"
        require(hasattr(source, "partition"), "source", rule, type(source).__name__, hint)
        content = _of_federation(source)
    check_content(content, str(path))
    arrays = arrays_of(content)
    digest = content_digest(content.header, arrays)
    _write(Path(path), {**arrays, "header": json_array({**content.header, "sha256": digest})})
    return digest


def load_partition(
    path: str | Path, dataset: Dataset | None = None, match: Literal["dataset", "labels"] = "dataset"
) -> PartitionFile:
    """Read a partition file and check its hash and structure.

    Args:
        path: The file.
        dataset: Data that the file must have been made for; None skips this check.
        match: "dataset" requires the same dataset. "labels" requires the same labels only; features may differ, for
            example by padding.

    Returns:
        The content.

    Raises:
        DataError: The file is absent, damaged or altered, or was made for other data.

    Example:
        >>> from fedskew.data import federate, load_partition, save_partition
        >>> fed = federate("digits", "dirichlet", clients=4)
        >>> _ = save_partition("split.npz", fed)
        >>> content = load_partition("split.npz", fed.dataset)
        >>> content.partition.clients, (content.counts == fed.counts.numpy()).all().item()
        (4, True)
    """
    claim(Path(path).is_file(), "a partition file", "exist", f"'{path}'")
    arrays = read_npz(Path(path), packed=False)
    header = _header_of(arrays, str(path))
    fault = f"{path} is not a partition file:"
    if other := sorted(set(arrays) - {*ARRAYS, *TEST_ARRAYS, "names"}):
        raise DataError(f"{fault} array {one_line(other[0])!r} is none of the format")
    names = (*ARRAYS, *(TEST_ARRAYS if header["version"] == TESTED else ()))
    most = header["training_rows"] * (header["clients"] if header.get("overlaps") is True else 1)
    for name in names:
        if name not in arrays or arrays[name].ndim != 1 or arrays[name].dtype.kind != "u":
            raise DataError(f"{fault} array {name!r} is missing or not a vector of integers")
        if name != "offsets" and len(arrays[name]) > most:  # before it is widened
            raise DataError(f"{path}: array {name!r} must have at most {most} rows; got {len(arrays[name])}")
    if content_digest(header, arrays) != header["sha256"]:
        raise DataError(f"{path} was altered or damaged: its content does not have the hash {header['sha256'][:16]}…")
    clients = _json_of(arrays["names"]) if "names" in arrays else []
    if not isinstance(clients, list) or not all(isinstance(name, str) for name in clients):
        raise DataError(f"{fault} its clients' names are not a list of words")
    auxiliary, labels, offsets, rows, validation, *test = (arrays[name].astype(np.int64) for name in names)
    local_test = Partition(*reversed(test)) if test else None
    content = PartitionFile(header, Partition(rows, offsets), labels, validation, auxiliary, tuple(clients), local_test)
    check_content(content, str(path))
    if dataset is not None:
        same_data(content, dataset, match, str(path))
    return content


def verify_partition(
    path: str | Path, dataset: Dataset | None = None, match: Literal["dataset", "labels"] = "dataset"
) -> dict[str, Any]:
    """Check a partition file and describe it.

    Args:
        path: The file.
        dataset: Data that the file must have been made for; None skips this check.
        match: "dataset" or "labels"; see `load_partition`.

    Returns:
        The header, with the number of different rows, of `shared_copies` (rows of one client that another holds too)
        and of empty clients, and what was checked.

    Raises:
        DataError: The file is absent, damaged or altered, or was made for other data.

    Example:
        >>> from fedskew.data import federate, save_partition, verify_partition
        >>> fed = federate("digits", "iid", clients=4)
        >>> _ = save_partition("split.npz", fed)
        >>> facts = verify_partition("split.npz", fed.dataset)
        >>> facts["clients"], facts["rows"], facts["content"], facts["data"]
        (4, 1438, 'intact', 'same dataset')
    """
    content = load_partition(path, dataset, match)
    part, rows = content.partition, len(np.unique(content.partition.rows))
    facts = {"rows": rows, "shared_copies": len(part.rows) - rows, "empty_clients": int((part.sizes == 0).sum())}
    known = "labels" if content.header["dataset"].get("fingerprint") == "" else match
    checked = "no dataset was given" if dataset is None else f"same {known}"
    return {**content.header, **facts, "content": "intact", "data": checked}


@dataclass(frozen=True)
class File(Partitioner):
    """Read the division from a partition file: exactly its rows, whatever the seed.

    Other data than those the file was made for raise an error. Rows set aside for validation, for the server and for
    the clients' own test come from the file, too, so that only `federate` divides by it.

    Formula: the row lists of the file
    Used by: FL-bench, PFLlib and LEAF by files of their own
    Limits: as the partitioner that made it

    Raises:
        ConfigError: No path is given, or the number of clients differs from the file's.
        DataError: The file is absent, damaged or altered, or was made for other data.
    """

    name: ClassVar[str] = "file"
    path: str = ""
    """the partition file, .npz"""
    match: Literal["dataset", "labels"] = "dataset"
    """what must match: the whole dataset, or only its labels (images may be padded or scaled differently)"""
    sha256: str = ""
    """the file's hash or its first digits, which a run records; another file raises an error; empty: not checked"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(self.path))
        super().__post_init__()

    def count(self, columns: Columns) -> int:
        """Number of clients of the file."""
        return self.load().partition.clients

    def load(self, dataset: Dataset | None = None) -> PartitionFile:
        """Content of the file.

        Args:
            dataset: Data that the file must have been made for; None skips this check.

        Returns:
            The content.

        Raises:
            ConfigError: No path is given.
            DataError: The file is absent, damaged or altered, or was made for other data.
        """
        demand(self, "path", bool(self.path), "name a partition file", "make one by save_partition")
        content = load_partition(self.path, dataset, self.match)
        digest = content.header["sha256"]
        same = digest.startswith(self.sha256)
        claim(same, self.path, f"be the file of the run, sha256 {self.sha256}…", f"{digest[:16]}…")
        return content


# What a file is made of


def _of_federation(fed: Federation) -> PartitionFile:
    """Content of a federation's file."""
    hint = "save the federation without held-out clients: they are drawn anew by seed"
    require(fed.unseen is None, "heldout_clients", "be 0 in a partition file", fed.heldout_clients, hint)
    y = fed.dataset.y.numpy()
    tested = {} if fed.held is None else {"version": TESTED, "local_test": fed.local_test}
    header = _header(fed.partitioner, fed.seed, fed.partition, y, fed.dataset) | {"longtail": fed.longtail, **tested}
    aside = np.sort(fed.validation_rows), np.sort(fed.auxiliary_rows)
    return PartitionFile(header, fed.partition, y[fed.partition.rows], *aside, fed.client_names, fed.held)


def _header(
    partitioner: Any, seed: int | None, partition: Partition, y: npt.NDArray[Any], data: Dataset | None
) -> dict[str, Any]:
    """The header, without the hash."""
    name, mark = ("labels", "") if data is None else (data.name, data.fingerprint or fingerprint_of(data))
    several = len(np.unique(partition.rows)) < len(partition.rows)
    return {
        "format": FORMAT, "version": VERSION, "convention": convention_of(partitioner), "seed": seed,
        "clients": partition.clients, "classes": int(y.max()) + 1 if data is None else data.classes,
        "training_rows": len(y), "longtail": None, **({"overlaps": True} if several else {}),
        "dataset": {"name": name, "fingerprint": mark, "labels": labels_digest(y)},
    }  # fmt: skip


def convention_of(partitioner: Any) -> dict[str, Any]:
    """Name and fields of a partitioner and of its base. Matrix and list of sizes are not told: the rows hold them."""

    def plain(value: Any) -> Any:
        if isinstance(value, Partitioner):
            return convention_of(value)
        return value if isinstance(value, str | int | float | bool | None) else str(value)

    if partitioner is None:
        return {"name": "unknown"}
    values = recorded(partitioner) if dataclasses.is_dataclass(partitioner) else {}
    given = {"sizes": "given"} if isinstance(values.get("sizes"), tuple) else {}
    return {"name": partitioner.name, **{n: plain(v) for n, v in (values | given).items() if n != "matrix"}}


# The format


def labels_digest(labels: npt.ArrayLike) -> str:
    """First 16 hex digits of the sha256 of the labels [n] as little-endian int64."""
    return hashlib.sha256(np.ascontiguousarray(labels, dtype="<i8").data).hexdigest()[:16]


def arrays_of(content: PartitionFile) -> dict[str, npt.NDArray[Any]]:
    """The arrays to write, by name, each in the smallest little-endian unsigned type that holds it."""
    columns = {
        "rows": content.partition.rows, "offsets": content.partition.offsets, "labels": content.labels,
        "validation": content.validation_rows, "auxiliary": content.auxiliary_rows,
    }  # fmt: skip
    if (test := content.local_test) is not None:
        columns |= {"test_rows": test.rows, "test_offsets": test.offsets}
    arrays = {n: v.astype(np.min_scalar_type(int(v.max(initial=0))).newbyteorder("<")) for n, v in columns.items()}
    return {**arrays, "names": json_array(list(content.client_names))} if content.client_names else arrays


def json_array(content: Any) -> npt.NDArray[np.uint8]:
    """JSON as an array of bytes."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=lambda scalar: scalar.item())
    return np.frombuffer(text.encode(), np.uint8)  # numpy's numbers as Python's


def content_digest(header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> str:
    """sha256 of the content, as the module defines it."""
    digest = hashlib.sha256(json_array({k: v for k, v in header.items() if k != "sha256"}).data)
    for name in sorted(arrays):
        digest.update(f"{name} {len(arrays[name])};".encode())
        for at in range(0, len(arrays[name]), 1 << 20):  # a piece at a time: no second copy of all rows
            digest.update(arrays[name][at : at + (1 << 20)].astype("<i8").data)
    return digest.hexdigest()


def _write(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Write the archive."""
    try:
        with replacing(path) as waiting, zipfile.ZipFile(waiting, "w") as archive:
            waiting.chmod(0o644)
            for name in sorted(arrays):
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:  # of 1980: undated
                    np.lib.format.write_array(member, arrays[name], version=(1, 0), allow_pickle=False)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from None


def _json_of(array: npt.NDArray[Any]) -> Any:
    """The content of an array of bytes that are JSON; None where it is anything else."""
    with contextlib.suppress(ValueError):
        return from_json(array.astype(np.uint8).tobytes())


def _header_of(arrays: dict[str, npt.NDArray[Any]], path: str) -> dict[str, Any]:
    """The checked header, taken out of the arrays."""
    raw = arrays.pop("header", NOBODY)
    header = _json_of(raw) if raw.size <= MOST_HEADER else None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise DataError(f"{path} is not a partition file of fedskew: it has no header of format {FORMAT!r}")
    if (version := header.get("version")) not in (VERSION, TESTED):
        raise DataError(f"{path} has version {version!r} of the format; this fedskew reads {VERSION} and {TESTED}")
    tested = [isinstance(header.get("local_test"), float), *(name in arrays for name in TEST_ARRAYS)]
    lacking = [key for key, kind in KEYS.items() if key not in header or not fits(header[key], kind)]
    if lacking or set(tested) != {version == TESTED}:
        raise DataError(f"{path} is not a partition file: its header lacks {(lacking or ['local_test'])[0]!r}")
    return header


def check_content(content: PartitionFile, path: str) -> None:
    """Raise DataError unless offsets, rows and labels agree, and a row has one owner, or the header tells of more."""
    rows, labels, header = content.partition.rows, content.labels, content.header
    parts = [content.partition, *([] if content.local_test is None else [content.local_test])]
    whole = all(base.ordered(p) and base.ascending(p) and header["clients"] == p.clients for p in parts)
    claim(whole and len(labels) == len(rows), path, "have offsets, rows in ascending order and labels that agree")
    owned = np.unique(rows) if header.get("overlaps") is True else rows  # a client has a row once: see `ascending`
    aside = (*(part.rows for part in parts[1:]), content.validation_rows, content.auxiliary_rows)
    every, n = np.sort(np.concatenate([owned, *aside])), int(header["training_rows"])
    low, high = every.min(initial=0), every.max(initial=0)
    claim(0 <= low <= high < max(n, 1), f"{path}: rows", f"be 0..{n - 1}", f"{low}..{high}")
    repeated = every[1:][np.diff(every) == 0]
    claim(not len(repeated), path, "give each row one owner", f"two of row {repeated[:1].tolist()}")
    known = 0 <= labels.min(initial=0) <= labels.max(initial=0) < header["classes"]
    claim(known, f"{path}: labels", f"be 0..{header['classes'] - 1}", f"up to {labels.max(initial=0)}")
    names, clients = len(content.client_names), header["clients"]
    claim(names in (0, clients), path, f"name its {clients} clients", names)


def same_data(content: PartitionFile, dataset: Dataset, match: str, path: str) -> None:
    """Raise DataError unless the file was made for these data.

    A file of bare labels knows no features, and so has no fingerprint to compare.
    """
    about, fingerprint, y = content.header["dataset"], dataset.fingerprint or fingerprint_of(dataset), dataset.y.numpy()
    difference = f"{path} was made for {about.get('name')!r}, fingerprint {about.get('fingerprint') or 'unknown'}"
    difference += f"; the data are {dataset.name!r}, {fingerprint}"
    same = labels_digest(y) == about.get("labels") and content.header["training_rows"] == len(y)
    if not same or not np.array_equal(y[content.partition.rows], content.labels):
        raise DataError(f"{difference}, with other labels")
    if match == "dataset" and about.get("fingerprint") not in (fingerprint, ""):
        raise DataError(f"{difference}; the labels agree: use match='labels' if the features may differ")
