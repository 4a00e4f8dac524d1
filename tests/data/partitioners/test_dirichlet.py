"""The Dirichlet partitioners: limits of alpha, sizes, guards and the prior."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedskew.data.partitioners import (
    DirClientEqual,
    DirExtended,
    Dirichlet,
    DirPrior,
    QuantityDir,
    base,
    dirichlet,
    log_dirichlet,
)
from fedskew.errors import ConfigError
from support.command import refused
from support.labels import BALANCED, MIXED, SITES, content, counted, histograms
from support.strategies import alphas, seeds, tables


@given(labels=tables(), clients=st.integers(1, 30), seed=seeds)
def test_alpha_towards_zero_gives_each_class_to_one_client(labels, clients, seed):
    counts = histograms(Dirichlet(1e-9).split(labels, clients, seed), labels)
    assert ((counts > 0).sum(axis=0) <= 1).all()


@pytest.mark.thorough
@pytest.mark.parametrize(("alpha", "low", "high"), [(0.05, 0.8, 0.95), (0.1, 0.06, 0.17), (0.5, 0.0, 0.0)])
def test_how_often_class_wise_dirichlet_leaves_a_client_empty(alpha, low, high):
    labels = np.repeat(np.arange(10), 6000)
    empty = [(Dirichlet(alpha).split(labels, 100, seed).sizes == 0).any() for seed in range(200)]
    assert low <= np.mean(empty) <= high  # about 0.88, 0.11 and 0


@given(labels=tables(), alpha=alphas, clients=st.integers(1, 20), seed=seeds)
def test_fedga_sizes_are_near_equal_and_the_scarcest_class_is_used_up(labels, alpha, clients, seed):
    counts = histograms(DirClientEqual(alpha).split(labels, clients, seed), labels)
    left = np.bincount(labels) - counts.sum(axis=0)
    assert np.ptp(counts.sum(axis=1)) <= 10  # a rounding of one half for each of 10 classes
    assert left[np.unique(labels)].min() <= clients / 2


@given(labels=tables(), clients=st.integers(1, 40), seed=seeds, rest=st.integers(0, 40))
def test_dir_prior_sizes_are_equal_and_alpha_zero_gives_one_class(labels, clients, seed, rest):
    rest = min(rest, clients)
    counts = histograms(DirPrior(0, rest=rest, alpha_rest=0.5).split(labels, clients, seed), labels)
    assert np.ptp(counts.sum(axis=1)) == 0 and counts.sum(axis=1)[0] > 0
    assert ((counts[: clients - rest] > 0).sum(axis=1) == 1).all()


def test_dir_prior_largest_size_is_tight_and_the_data_prior_follows_the_data():
    labels = np.repeat(np.arange(3), [100, 50, 10])
    best = int(DirPrior(0).split(labels, 7, 0).sizes[0])  # 100//20 + 50//20 + 10//20 = 7, at 21 it is 6
    assert best == 20
    refused(lambda: DirPrior(0, samples=21).split(labels, 7, 0), "at most 20 here; got 21; use 20 or 0")
    counts = histograms(DirPrior(1e6, samples=16, prior="data").split(labels, 10, 0), labels)
    assert np.array_equal(counts, np.tile([10, 5, 1], (10, 1)))


@given(alpha=alphas, clients=st.integers(1, 60), seed=seeds)
def test_largest_remainders_and_the_cut_round_the_same_shares(alpha, clients, seed):
    cut = counted(Dirichlet(alpha), MIXED, clients, seed)
    largest = counted(Dirichlet(alpha, rounding="largest_remainder"), MIXED, clients, seed)
    assert np.abs(cut - largest).max() <= 1 and np.array_equal(cut.sum(0), largest.sum(0))


@given(alpha=alphas, clients=st.integers(1, 60), seed=seeds, guard=st.floats(1, 3))
def test_the_guard_closes_clients_that_have_enough(alpha, clients, seed, guard):
    counts = counted(Dirichlet(alpha, balance_guard=guard), MIXED, clients, seed)
    before = np.cumsum(counts, axis=1) - counts  # what a client had when class c was split
    assert (counts[before >= guard * len(MIXED) / clients] == 0).all()
    assert np.array_equal(counts.sum(0), np.bincount(MIXED))


def test_the_guard_closes_a_client_that_has_exactly_its_part():
    labels = np.repeat([0, 1, 2], 40)
    for seed in range(6):
        counts = counted(Dirichlet(1e-9, balance_guard=1.0), labels, 3, seed)
        assert sorted(counts.tolist(), reverse=True) == [[40, 0, 0], [0, 40, 0], [0, 0, 40]]


def test_least_draws_again_a_bounded_number_of_times_and_names_what_is_possible(monkeypatch):
    assert Dirichlet(0.5, least=10).split(BALANCED, 20, 0).sizes.min() >= 10
    drawn = []
    monkeypatch.setattr(base, "log_dirichlet", lambda *a: drawn.append(1) or log_dirichlet(*a))
    with pytest.raises(ConfigError, match=r"Dirichlet\.least must be met by one of 100 draws at alpha 0.05") as caught:
        Dirichlet(0.05, least=50).split(BALANCED, 30, 0)
    assert len(drawn) == 100
    feasible = int(str(caught.value).split("use ")[1].split(",")[0])
    assert Dirichlet(0.05, least=feasible).split(BALANCED, 30, 0).sizes.min() >= feasible


def test_without_least_nothing_is_drawn_twice(monkeypatch):
    drawn = []
    monkeypatch.setattr(base, "log_dirichlet", lambda *a: drawn.append(1) or log_dirichlet(*a))
    assert (Dirichlet(1e-3).split(BALANCED, 1000, 0).sizes == 0).any() and len(drawn) == 1


# Other forms


@given(clients=st.integers(1, 40), seed=seeds)
def test_alpha_towards_zero_gives_one_class_a_client_where_clients_draw(clients, seed):
    assert ((counted(DirClientEqual(1e-9), MIXED, clients, seed) > 0).sum(1) <= 1).all()


@given(clients=st.integers(1, 80), seed=seeds, alpha=alphas, samples=st.integers(0, 9), block=st.integers(1, 9))
def test_dir_prior_serves_blocks_as_it_would_serve_one_client_after_the_other(clients, seed, alpha, samples, block):
    partitioner, found = DirPrior(alpha, samples=min(samples, len(MIXED) // clients)), []
    with pytest.MonkeyPatch.context() as patch:
        for size in (1, block):
            patch.setattr(dirichlet, "BLOCK", size)
            found.append(content(partitioner.split(MIXED, clients, seed)))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "made",
    [
        Dirichlet, DirClientEqual, DirPrior,
        lambda a: Dirichlet(a, balance_guard=1.0), lambda a: Dirichlet(a, rounding="largest_remainder"),
        lambda a: DirExtended(3, a), QuantityDir,
        lambda a: DirPrior(a, prior="data"),
    ],
)  # fmt: skip
@given(alpha=alphas, clients=st.integers(1, 40), seed=seeds)
def test_no_alpha_breaks_a_partitioner(made, alpha, clients, seed):
    parts = made(alpha).split(MIXED, clients, seed, SITES)
    assert len(np.unique(parts.rows)) == len(parts.rows) > 0 and parts.clients == clients


# Stray rows


def one_row(rounding: str, clients: int = 20, draws: int = 200) -> np.ndarray:
    """Mean number of classes of which a client has one row, by its place, [N]."""
    made = Dirichlet(0.05, rounding=rounding)
    return np.mean([counted(made, BALANCED, clients, seed) == 1 for seed in range(draws)], axis=0).sum(axis=1)


def test_the_default_gives_no_place_stray_rows():
    found = one_row(Dirichlet().rounding)
    assert found.mean() < 0.5 and found.max() < 0.7 and found.min() > 0.2


def test_a_cut_gives_the_last_client_a_stray_row_of_most_classes():
    found = one_row("cut")
    assert found[-1] > 6 and found[:-1].max() < 1  # 0.85 for the last but one: the last may have no share
