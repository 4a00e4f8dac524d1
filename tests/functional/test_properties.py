"""Invariants of the functional room, and plain numpy computations from the equations on random, asymmetric inputs."""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

import fedskew.functional as fn
from fedskew.errors import ConfigError

torch.set_num_threads(1)
Array = NDArray[Any]
SEEDS = [0, 1, 2]


def t(x: object) -> Tensor:
    return torch.as_tensor(np.asarray(x, dtype=np.float64))


def same(got: Tensor, want: object, atol: float = 1e-10, rtol: float = 1e-10) -> None:
    want = want if isinstance(want, Tensor) else t(want)
    torch.testing.assert_close(got.detach().to(torch.float64), want.to(torch.float64), rtol=rtol, atol=atol)


def slope(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return torch.func.grad(lambda z: f(z).sum())(x)


def differences(f: Callable[[Array], float], x: Array, h: float = 1e-5) -> Array:
    """Central finite differences of a scalar numpy function."""
    out = np.zeros_like(x)
    for i in np.ndindex(*x.shape):
        up, down = x.copy(), x.copy()
        up[i] += h
        down[i] -= h
        out[i] = (f(up) - f(down)) / (2 * h)
    return out


class Case:
    """A random batch without any symmetry: B = 11 rows, C = 6 classes of which one has no sample, F = 5."""

    def __init__(self, seed: int) -> None:
        g = np.random.default_rng(seed)
        self.z = g.normal(size=(11, 6)) * 2
        self.features = g.normal(size=(11, 5))
        self.counts = g.integers(1, 400, size=6).astype(float)
        self.counts[g.integers(0, 6)] = 0
        owned = np.flatnonzero(self.counts)
        self.y = g.choice(owned, size=11)
        self.teacher = g.normal(size=(11, 6))
        self.rows = range(11)
        self.owned = owned
        self.labels = torch.as_tensor(self.y)


def softmax(z: Array) -> Array:
    e = np.exp(z - z.max())
    return e / e.sum()


# Each oracle: one row, straight from the equation. (case, logits of the row, row) -> loss


def lb_row(case: Case, z: Array, b: int, masked: bool = False) -> float:
    n = np.maximum(case.counts, 1)
    lam = (math.log(n.max()) - np.log(n)) / (math.log(n.max()) - math.log(n.min()))
    balanced = z - 7.5 * lam / (np.sqrt((case.features[b] ** 2).sum()) + 1e-12)
    keep = case.owned if masked else np.arange(6)
    return float(-math.log(math.exp(balanced[case.y[b]]) / np.exp(balanced[keep]).sum()))


def fedgr_row(case: Case, z: Array, b: int, gamma: str = "max1", missing: str = "mask") -> float:
    n, owned = case.counts, case.owned
    g = np.ones(6)
    top = n.sum() if gamma == "raw" else n[owned].min()
    g[owned] = top / n[owned]
    if missing == "code":
        g[n == 0] = top / (4 * n.max())
    keep = owned if missing == "mask" else np.arange(6)
    a = g * z
    return float(np.log(np.exp(a[keep] - a.max()).sum()) + a.max() - a[case.y[b]])


def fedlc_row(case: Case, z: Array, b: int, exclude: bool = False) -> float:
    margin = 1.7 * case.counts[case.owned] ** -0.25
    a = dict(zip(case.owned.tolist(), z[case.owned] - margin, strict=True))
    y = int(case.y[b])
    return math.log(sum(math.exp(v) for i, v in a.items() if not (exclude and i == y))) - a[y]


def fedlc_tiny_row(case: Case, z: Array, b: int) -> float:
    a = z - 0.02 * np.where(case.counts > 0, np.maximum(case.counts, 1) ** -0.25, 100.0)
    return float(np.log(np.exp(a).sum()) - a[case.y[b]])


def prior_row(case: Case, z: Array, b: int) -> float:
    a = np.exp(z) * (case.counts / case.counts.sum()) ** 0.8  # a class of prior 0 vanishes
    return float(-math.log(a[case.y[b]] / a.sum()))


def focal_row(case: Case, z: Array, b: int) -> float:
    p = softmax(z)[case.y[b]]
    return float(-(case.counts[case.y[b]] / 100) * (1 - p) ** 1.5 * math.log(p))


def ntd_row(case: Case, z: Array, b: int, factor: float = 2.5**2) -> float:
    others = np.arange(6) != case.y[b]
    p, q = softmax(case.teacher[b][others] / 2.5), softmax(z[others] / 2.5)
    return float(factor * (p * np.log(p / q)).sum())


def rs_row(case: Case, z: Array, b: int, code: bool = False, few: float = 0) -> float:
    n = np.where(case.counts > few, case.counts, 0)
    s = 0.7 * n / n.max() + 0.3 if code else np.where(n > 0, 1, 0.3)
    return float(-math.log(softmax(s * z)[case.y[b]]))


def bce_row(case: Case, z: Array, b: int) -> float:
    total = 0.0
    for c in range(6):
        p = 1 / (1 + math.exp(-z[c]))
        total += -(c + 1.5) * math.log(p) if c == case.y[b] else -(0.5 + c) * math.log(1 - p)
    return total


def ratio_row(case: Case, z: Array, b: int) -> float:
    return float(-(1 + 0.1 * case.counts[case.y[b]]) * math.log(softmax(z)[case.y[b]]))


def ce_row(case: Case, z: Array, b: int) -> float:
    return float(-math.log(softmax(z)[case.y[b]]))


Loss = Callable[[Case, Tensor], Tensor]
ORACLES: dict[str, tuple[Loss, Callable[[Case, Array, int], float]]] = {
    "ce": (lambda c, z: fn.cross_entropy(z, c.labels), ce_row),
    "lb": (lambda c, z: fn.local_balancer_loss(z, t(c.features), c.labels, t(c.counts), 7.5), lb_row),
    "lb_mask": (
        lambda c, z: fn.local_balancer_loss(z, t(c.features), c.labels, t(c.counts), 7.5, "mask"),
        lambda c, z, b: lb_row(c, z, b, True),
    ),
    "fedgr": (lambda c, z: fn.unbalanced_softmax_loss(z, c.labels, t(c.counts)), fedgr_row),
    "fedgr_raw": (
        lambda c, z: fn.unbalanced_softmax_loss(z / 50, c.labels, t(c.counts), "raw"),
        lambda c, z, b: fedgr_row(c, z / 50, b, "raw"),
    ),
    "fedgr_code": (
        lambda c, z: fn.unbalanced_softmax_loss(z, c.labels, t(c.counts), missing="code"),
        lambda c, z, b: fedgr_row(c, z, b, missing="code"),
    ),
    "fedlc": (lambda c, z: fn.fedlc_loss(z, c.labels, t(c.counts), 1.7), fedlc_row),
    "fedlc_exclude": (
        lambda c, z: fn.fedlc_loss(z, c.labels, t(c.counts), 1.7, "exclude_true"),
        lambda c, z, b: fedlc_row(c, z, b, True),
    ),
    "fedlc_tiny": (lambda c, z: fn.fedlc_loss(z, c.labels, t(c.counts), 0.02, missing="tiny"), fedlc_tiny_row),
    "logit_adjusted": (lambda c, z: fn.logit_adjusted_loss(z, c.labels, t(c.counts), 0.8), prior_row),
    "focal": (lambda c, z: fn.focal_loss(z, c.labels, 1.5, t(c.counts / 100)), focal_row),
    "fedntd": (lambda c, z: fn.fedntd_loss(z, t(c.teacher), c.labels, 2.5), ntd_row),
    "fedntd_unscaled": (
        lambda c, z: fn.fedntd_loss(z, t(c.teacher), c.labels, 2.5, scaled=False),
        lambda c, z, b: ntd_row(c, z, b, 1.0),
    ),
    "fedrs_few": (  # the smallest number of rows, exactly, is few
        lambda c, z: fn.cross_entropy(z * fn.fedrs_scale(t(c.counts), 0.3, few=int(np.sort(c.counts)[1])), c.labels),
        lambda c, z, b: rs_row(c, z, b, few=np.sort(c.counts)[1]),
    ),
    "fedrs_few_code": (
        lambda c, z: fn.cross_entropy(
            z * fn.fedrs_scale(t(c.counts), 0.3, "code", int(np.sort(c.counts)[2])), c.labels
        ),
        lambda c, z, b: rs_row(c, z, b, True, np.sort(c.counts)[2]),
    ),
    "fedrs": (lambda c, z: fn.cross_entropy(z * fn.fedrs_scale(t(c.counts), 0.3), c.labels), rs_row),
    "fedrs_code": (
        lambda c, z: fn.cross_entropy(z * fn.fedrs_scale(t(c.counts), 0.3, "code"), c.labels),
        lambda c, z, b: rs_row(c, z, b, True),
    ),
    "bce": (
        lambda c, z: fn.weighted_bce(z, c.labels, torch.arange(6) + t(1.5), torch.arange(6) + t(0.5)),
        bce_row,
    ),
    "ratio": (lambda c, z: fn.ratio_loss(z, c.labels, fn.ratio_weights(t(c.counts))), ratio_row),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ORACLES)
def test_loss_equals_the_equation_in_value_and_gradient(name: str, seed: int) -> None:
    case = Case(seed)
    loss, row = ORACLES[name]
    z = t(case.z)
    same(loss(case, z), [row(case, case.z[b], b) for b in case.rows])
    want = np.stack([differences(lambda r, b=b: row(case, r, b), case.z[b]) for b in case.rows])
    same(slope(lambda z: loss(case, z), z), want, atol=2e-7, rtol=1e-6)
    stack = torch.stack([z, z + 0.3, z * 1.7])
    same(torch.vmap(lambda z: loss(case, z))(stack)[2], loss(case, z * 1.7), atol=1e-12)


@pytest.mark.parametrize("name", ORACLES)
def test_loss_is_equivariant_under_a_permutation_of_rows_and_of_classes(name: str) -> None:
    case = Case(5)
    loss, z, order = ORACLES[name][0], t(case.z), torch.randperm(11, generator=torch.Generator().manual_seed(0))
    want = loss(case, z)
    rows = Case(5)
    rows.labels, rows.features, rows.teacher = case.labels[order], case.features[order], case.teacher[order]
    same(loss(rows, z[order]), want[order], atol=1e-12)
    if name == "bce":  # its weights in the table above are fixed to class numbers
        return
    columns, shuffled = np.array([3, 1, 5, 0, 2, 4]), Case(5)
    shuffled.counts, shuffled.teacher = case.counts[columns], case.teacher[:, columns]
    shuffled.labels = torch.as_tensor(np.argsort(columns)[case.y])
    same(loss(shuffled, z[:, columns.tolist()]), want, atol=1e-12)


# FedBal


@pytest.mark.parametrize("seed", SEEDS)
def test_local_balancer_reduces_to_cross_entropy(seed: int) -> None:
    c = Case(seed)
    z, f, counts = t(c.z), t(c.features), t(c.counts)
    plain = fn.cross_entropy(z, c.labels)
    assert torch.equal(fn.local_balancer_loss(z, f, c.labels, counts, 0.0), plain)
    assert torch.equal(fn.local_balancer_loss(z, f, c.labels, torch.full((6,), 37.0), 60.0), plain)
    assert torch.equal(fn.imbalance_gap(torch.zeros(6)), torch.zeros(6))
    same(fn.local_balancer_loss(z, f * 1e14, c.labels, counts, 60.0), plain, atol=1e-11)
    gap = fn.imbalance_gap(counts)
    assert gap.min() == 0 and gap.max() == 1 and gap[counts.argmax()] == 0
    same(fn.cross_entropy(fn.balanced_logits(z, f, gap * 0 + 0.4, 60.0), c.labels), plain, atol=1e-12)
    same(fn.balanced_logits(z, f * 0, gap, 60.0, eps=2.0), z - 30.0 * gap)  # a row without features


def test_local_balancer_gradient_by_norm() -> None:
    c = Case(3)
    z, f, gap = t(c.z), t(c.features), fn.imbalance_gap(t(c.counts))
    norm = f.norm(dim=-1)
    by_features = slope(lambda f: fn.local_balancer_loss(z, f, c.labels, t(c.counts), 7.5), f)
    p = fn.balanced_logits(z, f, gap, 7.5).softmax(-1)
    want = 7.5 / norm**2 * ((p * gap).sum(-1) - gap[c.labels])  # (alpha A / ||f||^2)(E[lambda] - lambda_y)
    same((by_features * f).sum(-1) / norm, want)


@pytest.mark.parametrize("m", [1, 2, 4, 10, 13])
def test_aggregation_balancer(m: int) -> None:
    g = np.random.default_rng(m)
    v = t(np.sort(g.uniform(-1, 1, size=m)))
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
    same(fn.classifier_similarity(t(before), t(after)), cosines)
    factors = t([0.1, 3.0, 70.0, 1e6]).unsqueeze(-1)
    same(fn.classifier_similarity(t(before), factors * t(after)), cosines)
    same(fn.classifier_similarity(t(before), t(after), "l2"), [-np.sqrt(((before - a) ** 2).sum()) for a in after])
    assert fn.classifier_similarity(t(before), torch.zeros(1, 7).double()) == 0


# FedGA


@pytest.mark.parametrize("form", ["softce", "exact"])
def test_fedga_is_cross_entropy_on_a_balanced_batch(form: str) -> None:
    g = np.random.default_rng(0)
    z, labels = t(g.normal(size=(12, 4))), torch.as_tensor(g.permutation(np.repeat(np.arange(4), 3)))
    same(fn.fedga_loss(z, labels, form=form), fn.cross_entropy(z, labels), atol=1e-14)
    got = slope(lambda z: fn.fedga_loss(z, labels, form=form), z)
    same(got, slope(lambda z: fn.cross_entropy(z, labels), z), atol=1e-15)


@pytest.mark.parametrize("seed", SEEDS)
def test_fedga_targets_and_gradients(seed: int) -> None:
    c = Case(seed)
    z, labels = t(c.z), c.labels
    n = np.bincount(c.y, minlength=6).astype(float)
    p = np.stack([softmax(r) for r in c.z])
    q = np.array([[1.0 if i == j else (n[j] - n[i]) / n[j] * p[b, i] for i in range(6)] for b, j in enumerate(c.y)])
    same(fn.fedga_targets(z, labels), q)
    assert not fn.fedga_targets(z.clone().requires_grad_(), labels).requires_grad
    own = c.counts
    qc = [[1.0 if i == j else (own[j] - own[i]) / own[j] * p[b, i] for i in range(6)] for b, j in enumerate(c.y)]
    same(fn.fedga_targets(z, labels, t(own)), qc)
    same(fn.fedga_loss(z, labels), -(q * np.log(p)).sum(-1))
    same(fn.fedga_loss(z, labels, form="exact"), np.log(np.exp(c.z).sum(-1)) - (q * c.z).sum(-1))
    exact = slope(lambda z: fn.fedga_loss(z, labels, form="exact"), z)
    same(exact, p - q)
    same(slope(lambda z: fn.fedga_loss(z, labels), z), q.sum(-1, keepdims=True) * p - q)
    for j in set(c.y.tolist()):  # class by class: N_i * mean probability; absent classes get exactly nothing
        mine = exact[labels == j].sum(0)
        for i in range(6):
            if i != j:
                same(mine[i], n[i] * p[c.y == j, i].mean())
    absent = torch.as_tensor(n == 0)
    for dtype in (torch.float64, torch.float32):
        exact = torch.vmap(torch.func.grad(lambda z: fn.fedga_loss(z, labels, form="exact").mean()))(z[None].to(dtype))
        assert torch.equal(exact[0][:, absent], torch.zeros_like(exact[0][:, absent]))


def test_fedga_single_class_batch() -> None:
    z, labels = t(np.random.default_rng(1).normal(size=(5, 4))), torch.full((5,), 2)
    p = z.softmax(-1)
    q = fn.fedga_targets(z, labels)
    others = torch.tensor([0, 1, 3])
    same(q[:, others], p[:, others])
    got = slope(lambda z: fn.fedga_loss(z, labels, form="exact"), z)
    assert torch.equal(got[:, others].abs() < 1e-16, torch.ones(5, 3, dtype=torch.bool))
    same(got[:, 2], p[:, 2] - 1)


@pytest.mark.parametrize("counts", [(9.0, 4.0), (2.0, 11.0), (5.0, 5.0)])
def test_fedga_binary_drives_the_error_asymmetry_to_one(counts: tuple[float, float]) -> None:
    g = np.random.default_rng(2)
    n0, n1 = (int(n) for n in counts)
    z, labels = t(g.normal(size=n0 + n1)), torch.tensor([0] * n0 + [1] * n1)
    q, p = fn.fedga_binary_targets(z, labels, t(counts)), z.sigmoid()
    for b in range(n0 + n1):
        if labels[b] == 0:
            same(q[b], max(0.0, (n0 - n1) / n0) * p[b])
        else:
            same(q[b], 1 - max(0.0, (n1 - n0) / n1) * (1 - p[b]))
    if n0 == n1:
        assert torch.equal(q, labels.double())
    residual = p - q  # both classes pull with min(N0, N1) times their mean error
    same(residual[labels == 0].sum(), min(counts) * p[labels == 0].mean())
    same(-residual[labels == 1].sum(), min(counts) * (1 - p[labels == 1]).mean())


# Counts, masks and other losses


def test_class_counts_and_masks() -> None:
    g = np.random.default_rng(0)
    y, mask = g.integers(0, 5, size=(3, 20)), g.integers(0, 2, size=(3, 20)).astype(float)
    got = torch.vmap(lambda y, m: fn.class_counts(y, 5, m))(torch.as_tensor(y), t(mask))
    same(got, [[((r == c) * m).sum() for c in range(5)] for r, m in zip(y, mask, strict=True)])
    assert got.dtype == torch.float64
    assert fn.class_counts(torch.as_tensor(y[0]), 5).dtype == torch.float32


@pytest.mark.parametrize("seed", SEEDS)
def test_neutral_settings_are_cross_entropy(seed: int) -> None:
    c = Case(seed)
    z, y, counts, even = t(c.z), c.labels, t(c.counts), torch.full((6,), 9.0).double()
    plain = fn.cross_entropy(z, y)
    same(plain, F.cross_entropy(z, y, reduction="none"), atol=1e-15)
    for loss in (
        fn.fedlc_loss(z, y, counts, 0.0),  # zero counts: nothing is masked at tau = 0
        fn.fedlc_loss(z, y, even, 2.0),
        fn.logit_adjusted_loss(z, y, counts, 0.0),
        fn.logit_adjusted_loss(z, y, even),
        fn.focal_loss(z, y, gamma=0.0),
        fn.unbalanced_softmax_loss(z, y, even),
        fn.ratio_loss(z, y, fn.ratio_weights(even, beta=0.0)),
        fn.cross_entropy(z * fn.fedrs_scale(counts, 1.0), y),
        fn.cross_entropy(z * fn.fedrs_scale(counts, 1.0, "code"), y),
        fn.cross_entropy(z * fn.fedrs_scale(even, 0.2), y),
    ):
        same(loss, plain, atol=1e-14)
    masked = z.masked_fill(counts == 0, -torch.inf)
    restricted = fn.unbalanced_softmax_loss(z, y, torch.where(counts > 0, 9.0, 0.0).double())
    same(restricted, fn.cross_entropy(masked, y), atol=1e-14)


def test_missing_classes_get_no_gradient_where_they_are_masked() -> None:
    c = Case(0)
    absent = t(c.counts) == 0
    for name in ("lb_mask", "fedgr", "fedgr_raw", "fedlc", "fedlc_exclude", "logit_adjusted"):
        got = slope(lambda z, name=name: ORACLES[name][0](c, z), t(c.z))
        assert torch.equal(got[:, absent], torch.zeros(11, 1).double()), name
    scaled = slope(lambda z: fn.cross_entropy(z * fn.fedrs_scale(t(c.counts), 0.3), c.labels), t(c.z))
    inner = slope(lambda z: fn.cross_entropy(z, c.labels), t(c.z) * fn.fedrs_scale(t(c.counts), 0.3))
    same(scaled[:, absent], 0.3 * inner[:, absent])


def test_fedlc_without_a_class_to_contrast_with_gives_zero() -> None:
    z, counts = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0.0, 7.0, 0.0])
    labels = torch.ones(4, dtype=torch.int64)
    f = lambda z: fn.fedlc_loss(z, labels, counts, 1.0, "exclude_true")
    assert torch.equal(f(z), torch.zeros(4))
    assert torch.equal(slope(f, z), torch.zeros(4, 3))


