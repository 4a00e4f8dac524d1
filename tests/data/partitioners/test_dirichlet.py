"""The Dirichlet partitioners: limits of alpha, sizes, guards and the prior."""

from __future__ import annotations

import json
import lzma

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
from support.paths import ROOT
from support.strategies import alphas, seeds, tables


@given(labels=tables(), clients=st.integers(1, 30), seed=seeds)
def test_alpha_towards_zero_gives_each_class_to_one_client(labels, clients, seed):
    counts = histograms(Dirichlet(1e-9).split(labels, clients, seed), labels)
    assert ((counts > 0).sum(axis=0) <= 1).all()


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
    cut = counted(Dirichlet(alpha, rounding="cut"), MIXED, clients, seed)
    largest = counted(Dirichlet(alpha), MIXED, clients, seed)
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
        lambda a: Dirichlet(a, balance_guard=1.0), lambda a: Dirichlet(a, rounding="cut"),
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


CIFAR = np.repeat(np.arange(10), 5000)


@given(alpha=st.floats(1e-3, 10), clients=st.integers(1, 40), seed=seeds)
def test_alpha_a_class_is_ten_times_alpha_in_total(alpha, clients, seed):
    for prior in ("uniform", "data"):
        one = DirPrior(alpha, concentration="per_class", prior=prior).split(MIXED, clients, seed)
        ten = counted(DirPrior(10 * alpha, prior=prior), MIXED, clients, seed)
        assert np.abs(one.counts(MIXED, 10) - ten).max() <= 1  # 10 alpha p and alpha C p may differ in the last bit
    named = DirPrior(alpha, concentration="total").split(MIXED, clients, seed)
    assert content(named) == content(DirPrior(alpha).split(MIXED, clients, seed))


def test_seol_and_kims_classes_of_a_client_fit_alpha_a_class():
    """Their case 3: "6 classes, 4 of 6 below average". Means over ten splits of 100 clients."""
    for reading, held, below in (("total", 2.1, 0.7), ("per_class", 6.7, 4.0)):
        n = np.concatenate([counted(DirPrior(0.2, concentration=reading), CIFAR, 100, s) for s in range(10)])
        assert (n > 0).sum(axis=1).mean() == pytest.approx(held, abs=0.15)
        assert ((n > 0) & (n < n.mean(axis=1, keepdims=True))).sum(axis=1).mean() == pytest.approx(below, abs=0.15)


def row_by_row(totals, sizes, alpha, rng):
    """The inner Dirichlet of flwr-datasets and FedLab by its own steps."""
    q = rng.dirichlet(np.full(len(totals), alpha), len(sizes))
    left, missing = np.array(totals), np.array(sizes)
    counts = np.zeros(q.shape, np.int64)
    while missing.any():
        k = rng.choice(np.flatnonzero(missing))
        p = q[k] * (left > 0)
        c = rng.choice(len(totals), p=p / p.sum())
        counts[k, c] += 1
        left[c] -= 1
        missing[k] -= 1
    return counts


def facts(n):
    """Classes held, the largest share, and the entropy, means over the clients of a split."""
    q = n / n.sum(axis=1, keepdims=True)
    entropy = -(q * np.log(np.where(q > 0, q, 1))).sum(axis=1)
    return (n > 0).sum(axis=1).mean(), q.max(axis=1).mean(), entropy.mean()


LONG_TAIL = [180, 120, 90, 66, 48, 36, 24, 18, 12, 6]


@pytest.mark.thorough  # the splits on record are quick
@pytest.mark.parametrize("totals", [[60] * 10, LONG_TAIL], ids=["balanced", "long tail"])
def test_served_together_is_the_inner_dirichlet_of_flwr_and_fedlab(totals):
    """In turn is not: the last clients get what is left."""
    labels, sizes = np.repeat(np.arange(10), totals), [60] * 8 + [40, 80]
    together = DirPrior(0.3, concentration="per_class", serve="together", sizes=sizes)
    theirs = np.array([facts(row_by_row(totals, sizes, 0.3, np.random.default_rng(s))) for s in range(40)])
    ours = np.array([facts(counted(together, labels, 10, s)) for s in range(200)])
    error = np.hypot(theirs.std(axis=0) / 40**0.5, ours.std(axis=0) / 200**0.5)
    assert (np.abs(theirs.mean(axis=0) - ours.mean(axis=0)) < 4 * error).all()
    in_turn = DirPrior(0.3, concentration="per_class", sizes=sizes)
    turn = np.array([facts(counted(in_turn, labels, 10, s)) for s in range(200)])
    assert (np.abs(theirs.mean(axis=0) - turn.mean(axis=0)) > 4 * error).any()


def test_clients_that_are_served_in_turn_keep_fewer_classes_of_a_long_tail():
    """The numbers of docs/guide/splits.md."""
    labels = np.repeat(np.arange(10), [300, 200, 150, 110, 80, 60, 40, 30, 20, 10])
    for serve, held in (("in_turn", 5.2), ("together", 7.6)):
        partitioner = DirPrior(0.5, concentration="per_class", serve=serve)
        found = np.mean([(counted(partitioner, labels, 10, s) > 0).sum(axis=1).mean() for s in range(200)])
        assert found == pytest.approx(held, abs=0.1)


def test_the_table_of_seol_and_kim_is_that_of_the_results():
    recorded = lzma.decompress((ROOT / "results/accuracy/seolkim-splits.jsonl.xz").read_bytes())
    rows = [json.loads(line) for line in recorded.splitlines()]
    page, found = (ROOT / "notes/splits.md").read_text(encoding="utf-8"), 0

    def percent(**at):
        ratios = [r["samples_over_fedavg"] for r in rows if all(r[name] == value for name, value in at.items())]
        told = round(100 * (np.mean(ratios) - 1))
        return f"{told:+d}" if told else "0"

    reading = ""
    for line in page[page.index("| alpha counts") :].splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < 6 or not (cells[2] == "equal" or cells[2].startswith("lognormal")):
            continue
        reading = cells[1].split("`")[1] if cells[1] else reading
        skew = None if cells[2] == "equal" else float(cells[2].split()[1])
        for case in (1, 2, 3):
            at = {"alpha_counts": reading, "size_skew": skew, "case": case}
            assert cells[2 + case] == f"{percent(willing=0.25, **at)} % ({percent(willing=1.0, **at)})"
        found += 1
    assert found == 7


@given(alpha=alphas, clients=st.integers(1, 60), seed=seeds, samples=st.integers(0, 9))
def test_served_together_meets_sizes_and_totals(alpha, clients, seed, samples):
    samples = min(samples, len(MIXED) // clients)
    for prior in ("uniform", "data"):
        counts = counted(DirPrior(alpha, samples=samples, serve="together", prior=prior), MIXED, clients, seed)
        assert (counts.sum(axis=1) == counts.sum(axis=1)[0]).all() and (counts.sum(axis=0) <= np.bincount(MIXED)).all()
