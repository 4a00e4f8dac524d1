"""An attack measures a lower bound of epsilon: it stays below what the accountant says, and not without the noise.

Each canary is in the training data or not, by a coin. Its gradient has a direction of its own, so that the last model
shows how far it went there. The attack guesses that the canaries that went farthest are in, and those that went least
are not: one run audits all of them.

Source: Steinke, Nasr and Jagielski 2023, theorem 5.2, https://arxiv.org/abs/2305.08846
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom

import fedskew as fs
from fedskew import noise
from fedskew.data.federation import Federation
from support.federations import Owners
from support.runs import go

DELTA = 1e-5
FAR = 8.0  # length of a canary, beside which the bias counts little


def lower_bound(canaries: int, guesses: int, right: int, delta: float = DELTA, chance: float = 0.05) -> float:
    """The largest epsilon, in hundredths, that is refuted by so many right guesses, but for a small chance; 0: none."""

    def likely(epsilon: float) -> float:
        law = binom(guesses, 1 / (1 + np.exp(-epsilon)))
        each = np.arange(1, right + 1)
        below = (law.cdf(right - 1) - law.cdf(right - 1 - each)) / each
        return float(law.sf(right - 1) + 2 * canaries * delta * below.max(initial=0))

    return max((e for e in np.arange(0.01, 9, 0.01) if likely(e) <= chance), default=0.0)


def audited(moved: torch.Tensor, there: torch.Tensor, guesses: int) -> float:
    """The lower bound from how far each canary went, and whether it was in."""
    order = moved.argsort()
    out, in_ = order[: guesses // 2], order[-(guesses // 2) :]
    right = int((~there[out]).sum() + there[in_].sum())
    return lower_bound(len(there), len(out) + len(in_), right)


def coins(canaries: int, seed: int) -> torch.Tensor:
    return fs.rng.uniform(fs.rng.key(seed, "coin"), (canaries,)) < 0.5


def federation(there: torch.Tensor, clients: bool) -> Federation:
    """Canaries as rows of class 0 along axes of their own: a client each, or all of one client, which has more."""
    m = len(there)
    x = torch.cat([FAR * torch.eye(m), torch.full((20, m), 0.01)])
    y = [0] * m + [0, 1] * 10
    owner = [k if clients else m for k in range(m)] + [m] * 20
    owner = [k if i >= m or there[i] else -1 for i, k in enumerate(owner)]
    data = fs.from_arrays(x.numpy(), np.array(y), x[-4:].numpy(), np.array(y[-4:]))
    if not clients:
        owner = [min(k, 0) for k in owner]
    return fs.federate(data, Owners(tuple(owner)), clients=m + 1 if clients else 1)


def attacked(dp: str, canaries: int, guesses: int, seed: int = 0, **options: Any) -> tuple[float, float]:
    """(lower bound, epsilon of the accountant) of one run."""
    there = coins(canaries, seed)
    fed, of_clients = federation(there, dp == "client"), dp == "client"
    method = fs.methods.fedavg().with_(weighting=fs.weightings.Uniform())
    slots: dict[str, Any] = {"selector": fs.selectors.Poisson()} if of_clients else {}
    slots |= {} if of_clients else {"sampler": fs.samplers.PoissonBatches()}
    size = 0 if of_clients else int(fed.sizes[0]) // 2
    method = replace(method, **slots, pace=fs.paces.Fixed(epochs=1, lr=0.01, batch_size=size))
    still = replace(method, pace=fs.paces.Fixed(epochs=1, lr=1e-30, batch_size=0))
    asked = {"cohort": int(fed.has_rows.sum()), "seed": seed, "engine": "batched", "dp": dp, "dp_delta": DELTA}
    result = go(fed, method, rounds=4, **asked, dp_clip=1e-3 if of_clients else 1.0, **options)
    begun = go(fed, still, rounds=1, cohort=1, seed=seed).params
    name = next(n for n, p in begun.items() if p.dim() == 2)
    moved = result.params[name] - begun[name]
    return audited(moved[0] - moved[1], there, guesses), result.rounds[-1]["epsilon"]


@pytest.mark.parametrize("dp", ["client", pytest.param("example", marks=pytest.mark.thorough)])
def test_canaries_stay_below_epsilon_by_the_noise_alone(dp: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is a third of epsilon. A fifth of the noise that the accountant knows is found out."""
    low, high = attacked(dp, canaries=1000, guesses=200, dp_noise=2.5)
    assert 0.3 < low < high
    monkeypatch.setattr(noise.Noise, "_epsilon", lambda *_: high)
    monkeypatch.setattr(noise.Noise, "multiplier", 0.5)
    assert attacked(dp, canaries=1000, guesses=400, dp_noise=2.5)[0] > high


@pytest.mark.slow
@pytest.mark.parametrize("dp", ["client", "example"])
def test_canaries_of_several_runs_stay_below_epsilon(dp: str) -> None:
    found = [attacked(dp, canaries=2000, guesses=300, seed=seed, dp_noise=2.0) for seed in range(10)]
    assert all(0 < low < high for low, high in found)


def test_the_bound_is_that_of_guesses_that_are_all_right() -> None:
    """Without delta: (e^eps / (1 + e^eps))^r = 0.05. Guesses that are right half of the time show nothing."""
    assert lower_bound(100, 100, 100, delta=0) == pytest.approx(-np.log(0.05 ** (-1 / 100) - 1), abs=0.011)
    assert lower_bound(100, 100, 50) == 0
