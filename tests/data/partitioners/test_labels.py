"""Partitioners by labels: so many labels a client, shards and exclusive labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedskew.data.partitioners import (
    DirExtended,
    Double,
    ExclusiveIid,
    LabelsK,
    Shards,
)
from support.command import refused
from support.labels import MIXED, counted, histograms
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
