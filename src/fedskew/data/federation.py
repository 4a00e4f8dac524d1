"""A dataset divided among clients, and what is held out: whole clients, rows of each, and its share of the test set."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

import numpy as np
import torch
from torch import Tensor

from fedskew import rng
from fedskew.data.arrays import Dataset, draw, draw_whole, share
from fedskew.data.partitioners import PARTITIONERS, Counts, Natural, Partitioner
from fedskew.data.partitioners.base import Partition, checked, gather
from fedskew.data.partitioners.file import File
from fedskew.data.sources.table import load
from fedskew.errors import ConfigError, one_line, require, unknown
from fedskew.fields import fits

if TYPE_CHECKING:
    from fedskew.data.keywords import DataOptions

__all__ = ["ON", "Federation", "On", "federate", "long_tail"]

On = Literal["test", "validation", "train", "local"]  # rows that a model may be asked about
ON: tuple[On, ...] = get_args(On)


@dataclass(frozen=True, eq=False)
class Federation:
    """N clients and the rows that each of them owns. Row numbers are places in ``dataset.x``.

    Make one with `federate`.

    Attributes:
        dataset: The data.
        partition: Rows of each client.
        partitioner: What divided them.
        clients: Number of clients N, including clients without rows.
        seed: Seed of the division.
        counts: Training rows of each class at each client, int64 [N, C].
        longtail: Imbalance factor n_max / n_min of a long tail, or None.
        validation_rows: Rows kept for validation, int64 [n_val].
        auxiliary_rows: Labelled rows that the server keeps, int64.
        client_names: Names of natural clients; empty where clients are numbers.
        local_test: Fraction of each client's rows that it keeps for its own test, or None.
        held: Those rows of each client, or None. ``partition`` and ``counts`` hold the others.
        heldout_clients: Fraction of the clients that never train, or None.
        unseen: These clients as a federation of their own, in which the others have no rows, or None.
    """

    dataset: Dataset
    partition: Partition = field(repr=False)
    partitioner: Partitioner
    clients: int
    seed: int
    counts: Tensor = field(repr=False)  # [N, C] int64, training rows of each class
    longtail: float | None = None  # n_max / n_min, where the classes were thinned
    validation_rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64), repr=False)  # [n_val]
    auxiliary_rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64), repr=False)  # [C * rows a class]
    client_names: tuple[str, ...] = field(default=(), repr=False)  # of natural clients, else empty: they are numbers
    local_test: float | None = None  # fraction of its rows that each client keeps for its own test
    held: Partition | None = field(default=None, repr=False)  # those rows, places in dataset.x
    heldout_clients: float | None = None  # fraction of the clients that never train
    unseen: Federation | None = field(default=None, repr=False)  # with their rows alone; here these clients have none

    @property
    def sizes(self) -> Tensor:
        """Training rows of each client, int64 [N]."""
        return self.counts.sum(1)

    @property
    def has_rows(self) -> Tensor:
        """Whether each client has training rows, bool [N]: all that a server must know to draw clients."""
        return self.sizes > 0

    @property
    def empty(self) -> list[int]:
        """Numbers of the clients without training rows."""
        return torch.nonzero(~self.has_rows).flatten().tolist()

    def rows(self, k: int) -> np.ndarray:
        """Training rows of one client.

        Args:
            k: Number of the client, from 0.

        Returns:
            Row numbers in ascending order, int64 [n_k]; a copy.

        Raises:
            IndexError: There is no client k.
        """
        return self.partition.of(k).copy()

    def test_rows(self, k: int) -> np.ndarray:
        """Test rows of one client: its own where a natural client's column says whose they are, else a share.

        Shares are distributed as the training rows: the test rows of each class are dealt in proportion to the clients'
        training rows of that class, floor(m_c n_kc / sum_k n_kc), then one more for the largest remainders. Clients
        share no test row. Test rows of a class that no client trains on stay unused.

        Args:
            k: Number of the client, from 0.

        Returns:
            Places in ``dataset.x_test``, int64 [m_k].

        Raises:
            IndexError: There is no client k.
        """
        return self._test.of(k).copy()

    def local_test_rows(self, k: int | None = None) -> np.ndarray:
        """Rows that one client, or every client, keeps for its own test and does not train on.

        Args:
            k: Number of the client, from 0; None takes the rows of all clients.

        Returns:
            Places in ``dataset.x``, in ascending order, int64; empty without a local test.

        Raises:
            IndexError: There is no client k.
        """
        if self.held is None:
            return np.empty(0, np.int64)
        return np.sort(self.held.rows) if k is None else self.held.of(k).copy()

    @cached_property
    def _test(self) -> Partition:
        """The test rows of all clients."""
        owners = self._named(self.dataset.columns_test)
        if owners is None:
            return share_out(self.dataset.y_test.numpy(), self.counts, self.seed)
        return Partition.of_lists([np.flatnonzero(owners == k) for k in range(self.clients)])

    @cached_property
    def split(self) -> str:
        """First 16 hex digits of the sha256 of the data's fingerprint and of whose each row is.

        Federations of equal splits train, validate and test on the same rows. "" where no client's rows are at hand.
        """
        if not len(self.partition.rows):
            return ""
        digest = hashlib.sha256(self.dataset.fingerprint.encode())
        for name, rows in self._parts():
            digest.update(f"{name} {len(rows)};".encode())
            digest.update(np.ascontiguousarray(rows, np.int64).data)
        return digest.hexdigest()[:16]

    def _parts(self) -> Iterator[tuple[str, np.ndarray]]:
        """What decides which rows train and which do not, by name."""
        yield from {"validation": self.validation_rows, "auxiliary": self.auxiliary_rows}.items()
        for name, part in (("train", self.partition), ("local", self.held)):
            if part is not None:
                yield from ((name, part.rows), ("offsets", part.offsets))
        if self.unseen is not None:
            yield from self.unseen._parts()

    def plot(self, title: str = "") -> Any:
        """A picture of the rows of each class at each client, a matplotlib figure.

        Args:
            title: Title; empty says what divides the data.

        Raises:
            ConfigError: matplotlib is not installed.
        """
        from fedskew.data.describe import counted

        counts = counted(self)
        drawn = import_module("fedskew.plots.skew").draw  # it lies above, and is found by its name
        return drawn(counts.counts, title or counts.title, counts.class_names)

    def name_of(self, k: int) -> str:
        """Name of a natural client; the number of another."""
        return self.client_names[k] if self.client_names else str(k)

    @property
    def dealt(self) -> bool:
        """Whether `rows_on` deals the test rows to clients by `test_rows`, because no column says whose they are."""
        return self._named(self.dataset.columns_test) is None

    def rows_on(self, on: On) -> tuple[np.ndarray, np.ndarray]:
        """Rows of a part of the data, and the client of each.

        Args:
            on: "test"; "validation"; "train", the training rows of all clients; "local", their rows for a local test.

        Returns:
            (rows, owners), int64 [n] each: places in ``dataset.x_test`` for "test", else in ``dataset.x``, and numbers
            of clients, -1 for none. Validation rows have clients where these are natural, test rows where a column says
            whose they are; else test rows are dealt as `test_rows` has them.

        Raises:
            ConfigError: There is no such part, or it has no rows.
        """
        require(on in ON, "on", f"be one of {', '.join(ON)}", on)
        part = {"train": self.partition, "local": self.held, "test": self._test}.get(on)
        if on == "test":
            rows, owners = np.arange(len(self.dataset.y_test)), self._named(self.dataset.columns_test)
        else:
            rows = self.validation_rows if on == "validation" else part.rows if part else np.empty(0, np.int64)
            owners = self._named(self.dataset.columns) if on == "validation" else None
            owners = owners if owners is None else owners[rows]
        hint = "validation=0.1 keeps some, and local_test=0.2 some of each client"
        require(len(rows) > 0, "on", "name rows that there are", on, hint)
        if owners is None:
            owners = np.full(len(rows), -1)
            if part:
                owners[part.rows if on == "test" else slice(None)] = np.repeat(np.arange(part.clients), part.sizes)
        return rows, owners

    def of_client(self, k: int) -> Dataset:
        """The dataset with the test rows of one client: those that it keeps, else as `rows_on` has them."""
        rows, owners = self.rows_on("test" if self.held is None else "local")
        at, data = torch.from_numpy(rows[owners == k]), self.dataset
        x, y = (data.x_test, data.y_test) if self.held is None else (data.x, data.y)
        return replace(data, name=f"{data.name}, client {self.name_of(k)}", x_test=x[at], y_test=y[at], columns_test={})

    def _named(self, columns: Mapping[str, Tensor]) -> np.ndarray | None:
        """The natural client of each row of ``columns``, -1 for none; None where no column there says it."""
        name = _natural_column(self.partitioner, self.dataset)
        if name not in columns:
            return None
        numbers = {client: k for k, client in enumerate(self.client_names)}
        of_codes = [numbers.get(value, -1) for value in self.dataset.column_names[name]]
        return np.asarray(np.array([*of_codes, -1])[columns[name].numpy()])  # the last place is that of code -1

    def report(self) -> dict[str, Any]:
        """The outcome of the division in plain numbers: sizes, empty clients, classes of a client, unused rows.

        Returns:
            A dict that JSON can hold.
        """
        sizes = self.sizes.numpy()
        held = (self.counts > 0).sum(1).numpy()
        aside = {"validation": len(self.validation_rows), "auxiliary": len(self.auxiliary_rows)}
        aside |= {"local_test": len(self.held.rows)} if self.held is not None else {}
        left = {}
        if (out := self.unseen) is not None:
            aside["heldout_clients"] = len(np.unique([*out.partition.rows, *out.local_test_rows()]))
            left = {"heldout_clients": self.heldout_clients, "heldout_count": int((out.sizes > 0).sum())}
        owners = np.unique(self.partition.rows, return_counts=True)[1]  # of each row that has any
        return {
            "dataset": self.dataset.name,
            "fingerprint": self.dataset.fingerprint,
            "partition": self.partitioner.name,
            "clients": self.clients,
            "classes": self.dataset.classes,
            "size": _spread(sizes),
            "classes_per_client": _spread(held),
            "empty_clients": int((sizes == 0).sum()),
            "class_rows": self.counts.sum(0).tolist(),
            "training_rows": len(owners),
            **({"repeated_rows": int((owners > 1).sum())} if (owners > 1).any() else {}),
            "unused_rows": len(self.dataset.y) - len(owners) - sum(aside.values()),
            **{f"{name}_rows": count for name, count in aside.items()},
            "longtail": self.longtail,
            **({"local_test": self.local_test} if self.held is not None else {}),
            **left,
            "test_rows": len(self.dataset.y_test),
            "test_is_official": self.dataset.test_is_official,
        }


def federate(
    data: str | Dataset,
    partition: str | Path | Partitioner,
    *,
    clients: int | None = None,
    seed: int = 0,
    longtail: float | None = None,
    validation: float = 0.0,
    auxiliary: int = 0,
    local_test: float = 0.0,
    heldout_clients: float = 0.0,
    path: str | None = None,
    **data_options: Unpack[DataOptions],
) -> Federation:
    """Divide a dataset among clients.

    Rows are first set aside for validation, then for the server, and the long tail is made. The partitioner divides the
    rest. Each client then sets its local test aside, and some clients are held out.

    Args:
        data: Name of a dataset (see `fedskew.data.DATASETS`), or a `Dataset`.
        partition: A partitioner such as ``Dirichlet(alpha=0.1)``, its name, or the path of a partition file (.npz). A
            file also decides ``clients``, ``validation``, ``auxiliary`` and ``longtail``, and ``local_test`` if it
            holds one.
        clients: Number of clients, at least 1. None if the partition decides it: "natural", "counts" and files.
        seed: Seed of every draw; draws are keyed by (seed, purpose).
        longtail: Imbalance factor n_max / n_min, at least 1, to which the training classes are thinned; None keeps all
            rows.
        validation: Stratified fraction of the training rows to keep for validation, in [0, 1).
        auxiliary: Rows of each class that the server keeps, at least 0.
        local_test: Fraction of each client's rows that it keeps for its own test and does not train on, in [0, 1). A
            client of n rows keeps floor(fraction n + 1/2) of them, at most n - 1, drawn from all its rows alike, keyed
            by (seed, client); n does not count rows that other clients also have. The clients' own models are tested on
            these rows, and the global model on all of them (``local_...`` metrics) and on the dataset's test set.
        heldout_clients: Fraction of the clients with rows that never train, in [0, 1): floor(fraction n + 1/2) of n, at
            least 1, at most n - 1. Models are evaluated on their rows (``heldout_...`` metrics).
        path: File or folder of a dataset given by name; None searches $FEDSKEW_DATA and the cache.
        **data_options: Options of a dataset given by name, such as ``normalize="channel"``.

    Returns:
        The federation.

    Raises:
        ConfigError: A parameter breaks a rule.
        DataError: The data are absent or damaged, or cannot be divided as asked.

    Example:
        >>> from fedskew.data import federate
        >>> from fedskew.data.partitioners import Dirichlet
        >>> fed = federate("digits", Dirichlet(alpha=0.1), clients=4)
        >>> fed.sizes.tolist()
        [530, 354, 366, 188]
        >>> fed.counts[0].tolist()
        [133, 0, 1, 34, 144, 120, 3, 95, 0, 0]
        >>> fed.report()["unused_rows"]
        0
    """
    partitioner = _partitioner(partition)
    _check(partitioner, clients, seed, longtail, auxiliary)
    fractions = {"validation": validation, "local_test": local_test, "heldout_clients": heldout_clients}
    for name, fraction in fractions.items():
        if not fits(fraction, float) or not 0 <= fraction < 1:
            require(False, name, "be a fraction in [0, 1)", fraction, "for example 0.2")
    dataset = _dataset(data, path, data_options)
    if isinstance(partitioner, File):
        asked = {"clients": clients, "longtail": longtail, "auxiliary": auxiliary, **fractions}
        made = _of_file(partitioner, dataset, seed, asked)
        return parted(made, heldout_clients) if heldout_clients else made
    labels = dataset.y.numpy()
    take = share(labels, dataset.classes, validation)
    left, held = _take(np.arange(len(labels)), labels, take, seed, "validation", dataset.units)
    if validation:
        require(len(held) > 0, "validation", "be large enough to hold out a row", validation, "use more")
    scarce = int(np.bincount(labels[left], minlength=dataset.classes).min())
    rule, hint = f"leave rows of every class, one has {scarce}", f"use at most {max(scarce - 1, 0)}"
    require(auxiliary < max(scarce, 1), "auxiliary", rule, auxiliary, hint)
    left, aside = _take(left, labels, np.full(dataset.classes, auxiliary), seed, "auxiliary")
    if longtail is not None:
        kept = long_tail(np.bincount(labels[left], minlength=dataset.classes), longtail)
        left = _take(left, labels, kept, seed, "longtail")[1]
    split = _partition(partitioner, dataset, left, clients, seed)
    counts = torch.from_numpy(split.counts(labels, dataset.classes))
    column = _natural_column(partitioner, dataset)
    codes = np.unique(dataset.columns[column].numpy()[left]).tolist() if column else []
    names = tuple(dataset.column_names[column][code] for code in codes)
    made = Federation(dataset, split, partitioner, split.clients, seed, counts, longtail, held, aside, names)
    made = _tested(made, local_test) if local_test else made
    return parted(made, heldout_clients) if heldout_clients else made


def _tested(fed: Federation, fraction: float) -> Federation:
    """The federation in which each client keeps a fraction of its rows for its own test."""
    left, held = hold_out(fed.partition, fraction, fed.seed, fed.dataset.units)
    hint = "use more" if fed.dataset.units is None else "values of split_by with rows at several clients stay"
    require(len(held.rows) > 0, "local_test", "be large enough to hold out a row", fraction, hint)
    counts = torch.from_numpy(left.counts(fed.dataset.y.numpy(), fed.dataset.classes))
    return replace(fed, partition=left, counts=counts, local_test=fraction, held=held)


def _of_file(partitioner: File, dataset: Dataset, seed: int, asked: Mapping[str, Any]) -> Federation:
    """The federation of a partition file. Raises ConfigError where a parameter disagrees with the file."""
    content = partitioner.load(dataset)
    split, held, aside = content.partition, content.validation_rows, content.auxiliary_rows
    stored, tail = content.header.get("local_test"), content.header["longtail"]
    share_held = share(dataset.y.numpy(), dataset.classes, asked["validation"]).sum()
    for name, holds, agreeing in (
        ("clients", split.clients, (None, split.clients)),
        ("longtail", tail, (None, tail)),
        ("validation", f"{len(held)} rows", (0, asked["validation"] if share_held == len(held) else 0)),
        ("auxiliary", f"{len(aside)} rows", (0, len(aside) / dataset.classes)),
        ("local_test", stored, (0, asked["local_test"] if stored is None else stored)),
    ):
        rule = f"be left out or be that of {partitioner.path}, {holds}"
        require(asked[name] in agreeing, name, rule, asked[name])
    counts = torch.from_numpy(split.counts(dataset.y.numpy(), dataset.classes))  # labels alone may know fewer classes
    local_test = asked["local_test"]
    exact = replace(partitioner, sha256=content.header["sha256"][:16])
    names, test = content.client_names, content.local_test
    made = Federation(dataset, split, exact, split.clients, seed, counts, tail, held, aside, names, stored, test)
    return _tested(made, local_test) if local_test and test is None else made


def _natural_column(partitioner: Any, dataset: Dataset) -> str:
    """The column whose values are the clients; "" where none is."""
    inner = getattr(partitioner, "base", partitioner)
    columns = {name: codes.numpy() for name, codes in dataset.columns.items()}
    return inner.resolved(columns) if isinstance(inner, Natural) and columns else ""


def _partitioner(partition: str | Path | Partitioner) -> Partitioner:
    """The partitioner that a name, a path or a partitioner stands for."""
    if isinstance(partition, Path) or (isinstance(partition, str) and partition.endswith(".npz")):
        return File(path=str(partition))
    if not isinstance(partition, str):
        holds = hasattr(partition, "split") and not isinstance(partition, type)
        rule = "be a name or a partitioner such as Dirichlet(alpha=0.1), or the path of a partition file"
        hint = "" if callable(partition) else "from_indices makes a partition of row lists, and save_partition a file"
        require(holds, "partition", rule, one_line(repr(partition), 60), hint)
        return partition
    if partition not in PARTITIONERS:
        raise unknown("partition", partition, PARTITIONERS)
    return PARTITIONERS[partition]()


def _check(partitioner: Partitioner, clients: int | None, seed: int, longtail: float | None, auxiliary: int) -> None:
    """Check every rule that needs no data, before any data are read."""
    require(isinstance(seed, int) and not isinstance(seed, bool), "seed", "be a whole number", seed)
    # your own partitioner need not derive from `Partitioner`
    if clients is None and not getattr(partitioner, "decides", hasattr(partitioner, "count")):
        raise ConfigError(f"clients must be given for partition {partitioner.name!r}; got None; for example clients=20")
    holds = clients is None or (fits(clients, int) and clients >= 1)
    require(holds, "clients", "be a whole number of at least 1", clients)
    holds = fits(auxiliary, int) and auxiliary >= 0
    require(holds, "auxiliary", "be a whole number of rows a class", auxiliary, "use 0 for none")
    if longtail is not None:
        number = fits(longtail, float)
        hint = f"use {1 / longtail:g}, the inverse" if number and 0 < longtail < 1 else "for example 10"
        require(number and 1 <= longtail < math.inf, "longtail", "be n_max / n_min of at least 1", longtail, hint)


def long_tail(counts: np.ndarray, factor: float) -> np.ndarray:
    """Rows that each class keeps in a long tail, with class 0 the head.

        floor(n_max IF^(-c / (C-1)))

    n_max is the largest head for which no class has too few rows, so the profile is exact even where classes differ in
    size.

    Args:
        counts: Rows of each class, [C], C at least 2.
        factor: IF = n_max / n_min, at least 1. CReFF and Fed-GraB give its inverse as their option.

    Returns:
        Rows kept, int64 [C].

    Raises:
        ConfigError: The last class would keep no row, or there is one class only.

    Example:
        >>> import numpy as np
        >>> from fedskew.data.federation import long_tail
        >>> long_tail(np.full(5, 100), factor=10).tolist()
        [100, 56, 31, 17, 10]

    References:
        Cao et al. 2019, Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss (NeurIPS).
        https://arxiv.org/abs/1906.07413
    """
    classes = len(counts)
    require(classes > 1, "longtail", "be used with two classes at least", factor, "leave it out")
    decay = factor ** (-np.arange(classes) / (classes - 1))
    head = math.floor((counts / decay).min() + 1e-9)
    kept: np.ndarray = np.floor(head * decay + 1e-9).astype(np.int64)
    hint = f"use at most {head}, the rows of the head" if head else "a class has no rows"
    require(kept.min() > 0, "longtail", "leave a row of each class", factor, hint)
    return kept


def _dataset(data: str | Dataset, path: str | None, options: Mapping[str, Any]) -> Dataset:
    """The dataset of a name, or the dataset itself."""
    if isinstance(data, str):
        return load(data, path, **options)
    require(isinstance(data, Dataset), "data", "be a name or a Dataset", type(data).__name__, "use from_arrays(x, y)")
    for name in ("path",) * (path is not None) + tuple(options):
        raise ConfigError(f"federate has no option {name!r} for a loaded Dataset; pass it to load()")
    return data


def _take(
    rows: np.ndarray, labels: np.ndarray, take: np.ndarray, seed: int, purpose: str, units: Tensor | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Set aside ``take[c]`` rows of each class: (rows left, rows taken), in ascending order."""
    picked = np.zeros(len(rows), bool)
    if take.any():
        key, units = rng.key(seed, "data", purpose), None if units is None else units.numpy()[rows]
        picked[draw(labels[rows], take, key) if units is None else draw_whole(labels[rows], units, take, key)] = True
    return rows[~picked], rows[picked]


