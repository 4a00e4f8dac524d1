"""Shared data: rows that several clients have, and what follows from them everywhere behind the partitioner."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedskew as fs
from fedskew.data import federate, from_arrays, load_partition, save_partition, verify_partition
from fedskew.data.describe import describe, describe_table
from fedskew.data.partitioners import (
    Counts,
    Dirichlet,
    File,
    Iid,
    LabelsK,
    Natural,
    Partition,
    Partitioner,
    Shared,
)
from fedskew.data.partitioners.file import check_content
from fedskew.errors import DataError
from support.command import fedskew, refused
from support.labels import BALANCED, MIXED, SITES, content
from support.pictures import printed
from support.strategies import seeds, tables

HALF = Shared(LabelsK(1), beta=0.25, alpha=0.5)


def made(**options: Any) -> fs.Federation:
    data = from_arrays(np.random.default_rng(0).normal(size=(len(MIXED), 3)), MIXED, np.zeros((2, 3)), [0, 9])
    return federate(data, HALF, clients=8, seed=3, **options)


@given(labels=tables(), clients=st.integers(1, 12), seed=seeds, alpha=st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_every_client_has_rows_of_its_own_and_a_part_of_one_even_set(labels, clients, seed, alpha):
    partitioner = Shared(Iid(), 0.2, alpha)
    parts = partitioner.split(labels, clients, seed)
    assert parts.rows.dtype == parts.offsets.dtype == np.int64 and parts.clients == clients
    assert all((np.diff(parts.of(k)) > 0).all() for k in range(clients))
    again = pickle.loads(pickle.dumps(partitioner)).split(labels, clients, seed)
    assert content(parts) == content(again)
    each = int(0.2 * len(labels) / 1.2 / 10 + 1e-9)
    whole = Shared(Iid(), 0.2, 1.0).split(labels, clients + 1, seed)
    common = sorted(set.intersection(*(set(whole.of(k)) for k in range(clients + 1))))
    assert np.bincount(labels[common])[np.unique(labels)].tolist() == [each] * 10
    own = [np.setdiff1d(parts.of(k), common) for k in range(clients)]
    assert np.array_equal(np.sort(np.concatenate(own)), np.setdiff1d(np.arange(len(labels)), common))
    assert {len(np.intersect1d(parts.of(k), common)) for k in range(clients)} == {int(alpha * each * 10 + 0.5)}


def test_the_base_divides_the_rest_as_it_would_alone():
    parts = Shared(Dirichlet(0.3), 0.25, 0.0).split(BALANCED, 6, 4)
    left = np.sort(parts.rows)
    alone = Dirichlet(0.3).split(BALANCED[left], 6, 4)
    assert len(left) == 1600 and np.array_equal(left[alone.rows], parts.rows)
    assert np.array_equal(alone.offsets, parts.offsets)


@pytest.mark.parametrize("base", [Iid(), Natural()], ids=repr)
def test_the_shared_rows_alone_are_divided_for_a_model_that_is_trained_before(base: Partitioner):
    """They are those of the other run, whatever its base, its part and its number of clients."""
    everywhere = Shared(Dirichlet(0.3), 0.25, 1.0).split(MIXED, 3, 1)
    common = np.flatnonzero(np.bincount(everywhere.rows) == 3)
    clients = base.count(SITES) if base.decides else 4
    parts = Shared(base, 0.25, 0.7, divides="shared").split(MIXED, clients, 1, SITES)
    assert np.array_equal(np.sort(parts.rows), common) and parts.clients == clients
    assert all((SITES["site"][parts.of(k)] == k).all() for k in range(clients)) == base.decides
    one = federate(made().dataset, Shared(Iid(), 0.25, divides="shared"), clients=1, seed=3)
    assert len(set(one.counts[0].tolist())) == 1
    owners = np.bincount(made().partition.rows, minlength=len(MIXED))
    assert set(np.flatnonzero(owners > 1)) <= set(one.rows(0).tolist())


def test_what_cannot_be_is_refused():
    cases = [
        (lambda: Shared(beta=0.004).split(MIXED, 5, 0), "give a row of each of the 10 classes; got 0.004"),
        (lambda: Shared(beta=3.0).split(MIXED, 5, 0), "leave rows of each class, one has 60; got 3.0; use less"),
        (lambda: Shared().split(np.arange(10), 5, 0), "give a row of each of the 10 classes"),
        (lambda: Shared(Shared()), "base must be a partitioner that draws; got 'shared'"),
        (lambda: Shared(File("a.npz")), "base must be a partitioner that draws; got 'file'"),
        (lambda: Shared(Counts(matrix=((1, 2),))), "base must be a partitioner that draws; got 'counts'"),
    ]  # fmt: skip
    for make, message in cases:
        refused(make, message)


def test_rows_of_several_clients_count_at_each_and_once_in_the_report():
    fed, plain = made(), federate(made().dataset, LabelsK(1), clients=8, seed=3)
    y = fed.dataset.y.numpy()
    assert fed.counts.tolist() == [np.bincount(y[fed.rows(k)], minlength=10).tolist() for k in range(8)]
    owners = np.bincount(fed.partition.rows, minlength=len(y))
    report = fed.report()
    assert report["training_rows"] == (owners > 0).sum() < int(fed.sizes.sum())
    assert report["repeated_rows"] == (owners > 1).sum() > 0 and "repeated_rows" not in plain.report()
    assert report["unused_rows"] == (owners == 0).sum()
    assert (
        describe(fed)["rows"] == int(fed.sizes.sum())
        and describe(fed)["partition_options"]["base"]["name"] == "labels_k"
    )
    assert "rows of several clients" in printed(describe_table(fed))
    assert "rows of several clients" not in printed(describe_table(plain))


def test_no_client_tests_on_a_row_that_another_trains_on():
    fed, whole = made(local_test=0.3), made()
    train = set(fed.partition.rows.tolist())
    for k in range(8):
        held = fed.local_test_rows(k)
        assert not train & set(held.tolist())
        assert np.array_equal(np.sort(np.concatenate([fed.rows(k), held])), whole.rows(k))
        owners = np.bincount(whole.partition.rows)[whole.rows(k)]
        assert len(held) == int(0.3 * (owners == 1).sum() + 0.5) > 0
    assert fed.report()["unused_rows"] == whole.report()["unused_rows"]


def test_clients_held_out_lose_the_rows_that_others_train_on():
    fed, whole = made(local_test=0.2, heldout_clients=0.3), made(local_test=0.2)
    out = [k for k in range(8) if not len(fed.rows(k))]
    train = fed.partition.rows
    for k in out:
        assert np.array_equal(fed.unseen.rows(k), np.setdiff1d(whole.rows(k), train)) and len(fed.unseen.rows(k))
        assert len(fed.unseen.rows(k)) < len(whole.rows(k))
        assert fed.unseen.counts[k].sum() == len(fed.unseen.rows(k))
    report = fed.report()
    used = ("training_rows", "unused_rows", "local_test_rows", "heldout_clients_rows")
    assert sum(report[name] for name in used) == len(MIXED) and report["unused_rows"] == whole.report()["unused_rows"]


def test_clients_that_have_shared_rows_alone_cannot_be_held_out():
    @dataclass(frozen=True)
    class Copies(Partitioner):
        name = "copies"
        overlaps = True

        def draw(self, table: Any, clients: int, gen: Any) -> Partition:
            return Partition(np.tile(np.arange(4), clients), 4 * np.arange(clients + 1))

    assert federate(made().dataset, Copies(), clients=3).sizes.tolist() == [4, 4, 4]
    for option, told in (
        ("heldout_clients", "heldout_clients must leave held-out clients a row that no other client"),
        ("local_test", "local_test must be large enough to hold out a row"),
    ):
        refused(partial(federate, made().dataset, Copies(), clients=3, **{option: 0.3}), told)


@pytest.mark.parametrize("options", [{}, {"local_test": 0.2}])
def test_a_file_carries_them(tmp_path: Path, options: dict[str, Any]):
    fed = made(validation=0.1, auxiliary=2, **options)
    save_partition(tmp_path / "split.npz", fed)
    back = federate(fed.dataset, tmp_path / "split.npz")
    assert np.array_equal(back.partition.rows, fed.partition.rows) and torch.equal(back.counts, fed.counts)
    assert np.array_equal(back.local_test_rows(), fed.local_test_rows())
    assert back.report()["repeated_rows"] == fed.report()["repeated_rows"]
    facts = verify_partition(tmp_path / "split.npz", fed.dataset)
    assert facts["overlaps"] is True and facts["convention"]["base"]["name"] == "labels_k"
    assert facts["rows"] == fed.report()["training_rows"] == int(fed.sizes.sum()) - facts["shared_copies"]
    save_partition(tmp_path / "again.npz", back)
    assert load_partition(tmp_path / "again.npz").header["overlaps"] is True


def test_a_file_of_others_does_not_say_so_and_may_not_have_them(tmp_path: Path):
    parts = HALF.split(MIXED, 8, 3)
    save_partition(tmp_path / "bare.npz", parts, labels=MIXED, partitioner=HALF)
    assert load_partition(tmp_path / "bare.npz").header["overlaps"] is True
    for partitioner in (None, Iid()):
        wrong = partial(save_partition, tmp_path / "other.npz", parts, labels=MIXED, partitioner=partitioner)
        refused(wrong, "clients 4 and 6 both have row 0", kind=DataError)
    save_partition(tmp_path / "plain.npz", Iid().split(MIXED, 8, 3), labels=MIXED, partitioner=Iid())
    assert "overlaps" not in load_partition(tmp_path / "plain.npz").header
    held = parts._replace(rows=parts.of(0), offsets=np.array([0, *[len(parts.of(0))] * 8]))
    found = load_partition(tmp_path / "bare.npz")._replace(local_test=held)
    # a row of the test that somebody trains on
    refused(lambda: check_content(found, "file"), "give each row one owner", kind=DataError)


def test_the_command_names_the_base(tmp_path: Path):
    words = "--partition shared --partition.base labels_k --partition.base.labels 1 --partition.beta 0.1 --clients 6"
    run = f"run fedavg --data digits {words} --partition.alpha 1 --rounds 1 --model logistic --out {tmp_path / 'run'}"
    assert fedskew(*run.split()) == 0
    config = json.loads((tmp_path / "run/config.json").read_text())
    want = {"name": "shared", "base": {"name": "labels_k", "labels": 1, "repeats": False}, "beta": 0.1, "alpha": 1.0}
    assert config["partition"] == want
    path = str(tmp_path / "split.npz")
    assert fedskew("partition", "make", "--data", "digits", *words.split(), "--out", path) == 0
    assert fedskew("partition", "verify", path, "--data", "digits") == 0
