"""Partition files: write a division once, read it back identically on any machine.

`fedskew.data.partitioners.format` defines the format.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from fedskew.data.arrays import Dataset
from fedskew.data.arrays import fingerprint as fingerprint_of
from fedskew.data.partitioners.base import Columns, Ints, Partition, Partitioner, Table, table_of
from fedskew.data.partitioners.format import (
    ARRAYS,
    FORMAT,
    NOBODY,
    TEST_ARRAYS,
    TESTED,
    VERSION,
    PartitionFile,
    arrays_of,
    check_content,
    content_digest,
    existing,
    json_array,
    labels_digest,
    read_header,
    read_names,
    same_data,
    write_arrays,
)
from fedskew.data.sources.readers import read_npz
from fedskew.errors import ConfigError, DataError, require
from fedskew.fields import demand, recorded

if TYPE_CHECKING:
    from fedskew.data.federation import Federation

__all__ = ["File", "PartitionFile", "labels_digest", "load_partition", "save_partition", "verify_partition"]


def save_partition(
    path: str | Path,
    source: Federation | Partition,
    *,
    dataset: Dataset | None = None,
    labels: npt.ArrayLike | None = None,
    partitioner: Partitioner | None = None,
    seed: int | None = None,
) -> str:
    """Write a partition file. A failure leaves no partial file.

    Args:
        path: File to write, ending in .npz.
        source: A federation, or a bare partition with ``dataset`` or ``labels``.
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
        content = _of_partition(source, dataset, labels, partitioner, seed)
    else:
        content = _of_federation(source)
    check_content(content, str(path))
    arrays = arrays_of(content)
    header = {**content.header, "sha256": content_digest(content.header, arrays)}
    arrays["header"] = json_array(header)
    write_arrays(Path(path), arrays)
    return str(header["sha256"])


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
    arrays = read_npz(existing(path))
    header = read_header(arrays, str(path))
    tested = header["version"] == TESTED
    for name in (*ARRAYS, *(TEST_ARRAYS if tested else ())):
        if name not in arrays or arrays[name].ndim != 1 or arrays[name].dtype.kind != "u":
            raise DataError(f"{path} is not a partition file: array {name!r} is missing or not a vector of integers")
    if content_digest(header, {n: a for n, a in arrays.items() if n != "header"}) != header["sha256"]:
        raise DataError(f"{path} was altered or damaged: its content does not have the hash {header['sha256'][:16]}…")
    names = read_names(arrays["names"], str(path)) if "names" in arrays else ()
    plain = {name: arrays[name].astype(np.int64) for name in ARRAYS}
    partition = Partition(plain["rows"], plain["offsets"])
    test = Partition(*(arrays[n].astype(np.int64) for n in ("test_rows", "test_offsets"))) if tested else None
    content = PartitionFile(header, partition, plain["labels"], plain["validation"], plain["auxiliary"], names, test)
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
        The header, with the number of different rows, of ``shared_copies`` (rows of one client that another holds too)
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
    sizes = content.partition.sizes
    rows = len(np.unique(content.partition.rows))
    copies = len(content.partition.rows) - rows
    facts = {"rows": rows, "shared_copies": copies, "empty_clients": int((sizes == 0).sum())}
    checked = "no dataset was given" if dataset is None else f"same {match}"
    return {**content.header, **facts, "content": "intact", "data": checked}