def _partition(
    partitioner: Partitioner, dataset: Dataset, left: np.ndarray, clients: int | None, seed: int
) -> Partition:
    """Divide the rows that are left, and check the result; row numbers are those of the whole training set."""
    if isinstance(inner := getattr(partitioner, "base", partitioner), Counts):
        inner.insist_on_classes(dataset.class_names)
    columns = {name: codes.numpy()[left] for name, codes in dataset.columns.items()}
    if clients is None:
        clients = int(partitioner.count(columns))
    local = partitioner.split(dataset.y.numpy()[left], int(clients), seed, columns)
    partition = checked(local, len(left), f"partition {partitioner.name!r}", getattr(partitioner, "overlaps", False))
    return Partition(left[partition.rows], partition.offsets)


def _spread(values: np.ndarray) -> dict[str, float]:
    """Least, median and greatest value."""
    return {"min": int(values.min()), "median": float(np.median(values)), "max": int(values.max())}


def parted(fed: Federation, fraction: float) -> Federation:
    """Hold out a fraction of the clients.

    Args:
        fed: a federation in which all clients train.
        fraction: of the clients with rows, in (0, 1): floor(fraction n + 1/2) of n are held out, at least 1 and at most
            n - 1, drawn under (seed of the federation, "held-out clients").

    Returns:
        The federation without their rows, and they with theirs as its ``unseen``, but for rows that others train on,
        too. All clients keep their numbers.

    Raises:
        ConfigError: fewer than two clients have rows, or others train on all rows of those held out.

    Example:
        >>> import fedskew as fs
        >>> fed = fs.federate("digits", "iid", clients=5, heldout_clients=0.4)
        >>> int((fed.sizes > 0).sum()), int((fed.unseen.sizes > 0).sum())
        (3, 2)
    """
    trains = np.flatnonzero(fed.sizes.numpy())
    rule = "be 0 in a federation with fewer than two clients that have rows"
    require(len(trains) > 1, "heldout_clients", rule, fraction)
    count = min(max(math.floor(fraction * len(trains) + 0.5), 1), len(trains) - 1)
    out = np.zeros(fed.clients, bool)
    out[rng.generator(rng.key(fed.seed, "data", "held-out clients")).permutation(trains)[:count]] = True
    left = _only(fed, ~out)
    unseen = _only(fed, out, left.partition.rows)
    rule = "leave held-out clients a row that no other client trains on"
    require(len(unseen.partition.rows) > 0, "heldout_clients", rule, fraction)
    return replace(left, heldout_clients=fraction, unseen=unseen)


