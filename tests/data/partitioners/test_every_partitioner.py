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
    Pathological,
    QuantityDir,
    Shards,
    Shared,
    deal,
    largest_remainder,
    log_dirichlet,
)
from fedskew.errors import ConfigError, DataError
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


@pytest.mark.parametrize("name", sorted(set(CONVENTIONS) - {"shared"}))  # see test_shared.py
@given(labels=tables(), clients=st.integers(1, 18), seed=seeds)
def test_every_convention_is_disjoint_inside_the_data_and_deterministic(name, labels, clients, seed):
    partitioner = PARTITIONERS[name]()
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


def test_the_draw_is_keyed_by_seed_purpose_and_name():
    shuffle = rng.generator(rng.key(5, "partition", "iid")).permutation(2000)
    assert np.array_equal(Iid().split(BALANCED, 2, 5).of(0), np.sort(shuffle[:1000]))


@pytest.mark.parametrize("partitioner", USES_ALL, ids=repr)
@given(labels=tables(), clients=st.integers(4, 18), seed=seeds)
def test_nothing_is_lost(partitioner, labels, clients, seed):
    parts = partitioner.split(labels, clients, seed, columns_for(labels, clients))
    assert np.array_equal(np.sort(parts.rows), np.arange(len(labels)))


# Recorded behaviour


CUT = Dirichlet(rounding="cut")
RECORDED = [
    (Iid(), "7527502a560a"), (CUT, "66bd2c13d15a"),
    (Dirichlet(0.3, balance_guard=1.0, rounding="cut"), "87f2e360da3e"),
    (Dirichlet(0.5, least=3, rounding="cut"), "4411bbcf4df8"), (Dirichlet(), "fff6db1fb816"),
    (Dirichlet(0.3, balance_guard=1.0), "06fbc0668877"), (Dirichlet(0.5, least=3), "89691d2e42a8"),
    (DirClientEqual(), "a9726784fe29"), (DirExtended(), "f3bd006c24d1"), (DirPrior(), "02b65194d171"),
    (DirPrior(0.2), "d7caa3c16954"), (DirPrior(0, rest=4), "7e6252394507"),
    (DirPrior(1.0, prior="data"), "3e4f4e148f5d"), (LabelsK(), "4cca8625f678"),
    (LabelsK(7, repeats=True), "1814e0162d11"), (Double(), "cfdf1a0aedab"), (Double(3, 0.5), "6cc724034052"),
    (Shards(), "596ab69badab"), (ExclusiveIid(0.3, 2), "adbf2153f7a5"), (QuantityDir(), "189c86894b07"),
    (Pathological(), "c33243fa8f5b"), (Pathological(2, "blocks", "random"), "2a3591392663"),
    (DirExtended(2, 0.5, owners="random", balance_guard=1.0, least=10, rounding="cut"), "95ebcbcbdda9"),
    (DirPrior(0.3, concentration="per_class", serve="together"), "fb67251d4371"),
    (QuantityDir(0.5, least=10, redraw=True), "e53890ced596"),
    (Natural(), "8d1e662cc5fd"), (Shared(CUT), "c0a0c2f77ac9"), (Shared(Natural(), 0.3, 0.1), "bb011f05c85c"),
]  # fmt: skip
EVERY = [partitioner for partitioner, _ in RECORDED]


@pytest.mark.parametrize(("partitioner", "recorded"), RECORDED, ids=lambda value: repr(value))
def test_the_split_is_that_on_record(partitioner, recorded):
    """Also on any machine: a change of these is a change of every result that was published with them."""
    assert content(partitioner.split(MIXED, 7, 11, SITES)) == recorded


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


def test_partition_helpers():
    parts = deal(np.array([0, 1, 0, 1, 1]), np.array([[1, 2], [0, 0], [1, 0]]), rng.generator(0))
    assert parts.sizes.tolist() == [3, 0, 1] and len(parts.of(1)) == 0
    assert parts.counts([0, 1, 0, 1, 1], 3).tolist() == [[1, 2, 0], [0, 0, 0], [1, 0, 0]]
    for k in (-1, 3):
        with pytest.raises(IndexError):
            parts.of(k)


@given(
    shares=st.lists(st.floats(0, 1e6), min_size=1, max_size=12).filter(lambda s: sum(s) > 0),
    total=st.integers(0, 10**6),
)
def test_largest_remainder_sums_and_stays_within_one(shares, total):
    out = largest_remainder(np.array([shares]), np.array([total]))[0]
    exact = np.array(shares) / sum(shares) * total
    assert out.sum() == total and (np.abs(out - exact) < 1 + 1e-6).all()


