"""FedRL's ratios, their monitor and its loss: the oracle, edges and numbers by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedskew.functional as fn
from oracle import servers
from support.batches import LABELS, LOGITS, MASK, PRIOR
from support.tensors import SEEDS, close, f64, same


@pytest.mark.parametrize("seed", SEEDS)
def test_ratios_and_monitor_are_the_oracles(seed: int) -> None:
    g = np.random.default_rng(seed)
    d, update = g.normal(size=(5, 5, 9)), g.normal(size=(5, 9)) * 30
    assert fn.ratio_masks(f64(d)).numpy().tolist() == [mask.tolist() for mask in servers.ratio_sets(d)]
    same(fn.ratio_of_changes(f64(d)), servers.ratios(d))
    same(fn.ratio_monitor(f64(d), f64(update), 100.0), servers.ratio_monitor(d, update, 100.0))
    size = np.abs(d)  # by magnitude, the largest of any sign is the class's: that is the largest of the sizes
    assert fn.ratio_masks(f64(d), by="magnitude").tolist() == fn.ratio_masks(f64(size)).tolist()
    d, counts = g.normal(size=(2, 2, 30)), np.array([70.0, 30.0])
    update = np.einsum("p,pij->ij", counts, d)
    same(fn.ratio_monitor(f64(d), f64(update) / 8, 100.0, scale=8.0), counts, rtol=1e-8)  # exact for two classes
    assert fn.ratio_monitor(torch.zeros(4, 4, 2), torch.zeros(4, 2), 100.0).tolist() == [25.0] * 4


def test_the_defect_of_the_released_loss_weighs_every_row_by_the_mean_weight() -> None:
    z, y, w, mask = LOGITS[0], LABELS[0], PRIOR[0], MASK[0]
    mean = (w[y] * mask).sum() / mask.sum()
    same(fn.ratio_loss(z, y, w, broken_broadcast=True, mask=mask), mean * fn.cross_entropy(z, y))


def test_ratio_edges() -> None:
    zero = torch.zeros(3, 3, 2).double()
    assert not fn.ratio_masks(zero).any()
    assert fn.ratio_of_changes(zero).tolist() == [10.0] * 3  # the denominator is 0
    lone = zero.clone()
    lone[0, 0, 0] = 1.0
    assert fn.ratio_of_changes(lone)[0] == 10.0
    lone[1, 0, 0] = 1e-6
    assert fn.ratio_of_changes(lone)[0] == 5000.0  # capped
    symmetric = 0.1 + torch.eye(4).double().unsqueeze(-1) * torch.eye(4).double().unsqueeze(1)
    weights = fn.ratio_weights(fn.ratio_of_changes(symmetric[..., :4]))
    same(weights, weights[:1].expand(4))


def test_a_share_just_at_the_threshold_is_allowed() -> None:
    delta = f64([[[4.0]], [[1.0]], [[-2.0]]])  # the runner-up has half the size
    assert fn.ratio_masks(delta, 0.5).flatten().tolist() == [True, False, False]
    assert not fn.ratio_masks(delta, 0.499).any()


@pytest.mark.parametrize(("update", "found"), [(7.0, 7.0), (0.5, 0.5), (0.0, 5), (-0.5, 5), (7.5, 5), (8.0, 5)])
@pytest.mark.parametrize("sign", [1, -1])
def test_monitored_numbers_lie_strictly_between_zero_and_one_and_a_half_shares(
    update: float, found: float, sign: int
) -> None:
    delta = sign * f64([[[1.0], [0.0]], [[0.0], [1.0]]])  # slopes of 1, so the estimate is the update itself
    moved = sign * f64([[update], [2.0]])
    close(fn.ratio_monitor(delta, moved, 10.0, by="magnitude"), [found, 2.0])


def test_ratios_of_rows_by_hand() -> None:
    draw = np.random.default_rng(2)
    delta = draw.normal(size=(3, 3, 4))
    others = [np.delete(delta, p, 0).mean(0)[p] for p in range(3)]
    want = [abs((delta[p][p] / others[p]).mean()) for p in range(3)]
    torch.testing.assert_close(fn.ratio_of_rows(f64(delta)), f64(want))
    assert fn.ratio_of_rows(f64(delta), cap=min(want)).tolist() == pytest.approx([min(want)] * 3)
    delta[1:, 0, :2] = 0  # two weights of row 0 that the others do not change, then all
    want = [abs((delta[0][0, 2:] / np.delete(delta, 0, 0).mean(0)[0, 2:]).mean())]
    assert fn.ratio_of_rows(f64(delta))[0] == pytest.approx(want[0])
    delta[1:, 0] = 0
    assert fn.ratio_of_rows(f64(delta))[0] == 10 and fn.ratio_of_rows(f64(delta), nan_value=3.0)[0] == 3
