"""What planted faults showed to be untested in the functional room: scales, boundaries, stacks, stopped gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fedskew.functional as fn
from fedskew.errors import ConfigError

torch.set_num_threads(1)


def f64(x: object) -> Tensor:
    return torch.as_tensor(np.asarray(x, dtype=np.float64))


def close(got: Tensor, want: object, atol: float = 1e-12) -> None:
    torch.testing.assert_close(got.double(), want if isinstance(want, Tensor) else f64(want), rtol=1e-12, atol=atol)


def draws(*shape: int, seed: int = 0) -> Tensor:
    return f64(np.random.default_rng(seed).normal(size=shape))


COUNTS = f64([[7, 2, 40, 3], [90, 11, 0, 12], [1, 1, 1, 250]])  # [G, C], no two rows alike
LABELS = torch.tensor([[0, 2, 1, 3, 2], [1, 0, 3, 0, 1], [3, 3, 2, 0, 1]])  # [G, B], never an absent class
LOGITS, FEATURES, WEIGHT = draws(3, 5, 4), draws(3, 5, 6, seed=1), draws(3, 4, 6, seed=2)
MASK = f64([[1, 1, 1, 0, 1], [1, 0, 1, 1, 1], [1, 1, 1, 1, 0]])
PRIOR = f64([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0.25, 0.15, 0.5, 0.1]])
DUALS = draws(3, 4, seed=3).abs()

Stacked = tuple[Callable[..., Tensor], tuple[Tensor, ...]]
STACKS: dict[str, Stacked] = {
    "imbalance gap": (fn.imbalance_gap, (COUNTS,)),
    "gamma": (fn.fedgr_gamma, (COUNTS,)),
    "gamma, raw": (lambda n: fn.fedgr_gamma(n, "raw"), (COUNTS,)),
    "gamma, code": (lambda n: fn.fedgr_gamma(n, missing="code"), (COUNTS,)),
    "fedrs": (fn.fedrs_scale, (COUNTS,)),
    "fedrs, code": (lambda n: fn.fedrs_scale(n, scaling="code"), (COUNTS,)),
    "importance": (fn.importance_weights, (PRIOR, COUNTS)),
    "class-balanced": (lambda n: fn.class_balanced_weights(n, 0.9), (COUNTS,)),
    "margins": (fn.ldam_margins, (COUNTS,)),
    "astraea": (lambda n: fn.astraea_copies(n, 0.5), (COUNTS,)),
    "oversampling": (lambda n: fn.oversample_target(n, 0.1, 2).double(), (COUNTS,)),
    "divergence": (fn.kl_to_uniform, (COUNTS,)),
    "size": (fn.size_weights, (COUNTS,)),
    "balancer": (lambda v: fn.aggregation_balancer_weights(v, 0.5), (DUALS,)),
    "nova": (fn.fednova_weights, (PRIOR, COUNTS + 1)),
    "climb": (fn.climb_weights, (DUALS,)),
    "dual step": (lambda d, f: fn.climb_dual_step(d, f, 3.0, 0.1), (DUALS, COUNTS)),
    "label aware": (lambda n: fn.label_aware_weights(torch.stack([n, n.flip(-1) ** 2 + 1], -2)), (COUNTS,)),
    "binary targets": (fn.fedga_binary_targets, (LOGITS[:, 0, 0], LABELS[:, 0] % 2, COUNTS[:, :2])),
    "ratio loss": (fn.ratio_loss, (LOGITS, LABELS, PRIOR)),
    "ratio loss, mean weight": (
        lambda z, y, w, mask: fn.ratio_loss(z, y, w, True, mask), (LOGITS, LABELS, PRIOR, MASK),
    ),
    "weighted cross-entropy": (fn.weighted_cross_entropy, (LOGITS, LABELS, PRIOR)),
    "cosines": (fn.cosine_logits, (FEATURES, WEIGHT)),
    "adjusted": (lambda z, y, n: fn.logit_adjusted_loss(z, y, n), (LOGITS[:, 0], LABELS[:, 0], COUNTS)),
    "balancefl": (
        lambda z, a, t, y: torch.stack(fn.balancefl_terms(z, a, t, y, COUNTS[0] > 5)),
        (LOGITS, LOGITS + 1, draws(3, 5, 4, seed=4), torch.zeros_like(LABELS)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STACKS)
def test_a_stack_is_treated_row_by_row(name: str) -> None:
    f, args = STACKS[name]
    together, alone = f(*args), [f(*(a[g] for a in args)) for g in range(3)]
    close(together, torch.stack(alone, dim=1 if name == "balancefl" else 0))


# Counts, scales and margins


def test_the_gap_is_measured_between_the_extremes() -> None:
    close(fn.imbalance_gap(f64([10, 100, 1000])), [1, 0.5, 0])  # nobody has a single sample here


def test_a_single_sample_is_a_sample() -> None:
    close(fn.size_weights(f64([1, 0])), [1, 0])
    close(fn.size_weights(f64([0.2, 0.3])), [0.4, 0.6])
    close(fn.size_weights(torch.zeros(3, 4, dtype=torch.float64)), np.full((3, 4), 0.25))
    close(fn.astraea_copies(f64([1, 15, 8]), 1.0), [8, 1, 1])
    close(fn.ldam_margins(f64([1, 16, 0, 81])), [0.5, 0.25, 0, 0.5 / 3])


def test_importance_weights() -> None:
    close(fn.importance_weights(f64([0.5, 0.3, 0.2]), f64([4, 0, 1])), [0.625, 0, 1])
    close(fn.importance_weights(f64([0.5, 0.3, 0.2]), torch.tensor([0, 0, 0])), [0, 0, 0])


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9999])
def test_class_balanced_weights(beta: float) -> None:
    n = np.array([3.0, 0.0, 1.0, 200.0])
    raw = np.array([(1 - beta) / (1 - beta**c) if c else 0.0 for c in n])
    close(fn.class_balanced_weights(f64(n), beta), 3 * raw / raw.sum())
    close(fn.class_balanced_weights(torch.zeros(4), beta), [0, 0, 0, 0])


def test_ldam_margins_and_logits() -> None:
    n = np.array([4.0, 64.0, 9.0])
    margins = 0.7 * (4 / n) ** 0.25
    close(fn.ldam_margins(f64(n), 0.7), margins)
    z = draws(2, 3)
    want = 12 * (z.numpy() - np.array([[0, margins[1], 0], [margins[0], 0, 0]]))
    close(fn.ldam_logits(z, torch.tensor([1, 0]), f64(margins), 12.0), want)
    close(fn.ldam_logits(z, torch.tensor([1, 0]), f64(margins)), want * 30 / 12)


def test_cosine_logits() -> None:
    f, w = FEATURES[0].numpy(), WEIGHT[0].numpy()
    want = f @ w.T / np.linalg.norm(f, axis=1)[:, None] / np.linalg.norm(w, axis=1)
    close(fn.cosine_logits(FEATURES[0], WEIGHT[0]), want)


def test_controller_map_is_flat_far_to_the_left() -> None:
    for u in (-160.0, -161.0, -500.0):
        torch.testing.assert_close(fn.fedgrab_map(f64(u)), f64(10 / (1 + 9 * math.exp(80))), rtol=1e-9, atol=0)
    torch.testing.assert_close(fn.fedgrab_map(f64(-159.5)), f64(10 / (1 + 9 * math.exp(79.75))), rtol=1e-9, atol=0)


# Features and distillation of BalanceFL


def test_the_root_gives_the_covariance_within_classes() -> None:
    x, y = FEATURES[0], torch.tensor([0, 2, 2, 0, 2])
    within = sum(np.cov(x[y == c].numpy(), rowvar=False, bias=True) * int((y == c).sum()) for c in (0, 2)) / 5
    root = fn.covariance_root(x, y, 4)
    close(root @ root.T, within)
    nothing = fn.covariance_root(x[:0], y[:0], 4)
    assert (nothing.diagonal() > 0).all()  # lifted from singular
    close(nothing, np.zeros((6, 6)))


def test_distillation_of_the_absent_classes_by_hand() -> None:
    z, teacher = f64([[2.0, 1, 0, -1]]), f64([[1.0, 1, 2, 0]])
    positive = torch.tensor([True, True, False, False])
    terms = fn.balancefl_terms(z, z, teacher, torch.tensor([0]), positive)
    for got, want in zip(terms, (0.3132616875, 0.6085476949, 0.5822031089), strict=True):
        close(got, [want], atol=2e-10)


def test_the_teacher_of_balancefl_gets_no_gradient() -> None:
    teacher = draws(5, 4).requires_grad_()
    terms = fn.balancefl_terms(LOGITS[0].clone().requires_grad_(), LOGITS[0], teacher, LABELS[0], COUNTS[0] > 5)
    torch.stack(terms).sum().backward()
    assert teacher.grad is None


# Gradients that must stop


def test_fedga_binary_targets_are_constants() -> None:
    z = draws(3).requires_grad_()
    assert not fn.fedga_binary_targets(z, torch.tensor([0, 1, 0]), f64([5, 2])).requires_grad


def test_weights_of_binary_cross_entropy_get_no_gradient() -> None:
    positive, negative = (torch.ones(4, dtype=torch.float64).requires_grad_() for _ in range(2))
    fn.weighted_bce(LOGITS[0].clone().requires_grad_(), LABELS[0], positive, negative).sum().backward()
    assert positive.grad is None and negative.grad is None


def test_fedga_keeps_small_probabilities_beside_very_different_logits() -> None:
    z, y, n = f64([[-10000.0, 3.0, 2.0]]), torch.tensor([0]), f64([5, 2, 1])
    exact = fn.fedga_targets(z, y, n)
    torch.testing.assert_close(fn.fedga_targets(z.float(), y, n.float()).double(), exact, rtol=1e-6, atol=0)


# CReFF


def test_at_most_so_many_rows_of_a_class_those_drawn_first() -> None:
    labels = torch.tensor([1, 0, 1, 3, 1, 0, 1, 3])
    order = torch.tensor([0.5, 0.9, 0.1, 0.3, 0.7, 0.2, 0.6, 0.4])
    want = {1: [2, 3, 5], 2: [0, 1, 2, 3, 5, 7], 3: [0, 1, 2, 3, 5, 6, 7], 4: range(8), 9: range(8)}
    for most, rows in want.items():
        mask = fn.rows_per_class(labels, order, most, 4)
        assert mask.nonzero().squeeze(1).tolist() == list(rows)


@pytest.mark.parametrize("bias", [True, False])
def test_creff_leaves_its_arguments_alone_and_returns_constants(bias: bool) -> None:
    synthetic, weight, real = draws(3, 2, 4), draws(3, 4, seed=1), draws(3, 3, 4, seed=2)
    b = draws(3, seed=3) if bias else None
    made = fn.creff_synthesize(synthetic, weight, b, real, torch.ones(3), 2, 0.1)
    head, offset = fn.creff_head(synthetic, weight, b, 2, 0.1)
    tracked = [t.clone().requires_grad_() if t is not None else None for t in (weight, b, synthetic)]
    assert not any(t is not None and t.requires_grad for t in (synthetic, weight, b, made, head, offset))
    assert (offset is not None) == bias
    still = [fn.creff_synthesize(tracked[2], weight, b, real, torch.ones(3), 0, 0.1)]
    still += [t for t in fn.creff_head(synthetic, tracked[0], tracked[1], 0, 0.1) if t is not None]
    assert not any(t.requires_grad for t in still)


# Ratio loss


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


# Local and server steps


def test_per_fedavg_takes_each_gradient_on_its_own_batch() -> None:
    asked: list[str] = []

    def gradient(params: dict[str, Tensor], batch: Any) -> dict[str, Tensor]:
        asked.append(batch)
        return {"w": {"a": 1.0, "b": 10.0, "c": 100.0}[batch] * params["w"]}

    w = {"w": f64(1.0)}
    close(fn.per_fedavg_step(w, gradient, ("a", "b"), 0.1, 0.01)["w"], 1 - 0.01 * 10 * 0.9)
    assert asked == ["a", "b"]
    free = fn.per_fedavg_step(w, gradient, ("a", "b", "c"), 0.1, 0.01, delta=0.5)["w"]
    close(free, 1 - 0.01 * (9 - 0.1 * 100 * 9))  # the difference is the curvature of c, 100, times g = 9
    assert asked[2:] == ["a", "b", "c", "c"]
    for batches, delta in ((("a",), None), (("a", "b"), 0.5)):
        with pytest.raises(ConfigError, match=r"^batches must hold \d mini-batches a step; got \d$"):
            fn.per_fedavg_step(w, gradient, batches, 0.1, 0.01, delta)


@pytest.mark.parametrize("update", [fn.adagrad_update, fn.adam_update, fn.yogi_update])
def test_corrections_begin_with_the_first_step(update: Callable[..., Any]) -> None:
    x, delta, zero = ({"w": draws(4, seed=s)} for s in range(3))
    args = (x, delta, zero, {"w": zero["w"].abs()}, 0.1, 0.9, 0.99, 1e-3)
    close(update(*args, bias_correction=True)[0]["w"], update(*args, step=1, bias_correction=True)[0]["w"])


# Selection


def test_targets_are_exact_for_a_decay_that_is_a_plain_number() -> None:
    """exp in single precision would sometimes round to another number of copies."""
    mean = torch.arange(1, 300_000, dtype=torch.float64)
    factor = torch.exp(-torch.tensor([0.1 * 3], dtype=torch.float32)).double()
    exact = torch.ceil(mean * math.exp(-0.1 * 3)).long()
    assert not torch.equal(exact, torch.ceil(mean * factor).long())  # or the test could not fail
    counts = torch.stack([torch.ones_like(mean), 2 * mean - 1], -1)
    assert torch.equal(fn.oversample_target(counts, 0.1, 3)[:, 0], exact)


def test_divergence_is_never_negative() -> None:
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


# Variants that other authors' code runs


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