@dataclass(frozen=True)
class File(Partitioner):
    """Read the division from a partition file: exactly its rows, whatever the seed.

    Other data than those the file was made for raise an error. Rows set aside for validation, for the server and for
    the clients' own test come from the file, too.

    Raises:
        ConfigError: No path is given, or the number of clients differs from the file's.
        DataError: The file is absent, damaged or altered, or was made for other data.
    """

    name: ClassVar[str] = "file"
    formula: ClassVar[str] = "the row lists of the file"
    users: ClassVar[str] = "FL-bench, PFLlib and LEAF by files of their own"
    limits: ClassVar[str] = "as the partitioner that made it"
    path: str = ""
    """the partition file, .npz"""
    match: Literal["dataset", "labels"] = "dataset"
    """what must be equal: the whole dataset, or its labels only (images may be padded or scaled otherwise)"""
    sha256: str = ""
    """the file's hash or its first digits; a run records it, and another file then raises an error; empty takes any"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(self.path))
        super().__post_init__()

    @property
    def decides(self) -> bool:
        """True: the file decides the number of clients."""
        return True

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
        found = content.header["sha256"]
        if not found.startswith(self.sha256):
            raise DataError(f"{self.path} must be the file of the run, sha256 {self.sha256}…; got {found[:16]}…")
        return content

    def split(self, labels: npt.ArrayLike, clients: int, seed: int, columns: Columns | None = None) -> Partition:
        """The file's partition.

        Args:
            labels: Labels of the rows, integers [n].
            clients: Number of clients of the file.
            seed: Not used.
            columns: Not used.

        Returns:
            The partition.

        Raises:
            ConfigError: The file has another number of clients.
            DataError: The file was made for other labels.
        """
        table_of(labels, columns)
        content = self.load()
        rule = "be used alone: clients of the file keep rows for a test of their own"
        demand(self, "path", content.local_test is None, rule)
        wanted = content.partition.clients
        require(clients == wanted, "clients", "equal those of the partition file", clients, f"use {wanted}")
        if labels_digest(labels) != content.header["dataset"].get("labels"):
            raise DataError(f"{self.path} was made for other labels than these {len(np.asarray(labels))}")
        return content.partition

    def draw(self, table: Table, clients: int, gen: np.random.Generator) -> Partition:
        """The file's partition."""
        return self.load().partition


# what a file is made of


def _of_federation(fed: Federation) -> PartitionFile:
    """Content of a federation's file."""
    hint = "save the federation without held-out clients: they are drawn anew by seed"
    require(fed.unseen is None, "heldout_clients", "be 0 in a partition file", fed.heldout_clients, hint)
    data = fed.dataset
    about = {"name": data.name, "fingerprint": data.fingerprint or fingerprint_of(data)}
    header = _described(fed.partitioner, fed.seed, fed.partition, data.y.numpy(), data.classes, about)
    labels = data.y.numpy()[fed.partition.rows]
    aside = np.sort(fed.validation_rows), np.sort(fed.auxiliary_rows)
    header |= {"longtail": fed.longtail, **_overlaps(fed.partition)}
    header |= {} if fed.held is None else {"version": TESTED, "local_test": fed.local_test}
    return PartitionFile(header, fed.partition, labels, *aside, fed.client_names, fed.held)


def _of_partition(
    source: Partition,
    dataset: Dataset | None,
    labels: npt.ArrayLike | None,
    partitioner: Partitioner | None,
    seed: int | None,
) -> PartitionFile:
    """Content of a bare partition's file."""
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
    header |= _overlaps(source) if getattr(partitioner, "overlaps", False) else {}
    return PartitionFile(header, source, y[source.rows].astype(np.int64), NOBODY, NOBODY)


def _overlaps(partition: Partition) -> dict[str, bool]:
    """What the header says of rows that several clients have; nothing where there are none."""
    return {"overlaps": True} if len(np.unique(partition.rows)) < len(partition.rows) else {}


def _described(
    partitioner: Partitioner | None,
    seed: int | None,
    partition: Partition,
    y: Ints,
    classes: int,
    about: dict[str, Any],
) -> dict[str, Any]:
    """The header without its hash."""
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
    """Name and fields of a partitioner and of its base. Matrix and list of sizes are not told: the rows hold them."""
    if partitioner is None:
        return {"name": "unknown"}
    values = recorded(partitioner) if dataclasses.is_dataclass(partitioner) else {}
    values.pop("matrix", None)
    if isinstance(values.get("sizes"), tuple):
        values["sizes"] = "given"
    told = {n: _spec(v) if isinstance(v, Partitioner) else v for n, v in values.items()}
    plain = {n: v if isinstance(v, str | int | float | bool | dict | None) else str(v) for n, v in told.items()}
    return {"name": partitioner.name, **plain}
