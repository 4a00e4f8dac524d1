"""Federations: what is set aside, the long tail, the clients' rows, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import sklearn.datasets  # noqa: F401  (this import itself moves `random`, which a test below watches)
import torch

from fedskew.data import Dataset, Federation, Partition, federate, from_arrays, keep_classes
from fedskew.data.federation import ON, long_tail
from fedskew.data.partitioners import Dirichlet, Iid, Natural, Partitioner, Shards
from fedskew.errors import ConfigError, DataError
from support.command import refused
from support.labels import MIXED, SITES, content

ROWS = np.array([200, 150, 100, 60])


@pytest.fixture(scope="module")
def data() -> Dataset:
    y = np.repeat(np.arange(4), ROWS)
    test = np.repeat(np.arange(4), 25)
    x = np.arange(len(y), dtype=np.float64)[:, None]  # a row knows its number
    site = np.array(["north", "south", "west"])[np.arange(len(y)) % 3]
    return from_arrays(x, y, np.arange(100.0)[:, None], test, columns={"site": site})


def owned(fed: Federation) -> np.ndarray:
    return np.concatenate([fed.rows(k) for k in range(fed.clients)])


def test_counts_sizes_and_rows_agree(data: Dataset) -> None:
    fed = federate(data, Dirichlet(alpha=0.1), clients=10, seed=3)
    assert fed.clients == 10 and fed.counts.shape == (10, 4) and fed.counts.dtype == torch.int64
    for k in range(10):
        labels = data.y[torch.from_numpy(fed.rows(k))]
        assert torch.equal(torch.bincount(labels, minlength=4), fed.counts[k])
    assert np.array_equal(np.sort(owned(fed)), np.arange(ROWS.sum()))
    assert fed.sizes.tolist() == fed.partition.sizes.tolist()
    assert fed.empty == [k for k in range(10) if not len(fed.rows(k))]
    with pytest.raises(IndexError):
        fed.rows(10)


def test_the_split_depends_on_the_seed_and_nothing_else(data: Dataset) -> None:
    options = {"clients": 6, "validation": 0.2, "auxiliary": 3, "longtail": 5.0}
    one, two, other = (federate(data, Dirichlet(), seed=s, **options) for s in (1, 1, 2))
    assert np.array_equal(one.partition.rows, two.partition.rows)
    assert np.array_equal(one.validation_rows, two.validation_rows)
    assert all(np.array_equal(one.test_rows(k), two.test_rows(k)) for k in range(6))
    for a, b in ((one.partition.rows, other.partition.rows), (one.validation_rows, other.validation_rows)):
        assert not np.array_equal(a, b)


def test_validation_and_auxiliary_rows_are_set_aside_first(data: Dataset) -> None:
    fed = federate(data, "iid", clients=4, validation=0.1, auxiliary=7)
    labels = data.y.numpy()
    assert np.bincount(labels[fed.validation_rows]).tolist() == [20, 15, 10, 6]
    assert np.bincount(labels[fed.auxiliary_rows]).tolist() == [7] * 4
    parts = [owned(fed), fed.validation_rows, fed.auxiliary_rows]
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(ROWS.sum()))
    more = federate(data, "iid", clients=4, validation=0.1, auxiliary=0, longtail=4)
    assert np.array_equal(more.validation_rows, fed.validation_rows)  # what comes later does not move it


@pytest.mark.parametrize("factor", [1, 2.0, 10, 100])
def test_the_long_tail_has_the_factor_that_was_asked_for(factor: float) -> None:
    kept = long_tail(np.full(10, 5000), factor)
    expected = [int(5000 * factor ** (-c / 9) + 1e-9) for c in range(10)]
    assert kept.tolist() == expected and kept[0] == 5000
    assert kept[0] / kept[-1] == pytest.approx(factor, rel=0.01)


def test_the_long_tail_of_unequal_classes_keeps_its_profile(data: Dataset) -> None:
    assert long_tail(ROWS, 1).tolist() == [60] * 4  # every class as scarce as the scarcest
    assert long_tail(ROWS, 8).tolist() == [200, 100, 50, 25]
    fed = federate(data, "iid", clients=3, longtail=8)
    assert fed.counts.sum(0).tolist() == [200, 100, 50, 25] and fed.longtail == 8
    assert fed.report()["unused_rows"] == ROWS.sum() - 375


def test_natural_clients_are_the_values_of_a_column(data: Dataset) -> None:
    fed = federate(data, Natural(column="site"))
    assert fed.clients == 3 and all((fed.rows(k) % 3 == k).all() for k in range(3))
    assert np.array_equal(federate(data, Natural(column="site"), clients=3).rows(1), fed.rows(1))
    with pytest.raises(ConfigError, match="clients must equal the number of values of column 'site'; got 4"):
        federate(data, Natural(column="site"), clients=4)
    with pytest.raises(ConfigError, match=r"Natural\.column must name a column .* did you mean 'site'"):
        federate(data, Natural(column="sight"))


def test_local_test_rows_follow_the_training_counts(data: Dataset) -> None:
    fed = federate(data, Dirichlet(alpha=0.1), clients=12, seed=1)
    rows = [fed.test_rows(k) for k in range(12)]
    together = np.concatenate(rows)
    assert len(together) == len(set(together.tolist())) == 100  # disjoint, and all of them, as every class is owned
    counts = np.stack([np.bincount(data.y_test.numpy()[r], minlength=4) for r in rows])
    exact = fed.counts.numpy() / fed.counts.sum(0).numpy() * 25
    assert (np.abs(counts - exact) < 1).all() and (counts[fed.counts.numpy() == 0] == 0).all()
    assert [len(fed.test_rows(k)) for k in fed.empty] == [0] * len(fed.empty)
    with pytest.raises(IndexError):
        fed.test_rows(12)


def test_a_class_that_nobody_trains_on_has_no_local_test_rows(data: Dataset) -> None:
    fed = federate(data, OnlyFirst(), clients=2)
    assert set(data.y_test.numpy()[np.concatenate([fed.test_rows(0), fed.test_rows(1)])]) == {0}
    assert fed.empty == [1] and len(fed.test_rows(1)) == 0 and fed.report()["empty_clients"] == 1


@dataclass(frozen=True)
class OnlyFirst:
    """A partitioner of a user's: the first ten rows, which have label 0, to client 0."""

    name: ClassVar[str] = "first"
    rows: tuple[int, ...] = tuple(range(10))

    def split(self, labels: Any, clients: int, seed: int, columns: Mapping[str, Any] | None = None) -> Partition:
        ends = [0] + [len(self.rows)] * clients
        return Partition(np.array(self.rows, dtype=np.int64), np.array(ends))