@pytest.mark.parametrize("seed", SEEDS)
def test_moon(seed: int) -> None:
    g = np.random.default_rng(seed)
    z, zg, zp = g.normal(size=(3, 7, 5))

    def row(a: Array, b: int) -> float:
        cos = [a @ o / math.sqrt(a @ a) / math.sqrt(o @ o) for o in (zg[b], zp[b])]
        e = [math.exp(c / 0.3) for c in cos]
        return -math.log(e[0] / (e[0] + e[1]))

    f = lambda a: fn.moon_contrastive(a, t(zg), t(zp), 0.3)
    same(f(t(z)), [row(z[b], b) for b in range(7)])
    same(slope(f, t(z)), [differences(lambda a, b=b: row(a, b), z[b]) for b in range(7)], atol=1e-7, rtol=1e-6)
    low, high = math.log(1 + math.exp(-2 / 0.3)), math.log(1 + math.exp(2 / 0.3))
    assert ((f(t(z)) >= low) & (f(t(z)) <= high)).all()
    same(fn.moon_contrastive(t(z), t(z), -t(z), 0.3), np.full(7, low))
    zero = torch.zeros(7, 5)
    assert slope(lambda a: fn.moon_contrastive(a, t(zg).float(), t(zp).float()), zero).isfinite().all()


