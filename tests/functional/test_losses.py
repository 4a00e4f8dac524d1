"""Losses at their edges, and options that the oracle does not have."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import fedskew.functional as fn
from support.tensors import close, draws, f64, same, slope


def test_the_gap_is_measured_between_the_extremes() -> None:
    close(fn.imbalance_gap(f64([10, 100, 1000])), [1, 0.5, 0])  # nobody has a single sample here


def test_fedga_keeps_small_probabilities_beside_very_different_logits() -> None:
    z, y, n = f64([[-10000.0, 3.0, 2.0]]), torch.tensor([0]), f64([5, 2, 1])
    exact = fn.fedga_targets(z, y, n)
    torch.testing.assert_close(fn.fedga_targets(z.float(), y, n.float()).double(), exact, rtol=1e-6, atol=0)


@pytest.mark.parametrize("counts", [(8.0, 2.0), (2.0, 8.0), (5.0, 5.0)])
def test_the_binary_loss_shrinks_the_larger_class_and_keeps_the_other(counts: tuple[float, float]) -> None:
    draw = np.random.default_rng(1)
    z, y = f64(draw.normal(size=(7, 2))), torch.tensor([0, 1, 1, 0, 0, 1, 0])
    slope = torch.func.grad(lambda v: fn.fedga_binary_loss(v, y, f64(counts)).sum())(z)
    plain = torch.func.grad(lambda v: fn.cross_entropy(v, y).sum())(z)
    share = torch.where(y == 0, min(1.0, counts[1] / counts[0]), min(1.0, counts[0] / counts[1]))
    torch.testing.assert_close(slope, share.unsqueeze(1) * plain, rtol=1e-12, atol=1e-14)
    if counts[0] == counts[1]:
        torch.testing.assert_close(fn.fedga_binary_loss(z, y, f64(counts)), fn.cross_entropy(z, y))


def test_fedlc_without_a_class_to_contrast_with_gives_zero() -> None:
    z, counts = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0.0, 7.0, 0.0])
    labels = torch.ones(4, dtype=torch.int64)
    f = lambda z: fn.fedlc_loss(z, labels, counts, 1.0, "exclude_true")
    assert torch.equal(f(z), torch.zeros(4))
    assert torch.equal(slope(f, z), torch.zeros(4, 3))


def test_controller_map_is_flat_far_to_the_left() -> None:
    for u in (-160.0, -161.0, -500.0):
        torch.testing.assert_close(fn.fedgrab_map(f64(u)), f64(10 / (1 + 9 * math.exp(80))), rtol=1e-9, atol=0)
    torch.testing.assert_close(fn.fedgrab_map(f64(-159.5)), f64(10 / (1 + 9 * math.exp(79.75))), rtol=1e-9, atol=0)


def test_neutral_settings_are_cross_entropy_for_absent_classes_too() -> None:
    z, y, n = draws(4, 3), torch.tensor([0, 2, 2, 0]), f64([5, 0, 2])
    for loss in (
        fn.fedlc_loss(z, y, n, 0.0),
        fn.logit_adjusted_loss(z, y, n, 0.0),
        fn.focal_loss(z, y, gamma=0.0),
        fn.cross_entropy(z * fn.fedrs_scale(n, 1.0, "code"), y),
    ):
        same(loss, fn.cross_entropy(z, y), atol=1e-14)