def test_what_a_convention_of_the_user_s_gives_is_checked(data: Dataset) -> None:
    for rows, message in (((600,), "outside 0..509"), ((-1,), "outside"), ((), "got none of")):
        with pytest.raises(DataError, match=message):
            federate(data, OnlyFirst(rows=rows), clients=2)


def test_the_report_is_plain_numbers(data: Dataset) -> None:
    import json

    report = federate(data, "iid", clients=4, validation=0.1).report()
    assert json.loads(json.dumps(report)) == report
    assert report["size"]["min"] <= report["size"]["median"] <= report["size"]["max"]
    assert report["training_rows"] + report["validation_rows"] + report["unused_rows"] == 510
    assert report["classes_per_client"] == {"min": 4, "median": 4.0, "max": 4}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clients": None}, "clients must be given for partition 'iid'"),
        ({"clients": 0}, "clients must be a whole number of at least 1; got 0"),
        ({"clients": 2.5}, "clients must be a whole number"),
        ({"clients": True}, "clients must be a whole number"),
        ({"seed": 0.5}, "seed must be a whole number; got 0.5"),
        ({"validation": 1.0}, r"validation must be a fraction in \[0, 1\); got 1.0"),
        ({"validation": -0.1}, "validation must be a fraction"),
        ({"validation": 0.0001}, "validation must be large enough to hold out a row"),
        ({"auxiliary": -1}, "auxiliary must be a whole number of rows a class"),
        ({"auxiliary": 60}, "one has 60; got 60; use at most 59"),
        ({"longtail": 0.01}, "longtail must be n_max / n_min of at least 1; got 0.01; use 100, the inverse"),
        ({"longtail": float("nan")}, "longtail must be n_max / n_min"),
        ({"longtail": 1000}, "longtail must leave a row of each class; got 1000; use at most 200"),
        ({"partition": "dirichlte"}, "unknown partition 'dirichlte'; did you mean 'dirichlet'"),
        ({"partition": Dirichlet}, "partition must be a name or a partitioner"),
        ({"data": "cifr10"}, "unknown dataset 'cifr10'; did you mean 'cifar10'"),
        ({"data": [1]}, "data must be a name or a Dataset; got 'list'"),
        ({"pad": 2}, "federate has no option 'pad' for a loaded Dataset"),
        ({"path": "here"}, "federate has no option 'path' for a loaded Dataset"),
    ],
)
def test_a_request_that_breaks_a_rule_is_refused(data: Dataset, change: dict[str, Any], message: str) -> None:
    given = {"data": data, "partition": "iid", "clients": 4} | change
    with pytest.raises(ConfigError, match=message) as error:
        federate(**given)
    assert "\n" not in str(error.value)