def test_fedntd_invariants() -> None:
    c = Case(1)
    z = t(c.z)
    same(slope(lambda a: fn.fedntd_loss(a, z, c.labels, 3.0), z), np.zeros((11, 6)), atol=1e-15)
    two = fn.fedntd_loss(z[:, :2], t(c.teacher)[:, :2], c.labels % 2)
    assert torch.equal(two, torch.zeros(11).double())
    teacher = t(c.teacher).requires_grad_()
    assert not fn.fedntd_loss(z, teacher, c.labels).requires_grad


def test_proximal() -> None:
    g = np.random.default_rng(0)
    w = {"a": t(g.normal(size=(3, 2))), "b": t(g.normal(size=4))}
    x = {"a": t(g.normal(size=(3, 2))), "b": t(g.normal(size=4))}
    want = 0.35 * sum(((w[k] - x[k]).numpy() ** 2).sum() for k in w)
    same(fn.proximal(w, x, 0.7), want)
    grads = torch.func.grad(fn.proximal)(w, x, 0.7)
    for k in w:
        same(grads[k], 0.7 * (w[k] - x[k]))
    assert all((v == 0).all() for v in torch.func.grad(fn.proximal)(x, x, 0.7).values())
    assert fn.proximal(w, x, 0.0) == 0


