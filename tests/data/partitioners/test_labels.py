"""Partitioners by labels: so many labels a client, shards and exclusive labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedskew.data.partitioners import (
    DirExtended,
    Dirichlet,
    Double,
    ExclusiveIid,
    LabelsK,
    Pathological,
    QuantityDir,
    Shards,
)
from fedskew.data.partitioners.base import rounded
from support.command import refused
from support.labels import BALANCED, MIXED, counted, histograms
from support.strategies import seeds, tables


@given(labels=tables(), clients=st.integers(1, 40), seed=seeds, wanted=st.integers(1, 10))
def test_labels_k_gives_exactly_l_labels_split_equally(labels, clients, seed, wanted):
    partitioner = LabelsK(wanted)
    counts = histograms(partitioner.split(labels, clients, seed), labels)
    held = (counts > 0).sum(axis=1)
    owners = -(-clients * wanted // 10)
    assert (held == wanted).all() if owners <= 20 else (held <= wanted).all()
    for column in counts.T:
        assert np.ptp(column[column > 0]) <= 1 if column.any() else True
    literal = histograms(replace(partitioner, repeats=True).split(labels, clients, seed), labels)
    assert ((literal > 0).sum(axis=1) <= wanted).all()


def test_the_literal_deal_repeats_labels_and_ours_does_not():
    labels = np.repeat(np.arange(10), 1000)
    held = [(histograms(LabelsK(7, repeats=r).split(labels, 50, 0), labels) > 0).sum(axis=1) for r in (True, False)]
    assert held[0].min() < 7 and (held[1] == 7).all()


def test_double_follows_the_power_law():
    labels = np.repeat(np.arange(4), 2500)
    counts = histograms(Double(labels=4, exponent=1.0).split(labels, 50, 3), labels)
    ranks = np.arange(1, 51) ** -1.0
    for column in counts.T:
        assert np.abs(np.sort(column)[::-1] - 2500 * ranks / ranks.sum()).max() <= 1
    assert len({tuple(np.argsort(-column)) for column in counts.T}) == 4  # each label has its own order
    level = histograms(Double(labels=4, exponent=0.0).split(labels, 50, 3), labels)
    assert (level == 50).all()


@given(labels=tables(), clients=st.integers(1, 40), seed=seeds, shards=st.integers(1, 4))
def test_shards_are_contiguous_in_the_sorted_labels(labels, clients, seed, shards):
    parts = Shards(shards).split(labels, clients, seed)
    counts = histograms(parts, labels)
    per_shard = -(-len(labels) // (clients * shards))
    # a shard of at most m rows touches at most 2 + (m - 2) / 20 classes of at least 20 rows
    assert ((counts > 0).sum(axis=1) <= shards * (2 + per_shard // 20)).all()
    assert np.ptp(parts.sizes) <= shards


@given(clients=st.integers(1, 40), seed=seeds, labels=st.integers(1, 10), alpha=st.sampled_from([1e-9, 0.3, 1e9]))
def test_extended_dirichlet_is_between_one_owner_and_equal_shares(clients, seed, labels, alpha):
    counts = counted(DirExtended(labels, alpha), MIXED, clients, seed)
    assert ((counts > 0).sum(1) <= labels).all()
    owned = counts.any(axis=0)
    assert np.array_equal(counts.sum(0)[owned], np.bincount(MIXED)[owned])
    assert owned.sum() == min(10, clients * labels)
    if alpha == 1e-9:
        assert ((counts > 0).sum(0) <= 1).all()
    if alpha == 1e9:
        owners = (counts > 0).sum(0)[owned]
        assert (np.abs(counts[:, owned].max(0) - np.bincount(MIXED)[owned] / owners) < 1.01).all()


# exclusive_iid


@given(labels=tables(), clients=st.integers(1, 12), seed=seeds, share=st.floats(0, 1), unique=st.integers(1, 3))
def test_exclusive_labels_have_one_owner_and_sizes_are_equal(labels, clients, seed, share, unique):
    alone = int(clients * share + 0.5)
    partitioner = ExclusiveIid(share, unique)
    if alone * unique > 10 - (alone < clients):
        refused(lambda: partitioner.split(labels, clients, seed), "unique_c")
        return
    counts = histograms(partitioner.split(labels, clients, seed), labels)
    owned = counts > 0
    assert np.ptp(counts.sum(axis=1)) == 0 and counts.sum(axis=1)[0] > 0
    assert (owned[:alone].sum(axis=1) == unique).all()
    assert (owned[:, owned[:alone].any(axis=0)].sum(axis=0) == 1).all()
    assert all(np.ptp(row[row > 0]) <= 1 for row in counts[:alone])
    assert (np.ptp(counts[alone:], axis=0) <= 1).all() if alone < clients else True


@pytest.mark.parametrize(("unique", "samples", "alone", "iid"), [(1, 0, 1 / 43, 20 / 43), (6, 2400, 6 / 23, 2.5 / 23)])
def test_fedla_emnist_design_gives_the_papers_weights(unique, samples, alone, iid):
    labels = np.repeat(np.arange(47), 2400)
    parts = ExclusiveIid(noniid_s=0.7, unique_c=unique, samples=samples).split(labels, 10, 0)
    assert (parts.sizes == 2400).all()
    cohort = parts.counts(labels, 47)[[0, 1, 2, 7, 8]]
    held = cohort.sum(axis=0)
    weights = (cohort[:, held > 0] / held[held > 0]).sum(axis=1) / (held > 0).sum()
    assert np.allclose(weights, [alone] * 3 + [iid] * 2, atol=1e-12)


@pytest.mark.parametrize("clients", [1, 2, 3, 9, 10, 11, 19, 20, 37, 100, 191])
def test_exclusive_iid_works_at_its_defaults_with_ten_classes(clients):
    counts = counted(ExclusiveIid(), MIXED, clients)
    owners = (counts > 0).sum(0)
    assert (counts.sum(1) > 0).all() and np.ptp(counts.sum(1)) == 0
    assert (owners == 1).any() or clients == 1
    if clients in (2, 10):
        assert np.array_equal(counts, counted(ExclusiveIid(0.5), MIXED, clients))
    if clients >= 20:
        assert counts[5:].any(axis=0).sum() == 5  # the others keep half of the labels


RULES = ("first", "random", "cyclic", "blocks")
CIFAR = np.repeat(np.arange(10), 5000)


def niid_bench(labels, clients, wanted, rng):
    """Its #C = L by its own steps: label k mod C first, then random ones until L differ; parts as numpy splits them."""
    classes = int(labels.max()) + 1
    held = []
    for k in range(clients):
        mine = [k % classes]
        while len(mine) < wanted:
            c = int(rng.integers(classes))
            if c not in mine:
                mine.append(c)
        held.append(mine)
    counts = np.zeros((clients, classes), np.int64)
    for c in range(classes):
        owners = [k for k in range(clients) if c in held[k]]
        for k, part in zip(owners, np.array_split(np.flatnonzero(labels == c), max(len(owners), 1)), strict=False):
            counts[k, c] = len(part)
    return counts


