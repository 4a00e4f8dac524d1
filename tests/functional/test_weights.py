"""Aggregation weights: plain numpy from the equations, sums, limits and single samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import fedskew.functional as fn
from support.tensors import SEEDS, close, f64, same


@pytest.mark.parametrize("m", [1, 2, 4, 10, 13])
def test_aggregation_balancer(m: int) -> None:
    g = np.random.default_rng(m)
    v = f64(np.sort(g.uniform(-1, 1, size=m)))
    same(fn.aggregation_balancer_weights(torch.full((m,), 0.3).double()), np.full(m, 1 / m), atol=1e-15)
    assert torch.equal(fn.aggregation_balancer_weights(torch.full((m,), 0.3), math.inf), torch.full((m,), 1 / m))
    for beta in (math.sqrt(max(m - 1, 1)) + 1e-9, math.inf):
        same(fn.aggregation_balancer_weights(v, beta), v.softmax(0))
    for beta in (0.0, 0.5, 3.0):
        floor = v.numpy().mean() - beta * np.sqrt(((v.numpy() - v.numpy().mean()) ** 2).mean())
        e = np.exp(np.maximum(v.numpy(), floor) / 0.7)
        weights = fn.aggregation_balancer_weights(v, beta, temperature=0.7)
        same(weights, e / e.sum())
        inverse = fn.aggregation_balancer_weights(v, beta, temperature=0.7, inverse=True)
        same(inverse, 1 / e / (1 / e).sum())
        order = torch.randperm(m, generator=torch.Generator().manual_seed(m))
        same(fn.aggregation_balancer_weights(v[order], beta, 0.7), weights[order])
    weights = fn.aggregation_balancer_weights(v)
    assert weights.max() / weights.min() <= math.exp(2) + 1e-12


def test_classifier_similarity() -> None:
    g = np.random.default_rng(0)
    before, after = g.normal(size=7), g.normal(size=(4, 7))
    cosines = [before @ a / np.sqrt(before @ before) / np.sqrt(a @ a) for a in after]
    same(fn.classifier_similarity(f64(before), f64(after)), cosines)
    factors = f64([0.1, 3.0, 70.0, 1e6]).unsqueeze(-1)
    same(fn.classifier_similarity(f64(before), factors * f64(after)), cosines)
    same(fn.classifier_similarity(f64(before), f64(after), "l2"), [-np.sqrt(((before - a) ** 2).sum()) for a in after])
    assert fn.classifier_similarity(f64(before), torch.zeros(1, 7).double()) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_label_aware_weights(seed: int) -> None:
    g = np.random.default_rng(seed)
    n = g.integers(0, 50, size=(5, 7)) * (g.random((5, 7)) < 0.6)
    n[:, 4] = 0
    mass = [sum(n[i, j] / n[:, j].sum() for j in range(7) if n[:, j].sum()) for i in range(5)]
    present = (n.sum(0) > 0).sum()
    weights = fn.label_aware_weights(f64(n))
    same(weights, np.array(mass) / present)
    same(torch.vmap(fn.label_aware_weights)(f64(np.stack([n, n + 1])))[0], weights)
    same(fn.label_aware_weights(f64(n) * 37), weights)
    same(fn.label_aware_weights(torch.cat([f64(n), torch.zeros(5, 3).double()], 1)), weights)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    same(fn.label_aware_weights(f64(n)[order]), weights[order])
    proportional = f64(np.outer([3, 1, 7], n.sum(0)))
    same(fn.label_aware_weights(proportional), fn.size_weights(proportional.sum(-1)))
    assert fn.label_aware_weights(f64(n[:1] + 1)) == 1


def test_label_aware_weights_of_disjoint_labels_count_labels() -> None:
    n = f64([[900, 1, 0, 0, 0], [0, 0, 5, 0, 0], [0, 0, 0, 2, 70]])
    same(fn.label_aware_weights(n), [2 / 5, 1 / 5, 2 / 5])


def test_weights_sum_to_one_even_without_samples() -> None:
    for w in (
        fn.size_weights(torch.zeros(4)),
        fn.label_aware_weights(torch.zeros(4, 3)),
        fn.uniform_weights(4),
        fn.uniform_weights(torch.zeros(4, 3, dtype=torch.int64)),
    ):
        assert torch.equal(w, torch.full((4,), 0.25))
    assert fn.size_weights(torch.tensor([17])) == 1


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


def test_fednova_weights() -> None:
    g = np.random.default_rng(0)
    p = g.dirichlet(np.ones(5))
    a = g.uniform(1, 30, size=5)
    same(fn.fednova_weights(f64(p), f64(a)), (p * a).sum() * p / a)
    same(fn.fednova_weights(f64(p), f64(a), 4.0), 4.0 * p / a)
    same(fn.fednova_weights(f64(p), torch.full((5,), 17.829).double()), p, atol=1e-15)  # equal steps: FedAvg
    same(fn.fednova_weights(f64([1.0]), f64([3.0])), [1.0])
    assert fn.fednova_weights(f64([0.5, 0.5]), f64([4.0, 0.0])).tolist() == [0.25, 0.0]
    same(torch.vmap(fn.fednova_weights)(f64([p, p[::-1]]), f64([a, a])), [(q * a).sum() * q / a for q in (p, p[::-1])])


@pytest.mark.parametrize("seed", SEEDS)
def test_climb(seed: int) -> None:
    g = np.random.default_rng(seed)
    duals, losses = g.uniform(0, 3, size=8), g.uniform(0, 5, size=8)
    same(fn.climb_weights(f64(duals)).sum(), 8.0)
    want = [min(max(d + 2 / 8 * (f - losses.mean() - 0.1), 0), 3) for d, f in zip(duals, losses, strict=True)]
    same(fn.climb_dual_step(f64(duals), f64(losses), 2.0, 0.1, maximum=3.0), want)
    zero = torch.zeros(8).double()
    for lr, eps, f in ((0.0, 0.1, f64(losses)), (2.0, 1e9, f64(losses)), (2.0, 0.0, torch.full((8,), 2.5).double())):
        stepped = fn.climb_dual_step(zero, f, lr, eps)
        assert torch.equal(stepped, zero)
        assert torch.equal(fn.climb_weights(stepped), torch.ones(8).double())


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