def test_fedgrab_loss_and_controller() -> None:
    c = Case(2)
    z, ones = t(c.z), torch.ones(6).double()
    onehot = (c.labels.unsqueeze(-1) == torch.arange(6)).double()
    plain = F.binary_cross_entropy_with_logits(z, onehot, reduction="none").sum(-1)
    same(fn.weighted_bce(z, c.labels, ones, ones), plain, atol=1e-13)
    positive, negative = t([0.1, 2.0, 3.0, 0.5, 7.0, 1.0]).requires_grad_(), t([1.0, 0.2, 0.3, 9.0, 0.4, 0.6])
    got = slope(lambda z: fn.weighted_bce(z, c.labels, positive, negative), z)
    same(got, (onehot * positive + (1 - onehot) * negative) * (z.sigmoid() - onehot))
    assert not fn.weighted_bce(z, c.labels, positive, negative).requires_grad  # weights are detached
    errors = t(np.random.default_rng(0).normal(size=(9, 4)))
    u, earlier, previous = (torch.zeros(4).double() for _ in range(3))
    for i, error in enumerate(errors):
        increment, earlier, previous = fn.fedgrab_pid(error, earlier, previous, 10.0, 0.01, 0.1)
        u = u + increment
        last = errors[i - 1] if i else torch.zeros(4).double()
        same(u, 10.0 * error + 0.01 * errors[: i + 1].sum(0) + 0.1 * (error - last))  # the positional controller
    x = t([-7.0, -0.3, 0.9, 30.0])
    same(fn.fedgrab_map(x), (10 / 9) / (1 / 9 + np.exp(-x.numpy() / 2)))
    assert fn.fedgrab_map(torch.tensor([-1e8, 1e8])).tolist() == pytest.approx([0.0, 10.0], abs=1e-30)


# Extremes

EXTREME_LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "cross_entropy": lambda z, f, y, n: fn.cross_entropy(z, y),
    "lb": lambda z, f, y, n: fn.local_balancer_loss(z, f, y, n, 60.0),
    "lb_mask": lambda z, f, y, n: fn.local_balancer_loss(z, f, y, n, 60.0, "mask"),
    "fedga_softce": lambda z, f, y, n: fn.fedga_loss(z, y),
    "fedga_exact": lambda z, f, y, n: fn.fedga_loss(z, y, form="exact"),
    "fedga_client": lambda z, f, y, n: fn.fedga_loss(z, y, n),
    "fedgr": lambda z, f, y, n: fn.unbalanced_softmax_loss(z, y, n),
    "fedgr_raw": lambda z, f, y, n: fn.unbalanced_softmax_loss(z, y, n, "raw"),
    "fedgr_code": lambda z, f, y, n: fn.unbalanced_softmax_loss(z, y, n, missing="code"),
    "fedgr_raw_code": lambda z, f, y, n: fn.unbalanced_softmax_loss(z, y, n, "raw", "code"),
    "moon": lambda z, f, y, n: fn.moon_contrastive(z, z.detach().roll(1, 0), -z.detach()),
    "focal": lambda z, f, y, n: fn.focal_loss(z, y),
    "focal_half": lambda z, f, y, n: fn.focal_loss(z, y, gamma=0.5),
    "fedlc": lambda z, f, y, n: fn.fedlc_loss(z, y, n),
    "fedlc_exclude": lambda z, f, y, n: fn.fedlc_loss(z, y, n, 1.0, "exclude_true"),
    "logit_adjusted": lambda z, f, y, n: fn.logit_adjusted_loss(z, y, n),
    "fedrs": lambda z, f, y, n: fn.cross_entropy(z * fn.fedrs_scale(n), y),
    "fedrs_code": lambda z, f, y, n: fn.cross_entropy(z * fn.fedrs_scale(n, 0.5, "code"), y),
    "fedntd": lambda z, f, y, n: fn.fedntd_loss(z, z.detach().flip(0), y),
    "bce": lambda z, f, y, n: fn.weighted_bce(z, y, fn.fedgrab_map(z.sum(0)), fn.fedgrab_map(-z.sum(0))),
    "ratio": lambda z, f, y, n: fn.ratio_loss(z, y, fn.ratio_weights(n)),
    "ratio_broken": lambda z, f, y, n: fn.ratio_loss(z, y, fn.ratio_weights(n), True),
}
EXTREME_COUNTS = {
    "none": [0.0, 0.0, 0.0, 0.0],
    "single": [0.0, 0.0, 500.0, 0.0],  # rows with label 0 stand for padding
    "singleton": [50000.0, 1.0, 0.0, 3.0],
    "even": [5.0, 5.0, 5.0, 5.0],
}


