"""Fitted biases and a temperature: an oracle of numpy and scipy, finite differences, and what must not matter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax
from torch import Tensor

from fedskew.functional import (
    even_weights,
    fit_by_sums,
    fit_logits,
    fitted_logits,
    logit_sums,
    prior_biases,
)


def rows(seed: int, classes: int = 4, n: int = 200, missing: bool = False) -> tuple[Tensor, Tensor]:
    """Logits that lean to the first classes, and labels; with ``missing`` the last class has no row."""
    g = np.random.default_rng(seed)
    y = g.integers(0, classes - missing, n)
    z = 1.5 * g.normal(size=(n, classes)) + 2 * np.eye(classes)[y] + np.linspace(2, -2, classes)
    return torch.from_numpy(z), torch.from_numpy(y)


def mean_loss(x: np.ndarray, z: np.ndarray, y: np.ndarray, w: np.ndarray, ridge: float) -> float:
    """The objective as the docstring writes it."""
    b, a = x[:-1], x[-1]
    losses = -log_softmax(a * z + b, axis=1)[np.arange(len(y)), y]
    return float((w * losses).sum() / w.sum() + ridge / 2 * ((b * b).sum() + (a - 1) ** 2))


@pytest.mark.parametrize("even", [False, True], ids=["prior", "balanced"])
@pytest.mark.parametrize("missing", [False, True], ids=["whole", "a class missing"])
@pytest.mark.parametrize("classes", [2, 5])
def test_the_fit_is_the_least_of_the_objective(classes: int, missing: bool, even: bool) -> None:
    z, y = rows(classes, classes, missing=missing)
    w = even_weights(torch.bincount(y, minlength=classes))[y] if even else torch.ones(len(y))
    b, a = fit_logits(z, y, w, ridge=1e-3)
    options = {"gtol": 1e-10, "maxiter": 5000}
    start = np.array([0.0] * classes + [1.0])
    told = minimize(mean_loss, start, (z.numpy(), y.numpy(), w.double().numpy(), 1e-3), "BFGS", options=options)
    assert np.abs(torch.cat([b, a[None]]).numpy() - told.x).max() < 1e-5
    assert abs(float(b.sum())) < 1e-9 and a > 0 and bool(b.isfinite().all())


def test_gradient_and_hessian_are_finite_differences() -> None:
    z, y = rows(1)
    w, x, h = (
        torch.rand(len(y), generator=torch.Generator().manual_seed(0)),
        torch.tensor([0.3, -0.2, 0.1, -0.2, 0.7]),
        1e-5,
    )
    x = x.double()
    _, gradient, hessian = logit_sums(z, y, w, x)
    for i in range(5):
        step = torch.zeros(5, dtype=torch.float64)
        step[i] = h
        above, below = logit_sums(z, y, w, x + step), logit_sums(z, y, w, x - step)
        assert abs(float((above[0] - below[0]) / (2 * h) - gradient[i])) < 1e-5
        assert float(((above[1] - below[1]) / (2 * h) - hessian[i]).abs().max()) < 1e-5


def test_sums_of_clients_are_the_sums_of_their_rows_together() -> None:
    z, y = rows(2)
    w, x = torch.ones(len(y)), torch.tensor([0.5, 0.0, -0.5, 0.0, 1.2])
    whole = logit_sums(z, y, w, x)
    cuts = [slice(0, 3), slice(3, 3), slice(3, 150), slice(150, 200)]  # the second client has no rows
    parts = [logit_sums(z[c], y[c], w[c], x) for c in cuts]
    for k in range(3):
        assert torch.allclose(sum(part[k] for part in parts), whole[k], rtol=1e-12, atol=1e-12)  # type: ignore[arg-type]


@given(st.integers(0, 1000), st.floats(0.2, 5.0), st.permutations(range(4)))
def test_what_must_not_matter(seed: int, scale: float, order: list[int]) -> None:
    z, y = rows(seed, n=120)
    b, a = fit_logits(z, y)
    shifted = fit_logits(z + 100 * torch.randn(len(y), 1, generator=torch.Generator().manual_seed(seed)), y)
    assert torch.allclose(shifted[0], b, atol=1e-6) and torch.allclose(shifted[1], a, atol=1e-6)
    at = torch.tensor(order)
    moved = fit_logits(z[:, at], torch.argsort(at)[y])
    assert torch.allclose(moved[0], b[at], atol=1e-6) and torch.allclose(moved[1], a, atol=1e-6)
    plain, scaled = fit_logits(z, y, ridge=1e-9), fit_logits(scale * z, y, ridge=1e-9)  # the ridge knows a scale
    assert torch.allclose(scaled[1], plain[1] / scale, rtol=1e-4) and torch.allclose(scaled[0], plain[0], atol=1e-4)


def test_for_two_classes_the_bias_is_a_threshold() -> None:
    z, y = rows(3, classes=2)
    b, a = fit_logits(z, y)
    above = a * (z[:, 1] - z[:, 0]) > b[0] - b[1]
    assert torch.equal(fitted_logits(z, b, a).argmax(1) == 1, above) and float(b[0]) != 0


def test_biases_alone_and_a_temperature_alone() -> None:
    z, y = rows(4)
    b, a = fit_logits(z, y, temperature=False)
    assert float(a) == 1 and float(b.abs().max()) > 0.1
    c, d = fit_logits(z, y, biases=False)
    assert not bool(c.any()) and abs(float(d) - 1) > 0.01
    assert torch.equal(fitted_logits(z, c, d).argmax(1), z.argmax(1)), "a temperature moves no prediction"


def test_biases_of_the_histogram_and_even_weights() -> None:
    assert even_weights(torch.tensor([6, 2, 0, 4])).tolist() == [0.5, 1.5, 0.0, 0.75]
    counts = torch.tensor([100, 10, 0, 1])
    assert torch.allclose(
        prior_biases(counts) - prior_biases(counts)[0], torch.tensor([1, 10, 100, 100]).double().log()
    )
    weights = even_weights(counts)
    assert torch.allclose(weights * counts, torch.tensor([111 / 4, 111 / 4, 0, 111 / 4]).double())


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_extreme_logits_end_in_finite_biases(scale: float) -> None:
    z, y = rows(5)
    asked = []

    def ask(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        asked.append(x)
        return logit_sums(scale * z, y, torch.ones(len(y)), x)

    x, exchanges, converged = fit_by_sums(ask, float(len(y)), torch.ones(5, dtype=torch.bool))
    assert converged and exchanges == len(asked) <= 50 and bool(x.isfinite().all()) and x[-1] > 0
    assert all(point[-1] > 0 for point in asked)


def test_logits_of_the_wrong_way_round_are_left_out() -> None:
    z, y = rows(8)
    b, a = fit_logits(-5 * z, y)
    assert float(a) == pytest.approx(1e-5)
    shares = torch.bincount(y, minlength=4).double() / len(y)
    assert torch.allclose(b.softmax(0), shares, atol=0.1), "biases of the prior are left"
    x, exchanges, converged = fit_by_sums(
        lambda x: logit_sums(-5 * z, y, torch.ones(len(y)), x), float(len(y)), torch.ones(5, dtype=torch.bool)
    )
    assert converged and exchanges < 15
    held = mean_loss(x.numpy(), -5 * z.numpy(), y.numpy(), np.ones(len(y)), 1e-4)
    for i in range(4):  # no other bias is better at this temperature
        step = torch.zeros(5, dtype=torch.float64)
        step[i] = 0.01
        assert all(
            mean_loss((x + s * step).numpy(), -5 * z.numpy(), y.numpy(), np.ones(len(y)), 1e-4) > held for s in (1, -1)
        )


def test_another_fit_of_the_model_is_a_shorter_way() -> None:
    z, y = rows(6)
    free, total = torch.ones(5, dtype=torch.bool), float(len(y))
    ask = lambda x: logit_sums(z, y, torch.ones(len(y)), x)
    x, exchanges, _ = fit_by_sums(ask, total, free)
    again, fewer, _ = fit_by_sums(ask, total, free, start=x)
    assert fewer == 1 < exchanges and torch.allclose(again, x, atol=1e-7)


def test_too_few_exchanges_are_told() -> None:
    z, y = rows(7)
    ask = lambda x: logit_sums(z, y, torch.ones(len(y)), x)
    x, exchanges, converged = fit_by_sums(ask, float(len(y)), torch.ones(5, dtype=torch.bool), most=1)
    assert (exchanges, converged) == (1, False) and x.tolist() == [0, 0, 0, 0, 1]