def _only(fed: Federation, clients: np.ndarray, without: np.ndarray | None = None) -> Federation:
    """The federation in which only these clients [N] have rows, and train on none of ``without``."""
    partition, held = (part and part.masked(np.repeat(clients, part.sizes)) for part in (fed.partition, fed.held))
    assert partition is not None
    if without is not None:
        codes = np.arange(len(fed.dataset.y)) if fed.dataset.units is None else fed.dataset.units.numpy()
        partition = partition.masked(~np.isin(codes[partition.rows], codes[without]))
    counts = torch.from_numpy(partition.counts(fed.dataset.y.numpy(), fed.dataset.classes))
    return replace(fed, partition=partition, counts=counts, held=held)


def hold_out(
    partition: Partition, fraction: float, seed: int, units: Tensor | None = None
) -> tuple[Partition, Partition]:
    """Hold out a fraction of each client's rows.

    A client of n rows that nobody else has holds out floor(fraction n + 1/2) of them, and trains on one of
    them at least. They are drawn alike under the key (seed, client). The draw is not stratified, as in the loaders that
    this follows: FedRepo takes a client's first max(floor(0.2 n), 1) rows for its test, FedLA trains on the first 80 %.

    Args:
        partition: Rows of each client.
        fraction: In [0, 1).
        seed: Seed of the draw.
        units: Codes of all rows, such as patients, which are held out whole; those that two clients have train.

    Returns:
        (rows that each client trains on, rows that it holds out), both in ascending order.

    Example:
        >>> import numpy as np
        >>> from fedskew.data import Partition
        >>> from fedskew.data.federation import hold_out
        >>> left, held = hold_out(Partition(np.arange(12), np.array([0, 10, 11, 12])), 0.2, seed=0)
        >>> left.sizes.tolist(), held.sizes.tolist()
        ([8, 1, 1], [2, 0, 0])
    """
    key, picked = rng.key(seed, "data", "rows of the local test"), np.zeros(len(partition.rows), bool)
    owners = np.bincount(partition.rows, minlength=1)[partition.rows]
    codes = np.arange(len(owners)) if units is None else units.numpy()[partition.rows]
    if units is not None:  # clients that have rows of the same unit
        clients = np.repeat(np.arange(len(partition.sizes)), partition.sizes)
        owners = np.bincount(np.unique(np.stack([codes, clients]), axis=1)[0])[codes]
    for k, size in enumerate(partition.sizes.tolist()):
        start = partition.offsets[k]
        alone = start + np.flatnonzero(owners[start : start + size] == 1)
        take = min(math.floor(fraction * len(alone) + 0.5), max(len(alone) - 1, 0))
        if take and units is not None:
            one_class = np.zeros(len(alone), np.int64)
            picked[alone[draw_whole(one_class, codes[alone], np.array([take]), rng.fold(key, k))]] = True
        elif take:
            picked[rng.generator(key, k).permutation(alone)[:take]] = True
    return partition.masked(~picked), partition.masked(picked)


def share_out(labels: np.ndarray, counts: Tensor, seed: int) -> Partition:
    """Deal the rows of a test set to clients, each class in proportion to their training rows of it.

    Args:
        labels: Labels of the test rows, [n].
        counts: Training rows of each class at each client, int64 [N, C].
        seed: Seed of the draws.

    Returns:
        Rows of each client; those of a class that no client trains on are left out.
    """
    clients, order = len(counts), rng.key(seed, "data", "local test")
    owner = np.full(len(labels), -1)
    for c, owned in enumerate(counts.numpy().T):
        rows = rng.generator(order, c, "rows").permutation(np.flatnonzero(labels == c))
        tie = rng.generator(order, c, "ties").permutation(clients)
        shares, rest = np.divmod(len(rows) * owned, max(int(owned.sum()), 1))  # by largest remainders, in whole numbers
        missing = len(rows) - int(shares.sum()) if owned.any() else 0
        shares[tie[np.argsort(-rest[tie], kind="stable")][:missing]] += 1
        owner[rows[: shares.sum()]] = np.repeat(np.arange(clients), shares)
    return gather(owner, clients)
