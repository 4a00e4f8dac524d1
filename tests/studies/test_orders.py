"""Kendall's tau-b between settings: the value against scipy's, its interval, and what is left out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau

import fedskew as fs
from fedskew import rng
from fedskew.studies.scores import Scores
from support.scripts import script

orders = script("scripts/orders.py")
agreement, tau_b = orders.agreement, orders.tau_b

GEN = rng.generator(0, "orders")


def scores(first: np.ndarray, second: np.ndarray, **options: bool) -> Scores:
    """Scores [M, K] under "natural" and "made"."""
    names, seeds = tuple(f"m{i}" for i in range(len(first))), tuple(range(first.shape[1]))
    return Scores("accuracy", names, ("natural", "made"), seeds, np.stack([first, second], 1), **options)


@pytest.mark.parametrize("ties", [False, True])
def test_tau_b_is_scipy_s(ties: bool) -> None:
    for m in (3, 7, 12):
        a, b = GEN.integers(0, 4, (2, m)).astype(float) if ties else GEN.normal(size=(2, m))
        want = kendalltau(a, b).statistic
        assert float(tau_b(a, b)) == pytest.approx(0.0 if np.isnan(want) else want, abs=1e-12)
    assert tau_b(np.ones(4), np.arange(4.0)) == 0
    many = GEN.normal(size=(5, 6))
    assert np.allclose(tau_b(many, many[::-1]), [tau_b(x, y) for x, y in zip(many, many[::-1], strict=True)])


def test_one_order_reversed_orders_and_rounding() -> None:
    steps = np.arange(8.0)[:, None] + GEN.normal(size=(8, 6)) * 0.01
    same, reverse = (
        agreement(scores(steps, steps + 0.1), "natural", "made"),
        agreement(scores(steps, -steps), "natural", "made"),
    )
    assert (same.tau, same.low, same.high, same.itself) == (1, 1, 1, 1)
    assert (reverse.tau, reverse.low, reverse.high, reverse.itself) == (-1, -1, -1, 1)
    lower = agreement(scores(steps, steps, higher_is_better=False), "natural", "made")
    assert lower.tau == 1
    assert tau_b(np.array([0.1 + 0.2, 0.3, 0.5]), np.array([0.3, 0.3, 0.5])) == 1  # a tie but for rounding


def test_noise_widens_the_interval_and_lowers_the_ceiling() -> None:
    steps = np.linspace(0, 1, 10)[:, None]
    quiet, loud = (
        agreement(scores(steps + s * GEN.normal(size=(10, 5)), steps + s * GEN.normal(size=(10, 5))), "natural", "made")
        for s in (0.02, 0.5)
    )
    assert quiet.tau > loud.tau and quiet.itself > loud.itself  # type: ignore[operator]
    assert quiet.high - quiet.low < loud.high - loud.low  # type: ignore[operator]
    assert loud.low <= loud.tau <= loud.high + 0.3  # type: ignore[operator]


def test_the_interval_covers_the_order_of_the_means() -> None:
    """Of 60 studies with ten seeds the 95 % interval holds the tau without noise in most."""
    truth, other = np.linspace(0, 1, 8), np.linspace(0, 1, 8)[[1, 0, 2, 4, 3, 5, 7, 6]]
    want = float(tau_b(truth, other))
    held = 0
    for _ in range(60):
        parts = [v[:, None] + 0.1 * GEN.normal(size=(8, 10)) for v in (truth, other)]
        found = agreement(scores(*parts), "natural", "made", resamples=500)
        held += found.low <= want <= found.high  # type: ignore[operator]
    assert held >= 52


def test_missing_runs_leave_methods_and_seeds_out() -> None:
    first, second = GEN.normal(size=(2, 5, 4))
    first[0], second[1, 2] = np.nan, np.nan
    found = agreement(scores(first, second), "natural", "made", resamples=100)
    assert found.methods == ("m1", "m2", "m3", "m4") and found.seeds == (0, 1, 3)
    kept = [0, 1, 3]
    assert found.tau == pytest.approx(kendalltau(first[1:, kept].mean(1), second[1:, kept].mean(1)).statistic)
    single = agreement(scores(first[1:, :1], second[1:, :1]), "natural", "made")
    assert single.low is None and single.itself is None
    with pytest.raises(fs.ConfigError, match="have runs of 3 methods under both settings; got 2"):
        agreement(scores(first[:3], second[:3]), "natural", "made")
    with pytest.raises(fs.ConfigError, match="unknown setting 'maed'; did you mean 'made'"):
        agreement(scores(first, second), "natural", "maed")
