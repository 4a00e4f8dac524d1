"""A dataset divided among clients, after validation rows, the server's own rows and the long tail were seen to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew import rng
from fedskew.data.arrays import Dataset, draw, share
from fedskew.data.partitioners import PARTITIONERS, Natural, Partition, Partitioner
from fedskew.data.partitioners.file import File
from fedskew.data.partitioners.tail import PROFILES, check_factor, long_tail
from fedskew.data.sources.table import load
from fedskew.errors import ConfigError, DataError, require, unknown

__all__ = ["Federation", "federate", "long_tail"]


@dataclass(frozen=True, eq=False)
class Federation:
    """N clients and the rows of a dataset that each one owns. Row numbers are places in ``dataset.x``."""

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

    @property
    def sizes(self) -> Tensor:
        """Training rows of each client, [N] int64."""
        return self.counts.sum(1)

    @property
    def empty(self) -> list[int]:
        """Clients without training rows."""
        return torch.nonzero(self.sizes == 0).flatten().tolist()

    def rows(self, k: int) -> np.ndarray:
        """Training rows of client k, [n_k] int64. Raises IndexError unless 0 <= k < N."""
        return self.partition.of(k)

    def test_rows(self, k: int) -> np.ndarray:
        """Test rows of client k, [m_k] int64, places in ``dataset.x_test``. Raises IndexError unless 0 <= k < N.

        The rows of each class are dealt out in proportion to the clients' training rows of that class: floor(m_c n_kc /
        sum_k n_kc), then one more for the largest remainders. Disjoint; a class that no client trains on stays unused.
        """
        return self._test.of(k)

    @cached_property
    def _test(self) -> Partition:
        labels = self.dataset.y_test.numpy()
        order = rng.key(self.seed, "data", "local test")
        owner = np.full(len(labels), -1)
        for c, counts in enumerate(self.counts.numpy().T):
            rows = rng.generator(order, c, "rows").permutation(np.flatnonzero(labels == c))
            tie = rng.generator(order, c, "ties").permutation(self.clients)
            shares = _proportional(len(rows), counts, tie)
            owner[rows[: shares.sum()]] = np.repeat(np.arange(self.clients), shares)
        return _group(owner, self.clients)

    def report(self) -> dict[str, Any]:
        """What the split came to, in plain numbers: sizes, empty clients, classes per client, unused rows."""
        sizes = self.sizes.numpy()
        held = (self.counts > 0).sum(1).numpy()
        aside = {"validation": len(self.validation_rows), "auxiliary": len(self.auxiliary_rows)}
        used = len(np.unique(self.partition.rows))
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
            "training_rows": used,
            "unused_rows": len(self.dataset.y) - used - sum(aside.values()),
            **{f"{name}_rows": count for name, count in aside.items()},
            "longtail": self.longtail,
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
    longtail_profile: str = "exp",
    validation: float = 0.0,
    auxiliary: int = 0,
    path: str | None = None,
    **data_options: Any,
) -> Federation:
    """Divide a dataset among clients: validation, then auxiliary rows, then the long tail, then the partition.

    ``partition`` is a partitioner, its name, or the path of a partition file (.npz), which then decides all of these.
    ``validation`` is a stratified fraction of the training set, ``auxiliary`` the rows of each class that the server
    keeps, ``longtail`` the imbalance factor n_max / n_min >= 1 of the global training set, its profile "exp" or "step"
    (see `long_tail`). The partitions "natural", "counts" and "file" decide the number of clients themselves. Every draw
    is keyed by (seed, purpose).
    Raises ConfigError for a value that breaks a rule, DataError when the data are absent or cannot be split so.
    """
    partitioner = _partitioner(partition)
    _check(partitioner, clients, seed, longtail, validation, auxiliary)
    require(longtail_profile in PROFILES, "longtail_profile", f"be one of {', '.join(PROFILES)}", longtail_profile)
    dataset = _dataset(data, path, data_options)
    if isinstance(partitioner, File):
        return _of_file(partitioner, dataset, clients, seed, longtail, validation, auxiliary)
    labels = dataset.y.numpy()
    take = share(labels, dataset.classes, validation)
    require(validation == 0 or bool(take.any()), "validation", "take a row of some class", validation, "use more")
    left, held = _take(np.arange(len(labels)), labels, take, seed, "validation")
    _enough(labels[left], dataset, auxiliary)
    left, aside = _take(left, labels, np.full(dataset.classes, auxiliary), seed, "auxiliary")
    if longtail is not None:
        kept = long_tail(np.bincount(labels[left], minlength=dataset.classes), longtail, longtail_profile)
        left = _take(left, labels, kept, seed, "longtail")[1]
    found = _partition(partitioner, dataset, left, clients, seed)
    counts = torch.from_numpy(found.counts(labels, dataset.classes))
    names = _client_names(partitioner, dataset, left)
    return Federation(dataset, found, partitioner, found.clients, seed, counts, longtail, held, aside, names)


def _of_file(
    partitioner: File,
    dataset: Dataset,
    clients: int | None,
    seed: int,
    longtail: float | None,
    validation: float,
    auxiliary: int,
) -> Federation:
    """The federation of a partition file; what is asked for beside it must be what it holds."""
    content = partitioner.load(dataset)
    found, held, aside = content.partition, content.validation_rows, content.auxiliary_rows
    share_held = share(dataset.y.numpy(), dataset.classes, validation).sum()
    for name, asked, holds, agrees in (
        ("clients", clients, found.clients, clients in (None, found.clients)),
        ("longtail", longtail, content.header["longtail"], longtail in (None, content.header["longtail"])),
        ("validation", validation, f"{len(held)} rows", not validation or share_held == len(held)),
        ("auxiliary", auxiliary, f"{len(aside)} rows", not auxiliary or auxiliary * dataset.classes == len(aside)),
    ):
        require(agrees, name, f"be left out or be that of {partitioner.path}, {holds}", asked)
    counts = torch.from_numpy(content.counts)
    tail = content.header["longtail"]
    exact = replace(partitioner, sha256=content.header["sha256"][:16])
    return Federation(dataset, found, exact, found.clients, seed, counts, tail, held, aside, content.client_names)


def _client_names(partitioner: Any, dataset: Dataset, left: np.ndarray) -> tuple[str, ...]:
    """The values that natural clients stand for, in their order; empty where clients are drawn."""
    inner = getattr(partitioner, "base", partitioner)
    if not isinstance(inner, Natural):
        return ()
    column = inner.resolved({name: codes.numpy() for name, codes in dataset.columns.items()})
    codes = np.unique(dataset.columns[column].numpy()[left]).tolist()
    names = dataset.column_names.get(column, ())
    return tuple(names[code] if 0 <= code < len(names) else str(code) for code in codes)


def _partitioner(partition: str | Path | Partitioner) -> Partitioner:
    if isinstance(partition, Path) or (isinstance(partition, str) and partition.endswith(".npz")):
        return File(path=str(partition))
    if not isinstance(partition, str):
        holds = hasattr(partition, "split") and not isinstance(partition, type)
        require(holds, "partition", "be a name or a partitioner such as Dirichlet(alpha=0.1)", partition)
        return partition
    if partition not in PARTITIONERS:
        raise unknown("partition", partition, PARTITIONERS)
    return PARTITIONERS[partition]()


def _decides(partitioner: Any) -> bool:
    """Whether the partitioner says how many clients there are; a user's own need not be a `Partitioner`."""
    return bool(getattr(partitioner, "decides", hasattr(partitioner, "count")))


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= least


