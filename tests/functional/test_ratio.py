"""FedRL's ratios, their monitor and its loss: a slow computation, edges and numbers by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedskew.functional as fn
from support.tensors import SEEDS, Array, close, f64, same


def _ratio_slowly(d: Array, by: str) -> tuple[Array, list[float]]:
    classes, rows, columns = d.shape
    masks = np.zeros(d.shape, dtype=bool)
    for i in range(rows):
        for j in range(columns):
            key = d[:, i, j] if by == "signed" else np.abs(d[:, i, j])
            p = int(np.argmax(key))
            others = np.delete(np.abs(d[:, i, j]), p)
            masks[p, i, j] = (others <= 0.8 * abs(d[p, i, j])).all()
    ratios = []
    for p in range(classes):
        rest = np.delete(d, p, 0).mean(0)
        top, bottom = abs(d[p][masks[p]].sum()), abs(rest[masks[p]].sum())
        ratios.append(10.0 if bottom == 0 else min(top / bottom, 5000.0))
    return masks, ratios


@pytest.mark.parametrize("by", ["signed", "magnitude"])
@pytest.mark.parametrize("seed", SEEDS)
def test_ratio_of_changes(seed: int, by: str) -> None:
    d = np.random.default_rng(seed).normal(size=(5, 5, 9))
    masks, ratios = _ratio_slowly(d, by)
    assert masks.any(axis=(1, 2)).any()
    assert fn.ratio_masks(f64(d), by=by).numpy().tolist() == masks.tolist()
    same(fn.ratio_of_changes(f64(d), by=by), ratios)
    same(torch.vmap(lambda d: fn.ratio_of_changes(d, by=by))(f64(np.stack([d, -d])))[0], ratios)
    order = [3, 0, 4, 1, 2]
    same(fn.ratio_of_changes(f64(d[order]), by=by), np.array(ratios)[order])


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


@pytest.mark.parametrize("seed", SEEDS)
def test_ratio_monitor(seed: int) -> None:
    g = np.random.default_rng(seed)
    d, counts = g.normal(size=(2, 2, 30)), np.array([70.0, 30.0])
    update = np.einsum("p,pij->ij", counts, d)
    same(fn.ratio_monitor(f64(d), f64(update) / 8, 100.0, scale=8.0), counts, rtol=1e-8)  # exact for two classes
    d, update = g.normal(size=(4, 4, 12)), g.normal(size=(4, 12)) * 30
    masks, _ = _ratio_slowly(d, "signed")
    want = []
    for p in range(4):
        rest = np.delete(d, p, 0).mean(0)
        found = (update - 100 * rest) / (d[p] - rest)
        found = found[masks[p] & (found > 0) & (found < 1.5 * 100 / 4)]
        want.append(found.mean() if len(found) else 25.0)
    same(fn.ratio_monitor(f64(d), f64(update), 100.0), want)
    assert fn.ratio_monitor(torch.zeros(4, 4, 2), torch.zeros(4, 2), 100.0).tolist() == [25.0] * 4


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
