"""Losses of the related methods against their cards' numbers, plain numpy, and finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedskew import functional as F
from support.paths import GOLDEN as VECTORS


def t(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def near(a: torch.Tensor, b: Any, tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(a.detach().numpy(), np.asarray(b), rtol=0, atol=tolerance)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.Generator(np.random.PCG64(seed)).normal(size=shape))


def test_importance_weights_are_the_cards() -> None:
    v = VECTORS["fedir"]
    counts = t(v["q_k"]) * 100
    weights = F.importance_weights(t(v["p"]), counts)
    near(weights, [*v["weights_present"], 0.0])
    losses, w = t(v["batch_losses"]), weights[torch.tensor(v["batch_labels"])]
    near((w * losses).sum() / w.sum(), v["self_normalised"], 1e-9)
    near((w * losses).mean(), v["unnormalised_mean"])
    near(F.importance_weights(t([0.2, 0.3, 0.5]), t([4, 6, 10])), [1, 1, 1])


def test_class_balanced_weights_are_the_cards() -> None:
    near(F.class_balanced_weights(torch.tensor([1, 2]), 0.9), [1.3103448276, 0.6896551724])
    near(F.class_balanced_weights(torch.tensor([1, 2, 0]), 0.9), [1.3103448276, 0.6896551724, 0.0])
    near(F.class_balanced_weights(torch.tensor([7, 500, 0, 3]), 0.0), [1, 1, 0, 1])
    n = np.array([3.0, 50_000.0, 17.0])
    raw = (1 - 0.9999) / (1 - 0.9999**n)
    near(F.class_balanced_weights(torch.tensor(n), 0.9999), raw * 3 / raw.sum(), 1e-9)
    assert torch.isfinite(F.class_balanced_weights(torch.zeros(4))).all()


def test_weighted_cross_entropy_weighs_the_row() -> None:
    z, y, w = draw(5, 3), torch.tensor([0, 2, 1, 1, 0]), t([0.5, 2.0, 3.0])
    near(F.weighted_cross_entropy(z, y, w), (w[y] * F.cross_entropy(z, y)).numpy())


def test_ldam_is_the_cards() -> None:
    margins = F.ldam_margins(torch.tensor([16.0, 1.0], dtype=torch.float64))
    near(margins, [0.25, 0.5])
    cosines = t([[0.2, 0.1], [0.2, 0.1]])
    logits = F.ldam_logits(cosines, torch.tensor([0, 1]), margins, 10.0)
    near(logits, [[-0.5, 1.0], [2.0, -4.0]])
    near(F.cross_entropy(logits, torch.tensor([0, 1])), [1.7014132779, 6.0024756851])
    near(F.ldam_margins(t([4.0, 0.0, 64.0]), 0.3), [0.3, 0.0, 0.3 * (4 / 64) ** 0.25])


def test_cosine_logits() -> None:
    f, w = draw(4, 3), draw(2, 3, seed=1)
    expected = [[a @ b / np.linalg.norm(a) / np.linalg.norm(b) for b in w.numpy()] for a in f.numpy()]
    near(F.cosine_logits(f, w), expected)
    assert torch.isfinite(F.cosine_logits(torch.zeros(2, 3), w.float())).all()


def test_balancefl_is_the_cards() -> None:
    v = VECTORS["balancefl"]
    z, g = t([v["logits"]]), t([v["teacher"]])
    positive = torch.zeros(4, dtype=torch.bool)
    positive[v["pos_classes"]] = True
    c, d, h = F.balancefl_terms(z, z, g, torch.tensor([v["label"]]), positive, v["T"])
    near(c, [v["loss_cls"]])
    near(d, [v["loss_kd_ce"]])
    near(h, [v["entropy_pos"]])
    near(c + d - 0.002 * h, [v["total_lambda1_code"]])


def test_balancefl_of_random_rows_and_its_gradient() -> None:
    z, a, g = draw(6, 5), draw(6, 5, seed=1), draw(6, 5, seed=2)
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
    c, d, h = F.balancefl_terms(z, a, g, y, positive, 1.5)
    near(c, expected_c)
    near(d, expected_d)
    near(h, -(p * np.log(p)).sum(1))
    leaf, lifted = z.clone().requires_grad_(), a.clone().requires_grad_()

    def total(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        c, d, h = F.balancefl_terms(x, w, g, y, positive, 1.5)
        return (c + 0.7 * d - 0.3 * h).sum()

    assert torch.autograd.gradcheck(total, (leaf, lifted))
    teacher = g.clone().requires_grad_()
    assert not F.balancefl_terms(z, a, teacher, y, positive)[1].requires_grad, "the teacher gets no gradient"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_balancefl_stays_finite_at_the_edges(dtype: torch.dtype) -> None:
    z = (draw(4, 3) * 1e4).to(dtype).requires_grad_()
    y = torch.tensor([0, 1, 2, 0])
    for positive in ([True, True, True], [True, False, False]):
        mask = torch.tensor(positive)
        terms = F.balancefl_terms(z, z, z.detach() * 0.5, y, mask)
        assert all(torch.isfinite(term).all() for term in terms)
        (grad,) = torch.autograd.grad(sum(term.sum() for term in terms), z)
        assert torch.isfinite(grad).all()
    c, _, h = F.balancefl_terms(z, z, z, torch.zeros(4, dtype=torch.int64), torch.tensor([True, False, False]))
    assert (c == 0).all() and (h == 0).all(), "one positive class: nothing to classify"
    assert (F.balancefl_terms(z, z, z, y, torch.tensor([True] * 3))[1] == 0).all(), "no negative class"


def test_the_root_gives_the_average_covariance_of_the_classes() -> None:
    f, y = draw(60, 4), torch.arange(60) % 3
    f = f + 5.0 * y.unsqueeze(1)  # the classes' means must not enter
    root = F.covariance_root(f, y, 5)
    expected = sum(
        len(rows) / 60 * np.cov(rows, rowvar=False, bias=True) for rows in (f[y == c].numpy() for c in range(3))
    )
    near(root @ root.T, expected, 1e-10)
    alone = F.covariance_root(f[:1], y[:1], 5)
    assert torch.isfinite(alone).all() and float(alone.abs().max()) < 1e-6


def test_creff_rows_and_head_gradients() -> None:
    f, w, b, y = draw(9, 3), draw(4, 3, seed=1), draw(4, seed=2), torch.tensor([0, 0, 1, 1, 1, 1, 3, 3, 3])
    u = torch.from_numpy(np.random.Generator(np.random.PCG64(3)).random(9))
    mask = F.rows_per_class(y, u, 2, 4)
    for c in range(4):
        rows = np.flatnonzero(y.numpy() == c)
        kept = set(rows[np.argsort(u.numpy()[rows])][:2].tolist())
        assert set(np.flatnonzero(mask.numpy() * (y.numpy() == c)).tolist()) == kept
    got = F.creff_head_gradients(f, w, b, y, mask)
    for c in range(4):
        chosen = (mask > 0) & (y == c)
        leaf = w.clone().requires_grad_()
        if chosen.any():
            loss = torch.nn.functional.cross_entropy(f[chosen] @ leaf.T + b, y[chosen])
            near(got[c], torch.autograd.grad(loss, leaf)[0].numpy())
        else:
            assert (got[c] == 0).all()


def test_creff_features_and_head_learn() -> None:
    real = F.creff_head_gradients(draw(12, 3), draw(2, 3, seed=1), None, torch.arange(12) % 2, torch.ones(12).double())
    weight, start = draw(2, 3, seed=1), draw(2, 5, 3, seed=4)
    present = torch.ones(2)

    def distance(s: torch.Tensor) -> float:
        labels = torch.arange(2).repeat_interleave(5)
        g = F.creff_head_gradients(s.flatten(0, 1), weight, None, labels, torch.ones(10).double())
        return float(F.creff_match(g, real, present))

    after = F.creff_synthesize(start, weight, None, real, present, 60, 0.1)
    assert distance(after) < 0.5 * distance(start)
    w, b = F.creff_head(after, weight, torch.zeros(2, dtype=torch.float64), 200, 0.5)
    labels = torch.arange(2).repeat_interleave(5)
    features = after.flatten(0, 1)
    before = F.cross_entropy(features @ weight.T, labels).mean()
    assert b is not None and float(F.cross_entropy(features @ w.T + b, labels).mean()) < float(before)
    assert F.creff_head(after, weight, None, 1, 0.1)[1] is None
