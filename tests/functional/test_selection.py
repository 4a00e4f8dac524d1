"""Selection and schedules of Seol-Kim, Astraea and power-of-choice: slow searches, edges and ties."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import fedskew.functional as fn
from fedskew.errors import ConfigError
from oracle import selection
from support.tensors import SEEDS, f64, same


@pytest.mark.parametrize("passes", ["restart", "once"])
@pytest.mark.parametrize("seed", range(12))
def test_seolkim_select(seed: int, passes: Any) -> None:
    g = np.random.default_rng(seed)
    offered = g.integers(0, 60, size=(14, 5)) * (g.random((14, 5)) < 0.4) + np.eye(14, 5, dtype=int)
    offered[5] = offered[3]  # equal sizes
    ties = g.random(14)
    order = fn.seolkim_order(torch.as_tensor(offered), f64(ties))
    assert order.tolist() == selection.seolkim_order(offered, ties)
    for limit, threshold in ((10, 0.1), (3, 0.0), (14, 0.0), (14, 0.02)):
        picked, quota = fn.seolkim_select(torch.as_tensor(offered), limit, threshold, order, passes)
        want = selection.seolkim_select(offered, limit, threshold, order.tolist(), passes)
        assert [(k, s.tolist()) for k, s in want] == list(zip(picked.tolist(), quota.tolist(), strict=True))


def test_seolkim_passes_over_a_client_once_only_as_algorithm_2_is_listed() -> None:
    """Client 1 lacks class 1 when it is asked, and would be the one to give class 2 later."""
    offered = torch.tensor([[9, 0, 0], [0, 0, 8], [0, 7, 0]])
    order = torch.tensor([0, 1, 2])
    assert fn.seolkim_select(offered, 3, 0.1, order)[0].tolist() == [0, 2, 1]
    picked, quota = fn.seolkim_select(offered, 3, 0.1, order, "once")
    assert (picked.tolist(), quota.tolist()) == ([0, 2], [[9, 0, 0], [0, 7, 0]])


def test_seolkim_edges() -> None:
    balanced = torch.tensor([[9, 9, 9], [20, 0, 0], [3, 3, 0]])
    picked, quota = fn.seolkim_select(balanced, 3, 0.1, torch.tensor([0, 1, 2]))
    assert (picked.tolist(), quota.tolist()) == ([0], [[9, 9, 9]])
    picked, _ = fn.seolkim_select(balanced, 3, 0.0, torch.tensor([0, 1, 2]))  # every class already equals m
    assert picked.tolist() == [0]
    lonely = torch.tensor([[9, 0, 0], [5, 0, 0], [4, 1, 0]])  # nobody has class 2: the next smallest, then stop
    picked, quota = fn.seolkim_select(lonely, 3, 0.1, torch.tensor([0, 1, 2]))
    assert (picked.tolist(), quota.tolist()) == ([0, 2], [[9, 0, 0], [0, 1, 0]])
    with pytest.raises(ConfigError, match="limit must be at least 1; got 0"):
        fn.seolkim_select(balanced, 0, 0.1, torch.tensor([0]))
    with pytest.raises(ConfigError, match="order must name at least one candidate"):
        fn.seolkim_select(balanced, 2, 0.1, torch.tensor([], dtype=torch.int64))


@pytest.mark.parametrize("seed", SEEDS)
def test_oversample_target(seed: int) -> None:
    g = np.random.default_rng(seed)
    n = g.integers(0, 300, size=(6, 7)) * (g.random((6, 7)) < 0.7)
    for delta, r in ((0.01, 0), (0.02, 9), (0.3, 2), (0.5, 10**6)):
        want = [selection.seolkim_oversampled(row, delta, r).tolist() for row in n]
        assert fn.oversample_target(torch.as_tensor(n), delta, r).tolist() == want
    single = torch.tensor([[0, 400, 0], [7, 0, 0]])
    assert torch.equal(fn.oversample_target(single, 0.0, 0), single)


def test_dynamic_batch_and_rate() -> None:
    used = torch.tensor([0, 1, 24, 25, 49, 50, 10**6])
    assert fn.dynamic_batch(used, 25).tolist() == [1, 1, 1, 1, 1, 2, 40000]
    rate = fn.dynamic_rate(fn.dynamic_batch(used, 25), 0.1)
    assert rate.dtype == torch.float64
    assert (rate <= 0.1).all() and (rate.diff() >= 0).all()
    same(fn.dynamic_rate(torch.tensor([3]), 0.2, b0=10.0), [0.2 * 2 / math.pi * math.atan(0.3)])
    same(fn.dynamic_rate(torch.tensor([3]), 0.2, literal=True), [0.2 * math.atan(3)])


def test_decay_step_without_samples() -> None:
    assert fn.decay_step(0.3, torch.zeros(2, 3), torch.zeros(2, 3), 0.1, 0.1) == 0.3


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("gamma", [1, 3, 20])
def test_astraea_schedule(gamma: int, seed: int) -> None:
    n = np.random.default_rng(seed).integers(0, 30, size=(9, 4)) + np.eye(9, 4, dtype=int)
    schedule = fn.astraea_schedule(torch.as_tensor(n), gamma)
    assert schedule == selection.astraea_schedule(n, gamma)


def test_astraea_ties_go_to_the_lowest_index_despite_rounding() -> None:
    columns = [[0, 1, 2, 3, 4], [4, 2, 0, 3, 1], [1, 0, 4, 2, 3], [3, 4, 1, 0, 2]]
    n = torch.tensor([3, 10, 7, 29, 1])[torch.tensor(columns)]  # one histogram in four orders: one divergence
    assert fn.astraea_schedule(n, 1) == [[0], [1], [2], [3]]
    assert fn.astraea_copies(torch.tensor([400, 0, 8]), 0.5)[:2].tolist() == [1.0, 1.0]  # nothing to copy
    with pytest.raises(ConfigError, match="gamma must be at least 1"):
        fn.astraea_schedule(n, 0)


def test_targets_are_exact_for_a_decay_that_is_a_plain_number() -> None:
    """exp in single precision would sometimes round to another number of copies."""
    mean = torch.arange(1, 300_000, dtype=torch.float64)
    factor = torch.exp(-torch.tensor([0.1 * 3], dtype=torch.float32)).double()
    exact = torch.ceil(mean * math.exp(-0.1 * 3)).long()
    assert not torch.equal(exact, torch.ceil(mean * factor).long())  # or the test could not fail
    counts = torch.stack([torch.ones_like(mean), 2 * mean - 1], -1)
    assert torch.equal(fn.oversample_target(counts, 0.1, 3)[:, 0], exact)


def test_divergence_is_never_negative() -> None:
    assert fn.kl_to_uniform(torch.tensor([0, 0, 0])) == pytest.approx(math.log(3))
    for classes in range(2, 60):
        assert fn.kl_to_uniform(torch.full((classes,), 7)) >= 0


def test_selection_of_a_single_candidate_and_at_the_threshold() -> None:
    one = torch.tensor([[3, 1]])
    chosen, quota = fn.seolkim_select(one, 2, 0.0, torch.tensor([0]))
    assert chosen.tolist() == [0] and quota.tolist() == [[3, 1]]
    two = torch.tensor([[3, 1], [0, 2]])
    edge = float(fn.kl_to_uniform(two[0]))
    assert fn.seolkim_select(two, 2, edge, torch.tensor([0, 1]))[0].tolist() == [0, 1]
    assert fn.seolkim_select(two, 2, edge + 1e-9, torch.tensor([0, 1]))[0].tolist() == [0]


def test_ties_keep_their_order_among_many() -> None:
    """Beyond 16 elements torch's sort breaks ties as it likes unless it is told not to."""
    many = torch.arange(120)
    assert torch.equal(fn.power_of_choice(f64(many % 3 == 1), 50), torch.cat([many[1::3], many[many % 3 != 1][:10]]))
    order = fn.seolkim_order(torch.stack([many % 4, 0 * many], 1), torch.zeros(120))
    assert torch.equal(order, torch.cat([many[3::4], many[2::4], many[1::4], many[::4]]))
    assert fn.rows_per_class(many % 3, 1 - many / 120, 7, 3).nonzero().squeeze(1).tolist() == list(range(99, 120))
    shares = torch.zeros(41, 40, dtype=torch.int64)  # nobody else has the rows that candidate 0 lacks
    shares[0, ::2], shares[many[1:41], many[:40]] = 2, 1
    chosen, _ = fn.seolkim_select(shares, 4, 0.0, torch.cat([many[:1], many[1:41].flip(0)]))
    assert chosen.tolist() == [0, 2, 4, 6]  # holders of classes 1, 3 and 5


@pytest.mark.parametrize("draws", [1, 2, 5, 9])
def test_cluster_draws_are_unbiased(draws: int) -> None:
    for seed in range(20):
        sizes = torch.randint(0, 50, (7,), generator=torch.Generator().manual_seed(seed))
        r = fn.cluster_draws(sizes, draws)
        torch.testing.assert_close(r.sum(1), torch.ones(draws, dtype=torch.float64))
        torch.testing.assert_close(r.mean(0), sizes / sizes.sum().double())
        small = sizes * draws <= sizes.sum()
        assert bool(((r > 0).sum(0)[small] <= 2).all())


def test_similarity_draws_follow_the_merges_while_a_box_holds_them() -> None:
    """Two draws of four equal clients: the pairs that merge first, each half of a box."""
    merges = torch.tensor([[0, 3], [1, 2], [4, 5]])
    half = [[0.5, 0, 0, 0.5], [0, 0.5, 0.5, 0]]
    assert fn.similarity_draws(torch.tensor([1, 1, 1, 1]), 2, merges).tolist() == half
    assert fn.similarity_draws(torch.tensor([1, 1, 1, 1]), 1, merges).tolist() == [[0.25] * 4]
