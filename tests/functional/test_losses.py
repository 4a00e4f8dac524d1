"""Losses: plain numpy from the equations, neutral settings, and gradients that must stop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fedskew.functional as fn
from fedskew.errors import ConfigError
from support.batches import LABELS, LOGITS, Case
from support.tensors import SEEDS, Array, close, differences, draws, f64, same, slope


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
    if gamma != "one":
        top = n.sum() if gamma == "raw" else n[owned].min()
        g[owned] = top / n[owned]
    if missing == "code":
        g[n == 0] = top / (4 * n.max())
    keep = owned if missing == "mask" else np.arange(6)
    a, weight = (z, g[case.y[b]]) if gamma == "weight" else (g * z, 1.0)
    return float(weight * (np.log(np.exp(a[keep] - a.max()).sum()) + a.max() - a[case.y[b]]))


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
    "lb": (lambda c, z: fn.local_balancer_loss(z, f64(c.features), c.labels, f64(c.counts), 7.5), lb_row),
    "lb_mask": (
        lambda c, z: fn.local_balancer_loss(z, f64(c.features), c.labels, f64(c.counts), 7.5, "mask"),
        lambda c, z, b: lb_row(c, z, b, True),
    ),
    "fedgr": (lambda c, z: fn.unbalanced_softmax_loss(z, c.labels, f64(c.counts)), fedgr_row),
    "fedgr_raw": (
        lambda c, z: fn.unbalanced_softmax_loss(z / 50, c.labels, f64(c.counts), "raw"),
        lambda c, z, b: fedgr_row(c, z / 50, b, "raw"),
    ),
    "fedgr_one": (
        lambda c, z: fn.unbalanced_softmax_loss(z, c.labels, f64(c.counts), "one"),
        lambda c, z, b: fedgr_row(c, z, b, "one"),
    ),
    "fedgr_weight": (
        lambda c, z: fn.unbalanced_softmax_loss(z, c.labels, f64(c.counts), "weight"),
        lambda c, z, b: fedgr_row(c, z, b, "weight"),
    ),
    "fedgr_code": (
        lambda c, z: fn.unbalanced_softmax_loss(z, c.labels, f64(c.counts), missing="code"),
        lambda c, z, b: fedgr_row(c, z, b, missing="code"),
    ),
    "fedlc": (lambda c, z: fn.fedlc_loss(z, c.labels, f64(c.counts), 1.7), fedlc_row),
    "fedlc_exclude": (
        lambda c, z: fn.fedlc_loss(z, c.labels, f64(c.counts), 1.7, "exclude_true"),
        lambda c, z, b: fedlc_row(c, z, b, True),
    ),
    "fedlc_tiny": (lambda c, z: fn.fedlc_loss(z, c.labels, f64(c.counts), 0.02, missing="tiny"), fedlc_tiny_row),
    "logit_adjusted": (lambda c, z: fn.logit_adjusted_loss(z, c.labels, f64(c.counts), 0.8), prior_row),
    "focal": (lambda c, z: fn.focal_loss(z, c.labels, 1.5, f64(c.counts / 100)), focal_row),
    "fedntd": (lambda c, z: fn.fedntd_loss(z, f64(c.teacher), c.labels, 2.5), ntd_row),
    "fedntd_unscaled": (
        lambda c, z: fn.fedntd_loss(z, f64(c.teacher), c.labels, 2.5, scaled=False),
        lambda c, z, b: ntd_row(c, z, b, 1.0),
    ),
    "fedrs_few": (  # the smallest number of rows, exactly, is few
        lambda c, z: fn.cross_entropy(z * fn.fedrs_scale(f64(c.counts), 0.3, few=int(np.sort(c.counts)[1])), c.labels),
        lambda c, z, b: rs_row(c, z, b, few=np.sort(c.counts)[1]),
    ),
    "fedrs_few_code": (
        lambda c, z: fn.cross_entropy(
            z * fn.fedrs_scale(f64(c.counts), 0.3, "code", int(np.sort(c.counts)[2])), c.labels
        ),
        lambda c, z, b: rs_row(c, z, b, True, np.sort(c.counts)[2]),
    ),
    "fedrs": (lambda c, z: fn.cross_entropy(z * fn.fedrs_scale(f64(c.counts), 0.3), c.labels), rs_row),
    "fedrs_code": (
        lambda c, z: fn.cross_entropy(z * fn.fedrs_scale(f64(c.counts), 0.3, "code"), c.labels),
        lambda c, z, b: rs_row(c, z, b, True),
    ),
    "bce": (
        lambda c, z: fn.weighted_bce(z, c.labels, torch.arange(6) + f64(1.5), torch.arange(6) + f64(0.5)),
        bce_row,
    ),
    "ratio": (lambda c, z: fn.ratio_loss(z, c.labels, fn.ratio_weights(f64(c.counts))), ratio_row),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ORACLES)
def test_loss_equals_the_equation_in_value_and_gradient(name: str, seed: int) -> None:
    case = Case(seed)
    loss, row = ORACLES[name]
    z = f64(case.z)
    same(loss(case, z), [row(case, case.z[b], b) for b in case.rows])
    want = np.stack([differences(lambda r, b=b: row(case, r, b), case.z[b]) for b in case.rows])
    same(slope(lambda z: loss(case, z), z), want, atol=2e-7, rtol=1e-6)
    stack = torch.stack([z, z + 0.3, z * 1.7])
    same(torch.vmap(lambda z: loss(case, z))(stack)[2], loss(case, z * 1.7), atol=1e-12)


@pytest.mark.parametrize("name", ORACLES)
def test_loss_is_equivariant_under_a_permutation_of_rows_and_of_classes(name: str) -> None:
    case = Case(5)
    loss, z, order = ORACLES[name][0], f64(case.z), torch.randperm(11, generator=torch.Generator().manual_seed(0))
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
    z, f, counts = f64(c.z), f64(c.features), f64(c.counts)
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
    z, f, gap = f64(c.z), f64(c.features), fn.imbalance_gap(f64(c.counts))
    norm = f.norm(dim=-1)
    by_features = slope(lambda f: fn.local_balancer_loss(z, f, c.labels, f64(c.counts), 7.5), f)
    p = fn.balanced_logits(z, f, gap, 7.5).softmax(-1)
    want = 7.5 / norm**2 * ((p * gap).sum(-1) - gap[c.labels])  # (alpha A / ||f||^2)(E[lambda] - lambda_y)
    same((by_features * f).sum(-1) / norm, want)


def test_the_gap_is_measured_between_the_extremes() -> None:
    close(fn.imbalance_gap(f64([10, 100, 1000])), [1, 0.5, 0])  # nobody has a single sample here


# FedGA


@pytest.mark.parametrize("form", ["softce", "exact"])
def test_fedga_is_cross_entropy_on_a_balanced_batch(form: str) -> None:
    g = np.random.default_rng(0)
    z, labels = f64(g.normal(size=(12, 4))), torch.as_tensor(g.permutation(np.repeat(np.arange(4), 3)))
    same(fn.fedga_loss(z, labels, form=form), fn.cross_entropy(z, labels), atol=1e-14)
    got = slope(lambda z: fn.fedga_loss(z, labels, form=form), z)
    same(got, slope(lambda z: fn.cross_entropy(z, labels), z), atol=1e-15)


@pytest.mark.parametrize("seed", SEEDS)
def test_fedga_targets_and_gradients(seed: int) -> None:
    c = Case(seed)
    z, labels = f64(c.z), c.labels
    n = np.bincount(c.y, minlength=6).astype(float)
    p = np.stack([softmax(r) for r in c.z])
    q = np.array([[1.0 if i == j else (n[j] - n[i]) / n[j] * p[b, i] for i in range(6)] for b, j in enumerate(c.y)])
    same(fn.fedga_targets(z, labels), q)
    assert not fn.fedga_targets(z.clone().requires_grad_(), labels).requires_grad
    own = c.counts
    qc = [[1.0 if i == j else (own[j] - own[i]) / own[j] * p[b, i] for i in range(6)] for b, j in enumerate(c.y)]
    same(fn.fedga_targets(z, labels, f64(own)), qc)
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


@pytest.mark.parametrize("seed", SEEDS)
def test_fedga_with_the_mean_probability_of_a_class(seed: int) -> None:
    """Equation 10 as printed: p is the mean over the rows of the label, so that each row of a label has one target."""
    c = Case(seed)
    z, labels = f64(c.z), c.labels
    n = np.bincount(c.y, minlength=6).astype(float)
    p = np.stack([softmax(r) for r in c.z])
    mean = {j: p[c.y == j].mean(0) for j in c.y.tolist()}
    q = np.array([[1.0 if i == j else (n[j] - n[i]) / n[j] * mean[j][i] for i in range(6)] for j in c.y.tolist()])
    same(fn.fedga_targets(z, labels, probability="class"), q)
    same(fn.fedga_loss(z, labels, probability="class"), -(q * np.log(p)).sum(-1))
    exact = slope(lambda z: fn.fedga_loss(z, labels, form="exact", probability="class"), z)
    same(exact, p - q)
    rows = slope(lambda z: fn.fedga_loss(z, labels, form="exact"), z)
    for j in set(c.y.tolist()):  # in sum over a label the two readings are one
        same(exact[labels == j].sum(0), rows[labels == j].sum(0))
    padded, more = torch.cat([z, z[:2]]), torch.cat([labels, labels[:2]])
    mask = torch.cat([torch.ones(len(z)), torch.zeros(2)]).to(z)
    same(fn.fedga_targets(padded, more, mask=mask, probability="class")[: len(z)], q)
    with pytest.raises(ConfigError, match="probability"):
        fn.fedga_targets(z, labels, probability="batch")  # type: ignore[arg-type]


def test_fedga_single_class_batch() -> None:
    z, labels = f64(np.random.default_rng(1).normal(size=(5, 4))), torch.full((5,), 2)
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
    z, labels = f64(g.normal(size=n0 + n1)), torch.tensor([0] * n0 + [1] * n1)
    q, p = fn.fedga_binary_targets(z, labels, f64(counts)), z.sigmoid()
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


def test_fedga_binary_targets_are_constants() -> None:
    z = draws(3).requires_grad_()
    assert not fn.fedga_binary_targets(z, torch.tensor([0, 1, 0]), f64([5, 2])).requires_grad


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


# Counts, masks and other losses


def test_class_counts_and_masks() -> None:
    g = np.random.default_rng(0)
    y, mask = g.integers(0, 5, size=(3, 20)), g.integers(0, 2, size=(3, 20)).astype(float)
    got = torch.vmap(lambda y, m: fn.class_counts(y, 5, m))(torch.as_tensor(y), f64(mask))
    same(got, [[((r == c) * m).sum() for c in range(5)] for r, m in zip(y, mask, strict=True)])
    assert got.dtype == torch.float64
    assert fn.class_counts(torch.as_tensor(y[0]), 5).dtype == torch.float32


@pytest.mark.parametrize("seed", SEEDS)
def test_neutral_settings_are_cross_entropy(seed: int) -> None:
    c = Case(seed)
    z, y, counts, even = f64(c.z), c.labels, f64(c.counts), torch.full((6,), 9.0).double()
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
    absent = f64(c.counts) == 0
    for name in (
        "lb_mask",
        "fedgr",
        "fedgr_raw",
        "fedgr_one",
        "fedgr_weight",
        "fedlc",
        "fedlc_exclude",
        "logit_adjusted",
    ):
        got = slope(lambda z, name=name: ORACLES[name][0](c, z), f64(c.z))
        assert torch.equal(got[:, absent], torch.zeros(11, 1).double()), name
    scaled = slope(lambda z: fn.cross_entropy(z * fn.fedrs_scale(f64(c.counts), 0.3), c.labels), f64(c.z))
    inner = slope(lambda z: fn.cross_entropy(z, c.labels), f64(c.z) * fn.fedrs_scale(f64(c.counts), 0.3))
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

    f = lambda a: fn.moon_contrastive(a, f64(zg), f64(zp), 0.3)
    same(f(f64(z)), [row(z[b], b) for b in range(7)])
    same(slope(f, f64(z)), [differences(lambda a, b=b: row(a, b), z[b]) for b in range(7)], atol=1e-7, rtol=1e-6)
    low, high = math.log(1 + math.exp(-2 / 0.3)), math.log(1 + math.exp(2 / 0.3))
    assert ((f(f64(z)) >= low) & (f(f64(z)) <= high)).all()
    same(fn.moon_contrastive(f64(z), f64(z), -f64(z), 0.3), np.full(7, low))
    zero = torch.zeros(7, 5)
    assert slope(lambda a: fn.moon_contrastive(a, f64(zg).float(), f64(zp).float()), zero).isfinite().all()


def test_fedntd_invariants() -> None:
    c = Case(1)
    z = f64(c.z)
    same(slope(lambda a: fn.fedntd_loss(a, z, c.labels, 3.0), z), np.zeros((11, 6)), atol=1e-15)
    two = fn.fedntd_loss(z[:, :2], f64(c.teacher)[:, :2], c.labels % 2)
    assert torch.equal(two, torch.zeros(11).double())
    teacher = f64(c.teacher).requires_grad_()
    assert not fn.fedntd_loss(z, teacher, c.labels).requires_grad


def test_proximal() -> None:
    g = np.random.default_rng(0)
    w = {"a": f64(g.normal(size=(3, 2))), "b": f64(g.normal(size=4))}
    x = {"a": f64(g.normal(size=(3, 2))), "b": f64(g.normal(size=4))}
    want = 0.35 * sum(((w[k] - x[k]).numpy() ** 2).sum() for k in w)
    same(fn.proximal(w, x, 0.7), want)
    grads = torch.func.grad(fn.proximal)(w, x, 0.7)
    for k in w:
        same(grads[k], 0.7 * (w[k] - x[k]))
    assert all((v == 0).all() for v in torch.func.grad(fn.proximal)(x, x, 0.7).values())
    assert fn.proximal(w, x, 0.0) == 0


@pytest.mark.parametrize("form", ["norm", "smooth_l1"])
def test_the_pulls_of_others_are_the_gradients_of_their_terms(form: Any) -> None:
    draw = np.random.default_rng(3)
    w, x = ({n: f64(4 * draw.normal(size=s)) for n, s in {"a": (3, 2), "b": (4,)}.items()} for _ in range(2))
    assert any((w[n] - x[n]).abs().min() < 1 < (w[n] - x[n]).abs().max() for n in w)

    def term(p: dict[str, Tensor]) -> Tensor:
        if form == "norm":
            return 0.7 * sum(((p[n] - x[n]) ** 2).sum().sqrt() for n in p)
        return 0.7 * sum(torch.nn.functional.smooth_l1_loss(p[n], x[n]) for n in p) / len(p)

    pull, slope = fn.proximal_pull(w, x, 0.7, form), torch.func.grad(term)(w)
    for n in w:
        torch.testing.assert_close(pull[n], slope[n], rtol=1e-12, atol=1e-14)
    assert all((v == 0).all() for v in fn.proximal_pull(x, x, 0.7, form).values())


# Fed-GraB


def test_fedgrab_loss_and_controller() -> None:
    c = Case(2)
    z, ones = f64(c.z), torch.ones(6).double()
    onehot = (c.labels.unsqueeze(-1) == torch.arange(6)).double()
    plain = F.binary_cross_entropy_with_logits(z, onehot, reduction="none").sum(-1)
    same(fn.weighted_bce(z, c.labels, ones, ones), plain, atol=1e-13)
    positive, negative = f64([0.1, 2.0, 3.0, 0.5, 7.0, 1.0]).requires_grad_(), f64([1.0, 0.2, 0.3, 9.0, 0.4, 0.6])
    got = slope(lambda z: fn.weighted_bce(z, c.labels, positive, negative), z)
    same(got, (onehot * positive + (1 - onehot) * negative) * (z.sigmoid() - onehot))
    assert not fn.weighted_bce(z, c.labels, positive, negative).requires_grad  # weights are detached
    errors = f64(np.random.default_rng(0).normal(size=(9, 4)))
    u, earlier, previous = (torch.zeros(4).double() for _ in range(3))
    for i, error in enumerate(errors):
        increment, earlier, previous = fn.fedgrab_pid(error, earlier, previous, 10.0, 0.01, 0.1)
        u = u + increment
        last = errors[i - 1] if i else torch.zeros(4).double()
        same(u, 10.0 * error + 0.01 * errors[: i + 1].sum(0) + 0.1 * (error - last))  # the positional controller
    x = f64([-7.0, -0.3, 0.9, 30.0])
    same(fn.fedgrab_map(x), (10 / 9) / (1 / 9 + np.exp(-x.numpy() / 2)))
    assert fn.fedgrab_map(torch.tensor([-1e8, 1e8])).tolist() == pytest.approx([0.0, 10.0], abs=1e-30)


def test_controller_map_is_flat_far_to_the_left() -> None:
    for u in (-160.0, -161.0, -500.0):
        torch.testing.assert_close(fn.fedgrab_map(f64(u)), f64(10 / (1 + 9 * math.exp(80))), rtol=1e-9, atol=0)
    torch.testing.assert_close(fn.fedgrab_map(f64(-159.5)), f64(10 / (1 + 9 * math.exp(79.75))), rtol=1e-9, atol=0)


def test_weights_of_binary_cross_entropy_get_no_gradient() -> None:
    positive, negative = (torch.ones(4, dtype=torch.float64).requires_grad_() for _ in range(2))
    fn.weighted_bce(LOGITS[0].clone().requires_grad_(), LABELS[0], positive, negative).sum().backward()
    assert positive.grad is None and negative.grad is None
