"""Federations: what is set aside, the long tail, the clients' rows, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import fedskew as fs
from fedskew import functional
from fedskew.config.flags import experiment_from
from fedskew.data import (
    Dataset,
    Federation,
    Partition,
    federate,
    from_arrays,
    keep_classes,
    load_partition,
    save_partition,
)
from fedskew.data.federation import ON, hold_out, long_tail
from fedskew.data.partitioners import Dirichlet, Iid, Natural, Partitioner, Shards
from fedskew.engines import LocalEngine
from fedskew.errors import ConfigError, DataError, TrainingError
from fedskew.methods import METHODS
from fedskew.records.folder import read
from fedskew.studies.clients import by_client
from support.command import fedskew, mistake, output_of, refused
from support.federations import small_digits
from support.labels import MIXED, SITES, content
from support.runs import measured as go
from support.runs import rows_of, same

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
    refused(lambda: long_tail(np.full(1, 3), 2.0), "two classes at least")
    fed = federate(data, "iid", clients=3, longtail=8)
    assert fed.counts.sum(0).tolist() == [200, 100, 50, 25] and fed.longtail == 8
    report = fed.report()
    assert json.loads(json.dumps(report)) == report and report["unused_rows"] == ROWS.sum() - 375
    assert report["classes_per_client"] == {"min": 4, "median": 4.0, "max": 4}
    assert report["size"] == {"min": 125, "median": 125.0, "max": 125}


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clients": None}, "clients must be given for partition 'iid'"),
        ({"clients": 0}, "clients must be a whole number of at least 1; got 0"),
        ({"clients": 2.5}, "clients must be a whole number"),
        ({"clients": True}, "clients must be a whole number"),
        ({"seed": 0.5}, "seed must be a whole number; got 0.5"),
        ({"validation": 1.0}, "validation must be a fraction in [0, 1); got 1.0"),
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
    refused(lambda: federate(**given), message)


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


ALPHA = fs.partitioners.Dirichlet(0.3)


def test_each_client_keeps_its_share_and_trains_on_the_rest() -> None:
    plain = fs.federate("digits", ALPHA, clients=12, seed=3)
    fed = fs.federate("digits", ALPHA, clients=12, seed=3, local_test=0.2)
    for k in range(12):
        train, test, own = fed.rows(k), fed.local_test_rows(k), plain.rows(k)
        assert np.array_equal(np.sort(np.concatenate([train, test])), own) and not set(train) & set(test)
        assert len(test) == min(int(0.2 * len(own) + 0.5), max(len(own) - 1, 0))
        assert np.all(np.diff(train) > 0) and np.all(np.diff(test) > 0)
    assert torch.equal(fed.counts, torch.from_numpy(fed.partition.counts(fed.dataset.y.numpy(), 10)))
    assert np.array_equal(fed.local_test_rows(), np.sort(np.concatenate([fed.local_test_rows(k) for k in range(12)])))
    assert fed.report()["local_test"] == 0.2 and fed.report()["local_test_rows"] == len(fed.local_test_rows())
    assert fed.report()["unused_rows"] == 0 and "local_test" not in plain.report()


def test_the_draw_is_keyed_by_seed_and_client() -> None:
    rows = Partition(np.arange(100), np.array([0, 50, 100]))
    (_, a), (_, b), (_, c) = (hold_out(rows, 0.2, seed) for seed in (0, 0, 1))
    assert np.array_equal(a.rows, b.rows) and not np.array_equal(a.rows, c.rows)
    assert not np.array_equal(a.of(0), a.of(1) - 50)
    alone = hold_out(Partition(np.arange(50), np.array([0, 50])), 0.2, 0)[1]
    assert np.array_equal(alone.of(0), a.of(0))  # whatever other clients there are


def test_a_client_with_rows_keeps_one_to_train_on() -> None:
    left, held = hold_out(Partition(np.arange(6), np.array([0, 1, 3, 3, 6])), 0.9, 0)
    assert left.sizes.tolist() == [1, 1, 0, 1] and held.sizes.tolist() == [0, 1, 0, 2]


@pytest.mark.parametrize("value", [-0.1, 1.0, "a", True])
def test_a_share_that_is_none_is_one_line(value: object) -> None:
    with pytest.raises(ConfigError, match=r"local_test must be a fraction in \[0, 1\)"):
        fs.federate("digits", ALPHA, clients=4, local_test=value)


def test_own_models_and_the_global_one_are_tested_on_the_rows_that_were_held_out(tmp_path: Path) -> None:
    fed = fs.federate("digits", ALPHA, clients=6, seed=1, local_test=0.25)
    result = fs.run(fed, fs.methods.perfedavg(), model="logistic", rounds=2, cohort=3, out=tmp_path / "a")
    row = result.rounds[-1]
    rows = fed.local_test_rows()
    predicted = result.predict(fed.dataset.x[rows])
    assert row["local_accuracy"] == pytest.approx(float((predicted == fed.dataset.y[rows]).double().mean()))
    assert sum(row["local_support"]) == len(rows) and sum(row["support"]) == len(fed.dataset.y_test)
    assert result.summary["final_local_accuracy"] == row["local_accuracy"]
    assert read(tmp_path / "a")[0]["local_test"] == 0.25
    plain = fs.run(
        fs.federate("digits", ALPHA, clients=6, seed=1), fs.methods.perfedavg(), model="logistic", rounds=2, cohort=3
    )
    assert row["personal_loss"] != plain.rounds[-1]["personal_loss"]


def test_own_models_see_no_row_of_their_test() -> None:
    """With wrong labels in every row that is held out, what clients learn stays the same."""
    fed = fs.federate("digits", ALPHA, clients=6, seed=1, local_test=0.25)
    y = fed.dataset.y.clone()
    y[fed.local_test_rows()] = (y[fed.local_test_rows()] + 1) % 10
    other = replace(fed, dataset=replace(fed.dataset, y=y))
    one, two = (fs.run(f, fs.methods.pfedme(), model="logistic", rounds=2, cohort=3) for f in (fed, other))
    assert all(torch.equal(one.params[n], two.params[n]) for n in one.params)
    assert one.rounds[-1]["personal_accuracy"] != two.rounds[-1]["personal_accuracy"]


def test_a_partition_file_carries_the_local_test(tmp_path: Path) -> None:
    fed = fs.federate("digits", ALPHA, clients=6, seed=1, local_test=0.25)
    save_partition(tmp_path / "s.npz", fed)
    content = load_partition(tmp_path / "s.npz", fed.dataset)
    assert content.header["version"] == 2 and content.header["local_test"] == 0.25
    for asked in (0.0, 0.25):
        back = fs.federate("digits", tmp_path / "s.npz", seed=9, local_test=asked)
        assert back.local_test == 0.25 and all(np.array_equal(back.rows(k), fed.rows(k)) for k in range(6))
        assert all(np.array_equal(back.local_test_rows(k), fed.local_test_rows(k)) for k in range(6))
    with pytest.raises(ConfigError, match=r"local_test must be left out or be that of .*, 0.25; got 0.5"):
        fs.federate("digits", tmp_path / "s.npz", local_test=0.5)


def test_a_file_without_one_takes_a_local_test_of_the_seed(tmp_path: Path) -> None:
    save_partition(tmp_path / "s.npz", fs.federate("digits", ALPHA, clients=6, seed=1))
    assert load_partition(tmp_path / "s.npz").header["version"] == 1
    one, two = (fs.federate("digits", tmp_path / "s.npz", seed=s, local_test=0.25) for s in (1, 2))
    assert np.array_equal(
        one.local_test_rows(0), fs.federate("digits", ALPHA, clients=6, seed=1, local_test=0.25).local_test_rows(0)
    )
    assert not np.array_equal(one.local_test_rows(0), two.local_test_rows(0))


def test_the_command_divides_describes_and_repeats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--clients", 6, "--partition.alpha", 0.5, "--local-test", 0.2]
    said = " ".join(output_of(capsys, "describe", *words, "--out", tmp_path / "d.png").split())
    assert "6 clients, local test 0.2, seed 0" in said and "0.2 of each client's rows" in said
    assert "kept by clients for a test" in output_of(capsys, "partition", "make", *words, "--out", tmp_path / "s.npz")
    common = ["--cohort", 3, "--rounds", 2, "--model", "logistic"]
    assert "clients' own tests" in output_of(capsys, "run", "fedavg", *words, *common, "--out", tmp_path / "a")
    assert fedskew("run", "--from", tmp_path / "a", "--out", tmp_path / "b") == 0
    file = ["--partition", "file", "--partition.path", tmp_path / "s.npz"]
    assert fedskew("run", "fedavg", *file, *common, "--out", tmp_path / "c") == 0
    bits = [(tmp_path / run / "final.safetensors").read_bytes() for run in "abc"]
    assert bits[0] == bits[1] == bits[2] and read(tmp_path / "c")[0]["local_test"] == 0.2
    said = mistake(capsys, "run", "fedavg", *file, "--local-test", 0.4, "--out", tmp_path / "e")
    assert "--local-test must be left out or be that of" in said
    assert "--local-test must be in [0, 1)" in mistake(capsys, "run", "fedavg", "--local-test", 1)


def parted(fraction: float = 0.3, seed: int = 1, **options: float) -> fs.Federation:
    return fs.federate(
        small_digits(), fs.partitioners.Dirichlet(alpha=0.5), clients=8, seed=seed, heldout_clients=fraction, **options
    )


@pytest.mark.parametrize("local_test", [0.0, 0.25])
def test_their_rows_leave_the_federation_and_nobody_elses(local_test: float) -> None:
    whole = fs.federate(small_digits(), fs.partitioners.Dirichlet(alpha=0.5), clients=8, seed=1, local_test=local_test)
    fed = parted(local_test=local_test)
    assert fed.heldout_clients == 0.3
    out = [k for k in range(8) if len(fed.unseen.rows(k))]
    assert len(out) == int(0.3 * (8 - len(whole.empty)) + 0.5)
    for k in range(8):
        mine, other = (fed.unseen, fed) if k in out else (fed, fed.unseen)
        assert np.array_equal(mine.rows(k), whole.rows(k)) and not len(other.rows(k))
        assert torch.equal(mine.counts[k], whole.counts[k]) and not other.counts[k].any()
        assert np.array_equal(mine.local_test_rows(k), whole.local_test_rows(k)) and not len(other.local_test_rows(k))
    assert fed.report()["heldout_clients_rows"] == sum(len(whole.rows(k)) + len(whole.local_test_rows(k)) for k in out)
    assert fed.report()["unused_rows"] == whole.report()["unused_rows"]


def test_the_seed_of_the_partition_draws_them_and_somebody_always_trains() -> None:
    def out(seed: int) -> list[int]:
        unseen = parted(seed=seed).unseen
        return torch.nonzero(unseen.sizes).flatten().tolist()

    assert out(1) == out(1) and len({tuple(out(s)) for s in range(6)}) > 1
    assert len(parted(0.99).sizes.nonzero()) == 1
    assert len(parted(0.001).unseen.sizes.nonzero()) == 1  # type: ignore[union-attr]
    refused(lambda: parted(1.0), "heldout_clients must be a fraction in [0, 1)")
    alone = fs.partitioners.Iid()
    refused(lambda: fs.federate(small_digits(), alone, clients=1, heldout_clients=0.5), "heldout_clients must be 0")


@pytest.mark.parametrize("name", ["fedavg", "seolkim", "powerofchoice", "fedrep"])
def test_they_never_train_and_are_evaluated(name: str) -> None:
    fed = parted()
    out = set(torch.nonzero(fed.unseen.sizes).flatten().tolist())
    result = go(fed, METHODS[name](), rounds=3, cohort=4, personal_every=1)
    assert not out & {k for row in result.rounds for c in row["clients"] for k in (c if isinstance(c, list) else [c])}
    last = result.rounds[-1]
    assert 0 <= last["heldout_accuracy"] <= 1 and last["heldout_loss"] > 0
    assert ("heldout_personal_accuracy" in last) == METHODS[name]().personal
    rows = np.sort(fed.unseen.partition.rows)
    right = result.predict(fed.dataset.x[rows]) == fed.dataset.y[rows]
    assert last["heldout_accuracy"] == pytest.approx(float(right.double().mean()), abs=1e-12)


@pytest.mark.parametrize("name", ["fedavg", "ditto", "perfedavg"])
def test_each_has_a_row_after_those_that_train(name: str, tmp_path: Path) -> None:
    fed, options = parted(local_test=0.25), {"rounds": 2, "cohort": 4, "clients_every": 1}
    done = go(fed, METHODS[name](), **options, out=tmp_path / "run")
    bare = go(replace(fed, unseen=None, heldout_clients=None), METHODS[name](), **options)
    assert fs.read_clients(tmp_path / "run") == done.client_rows
    assert [row for row in done.client_rows if "heldout" not in row] == bare.client_rows
    last = [row for row in done.client_rows if row["round"] == 2]
    assert [row.get("heldout", False) for row in last] == sorted("heldout" in row for row in last)
    theirs = [row for row in last if "heldout" in row]
    assert [row["rows"] for row in theirs] == [n for k in range(8) if (n := len(fed.unseen.local_test_rows(k)))]
    for metric in ("accuracy", "loss"):
        whole = sum(row[metric] * row["rows"] for row in theirs) / sum(row["rows"] for row in theirs)
        assert whole == pytest.approx(done.summary[f"final_heldout_served_{metric}"], rel=1e-9)
    found, named = by_client([(name, "all", done.client_rows)]), {f"{row['name']} (held out)" for row in theirs}
    assert {one.client for one in found if one.client.endswith(" (held out)")} == named
    assert all(one.low < one.accuracy < one.high for one in found if 0 < one.accuracy < 1)


LOCAL = ["fedper", "ditto", "ifca"]
MORE = ["fedrod", "apfl", "fedamp", "pfedme", "fedbabu", "fedgc", "fedloge"]


@pytest.mark.parametrize("name", [*LOCAL, *(pytest.param(name, marks=pytest.mark.thorough) for name in MORE)])
def test_they_make_one_local_run_that_the_server_never_sees(name: str) -> None:
    fed = parted(local_test=0.25)
    settings = {"cohort": 4, "personal_every": 2, "dtype": "float64"}
    ways = [go(fed, METHODS[name](), rounds=2, engine=e, **settings) for e in ("sequential", "threaded", "batched")]
    last = [way.rounds[-1] for way in ways]
    assert last[0]["heldout_personal_loss"] == last[1]["heldout_personal_loss"]
    assert last[2]["heldout_personal_loss"] == pytest.approx(last[0]["heldout_personal_loss"], rel=1e-7)
    alone = replace(fed, unseen=None, heldout_clients=None)
    bare = go(alone, METHODS[name](), rounds=2, engine="sequential", **settings)
    assert same(ways[0].params, bare.params)


@pytest.mark.parametrize("name", ["fedavg", "fedbabu"])
def test_the_command_records_repeats_and_resumes_it(name: str, tmp_path: Path) -> None:
    words = ["run", name, "--clients", 6, "--cohort", 3, "--rounds", 2, "--heldout-clients", 0.3]
    assert fedskew(*words, "--out", tmp_path / "a") == 0
    assert json.loads((tmp_path / "a" / "config.json").read_text())["heldout_clients"] == 0.3
    assert fedskew("run", "--from", tmp_path / "a", "--out", tmp_path / "b") == 0
    first, again = ([json.loads(s) for s in (tmp_path / n / "rounds.jsonl").read_text().splitlines()] for n in "ab")
    assert rows_of(first) == rows_of(again) and "heldout_accuracy" in first[-1]
    assert ("heldout_personal_accuracy" in first[-1]) == (name == "fedbabu")
    assert fedskew("run", "--resume", tmp_path / "a", "--rounds", 3) == 0


def test_a_partition_file_does_not_hold_them(tmp_path: Path) -> None:
    refused(lambda: save_partition(tmp_path / "a.npz", parted()), "heldout_clients must be 0 in a partition file")


def test_the_n_of_the_equations_is_that_of_the_clients_that_may_train(monkeypatch: pytest.MonkeyPatch) -> None:
    fed, seen, known = parted(), [], functional.feddyn_server_state
    stay = int((fed.sizes > 0).sum())
    whole, part = METHODS["scaffold"](), METHODS["scaffold"]().with_("control_variate", spread="cohort")
    ends = [go(fed, m, rounds=3, cohort=stay, engine="sequential") for m in (whole, part)]
    assert same(ends[0].params, ends[1].params)  # all of them take part: N is the size of the cohort

    def spied(h: Any, delta: Any, alpha: float, m: int, n: int) -> Any:
        seen.append((m, n))
        return known(h, delta, alpha, m, n)

    monkeypatch.setattr(functional, "feddyn_server_state", spied)
    go(fed, METHODS["feddyn"](), rounds=2, cohort=3)
    assert {*seen} == {(3, stay)} and stay < fed.clients


def test_a_share_is_one_of_the_clients_that_may_train() -> None:
    fed = fs.federate(small_digits(), fs.partitioners.Iid(), clients=10, seed=0, heldout_clients=0.5)
    half = replace(METHODS["fedavg"](), share=0.4)
    assert len(go(fed, half, rounds=1, cohort=None).rounds[0]["clients"]) == 2
    words = ["fedbal", "--preset", "authors", "--clients", "10", "--heldout-clients", "0.5", "--rounds", "1"]
    experiment = experiment_from([*words, "--model", "logistic"])
    share = experiment.method.share
    assert share and len(experiment.run().rounds[0]["clients"]) == max(1, round(share * 5)) != round(share * 10)


def test_one_that_diverges_is_left_out_or_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = parted()
    first, *others = torch.nonzero(fed.unseen.sizes).flatten().tolist()
    probes, asked = LocalEngine.probes, []

    def failing(engine: Any, method: Any, places: Any) -> Any:
        asked.append([place.plan.client for place in places])
        if first in asked[-1]:
            raise TrainingError("client diverged", (SimpleNamespace(client=first),))
        return probes(engine, method, places)

    monkeypatch.setattr(LocalEngine, "probes", failing)
    last = go(fed, METHODS["fedper"](), rounds=1, cohort=4, nonfinite="drop").rounds[-1]
    assert "heldout_personal_loss" in last and asked == [[first, *others], others]
    with pytest.raises(TrainingError, match="evaluation of held-out clients: client diverged"):
        go(fed, METHODS["fedper"](), rounds=1, cohort=4)