@given(alpha=st.floats(-300, 300).map(lambda e: 10.0**e), seed=seeds)
def test_log_dirichlet_is_normalised_for_any_concentration(alpha, seed):
    logs = log_dirichlet(np.full((5, 30), alpha), rng.generator(seed))
    assert not np.isnan(logs).any() and np.allclose(np.exp(logs).sum(axis=1), 1)


@pytest.mark.parametrize("alpha", [0.05, 0.5, 4.0])
def test_log_dirichlet_has_the_moments_of_the_distribution(alpha):
    shares = np.exp(log_dirichlet(np.full((40_000, 4), alpha), rng.generator(7)))
    variance = 0.25 * 0.75 / (4 * alpha + 1)
    assert np.allclose(shares.mean(axis=0), 0.25, atol=5 * (variance / 40_000) ** 0.5)
    assert np.allclose(shares.var(axis=0), variance, rtol=0.05)


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: DirClientEqual(1).split([0, 0, 1], 2, 0), "clients must be at most the 1 rows of the scarcest class"),
        (lambda: DirPrior(prior="unifrom"), "did you mean 'uniform'"),
        (lambda: DirPrior(rest=11).split(BALANCED, 10, 0), "rest must be at most the 10 clients; got 11; use 10"),
        (lambda: DirPrior(0).split([0, 1], 3, 0), "clients must leave every client at least one row"),
        (lambda: LabelsK(11).split(BALANCED, 5, 0), "labels must be at most the 10 classes; got 11; use 10"),
        (lambda: Shards(3).split(BALANCED, 1000, 0), "one of the 2000 rows; got 3; use 2"),
        (lambda: Shards(1).split(BALANCED, 2001, 0), "got 1; use 1 and at most 2000 clients"),
        (lambda: Iid().split(BALANCED, 0, 0), "clients must be a whole number of at least 1; got 0"),
        (lambda: Iid().split(BALANCED, 2.5, 0), "clients must be a whole number of at least 1; got 2.5"),
        (lambda: Iid().split(BALANCED, 2001, 0), "clients must be at most the 2000 rows; got 2001; use 2000"),
        (lambda: ExclusiveIid(0.5, 2).split(BALANCED, 10, 0), "got 2; use 1$"),
        (lambda: ExclusiveIid(0.5, 2).split(BALANCED, 40, 0), "got 2; use 1, and noniid_s at most 0.225"),
        (lambda: ExclusiveIid(0.5, 1, 300).split(BALANCED, 4, 0), "samples must be at most 200 here; got 300"),
        (lambda: Natural("sit").split(BALANCED, 3, 0, {"site": BALANCED}), "did you mean 'site'"),
        (lambda: Natural("site").split(BALANCED, 3, 0, {"site": BALANCED}), "got 3; use 10"),
        (lambda: Dirichlet(0.1, least=300).split(BALANCED, 10, 0), "least must be at most 200 here.*got 300; use 200"),
        (lambda: Dirichlet(0.1, rounding="cutt"), "did you mean 'cut'"),
        (lambda: DirExtended(11).split(BALANCED, 5, 0), "labels must be at most the 10 classes; got 11; use 10"),
        (lambda: DirPrior(0).split(BALANCED, 2001, 0), "one row under this partition; got 2001; use at most 2000"),
        (lambda: ExclusiveIid(1.0).split(BALANCED, 11, 0), "got 1; use 1, and noniid_s at most 0.818"),
        (lambda: ExclusiveIid(0.0).split(BALANCED, 2001, 0), "use at most 2000"),
        (lambda: QuantityDir(least=5).split(BALANCED, 1000, 0), "least must be at most 2 here.*got 5; use 2"),
        (lambda: QuantityDir().split(BALANCED, 2001, 0), "clients must be at most the 2000 rows; got 2001; use 2000"),
        (lambda: Dirichlet().split(BALANCED, 10**12, 0), "at most 214748364 for 10 classes: .*; use 214748364"),
        (lambda: Iid().count({}), "takes any number"),
    ],
)
def test_an_impossible_request_is_one_line_with_a_suggestion(attempt, message):
    with pytest.raises((ConfigError, TypeError), match=message) as caught:
        attempt()
    assert "\n" not in str(caught.value)


SUGGESTED = [
    (Dirichlet(0.1, least=200, balance_guard=1.0), 1), (DirPrior(0), 2000), (ExclusiveIid(0.818), 11),
    (ExclusiveIid(0.225), 40), (ExclusiveIid(0.5), 10), (ExclusiveIid(0.0), 2000), (QuantityDir(least=2), 1000),
    (QuantityDir(), 2000),
]  # fmt: skip


@pytest.mark.parametrize(("partitioner", "clients"), SUGGESTED, ids=repr)
def test_suggested_settings_work(partitioner, clients):
    assert (partitioner.split(BALANCED, clients, 0).sizes > 0).all()