@pytest.mark.parametrize("counts", EXTREME_COUNTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", EXTREME_LOSSES)
def test_finite_in_extreme_cases(name: str, dtype: torch.dtype, counts: str) -> None:
    loss, n = EXTREME_LOSSES[name], torch.tensor(EXTREME_COUNTS[counts])
    g = torch.Generator().manual_seed(0)
    tame = torch.randn(6, 4, generator=g)
    wild = 1e4 * torch.where(torch.rand(6, 4, generator=g) < 0.5, -1.0, 1.0)
    logits = torch.stack([tame, wild, wild.abs(), torch.zeros(6, 4), 1e-30 * tame]).to(dtype)
    features = torch.stack([tame, torch.zeros(6, 4), 1e4 * tame, 1e-30 * tame, tame]).to(dtype)
    labels = torch.tensor([0, 1, 2, 3, 0, 2])
    for histogram in (n, n.to(dtype), n.to(torch.int64)):
        value = torch.vmap(lambda z, f, n=histogram: loss(z, f, labels, n))(logits, features)
        assert value.shape == (5, 6)
        assert value.isfinite().all(), value
        total = lambda z, f, n=histogram: loss(z, f, labels, n).float().sum()
        for got in torch.vmap(torch.func.grad(total, argnums=(0, 1)))(logits, features):
            assert got.dtype == dtype
            assert got.isfinite().all(), got


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_classifier_terms_are_finite_in_extreme_cases(scale: float, dtype: torch.dtype) -> None:
    rows = (scale * torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))).to(dtype)
    for owned in (
        torch.zeros(3, 4, dtype=torch.bool),
        torch.ones(3, 4, dtype=torch.bool),
        torch.tensor([[1, 0, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]], dtype=torch.bool),
    ):
        for f in (fn.gravitation, fn.fedgc_spread):
            assert f(rows, owned).isfinite()
            assert torch.func.grad(lambda r, f=f, o=owned: f(r, o).float())(rows).isfinite().all()
        assert fn.gravitation_gradient(rows, owned).isfinite().all()
        assert fn.fedgc_gradient(rows, owned).isfinite().all()
    for eps in (0.0, 1e-6):
        match = lambda s, eps=eps: fn.creff_match(s, rows[1], torch.ones(4), eps)
        assert match(rows[0]).isfinite()
        assert torch.func.grad(match)(torch.zeros(4, 5)).isfinite().all()


# Weights


@pytest.mark.parametrize("seed", SEEDS)
def test_label_aware_weights(seed: int) -> None:
    g = np.random.default_rng(seed)
    n = g.integers(0, 50, size=(5, 7)) * (g.random((5, 7)) < 0.6)
    n[:, 4] = 0
    mass = [sum(n[i, j] / n[:, j].sum() for j in range(7) if n[:, j].sum()) for i in range(5)]
    present = (n.sum(0) > 0).sum()
    weights = fn.label_aware_weights(t(n))
    same(weights, np.array(mass) / present)
    same(torch.vmap(fn.label_aware_weights)(t(np.stack([n, n + 1])))[0], weights)
    same(fn.label_aware_weights(t(n) * 37), weights)
    same(fn.label_aware_weights(torch.cat([t(n), torch.zeros(5, 3).double()], 1)), weights)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    same(fn.label_aware_weights(t(n)[order]), weights[order])
    proportional = t(np.outer([3, 1, 7], n.sum(0)))
    same(fn.label_aware_weights(proportional), fn.size_weights(proportional.sum(-1)))
    assert fn.label_aware_weights(t(n[:1] + 1)) == 1


def test_label_aware_weights_of_disjoint_labels_count_labels() -> None:
    n = t([[900, 1, 0, 0, 0], [0, 0, 5, 0, 0], [0, 0, 0, 2, 70]])
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
        same(fn.sgd_a_norm(t(steps), rho), want)
        got = fn.sgd_a_norm(torch.as_tensor(steps), rho)
        assert got.dtype == torch.float32
        same(got, want, rtol=1e-6)
        same(fn.sgd_a_norm(t(steps), rho, 0.1), want if rho else fn.sgd_a_norm(t(steps), decay=0.1))
    for e in (0.0, 1e-9, 0.1, 0.5, 0.7, 1.0, 1.3):
        want = [sum((1 - e) ** s for s in range(k)) for k in steps]
        same(fn.sgd_a_norm(torch.as_tensor(steps), decay=e), want, rtol=1e-6)
        same(fn.sgd_a_norm(t(steps), decay=t(e)), want, rtol=1e-9)
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
    same(fn.fednova_weights(t(p), t(a)), (p * a).sum() * p / a)
    same(fn.fednova_weights(t(p), t(a), 4.0), 4.0 * p / a)
    same(fn.fednova_weights(t(p), torch.full((5,), 17.829).double()), p, atol=1e-15)  # equal steps: FedAvg
    same(fn.fednova_weights(t([1.0]), t([3.0])), [1.0])
    assert fn.fednova_weights(t([0.5, 0.5]), t([4.0, 0.0])).tolist() == [0.25, 0.0]
    same(torch.vmap(fn.fednova_weights)(t([p, p[::-1]]), t([a, a])), [(q * a).sum() * q / a for q in (p, p[::-1])])


@pytest.mark.parametrize("seed", SEEDS)
def test_climb(seed: int) -> None:
    g = np.random.default_rng(seed)
    duals, losses = g.uniform(0, 3, size=8), g.uniform(0, 5, size=8)
    same(fn.climb_weights(t(duals)).sum(), 8.0)
    want = [min(max(d + 2 / 8 * (f - losses.mean() - 0.1), 0), 3) for d, f in zip(duals, losses, strict=True)]
    same(fn.climb_dual_step(t(duals), t(losses), 2.0, 0.1, maximum=3.0), want)
    zero = torch.zeros(8).double()
    for lr, eps, f in ((0.0, 0.1, t(losses)), (2.0, 1e9, t(losses)), (2.0, 0.0, torch.full((8,), 2.5).double())):
        stepped = fn.climb_dual_step(zero, f, lr, eps)
        assert torch.equal(stepped, zero)
        assert torch.equal(fn.climb_weights(stepped), torch.ones(8).double())


# Server optimizers


def _tree(seed: int) -> dict[str, Tensor]:
    g = np.random.default_rng(seed)
    return {"a": t(g.normal(size=(2, 3))), "b": t(g.normal(size=4))}


def test_server_updates_from_the_equations() -> None:
    x, delta, m0, v0 = _tree(0), _tree(1), _tree(2), {k: v.abs() for k, v in _tree(3).items()}
    for update, grow in (
        (fn.adagrad_update, lambda v, s: v + s),
        (fn.adam_update, lambda v, s: 0.9 * v + 0.1 * s),
        (fn.yogi_update, lambda v, s: v - 0.1 * s * np.sign(v - s)),
    ):
        params, first, second = update(x, delta, m0, v0, 0.3, 0.8, 0.9, 1e-2)
        for k in x:
            m = 0.8 * m0[k].numpy() + 0.2 * delta[k].numpy()
            v = grow(v0[k].numpy(), delta[k].numpy() ** 2)
            same(first[k], m)
            same(second[k], v)
            same(params[k], x[k].numpy() + 0.3 * m / (np.sqrt(v) + 1e-2))
    still = {k: torch.zeros_like(v) for k, v in x.items()}
    for update in (fn.adagrad_update, fn.adam_update, fn.yogi_update):
        params, _, _ = update(x, still, still, v0, 0.3, 0.8, 0.9, 1e-3)
        assert all(torch.equal(params[k], x[k]) for k in x)
    moved, moment = fn.momentum_update(x, delta, m0, 1.0, 0.0)
    assert all(torch.equal(moved[k], x[k] + delta[k]) and torch.equal(moment[k], delta[k]) for k in x)


def test_bias_corrected_adam_is_torch_adam() -> None:
    x, still = _tree(0), {k: torch.zeros_like(v) for k, v in _tree(0).items()}
    reference = {k: v.clone().requires_grad_() for k, v in x.items()}
    optimizer = torch.optim.Adam(reference.values(), lr=0.05, betas=(0.9, 0.99), eps=1e-3, maximize=True)
    first = second = still
    for step in range(1, 6):
        delta = _tree(10 + step)
        for k, p in reference.items():
            p.grad = delta[k].clone()
        optimizer.step()
        x, first, second = fn.adam_update(x, delta, first, second, 0.05, 0.9, 0.99, 1e-3, step, bias_correction=True)
        for k in x:
            same(x[k], reference[k].detach())


