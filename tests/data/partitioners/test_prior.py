"""dir_prior: the two readings of alpha, and the form in which all clients are served at once."""

from __future__ import annotations

import json
import lzma

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedskew.data.partitioners import DirPrior
from support.labels import MIXED, content, counted
from support.paths import ROOT
from support.strategies import alphas, seeds

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


@pytest.mark.parametrize(
    "totals", [[60] * 10, [180, 120, 90, 66, 48, 36, 24, 18, 12, 6]], ids=["balanced", "long tail"]
)
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
