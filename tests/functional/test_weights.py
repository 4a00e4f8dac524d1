"""Aggregation weights at their edges: no samples, one sample, no steps, and what they must sum to."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedskew.functional as fn
from support.tensors import close, draws, f64, same


def test_weights_sum_to_one_even_without_samples() -> None:
    for w in (
        fn.size_weights(torch.zeros(4)),
        fn.label_aware_weights(torch.zeros(4, 3)),
        fn.uniform_weights(4),
        fn.uniform_weights(torch.zeros(4, 3, dtype=torch.int64)),
    ):
        assert torch.equal(w, torch.full((4,), 0.25))
    assert fn.size_weights(torch.tensor([17])) == 1


def test_who_made_no_step_and_a_classifier_of_zeros_weigh_nothing() -> None:
    assert fn.fednova_weights(f64([0.5, 0.5]), f64([4.0, 0.0])).tolist() == [0.25, 0.0]
    assert fn.classifier_similarity(draws(7), torch.zeros(1, 7).double()) == 0


def test_a_norm_is_the_sum_of_the_local_rule() -> None:
    steps = np.arange(1, 40)
    for rho in (0.0, 0.5, 0.9, 0.99):
        want, buffer, total = [], 0.0, 0.0
        for _ in steps:  # a unit gradient in every step of heavy-ball SGD
            buffer = rho * buffer + 1
            total += buffer
            want.append(total)
        same(fn.sgd_a_norm(f64(steps), rho), want)
        got = fn.sgd_a_norm(torch.as_tensor(steps), rho)
        assert got.dtype == torch.float32
        same(got, want, rtol=1e-6)
        same(fn.sgd_a_norm(f64(steps), rho, 0.1), want if rho else fn.sgd_a_norm(f64(steps), decay=0.1))
    for e in (0.0, 1e-9, 0.1, 0.5, 0.7, 1.0, 1.3):
        want = [sum((1 - e) ** s for s in range(k)) for k in steps]
        same(fn.sgd_a_norm(torch.as_tensor(steps), decay=e), want, rtol=1e-6)
        same(fn.sgd_a_norm(f64(steps), decay=f64(e)), want, rtol=1e-9)
        batched = torch.vmap(lambda k, e: fn.sgd_a_norm(k, decay=e))(
            torch.as_tensor(steps), torch.full(steps.shape, e, dtype=torch.float32)
        )
        same(batched, want, rtol=1e-5)
    assert fn.sgd_a_norm(7) == 7
    assert fn.sgd_a_norm(torch.zeros(2), 0.9).tolist() == [0, 0]


def test_a_single_sample_is_a_sample() -> None:
    close(fn.size_weights(f64([1, 0])), [1, 0])
    close(fn.size_weights(f64([0.2, 0.3])), [0.4, 0.6])
    close(fn.size_weights(torch.zeros(3, 4, dtype=torch.float64)), np.full((3, 4), 0.25))
    close(fn.astraea_copies(f64([1, 15, 8]), 1.0), [8, 1, 1])
    close(fn.ldam_margins(f64([1, 16, 0, 81])), [0.5, 0.25, 0, 0.5 / 3])


@pytest.mark.parametrize("lam", [0.01, 1.0, 100.0])
def test_pals_weights_are_optimal(lam: float) -> None:
    """The slope is one number on the support, and no smaller off it."""
    clipped = 0
    for seed in range(40):
        draw = np.random.default_rng(seed)
        counts = torch.tensor(draw.multinomial(30, draw.dirichlet([0.2] * 6), size=1 + seed) + draw.integers(0, 2, 6))
        target = torch.tensor(draw.dirichlet([1.0] * 6))
        sizes = counts.sum(1)
        a = fn.pals_weights(counts, sizes, target, lam)
        q = counts.double() / sizes.double().unsqueeze(1)
        slope = q @ (a @ q - target) + lam * a / sizes
        assert float(a.min()) >= 0 and float(a.sum()) == pytest.approx(1)
        assert float((slope[a > 0] - slope.min()).max()) < 1e-9
        clipped += int((a == 0).any())
    assert clipped > 0 or lam > 1


def test_a_class_of_share_0_leaves_its_owners_out() -> None:
    counts, target = torch.tensor([[3.0, 1.0], [4.0, 0.0]]), torch.tensor([1.0, 0.0])
    for metric in ("kl", "kl_plain"):
        d = fn.label_discrepancy(counts, target, metric)
        same(fn.disco_weights(torch.tensor([0.5, 0.5]), d), np.array([0.0, 1.0]))
        same(fn.disco_weights(torch.tensor([0.5, 0.5]), d, a=0.0), np.array([0.5, 0.5]))