def test_rules_are_checked_before_any_data_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedskew.data.federation.load", lambda *_, **__: pytest.fail("it was read"))
    for change in ({"longtail": 0.5}, {"validation": 2}, {"auxiliary": -1}, {"clients": None}):
        with pytest.raises(ConfigError):
            federate("digits", "iid", **({"clients": 3} | change))


def test_a_name_is_loaded_with_its_options(no_global_rng: None) -> None:
    fed = federate("digits", "dirichlet", clients=8, seed=1, validation=0.1, pad=2, normalize="half")
    assert fed.dataset.shape == (1, 12, 12) and fed.dataset.mean == (0.5,)
    assert len(fed.validation_rows) == pytest.approx(144, abs=5) and fed.report()["dataset"] == "digits"


def test_rows_of_every_part_know_their_clients() -> None:
    draw = np.random.default_rng(0)
    y, site = draw.integers(0, 3, 200), draw.choice(["a", "b", "c"], 200)
    data = from_arrays(np.arange(400.0).reshape(200, 2), y, columns={"site": site})
    fed = federate(data, Natural(), validation=0.2, local_test=0.3)
    for on in ON:
        rows, owners = fed.rows_on(on)
        x = (data.x_test if on == "test" else data.x)[rows]
        assert [fed.name_of(k) for k in owners.tolist()] == site[(x[:, 0] / 2).int()].tolist(), on
    parts = [set(fed.rows_on(on)[0].tolist()) for on in ON if on != "test"]
    assert sum(map(len, parts)) == len(set.union(*parts)) == len(data.y)
    assert not fed.dealt
    rows, owners = fed.rows_on("test")
    assert all(fed.test_rows(k).tolist() == rows[owners == k].tolist() for k in range(fed.clients))
    two = keep_classes(data, (2, 0))
    assert len(two.columns_test["site"]) == len(two.y_test) < len(data.y_test)


def test_rows_without_a_column_are_dealt_or_nobodys() -> None:
    fed = federate("digits", Dirichlet(alpha=0.3), clients=5, validation=0.1)
    rows, owners = fed.rows_on("test")
    assert fed.dealt and len(rows) == len(fed.dataset.y_test)
    assert all(np.array_equal(rows[owners == k], np.sort(fed.test_rows(k))) for k in range(5))
    assert set(fed.rows_on("validation")[1]) == {-1}
    refused(
        lambda: fed.rows_on("local"),
        "on must name rows that there are; got 'local'; ",
        " local_test=0.2 some of each client",
    )


def test_test_rows_of_a_file_of_their_own_know_their_clients(tmp_path: Path) -> None:
    for name, sites in (("train", "abab"), ("test", "bca")):
        rows = [f"{i},{i % 2},{site}" for i, site in enumerate(sites)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["x,label,client", *rows]) + "\n")
    fed = federate("csv", "natural", path=str(tmp_path))
    assert fed.rows_on("test")[1].tolist() == [1, -1, 0] and not fed.dealt, "c trains nothing"


@pytest.mark.parametrize("base", [Dirichlet(0.3), Shards(), Iid(sizes="power"), Natural()], ids=repr)
def test_the_partitioner_divides_what_the_long_tail_leaves(base: Partitioner) -> None:
    data = from_arrays(np.zeros((len(MIXED), 1)), MIXED, np.zeros((2, 1)), [0, 9], columns=SITES)
    fed = federate(data, base, clients=7, seed=4, longtail=6.0)
    kept = long_tail(np.bincount(MIXED), 6.0).tolist()
    assert fed.counts.sum(0).tolist() == kept and fed.report()["unused_rows"] == len(MIXED) - sum(kept)
    rows = np.sort(fed.partition.rows)
    sites = {name: values[rows] for name, values in SITES.items()}
    assert content(base.split(MIXED[rows], 7, 4, sites).masked(np.ones(len(rows), bool))) == content(
        fed.partition._replace(rows=np.searchsorted(rows, fed.partition.rows))
    )


def test_a_single_class_has_no_tail() -> None:
    refused(lambda: long_tail(np.full(1, 3), 2.0), "two classes at least")