def test_adam_and_yogi_share_the_first_step_and_adagrad_never_forgets() -> None:
    x, delta = _tree(0), _tree(1)
    zero = {k: torch.zeros_like(v) for k, v in x.items()}
    adam, yogi = (u(x, delta, zero, zero, 0.1, 0.9, 0.99, 1e-3)[0] for u in (fn.adam_update, fn.yogi_update))
    for k in x:
        same(adam[k], yogi[k])
    before = _tree(4)
    _, _, second = fn.adagrad_update(x, delta, zero, before, 0.1, 0.9, 0.99, 1e-3)
    assert all((second[k] >= before[k]).all() for k in x)


def test_corrected_adagrad_and_yogi() -> None:
    x, delta = _tree(0), _tree(1)
    zero = {k: torch.zeros_like(v) for k, v in x.items()}
    moved, _, _ = fn.adagrad_update(x, delta, zero, zero, 0.1, 0.9, 0.99, 1e-3, 1, True)
    yogi, _, _ = fn.yogi_update(x, delta, zero, zero, 0.1, 0.9, 0.99, 1e-3, 1, True)
    for k in x:  # after the first step both corrected moments equal delta and delta^2
        want = x[k] + 0.1 * delta[k] / (delta[k].abs() + 1e-3)
        same(moved[k], want)
        same(yogi[k], want)


# Control variates, meta


def test_scaffold_first_round_and_conservation() -> None:
    zero, g = {k: torch.zeros_like(v) for k, v in _tree(0).items()}, _tree(1)
    assert all(torch.equal(fn.scaffold_correction(g, zero, zero)[k], g[k]) for k in g)
    own, delta, server = _tree(2), _tree(3), _tree(4)
    new = fn.scaffold_control(own, server, delta, 0.4)
    for k in own:
        same(new[k], own[k] - server[k] - delta[k] / 0.4)
    change = {k: torch.stack([new[k] - own[k], own[k]]) for k in own}
    got = fn.scaffold_server_control(server, change, 9)
    for k in own:
        same(got[k], server[k] + (new[k] - own[k] + own[k]) / 9)


def test_per_fedavg_and_pfedme_limits() -> None:
    w, target = _tree(0), _tree(1)
    gradient = lambda p, batch: {k: torch.sinh(p[k] - batch * target[k]) for k in p}
    plain = fn.lookahead(w, gradient(w, 3.0), 0.2)
    stepped = fn.per_fedavg_step(w, gradient, (2.0, 3.0), 0.0, 0.2)
    assert all(torch.equal(stepped[k], plain[k]) for k in w)
    hf = fn.per_fedavg_step(w, gradient, (1.0, 1.0, 1.0), 0.1, 0.2, delta=1e-4)
    for k in w:  # d/dw f(w - alpha f'(w)) = f'(w~)(1 - alpha f''), with the curvature taken at w
        outer = torch.sinh(w[k] - 0.1 * torch.sinh(w[k] - target[k]) - target[k])
        same(hf[k], w[k] - 0.2 * outer * (1 - 0.1 * torch.cosh(w[k] - target[k])), atol=1e-6)
    with pytest.raises(ConfigError, match="batches must hold 3 mini-batches a step; got 2"):
        fn.per_fedavg_step(w, gradient, (1.0, 1.0), 0.1, 0.2, delta=1e-3)
    theta, grads = _tree(2), _tree(3)
    stepped = fn.moreau_step(theta, grads, w, 0.05, 15.0, decay=0.001)
    for k in w:
        same(stepped[k], theta[k] - 0.05 * (grads[k] + 15.0 * (theta[k] - w[k]) + 0.001 * theta[k]))
        same(fn.moreau_mix(w, theta, 0.5, 2.0)[k], theta[k])  # eta lambda = 1
        same(fn.moreau_mix(w, theta, 0.5, 0.0)[k], w[k])
    once = fn.moreau_mix(w, fn.moreau_step(w, grads, w, 0.1, 2.0), 0.3, 2.0)
    for k in w:  # one inner step from w: FedAvg with lr eta lambda eta_p
        same(once[k], w[k] - 0.3 * 2.0 * 0.1 * grads[k])


# Selection


def _select_slowly(offered: Array, limit: int, threshold: float, order: list[int]) -> tuple[list[int], list[list[int]]]:
    def kl(v: list[int]) -> float:
        return sum(x / sum(v) * math.log(len(v) * x / sum(v)) for x in v if x)

    chosen, quota = [order[0]], [offered[order[0]].tolist()]
    v = list(quota[0])
    m = max(v)
    while len(chosen) < limit and kl(v) >= threshold:
        pick = next(
            (
                k
                for f in sorted(range(len(v)), key=lambda f: (v[f], f))
                if v[f] != m
                for k in order
                if k not in chosen and offered[k][f] > 0
            ),
            None,
        )
        if pick is None:
            break
        s = [min(m - v[c], int(offered[pick][c])) for c in range(len(v))]
        v = [a + b for a, b in zip(v, s, strict=True)]
        chosen.append(pick)
        quota.append(s)
    return chosen, quota


@pytest.mark.parametrize("seed", range(12))
def test_seolkim_select(seed: int) -> None:
    g = np.random.default_rng(seed)
    offered = g.integers(0, 60, size=(14, 5)) * (g.random((14, 5)) < 0.4) + np.eye(14, 5, dtype=int)
    offered[5] = offered[3]  # equal sizes
    ties = g.random(14)
    order = fn.seolkim_order(torch.as_tensor(offered), t(ties))
    assert order.tolist() == sorted(range(14), key=lambda k: (-offered[k].sum(), ties[k]))
    for limit, threshold in ((10, 0.1), (4, 0.0), (14, 0.0), (14, 0.02)):
        picked, quota = fn.seolkim_select(torch.as_tensor(offered), limit, threshold, order)
        assert (picked.tolist(), quota.tolist()) == _select_slowly(offered, limit, threshold, order.tolist())
        assert len(set(picked.tolist())) == len(picked) <= limit
        assert (quota.sum(0) <= quota[0].max()).all()
        assert (quota <= torch.as_tensor(offered)[picked]).all() and (quota >= 0).all()
        assert (quota.sum(-1) > 0).all()


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
    for delta, r in ((0.01, 0), (0.02, 9), (0.3, 2)):
        want = n.copy()
        for k in range(6):
            target = n[k].sum() / 7 * math.exp(-delta * r)
            want[k] = [math.ceil(target) if 0 < x < target else x for x in n[k]]
        assert fn.oversample_target(torch.as_tensor(n), delta, r).tolist() == want.tolist()
    assert fn.oversample_target(torch.as_tensor(n), 0.5, 10**6).tolist() == n.tolist()
    single = torch.tensor([[0, 400, 0], [7, 0, 0]])
    assert torch.equal(fn.oversample_target(single, 0.0, 0), single)
    assert fn.oversample_target(single, 0.0, 0).dtype == torch.int64