def variation(counts):
    sizes = counts.sum(axis=1)
    return sizes.std() / sizes.mean()


@pytest.mark.thorough  # the splits on record are quick
def test_first_is_the_split_of_niid_bench():
    ours = [counted(Pathological(2), MIXED, 20, seed) for seed in range(200)]
    theirs = [niid_bench(MIXED, 20, 2, np.random.default_rng(seed)) for seed in range(200)]
    for of in (variation, lambda n: n.max(), lambda n: (n > 0).sum(axis=0).max(), lambda n: n[0, 0]):
        a, b = np.array([of(n) for n in ours]), np.array([of(n) for n in theirs])
        assert abs(a.mean() - b.mean()) < 4 * np.hypot(a.std(), b.std()) / 200**0.5 + 1e-9
    assert all((n[np.arange(20), np.arange(20) % 10] > 0).all() for n in ours)


def test_labels_k_is_no_librarys_pathological_split():
    """Variation of sizes, CIFAR-10's label counts, 20 clients of two labels, five seeds."""
    found = {
        rule: np.mean([variation(counted(Pathological(owners=rule), CIFAR, 20, s)) for s in range(5)]) for rule in RULES
    }
    unbalanced = Pathological(owners="blocks", shares="random")
    found["pfllib"] = np.mean([variation(counted(unbalanced, CIFAR, 20, s)) for s in range(5)])
    assert variation(counted(LabelsK(), CIFAR, 20)) == 0 == found["cyclic"] == found["blocks"]
    assert found["first"] == pytest.approx(0.233, abs=5e-4) and found["random"] == pytest.approx(0.292, abs=5e-4)
    assert found["pfllib"] == pytest.approx(0.774, abs=5e-4)


