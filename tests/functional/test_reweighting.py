"""Class weights, LDAM and BalanceFL: the cards' numbers, plain numpy, finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedskew.functional as fn
from support.batches import COUNTS, FEATURES, LABELS, LOGITS, WEIGHT
from support.paths import GOLDEN
from support.tensors import close, draws, f64, near


def test_importance_weights_are_the_cards() -> None:
    v = GOLDEN["fedir"]
    counts = f64(v["q_k"]) * 100
    weights = fn.importance_weights(f64(v["p"]), counts)
    near(weights, [*v["weights_present"], 0.0])
    losses, w = f64(v["batch_losses"]), weights[torch.tensor(v["batch_labels"])]
    near((w * losses).sum() / w.sum(), v["self_normalised"], 1e-9)
    near((w * losses).mean(), v["unnormalised_mean"])
    near(fn.importance_weights(f64([0.2, 0.3, 0.5]), f64([4, 6, 10])), [1, 1, 1])


def test_importance_weights() -> None:
    close(fn.importance_weights(f64([0.5, 0.3, 0.2]), f64([4, 0, 1])), [0.625, 0, 1])
    close(fn.importance_weights(f64([0.5, 0.3, 0.2]), torch.tensor([0, 0, 0])), [0, 0, 0])


def test_class_balanced_weights_are_the_cards() -> None:
    near(fn.class_balanced_weights(torch.tensor([1, 2]), 0.9), [1.3103448276, 0.6896551724])
    near(fn.class_balanced_weights(torch.tensor([1, 2, 0]), 0.9), [1.3103448276, 0.6896551724, 0.0])
    near(fn.class_balanced_weights(torch.tensor([7, 500, 0, 3]), 0.0), [1, 1, 0, 1])
    n = np.array([3.0, 50_000.0, 17.0])
    raw = (1 - 0.9999) / (1 - 0.9999**n)
    near(fn.class_balanced_weights(torch.tensor(n), 0.9999), raw * 3 / raw.sum(), 1e-9)
    assert torch.isfinite(fn.class_balanced_weights(torch.zeros(4))).all()


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9999])
def test_class_balanced_weights(beta: float) -> None:
    n = np.array([3.0, 0.0, 1.0, 200.0])
    raw = np.array([(1 - beta) / (1 - beta**c) if c else 0.0 for c in n])
    close(fn.class_balanced_weights(f64(n), beta), 3 * raw / raw.sum())
    close(fn.class_balanced_weights(torch.zeros(4), beta), [0, 0, 0, 0])


def test_weighted_cross_entropy_weighs_the_row() -> None:
    z, y, w = draws(5, 3), torch.tensor([0, 2, 1, 1, 0]), f64([0.5, 2.0, 3.0])
    near(fn.weighted_cross_entropy(z, y, w), (w[y] * fn.cross_entropy(z, y)).numpy())


def test_ldam_is_the_cards() -> None:
    margins = fn.ldam_margins(torch.tensor([16.0, 1.0], dtype=torch.float64))
    near(margins, [0.25, 0.5])
    cosines = f64([[0.2, 0.1], [0.2, 0.1]])
    logits = fn.ldam_logits(cosines, torch.tensor([0, 1]), margins, 10.0)
    near(logits, [[-0.5, 1.0], [2.0, -4.0]])
    near(fn.cross_entropy(logits, torch.tensor([0, 1])), [1.7014132779, 6.0024756851])
    near(fn.ldam_margins(f64([4.0, 0.0, 64.0]), 0.3), [0.3, 0.0, 0.3 * (4 / 64) ** 0.25])


def test_ldam_margins_and_logits() -> None:
    n = np.array([4.0, 64.0, 9.0])
    margins = 0.7 * (4 / n) ** 0.25
    close(fn.ldam_margins(f64(n), 0.7), margins)
    z = draws(2, 3)
    want = 12 * (z.numpy() - np.array([[0, margins[1], 0], [margins[0], 0, 0]]))
    close(fn.ldam_logits(z, torch.tensor([1, 0]), f64(margins), 12.0), want)
    close(fn.ldam_logits(z, torch.tensor([1, 0]), f64(margins)), want * 30 / 12)


def test_cosine_logits_forget_the_lengths() -> None:
    f, w = draws(4, 3), draws(2, 3, seed=1)
    expected = [[a @ b / np.linalg.norm(a) / np.linalg.norm(b) for b in w.numpy()] for a in f.numpy()]
    near(fn.cosine_logits(f, w), expected)
    assert torch.isfinite(fn.cosine_logits(torch.zeros(2, 3), w.float())).all()


def test_cosine_logits() -> None:
    f, w = FEATURES[0].numpy(), WEIGHT[0].numpy()
    want = f @ w.T / np.linalg.norm(f, axis=1)[:, None] / np.linalg.norm(w, axis=1)
    close(fn.cosine_logits(FEATURES[0], WEIGHT[0]), want)


# BalanceFL


def test_balancefl_is_the_cards() -> None:
    v = GOLDEN["balancefl"]
    z, g = f64([v["logits"]]), f64([v["teacher"]])
    positive = torch.zeros(4, dtype=torch.bool)
    positive[v["pos_classes"]] = True
    c, d, h = fn.balancefl_terms(z, z, g, torch.tensor([v["label"]]), positive, v["T"])
    near(c, [v["loss_cls"]])
    near(d, [v["loss_kd_ce"]])
    near(h, [v["entropy_pos"]])
    near(c + d - 0.002 * h, [v["total_lambda1_code"]])


def test_balancefl_of_random_rows_and_its_gradient() -> None:
    z, a, g = draws(6, 5), draws(6, 5, seed=1), draws(6, 5, seed=2)
    positive = torch.tensor([True, False, True, True, False])
    y = torch.tensor([0, 2, 3, 0, 2, 3])

    def softmax(x: np.ndarray) -> np.ndarray:
        e = np.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    pos, neg = positive.numpy(), ~positive.numpy()
    place = {0: 0, 2: 1, 3: 2}
    expected_c = -np.log(softmax(a.numpy()[:, pos])[range(6), [place[int(i)] for i in y]])
    expected_d = -(softmax(g.numpy()[:, neg] / 1.5) * np.log(softmax(z.numpy()[:, neg] / 1.5))).sum(1)
    p = softmax(z.numpy()[:, pos])
    c, d, h = fn.balancefl_terms(z, a, g, y, positive, 1.5)
    near(c, expected_c)
    near(d, expected_d)
    near(h, -(p * np.log(p)).sum(1))
    leaf, lifted = z.clone().requires_grad_(), a.clone().requires_grad_()

    def total(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        c, d, h = fn.balancefl_terms(x, w, g, y, positive, 1.5)
        return (c + 0.7 * d - 0.3 * h).sum()

    assert torch.autograd.gradcheck(total, (leaf, lifted))
    teacher = g.clone().requires_grad_()
    assert not fn.balancefl_terms(z, a, teacher, y, positive)[1].requires_grad, "the teacher gets no gradient"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_balancefl_stays_finite_at_the_edges(dtype: torch.dtype) -> None:
    z = (draws(4, 3) * 1e4).to(dtype).requires_grad_()
    y = torch.tensor([0, 1, 2, 0])
    for positive in ([True, True, True], [True, False, False]):
        mask = torch.tensor(positive)
        terms = fn.balancefl_terms(z, z, z.detach() * 0.5, y, mask)
        assert all(torch.isfinite(term).all() for term in terms)
        (grad,) = torch.autograd.grad(sum(term.sum() for term in terms), z)
        assert torch.isfinite(grad).all()
    c, _, h = fn.balancefl_terms(z, z, z, torch.zeros(4, dtype=torch.int64), torch.tensor([True, False, False]))
    assert (c == 0).all() and (h == 0).all(), "one positive class: nothing to classify"
    assert (fn.balancefl_terms(z, z, z, y, torch.tensor([True] * 3))[1] == 0).all(), "no negative class"


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


def test_the_root_gives_the_average_covariance_of_the_classes() -> None:
    f, y = draws(60, 4), torch.arange(60) % 3
    f = f + 5.0 * y.unsqueeze(1)  # the classes' means must not enter
    root = fn.covariance_root(f, y, 5)
    expected = sum(
        len(rows) / 60 * np.cov(rows, rowvar=False, bias=True) for rows in (f[y == c].numpy() for c in range(3))
    )
    near(root @ root.T, expected, 1e-10)
    alone = fn.covariance_root(f[:1], y[:1], 5)
    assert torch.isfinite(alone).all() and float(alone.abs().max()) < 1e-6


def test_the_root_gives_the_covariance_within_classes() -> None:
    x, y = FEATURES[0], torch.tensor([0, 2, 2, 0, 2])
    within = sum(np.cov(x[y == c].numpy(), rowvar=False, bias=True) * int((y == c).sum()) for c in (0, 2)) / 5
    root = fn.covariance_root(x, y, 4)
    close(root @ root.T, within)
    nothing = fn.covariance_root(x[:0], y[:0], 4)
    assert (nothing.diagonal() > 0).all()  # lifted from singular
    close(nothing, np.zeros((6, 6)))