def _number(value: object) -> bool:
    real = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return real and math.isfinite(float(value))  # type: ignore[arg-type]


def _check(
    partitioner: Partitioner, clients: int | None, seed: int, longtail: float | None, validation: float, auxiliary: int
) -> None:
    """Every rule that needs no data, before any is read."""
    require(isinstance(seed, int) and not isinstance(seed, bool), "seed", "be a whole number", seed)
    if clients is None and not _decides(partitioner):
        raise ConfigError(f"clients must be given for partition {partitioner.name!r}; got None; for example clients=20")
    require(clients is None or _whole(clients, 1), "clients", "be a whole number of at least 1", clients)
    holds = _number(validation) and 0 <= validation < 1
    require(holds, "validation", "be a fraction in [0, 1)", validation, "for example 0.1")
    require(_whole(auxiliary, 0), "auxiliary", "be a whole number of rows a class", auxiliary, "use 0 for none")
    if longtail is not None:
        check_factor(longtail, "longtail")


def _dataset(data: str | Dataset, path: str | None, options: Mapping[str, Any]) -> Dataset:
    if isinstance(data, str):
        return load(data, path, **options)
    require(isinstance(data, Dataset), "data", "be a name or a Dataset", type(data).__name__, "use from_arrays(x, y)")
    for name in ("path",) * (path is not None) + tuple(options):
        raise ConfigError(f"federate has no option {name!r} for a Dataset that is loaded already; give it to load()")
    return data


