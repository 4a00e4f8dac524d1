"""What every partitioner promises: disjoint rows, one split a seed, the splits on record, a description, speed."""

from __future__ import annotations

import inspect
import pickle
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedskew import rng
from fedskew.data.partitioners import (
    PARTITIONERS,
    DirClientEqual,
    DirExtended,
    Dirichlet,
    DirPrior,
    Double,
    ExclusiveIid,
    Iid,
    LabelsK,
    Natural,
    Partitioner,
    QuantityDir,
    Shards,
    Shared,
)
from fedskew.data.partitioners.file import convention_of
from fedskew.errors import DataError
from fedskew.fields import recorded
from support.command import refused
from support.labels import BALANCED, MIXED, SITES, content, histograms
from support.strategies import seeds, tables

CONVENTIONS = sorted(set(PARTITIONERS) - {"dirichlet", "counts", "file"})  # these two are given, not drawn
USES_ALL = [
    Iid(), Dirichlet(0.3), LabelsK(3), Double(3), Shards(2), Natural("site"),
    Dirichlet(0.3, balance_guard=1.0), Dirichlet(0.3, rounding="cut"),
    DirExtended(4), Iid(sizes="power"), Iid(sizes="lognormal"), QuantityDir(),
]  # fmt: skip


def columns_for(labels, clients):
    return {"client": np.arange(len(labels)) % clients, "site": np.arange(len(labels)) % clients}


def made(name):
    return PARTITIONERS[name]()


@pytest.mark.parametrize("name", sorted(set(CONVENTIONS) - {"shared"}))  # see test_common.py
@given(labels=tables(), clients=st.integers(1, 18), seed=seeds)
def test_every_convention_is_disjoint_inside_the_data_and_deterministic(name, labels, clients, seed):
    partitioner = made(name)
    parts = partitioner.split(labels, clients, seed, columns_for(labels, clients))
    assert parts.rows.dtype == parts.offsets.dtype == np.int64
    assert parts.offsets[0] == 0 and parts.offsets[-1] == len(parts.rows) and parts.clients == clients
    assert len(np.unique(parts.rows)) == len(parts.rows) <= len(labels)
    assert len(parts.rows) == 0 or (parts.rows.min() >= 0 and parts.rows.max() < len(labels))
    assert all((np.diff(parts.of(k)) > 0).all() for k in range(clients))
    again = pickle.loads(pickle.dumps(partitioner)).split(labels, clients, seed, columns_for(labels, clients))
    assert np.array_equal(parts.rows, again.rows) and np.array_equal(parts.offsets, again.offsets)
    counts = histograms(parts, labels)
    assert np.array_equal(counts.sum(axis=1), parts.sizes)
    assert (counts.sum(axis=0) <= np.bincount(labels)).all()


@pytest.mark.parametrize("name", [name for name in CONVENTIONS if name != "natural"])
def test_another_seed_differs(name):
    one, two = (made(name).split(BALANCED, 10, seed, columns_for(BALANCED, 10)) for seed in (0, 1))
    assert not np.array_equal(one.rows, two.rows)


def test_the_draw_is_keyed_by_seed_purpose_and_name():
    shuffle = rng.generator(rng.key(5, "partition", "iid")).permutation(2000)
    assert np.array_equal(Iid().split(BALANCED, 2, 5).of(0), np.sort(shuffle[:1000]))


@pytest.mark.parametrize("partitioner", USES_ALL, ids=repr)
@given(labels=tables(), clients=st.integers(4, 18), seed=seeds)
def test_nothing_is_lost(partitioner, labels, clients, seed):
    parts = partitioner.split(labels, clients, seed, columns_for(labels, clients))
    assert np.array_equal(np.sort(parts.rows), np.arange(len(labels)))


def test_the_table_holds_each_convention_under_its_own_name():
    assert all(PARTITIONERS[name].name == name for name in CONVENTIONS)
    assert PARTITIONERS["dirichlet"] is Dirichlet
    assert convention_of(DirExtended(alpha=0.1)) == {"name": "dir_extended", "labels": 2, "alpha": 0.1}
    assert Dirichlet(0.1) == Dirichlet(alpha=0.1) and convention_of(Iid()) == {"name": "iid"}


# Recorded behaviour


