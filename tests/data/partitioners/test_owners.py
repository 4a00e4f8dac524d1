"""The splits of libraries by labels: whose owners, whose shares, and that labels_k is none of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedskew.data.partitioners import Dirichlet, LabelsK, Pathological, QuantityDir
from fedskew.data.partitioners.base import rounded
from fedskew.errors import ConfigError
from support.labels import BALANCED, MIXED, counted
from support.strategies import seeds

RULES = ("first", "random", "cyclic", "blocks")
CIFAR = np.repeat(np.arange(10), 5000)


def variation(counts):
    sizes = counts.sum(axis=1)
    return sizes.std() / sizes.mean()


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
    with pytest.raises(ConfigError, match=r"QuantityDir.least must be met by one of 100 draws at alpha 0.1; got 100"):
        QuantityDir(0.1, least=100, redraw=True).split(BALANCED, 10, 0)