def test_dynamic_batch_and_rate() -> None:
    used = torch.tensor([0, 1, 24, 25, 49, 50, 10**6])
    assert fn.dynamic_batch(used, 25).tolist() == [1, 1, 1, 1, 1, 2, 40000]
    rate = fn.dynamic_rate(fn.dynamic_batch(used, 25), 0.1)
    assert rate.dtype == torch.float64
    assert (rate <= 0.1).all() and (rate.diff() >= 0).all()
    same(fn.dynamic_rate(torch.tensor([3]), 0.2, b0=10.0), [0.2 * 2 / math.pi * math.atan(0.3)])


def test_decay_step_without_samples() -> None:
    assert fn.decay_step(0.3, torch.zeros(2, 3), torch.zeros(2, 3), 0.1, 0.1) == 0.3


def test_kl_to_uniform() -> None:
    g = np.random.default_rng(0)
    n = g.integers(0, 40, size=(4, 3, 5))
    p = n / n.sum(-1, keepdims=True)
    want = np.where(p > 0, p * np.log(np.where(p > 0, p, 1) * 5), 0).sum(-1)
    same(fn.kl_to_uniform(torch.as_tensor(n)), want)
    assert fn.kl_to_uniform(torch.full((5,), 13)) == 0
    same(fn.kl_to_uniform(torch.tensor([[0, 8, 0], [0, 0, 0]])), [math.log(3)] * 2)


def _schedule_slowly(n: Array, gamma: int) -> list[list[int]]:
    free, out = list(range(len(n))), []
    while free:
        members: list[int] = []
        while free and len(members) < gamma:
            scores = []
            for k in free:
                p = n[[*members, k]].sum(0) / n[[*members, k]].sum()
                scores.append(round(sum(x * math.log(x * len(p)) for x in p if x > 0), 11))
            members.append(free.pop(scores.index(min(scores))))
        out.append(members)
    return out


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("gamma", [1, 3, 20])
def test_astraea_schedule(gamma: int, seed: int) -> None:
    n = np.random.default_rng(seed).integers(0, 30, size=(9, 4)) + np.eye(9, 4, dtype=int)
    schedule = fn.astraea_schedule(torch.as_tensor(n), gamma)
    assert schedule == _schedule_slowly(n, gamma)
    assert sorted(k for members in schedule for k in members) == list(range(9))
    assert all(len(m) <= gamma for m in schedule)


def test_astraea_ties_go_to_the_lowest_index_despite_rounding() -> None:
    columns = [[0, 1, 2, 3, 4], [4, 2, 0, 3, 1], [1, 0, 4, 2, 3], [3, 4, 1, 0, 2]]
    n = torch.tensor([3, 10, 7, 29, 1])[torch.tensor(columns)]  # one histogram in four orders: one divergence
    assert fn.astraea_schedule(n, 1) == [[0], [1], [2], [3]]
    with pytest.raises(ConfigError, match="gamma must be at least 1"):
        fn.astraea_schedule(n, 0)


def test_astraea_copies() -> None:
    counts = torch.tensor([400, 100, 0, 20])
    assert torch.equal(fn.astraea_copies(counts, 0.0), torch.ones(4).double())
    same(fn.astraea_copies(counts, 0.7), [1.0, 1.3**0.7, 1.0, 6.5**0.7])


def test_power_of_choice() -> None:
    losses = torch.tensor([0.3, 2.0, 0.1, 2.0, 1.0])
    assert fn.power_of_choice(losses, 3).tolist() == [1, 3, 4]
    assert sorted(fn.power_of_choice(losses, 5).tolist()) == [0, 1, 2, 3, 4]


# Classifier rows


def _regulariser(u: Array, anchors: Array, owned: Array, kind: str) -> float:
    """Reg(U, U') straight from the equations, the anchors U' held apart from U."""
    clients, classes, _ = u.shape
    total = 0.0
    for k in range(clients):
        for i in range(classes):
            if not owned[k, i]:
                continue
            if kind == "means":
                mean = anchors[owned[:, i], i].mean(0)
                lacking = [math.exp(u[z, j] @ mean) for z, j in np.argwhere(owned) if not owned[z, i]]
                total += math.log(math.exp(mean @ mean) + sum(lacking)) - mean @ mean
                continue
            others = [(z, j) for z in range(clients) for j in range(classes) if z != k and owned[z, j]]
            e = {(z, j): math.exp(u[z, j] @ anchors[k, i]) for z, j in others}
            live = u[k, i] if kind == "fedgc" else anchors[k, i]
            own = math.exp(live @ anchors[k, i])
            total -= math.log(own / (own + sum(v for (_, j), v in e.items() if j != i)))
            shared = sum(v for (_, j), v in e.items() if j == i)
            if kind == "fedgr" and shared:
                total -= math.log(shared / sum(e.values()))
    return total


@pytest.mark.parametrize("kind", ["fedgr", "fedgc", "means"])
@pytest.mark.parametrize("seed", SEEDS)
def test_gravitation_and_spread_against_finite_differences(seed: int, kind: str) -> None:
    g = np.random.default_rng(seed)
    rows, owned = g.normal(size=(4, 5, 3)), g.random((4, 5)) < 0.55
    owned[3] = [0, 0, 0, 0, 1]
    owned[:3, 4] = False  # a sole owner with one label
    value, derivative, step = {
        "fedgr": (fn.gravitation, fn.gravitation_gradient, fn.gravitation_step),
        "fedgc": (fn.fedgc_spread, fn.fedgc_gradient, fn.fedgc_step),
        "means": (
            partial(fn.fedgc_spread, anchors="class_mean"),
            partial(fn.fedgc_gradient, anchors="class_mean"),
            partial(fn.fedgc_step, anchors="class_mean"),
        ),
    }[kind]
    mask = torch.as_tensor(owned)
    same(value(t(rows), mask), _regulariser(rows, rows, owned, kind))
    want = differences(lambda u: _regulariser(u, rows, owned, kind), rows)
    closed = derivative(t(rows), mask)
    same(closed, want, atol=1e-8, rtol=1e-6)
    same(slope(lambda u: value(u, mask), t(rows)), closed, atol=1e-13)
    rubbish = t(rows).masked_fill(~mask.unsqueeze(-1), torch.nan)  # rows that nobody trained cannot matter
    same(value(rubbish, mask), value(t(rows), mask))
    same(derivative(rubbish, mask), closed)
    with torch.no_grad():
        stepped = step(t(rows), mask, 0.05)
    same(stepped, t(rows) - 0.05 * closed)
    assert torch.equal(stepped[~mask], t(rows)[~mask])
    assert torch.equal(step(t(rows), mask, 0.0), t(rows))
    order, columns = [2, 0, 3, 1], [4, 2, 0, 1, 3]
    same(derivative(t(rows)[order][:, columns], mask[order][:, columns]), closed[order][:, columns])
    both = torch.vmap(derivative)(torch.stack([t(rows), -t(rows)]), torch.stack([mask, ~mask]))
    same(both[1], derivative(-t(rows), ~mask))
    alone = value(t(rows[:1]), mask[:1])
    assert alone == 0
    assert torch.equal(derivative(t(rows[:1]), mask[:1]), torch.zeros(1, 5, 3).double())