def _take(
    rows: np.ndarray, labels: np.ndarray, take: np.ndarray, seed: int, purpose: str
) -> tuple[np.ndarray, np.ndarray]:
    """(rows that are left, ``take[c]`` of each class), both sorted places in the training set."""
    picked = np.zeros(len(rows), bool)
    if take.any():
        picked[draw(labels[rows], take, rng.key(seed, "data", purpose))] = True
    return rows[~picked], rows[picked]


def _enough(labels: np.ndarray, dataset: Dataset, auxiliary: int) -> None:
    if not auxiliary:
        return
    counts = np.bincount(labels, minlength=dataset.classes)
    scarce = int(counts.argmin())
    if counts[scarce] <= auxiliary:
        name = dataset.label_names[scarce] if dataset.label_names else scarce
        hint = f"use at most {counts[scarce] - 1}" if counts[scarce] > 1 else "use 0"
        rule = f"leave rows of every class, but class {name!r} has {counts[scarce]}"
        raise ConfigError(f"auxiliary must {rule}; got {auxiliary}; {hint}")


def _partition(
    partitioner: Partitioner, dataset: Dataset, left: np.ndarray, clients: int | None, seed: int
) -> Partition:
    """The partitioner's split of the rows that are left, in row numbers of the whole training set."""
    columns = {name: codes.numpy()[left] for name, codes in dataset.columns.items()}
    if clients is None:
        clients = int(partitioner.count(columns))
    local = partitioner.split(dataset.y.numpy()[left], int(clients), seed, columns)
    rows, offsets = np.asarray(local.rows), np.asarray(local.offsets)
    ordered = offsets[0] == 0 and offsets[-1] == len(rows) and (np.diff(offsets) >= 0).all()
    if not ordered or (rows.size and not 0 <= rows.min() <= rows.max() < len(left)):
        raise DataError(f"partition {partitioner.name!r} gave rows outside 0..{len(left) - 1} or broken offsets")
    if rows.size and (owners := np.bincount(rows)).max() > 1:
        raise DataError(f"partition {partitioner.name!r} gave row {owners.argmax()} to more than one client")
    if not rows.size:
        raise DataError(f"partition {partitioner.name!r} gave no client any row; got {len(left)} rows to divide")
    return Partition(left[rows].astype(np.int64), offsets.astype(np.int64))


def _proportional(total: int, weights: np.ndarray, tie: np.ndarray) -> np.ndarray:
    """``total`` in whole shares in proportion to ``weights`` [N], by largest remainders, in exact integers."""
    mass = int(weights.sum())
    if mass == 0:
        return np.zeros_like(weights)
    shares, rest = np.divmod(total * weights, mass)
    order = tie[np.argsort(-rest[tie], kind="stable")]
    shares[order[: total - int(shares.sum())]] += 1
    return np.asarray(shares)


def _group(owner: np.ndarray, clients: int) -> Partition:
    """Rows by owner, ascending within each; owner -1 is nobody. owner [n]"""
    order = np.argsort(owner, kind="stable")
    ends = np.cumsum(np.bincount(owner + 1, minlength=clients + 1))
    return Partition(order[ends[0] :].astype(np.int64), (ends - ends[0]).astype(np.int64))


def _spread(values: np.ndarray) -> dict[str, float]:
    return {"min": int(values.min()), "median": float(np.median(values)), "max": int(values.max())}