@given(clients=st.integers(1, 40), seed=seeds, wanted=st.integers(1, 10), rule=st.sampled_from(RULES))
def test_owners_have_at_most_l_labels_and_divide_all_rows_of_a_label(clients, seed, wanted, rule):
    for shares in ("equal", "random"):
        counts = counted(Pathological(wanted, rule, shares), MIXED, clients, seed)
        held = (counts > 0).sum(axis=1)
        assert (held <= wanted).all() and (counts >= 0).all()
        owned = counts.any(axis=0)
        assert np.array_equal(counts.sum(axis=0)[owned], np.bincount(MIXED)[owned])
        if rule in ("first", "cyclic") and clients >= 10:
            assert owned.all()
        if rule != "blocks" and shares == "equal":
            assert (held == wanted).all()
            assert all(np.ptp(column[column > 0]) <= 1 for column in counts.T if column.any())


def test_blocks_and_cyclic_are_as_their_libraries_write_them():
    cyclic = counted(Pathological(3, "cyclic"), BALANCED, 12) > 0
    assert all(cyclic[k, (k + i) % 10] for k in range(12) for i in range(3))
    blocks = counted(Pathological(2, "blocks"), BALANCED, 20) > 0  # 4 owners a label, who fill up two labels at a time
    assert all(np.flatnonzero(blocks[k]).tolist() == [k // 4 * 2, k // 4 * 2 + 1] for k in range(20))


def test_pfllibs_random_shares_lie_between_a_tenth_and_the_mean_and_the_last_owner_gets_the_rest():
    counts = counted(Pathological(2, "blocks", "random"), CIFAR, 20)
    for column in counts.T:
        parts = column[column > 0]
        mean = 5000 / len(parts)
        assert (parts[:-1] >= mean / 10).all() and (parts[:-1] < mean).all() and parts[-1] > mean


# Extended Dirichlet


EXDIR = {"owners": "random", "balance_guard": 1.0, "least": 10, "rounding": "cut"}


def pfllib_exdir(labels, clients, wanted, alpha, rng):
    """exdir by its own steps."""
    classes = int(labels.max()) + 1
    while True:
        held = [rng.choice(classes, wanted, replace=False) for _ in range(clients)]
        owners = [[k for k in range(clients) if c in held[k]] for c in range(classes)]
        if min(map(len, owners)) >= max(wanted * clients // classes // 2, 1):
            break
    while True:
        counts = np.zeros((clients, classes), np.int64)
        for c, total in enumerate(np.bincount(labels)):
            p = rng.dirichlet(np.full(clients, alpha)) * (counts.sum(axis=1) < len(labels) / clients)
            p = p * np.isin(np.arange(clients), owners[c])
            cuts = (np.cumsum(p / max(p.sum(), 1e-300)) * total).astype(int)  # all zero where every owner is full
            cuts[owners[c][-1] :] = total
            counts[:, c] = np.diff(cuts, prepend=0)
        if counts.sum(axis=1).min() >= 10:
            return counts


@pytest.mark.thorough  # the splits on record are quick
def test_dir_extended_with_its_options_is_exdir_and_without_them_is_not():
    """Classes of a client and variation of sizes over 60 splits of 20 clients, alpha 0.5."""
    held = {}
    for name, of in {
        "exdir": lambda s: counted(DirExtended(2, 0.5, **EXDIR), CIFAR, 20, s),
        "theirs": lambda s: pfllib_exdir(CIFAR, 20, 2, 0.5, np.random.default_rng(s)),
        "ours": lambda s: counted(DirExtended(2, 0.5), CIFAR, 20, s),
    }.items():
        splits = [of(seed) for seed in range(60)]
        held[name] = np.mean([(n > 0).sum(axis=1).mean() for n in splits]), np.mean([variation(n) for n in splits])
    assert np.allclose(held["exdir"], held["theirs"], atol=0.03)
    assert held["exdir"][0] == pytest.approx(1.79, abs=0.02)
    assert held["ours"][0] == pytest.approx(1.97, abs=0.02)


@given(clients=st.integers(2, 40), seed=seeds, alpha=st.sampled_from([1e-6, 0.5, 100.0]))
def test_the_guard_of_dir_extended_closes_clients_that_have_enough(clients, seed, alpha):
    counts = counted(DirExtended(5, alpha, balance_guard=1.0), MIXED, clients, seed)
    before = np.cumsum(counts, axis=1) - counts
    full = before >= len(MIXED) / clients
    for c in range(10):  # a full client takes rows only of a class all of whose owners are full, and takes it whole
        took = counts[:, c] > 0
        assert not (full[:, c] & took).any() or took.sum() == 1
    assert np.array_equal(counts.sum(axis=0), np.bincount(MIXED))


def test_requests_of_dir_extended_and_pathological_that_cannot_be_met():
    for attempt, message in (
        (
            lambda: DirExtended(1, owners="random").split(BALANCED, 10, 0),
            "owners must give each of the 10 labels 1",
        ),
        (lambda: DirExtended(least=300).split(BALANCED, 10, 0), "least must be at most 200 here"),
        (lambda: DirExtended(1, 1e-3, least=50).split(BALANCED, 30, 0), "least must be met by one of 100 draws"),
        (lambda: Pathological(11).split(BALANCED, 5, 0), "labels must be at most the 10 classes; got 11; use 10"),
        (lambda: Pathological(owners="block"), "did you mean 'blocks'"),
    ):
        refused(attempt, message)


# NIID-Bench's stray rows and redraws


def test_a_stray_row_goes_to_the_last_client_only_under_cut_last():
    shares = np.array([[0.1] * 3 + [0.7 - 1e-9] + [0.0] * 4])  # the sum falls just short of 1
    takes = shares[0] > 0
    assert rounded(shares, np.array([100]), "cut", takes).tolist() == [[10, 10, 10, 70, 0, 0, 0, 0]]
    assert rounded(shares, np.array([100]), "cut_last", takes)[0, -1] == 1
    cut, last = (counted(Dirichlet(0.3, balance_guard=1.0, rounding=how), MIXED, 20) for how in ("cut", "cut_last"))
    assert np.abs(cut - last).max() <= 1


def test_quantity_dir_draws_again_instead_of_giving_rows_first():
    for seed in range(5):
        sizes = QuantityDir(0.5, least=10, redraw=True).split(BALANCED, 10, seed).sizes
        assert sizes.min() >= 10 and sizes.sum() == len(BALANCED)
    told = "QuantityDir.least must be met by one of 100 draws at alpha 0.1; got 100"
    refused(lambda: QuantityDir(0.1, least=100, redraw=True).split(BALANCED, 10, 0), told)