def test_gravitation_pulls_owners_together_and_pushes_labels_apart() -> None:
    g = np.random.default_rng(7)
    rows, owned = t(g.normal(size=(5, 4, 6))), torch.as_tensor(g.random((5, 4)) < 0.7)
    stepped = fn.gravitation_step(rows, owned, 1e-3)
    anchored = lambda u: _regulariser(u.numpy(), rows.numpy(), owned.numpy(), "fedgr")
    assert anchored(stepped) < anchored(rows)


def test_mean_rows() -> None:
    g = np.random.default_rng(0)
    rows, weights = g.normal(size=(3, 4, 2)), np.array([0.5, 0.2, 0.3])
    owned = np.array([[1, 0, 0, 1], [1, 1, 0, 0], [0, 0, 0, 1]], dtype=bool)
    everyone = (weights[:, None, None] * rows).sum(0)
    same(fn.mean_rows(t(rows), torch.as_tensor(owned), t(weights)), everyone)
    want = [
        (0.5 * rows[0, 0] + 0.2 * rows[1, 0]) / 0.7,
        rows[1, 1],
        everyone[2],  # nobody owns it
        (0.5 * rows[0, 3] + 0.3 * rows[2, 3]) / 0.8,
    ]
    same(fn.mean_rows(t(rows), torch.as_tensor(owned), t(weights), "owners"), np.stack(want))
    full = torch.ones(3, 4, dtype=torch.bool)
    same(fn.mean_rows(t(rows), full, t(weights), "owners"), everyone)


@pytest.mark.parametrize("seed", SEEDS)
def test_creff_match(seed: int) -> None:
    g = np.random.default_rng(seed)
    synthetic, real = g.normal(size=(2, 4, 3, 5))  # [C, R, F]
    present = np.array([1.0, 0.0, 1.0, 1.0])

    def value(s: Array, eps: float) -> float:
        total = 0.0
        for c in range(4):
            for r in range(3):
                a, b = s[c, r], real[c, r]
                total += present[c] * (1 - a @ b / (math.sqrt(a @ a) * math.sqrt(b @ b) + eps))
        return total

    for eps in (0.0, 0.5):
        match = lambda s, eps=eps: fn.creff_match(s, t(real), t(present), eps)
        same(match(t(synthetic)), value(synthetic, eps))
        want = differences(lambda s, eps=eps: value(s, eps), synthetic)
        same(slope(match, t(synthetic)), want, atol=1e-8, rtol=1e-6)
    same(fn.creff_match(t(synthetic) * 9, t(real), t(present)), value(synthetic, 0.0))
    same(fn.creff_match(t(real) * 3, t(real), t(present)), 0.0, atol=1e-14)
    same(fn.creff_match(t(synthetic[:, 0]), t(real[:, 0]), torch.as_tensor(present > 0)), sum(
        1 - a @ b / math.sqrt((a @ a) * (b @ b))
        for a, b, p in zip(synthetic[:, 0], real[:, 0], present, strict=True) if p
    ))  # fmt: skip


# Ratio loss


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
    assert fn.ratio_masks(t(d), by=by).numpy().tolist() == masks.tolist()
    same(fn.ratio_of_changes(t(d), by=by), ratios)
    same(torch.vmap(lambda d: fn.ratio_of_changes(d, by=by))(t(np.stack([d, -d])))[0], ratios)
    order = [3, 0, 4, 1, 2]
    same(fn.ratio_of_changes(t(d[order]), by=by), np.array(ratios)[order])


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
    same(fn.ratio_monitor(t(d), t(update) / 8, 100.0, scale=8.0), counts, rtol=1e-8)  # exact for two classes
    d, update = g.normal(size=(4, 4, 12)), g.normal(size=(4, 12)) * 30
    masks, _ = _ratio_slowly(d, "signed")
    want = []
    for p in range(4):
        rest = np.delete(d, p, 0).mean(0)
        found = (update - 100 * rest) / (d[p] - rest)
        found = found[masks[p] & (found > 0) & (found < 1.5 * 100 / 4)]
        want.append(found.mean() if len(found) else 25.0)
    same(fn.ratio_monitor(t(d), t(update), 100.0), want)
    assert fn.ratio_monitor(torch.zeros(4, 4, 2), torch.zeros(4, 2), 100.0).tolist() == [25.0] * 4


def test_broken_broadcast_is_mean_weight_times_mean_loss() -> None:
    c = Case(0)
    weights = fn.ratio_weights(t(c.counts))
    outer = weights[c.labels].unsqueeze(-1) * fn.cross_entropy(t(c.z), c.labels)  # the code's B x B product
    same(fn.ratio_loss(t(c.z), c.labels, weights, broken_broadcast=True).mean(), outer.mean())


# The room


BAD_OPTIONS: dict[str, Callable[[Tensor, Tensor, Tensor], object]] = {
    "missing 'clmp1'; did you mean 'clamp1'": lambda z, y, n: fn.local_balancer_loss(z, z, y, n, 1.0, "clmp1"),  # type: ignore[arg-type]
    "form 'exct'; did you mean 'exact'": lambda z, y, n: fn.fedga_loss(z, y, form="exct"),  # type: ignore[arg-type]
    "gamma 'max'; did you mean 'max1'": lambda z, y, n: fn.fedgr_gamma(n, "max"),  # type: ignore[arg-type]
    "missing 'zzz'; known: code, mask": lambda z, y, n: fn.unbalanced_softmax_loss(z, y, n, missing="zzz"),  # type: ignore[arg-type]
    "missing 'msk'; did you mean 'mask'": lambda z, y, n: fn.fedlc_loss(z, y, n, missing="msk"),  # type: ignore[arg-type]
    "form 'nrm'; did you mean 'norm'": lambda z, y, n: fn.proximal_pull({"a": z}, {"a": z}, 1.0, "nrm"),  # type: ignore[arg-type]
    "anchors 'mean'": lambda z, y, n: fn.fedgc_spread(z[None], z[None] > 0, "mean"),  # type: ignore[arg-type]
    "anchors 'owners'": lambda z, y, n: fn.fedgc_gradient(z[None], z[None] > 0, "owners"),  # type: ignore[arg-type]
    "denominator 'ful'": lambda z, y, n: fn.fedlc_loss(z, y, n, denominator="ful"),  # type: ignore[arg-type]
    "scaling 'papr'": lambda z, y, n: fn.fedrs_scale(n, scaling="papr"),  # type: ignore[arg-type]
    "similarity 'cos'": lambda z, y, n: fn.classifier_similarity(z[0], z, "cos"),  # type: ignore[arg-type]
    "by 'sign'": lambda z, y, n: fn.ratio_masks(z[None], by="sign"),  # type: ignore[arg-type]
    "over 'owner'": lambda z, y, n: fn.mean_rows(z[None], n[None], n, "owner"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("message", BAD_OPTIONS)
def test_unknown_options_are_named(message: str) -> None:
    z, y, n = torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64), torch.ones(3)
    with pytest.raises(ConfigError) as caught:
        BAD_OPTIONS[message](z, y, n)
    assert f"unknown {message}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_are_sorted_public_and_documented() -> None:
    assert fn.__all__ == sorted(fn.__all__)
    modules = [m.name for m in pkgutil.iter_modules(fn.__path__) if not m.name.startswith("_")]
    exported = [n for m in modules for n in importlib.import_module(f"fedskew.functional.{m}").__all__]
    assert sorted(exported) == fn.__all__
    assert all(getattr(fn, name).__doc__ for name in fn.__all__)
