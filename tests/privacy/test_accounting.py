"""Epsilons agree with those of a second accountant."""

from __future__ import annotations

import math
import sys
import warnings
from typing import Any

import mpmath
import pytest

from fedskew.errors import DataError
from fedskew.privacy.accounting import Mechanism, noise_for, worst

SETTINGS = [  # records, of which how many are drawn, noise, releases, delta
    (100, 10, 1.0, 100, 1e-5), (100, 10, 3.0, 100, 1e-5), (1000, 10, 0.8, 500, 1e-5), (1000, 50, 1.2, 200, 1e-6),
    (50, 5, 2.0, 30, 1e-4), (20, 10, 4.0, 50, 1e-3), (64, 32, 8.0, 20, 1e-5), (10_000, 100, 0.6, 1000, 1e-6),
    (500, 64, 1.5, 300, 1e-5), (300, 3, 0.5, 100, 1e-4),
]  # fmt: skip
CASES = [*SETTINGS[1:3], *(pytest.param(case, marks=pytest.mark.thorough) for case in (*SETTINGS[:1], *SETTINGS[3:]))]


@pytest.mark.parametrize("setting", CASES)
def test_poisson_samples_as_opacus_has_them(setting: tuple[int, int, float, int, float]) -> None:
    """Its accountant composes privacy random variables, and errs by 1 % at most."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that it imports
        from opacus.accountants.analysis.prv import PoissonSubsampledGaussianPRV
        from opacus.accountants.prv import PRVAccountant
    records, drawn, noise, times, delta = setting
    assert PoissonSubsampledGaussianPRV
    other = PRVAccountant()
    other.history = [(noise, drawn / records, times)]
    own = Mechanism("poisson", drawn, records, noise).epsilon(times, delta)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert own == pytest.approx(other.get_epsilon(delta, eps_error=own / 400, delta_error=delta / 1000), rel=0.01)


def theorem(share: float, noise: float, orders: int) -> list[Any]:
    """(alpha - 1) times the divergence of order alpha from 2 on: Wang et al. 2019, theorem 27, in 400 digits."""
    with mpmath.workdps(400):
        grown = [mpmath.exp(mpmath.mpf(i * (i - 1)) / (2 * noise**2)) for i in range(orders + 2)]
        signs = lambda n: mpmath.fsum((-1) ** (n - i) * mpmath.binomial(n, i) * grown[i] for i in range(n + 1))
        even = {n: signs(n) for n in range(2, orders + 2, 2)}
        first = mpmath.exp(1 / mpmath.mpf(noise) ** 2)
        terms = [min(4 * (first - 1), 2 * first)]
        for j in range(3, orders + 1):
            terms.append(min(4 * mpmath.sqrt(even[j // 2 * 2] * even[(j + 1) // 2 * 2]), 2 * grown[j]))
        weighed = lambda a: (mpmath.mpf(share) ** j * mpmath.binomial(a, j) * terms[j - 2] for j in range(2, a + 1))
        return [mpmath.log(1 + mpmath.fsum(weighed(a))) for a in range(2, orders + 1)]


@pytest.mark.parametrize("setting", CASES)
def test_samples_of_a_fixed_size_as_their_theorem_has_them(setting: tuple[int, int, float, int, float]) -> None:
    records, drawn, noise, times, delta = setting
    noise = 4 * noise
    own = Mechanism("fixed", drawn, records, noise).epsilon(times, delta)
    spent = enumerate(theorem(drawn / records, noise / 2, 64), 2)
    of = [times * float(d) / (a - 1) + math.log1p(-1 / a) - math.log(delta * a) / (a - 1) for a, d in spent]
    assert own == pytest.approx(min(of), rel=0.01)


def test_one_release_of_all_records_is_the_gaussian_mechanism() -> None:
    """Balle and Wang 2018, theorem 8."""
    phi = lambda x: (1 + math.erf(x / math.sqrt(2))) / 2
    own = Mechanism("poisson", 5, 5, 2.0).epsilon(1, 1e-5)
    at = lambda e: phi(0.25 - 2 * e) - math.exp(e) * phi(-0.25 - 2 * e)
    assert at(own) <= 1e-5 < at(own - 0.002)


def test_more_costs_more() -> None:
    one = Mechanism("poisson", 10, 100, 1.0)
    assert one.epsilon(0, 1e-5) == 0 < one.epsilon(1, 1e-5) < one.epsilon(9, 1e-5)
    assert one._replace(noise=2.0).epsilon(9, 1e-5) < one.epsilon(9, 1e-5) < one._replace(drawn=20).epsilon(9, 1e-5)
    spent = [(one, 9), (one._replace(drawn=5), 30), (one._replace(drawn=2), 3)]
    assert worst(spent, 1e-5) == max(mechanism.epsilon(times, 1e-5) for mechanism, times in spent)


def test_the_noise_for_an_epsilon_is_the_least() -> None:
    of = lambda noise: Mechanism("poisson", 10, 100, noise).epsilon(50, 1e-5)
    found = noise_for(2.0, of)
    assert of(found) <= 2.0 < of(found * 0.997)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("dp_accounting", "dp_accounting.pld"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(DataError, match=r"an epsilon needs the extra dp: pip install"):
        Mechanism("poisson", 1, 2, 1.0).epsilon(1, 1e-5)