CUT = Dirichlet(rounding="cut")
EVERY = [
    Iid(), CUT, Dirichlet(0.3, balance_guard=1.0, rounding="cut"), Dirichlet(0.5, least=3, rounding="cut"),
    Dirichlet(), Dirichlet(0.3, balance_guard=1.0), Dirichlet(0.5, least=3), DirClientEqual(), DirExtended(),
    DirPrior(), DirPrior(0.2), DirPrior(0, rest=4), DirPrior(1.0, prior="data"), LabelsK(), LabelsK(7, repeats=True),
    Double(), Double(3, 0.5), Shards(), ExclusiveIid(0.3, 2),
    QuantityDir(), Natural(), Shared(CUT), Shared(Natural(), 0.3, 0.1),
]  # fmt: skip
DIRICHLET = "Dirichlet(alpha=0.1, balance_guard=None, least=None, rounding='cut')"
RECORDED = {
    "Iid()": "7527502a560a",
    DIRICHLET: "66bd2c13d15a",
    "Dirichlet(alpha=0.3, balance_guard=1.0, least=None, rounding='cut')": "87f2e360da3e",
    "Dirichlet(alpha=0.5, balance_guard=None, least=3, rounding='cut')": "4411bbcf4df8",
    "Dirichlet(alpha=0.1, balance_guard=None, least=None)": "fff6db1fb816",
    "Dirichlet(alpha=0.3, balance_guard=1.0, least=None)": "06fbc0668877",
    "Dirichlet(alpha=0.5, balance_guard=None, least=3)": "89691d2e42a8",
    "DirClientEqual(alpha=0.1)": "a9726784fe29",
    "DirExtended(labels=2, alpha=0.5)": "f3bd006c24d1",
    "DirPrior(alpha=0.0, rest=0, alpha_rest=0.2, samples=0, prior='uniform')": "02b65194d171",
    "DirPrior(alpha=0.2, rest=0, alpha_rest=0.2, samples=0, prior='uniform')": "d7caa3c16954",
    "DirPrior(alpha=0, rest=4, alpha_rest=0.2, samples=0, prior='uniform')": "7e6252394507",
    "DirPrior(alpha=1.0, rest=0, alpha_rest=0.2, samples=0, prior='data')": "3e4f4e148f5d",
    "LabelsK(labels=2, repeats=False)": "4cca8625f678",
    "LabelsK(labels=7, repeats=True)": "1814e0162d11",
    "Double(labels=2, exponent=1.0, repeats=False)": "cfdf1a0aedab",
    "Double(labels=3, exponent=0.5, repeats=False)": "6cc724034052",
    "Shards(shards=2)": "596ab69badab",
    "ExclusiveIid(noniid_s=0.3, unique_c=2, samples=0)": "adbf2153f7a5",
    "QuantityDir(alpha=0.5, least=1)": "189c86894b07",
    "Natural(column='')": "8d1e662cc5fd",
    f"Shared(base={DIRICHLET}, beta=0.05, alpha=0.5)": "c0a0c2f77ac9",
    "Shared(base=Natural(column=''), beta=0.3, alpha=0.1)": "bb011f05c85c",
}


def told(partitioner):
    """As repr, without the options that were added later and are unset."""
    values = {n: told(v) if isinstance(v, Partitioner) else repr(v) for n, v in recorded(partitioner).items()}
    return f"{type(partitioner).__name__}({', '.join(f'{n}={v}' for n, v in values.items())})"


@pytest.mark.parametrize("partitioner", EVERY, ids=told)
def test_the_split_is_that_on_record(partitioner):
    """Also on any machine: a change of these is a change of every result that was published with them."""
    assert content(partitioner.split(MIXED, 7, 11, SITES)) == RECORDED[told(partitioner)]


@pytest.mark.parametrize("partitioner", EVERY, ids=repr)
def test_the_split_does_not_depend_on_how_labels_are_stored(partitioner):
    expected = content(partitioner.split(MIXED, 7, 3, SITES))
    wide = np.zeros((len(MIXED), 3), np.int32)
    wide[:, 1] = MIXED
    for stored in (MIXED.astype(np.uint8), MIXED.astype(">i8"), wide[:, 1], torch.from_numpy(MIXED), MIXED.tolist()):
        assert content(partitioner.split(stored, 7, 3, SITES)) == expected


def test_labels_that_are_renumbered_give_the_same_rows():
    for labels in (MIXED * 3, MIXED - 100, MIXED + 2**40):
        assert content(Dirichlet().split(labels, 7, 3)) == content(Dirichlet().split(MIXED, 7, 3))


@pytest.mark.parametrize("name", sorted(set(PARTITIONERS) - {"dirichlet"}))
def test_every_convention_says_what_it_is(name):
    kind = PARTITIONERS[name]
    lines = inspect.cleandoc(kind.__doc__ or "").splitlines()
    assert len(lines[0]) >= 5
    for fact in ("Formula: ", "Used by: ", "Limits: "):
        assert sum(line.startswith(fact) and len(line) >= len(fact) + 5 for line in lines) == 1, fact


@pytest.mark.parametrize("labels", [[], [[0, 1]], [0.5, 1.0]])
def test_labels_must_be_a_vector_of_integers(labels):
    refused(lambda: Iid().split(labels, 1, 0), "labels must be a non-empty vector of integers", kind=DataError)


@pytest.mark.parametrize("name", CONVENTIONS)
def test_a_thousand_clients_take_well_under_a_second(name):
    labels = np.repeat(np.arange(10), 6000)
    partitioner = PARTITIONERS[name]()
    start = time.process_time()
    partitioner.split(labels, 1000, 0, {"client": np.arange(60_000) % 1000})
    assert time.process_time() - start < 1.0
