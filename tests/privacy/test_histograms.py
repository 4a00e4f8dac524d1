"""Noise on label histograms: its law, and the epsilon that it gives."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import pytest
import torch

from fedskew import rng
from fedskew.privacy import histograms
from fedskew.privacy.histograms import Release, below, discrete_laplace, happens, noisy

SURE = 45.1  # the 1e-5 point of chi-square with 11 degrees of freedom, as that of 12 outcomes


def law(epsilon: float, z: int) -> float:
    a = math.exp(-epsilon)
    return (1 - a) / (1 + a) * a ** abs(z)


class Open(Exception):
    """A script of draws has ended before its function has."""


def outcomes(run: Callable[[], Any], most: int, patch: pytest.MonkeyPatch) -> tuple[dict[Any, Fraction], Fraction]:
    """(chance of each outcome within ``most`` draws of `below`, chance of the rest), over all numbers drawn."""
    found: dict[Any, Fraction] = defaultdict(Fraction)
    scripts: list[tuple[list[int], Fraction]] = [([], Fraction(1))]
    rest = Fraction(0)
    while scripts:
        drawn, chance = scripts.pop()
        left, limits = iter(drawn), []

        def scripted(n: int, _: Any, left: Iterator[int] = left, limits: list[int] = limits) -> int:
            if (value := next(left, None)) is None:
                limits.append(n)
                raise Open
            return value

        patch.setattr(histograms, "below", scripted)
        try:
            found[run()] += chance
        except Open:
            if len(drawn) == most:
                rest += chance
            else:
                scripts += [([*drawn, value], chance / limits[0]) for value in range(limits[0])]
    return found, rest


@pytest.mark.parametrize(("n", "d", "most"), [(1, 1, 6), (3, 7, 4), (0, 5, 2)])
def test_the_exponential_coin_is_exact(n: int, d: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found, rest = outcomes(lambda: happens(n, d, rng.generator(0).bytes), most, monkeypatch)
    assert found[True] <= math.exp(-n / d) <= found[True] + rest + Fraction(1, 10**15) and rest < Fraction(1, 100)


@pytest.mark.parametrize(("epsilon", "most"), [("1", 11), ("2", 13), ("1/2", 11)])
def test_noise_is_exact(epsilon: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all draws up to a depth: each chance is that of the law, but for draws that go on."""
    found, rest = outcomes(lambda: discrete_laplace(Fraction(epsilon), rng.generator(0).bytes), most, monkeypatch)
    assert rest < Fraction(2, 5) and found[0] > Fraction(1, 5)
    for z, p in found.items():
        assert p <= law(float(Fraction(epsilon)), z) + 1e-12 <= p + rest + 2e-12


def test_whole_numbers_are_uniform() -> None:
    draw = rng.generator(2).bytes
    counts = Counter(below(12, draw) for _ in range(3000))
    assert len(counts) == 12 and sum((n - 250) ** 2 / 250 for n in counts.values()) < SURE
    assert {below(1, draw) for _ in range(9)} == {0}
    assert max(below(10**30, draw) for _ in range(99)) > 10**29


def told(own: list[int], epsilon: float, far: int, patch: pytest.MonkeyPatch) -> dict[tuple[int, ...], float]:
    """The chance of each answer of a client, by its noise on each class up to ``far``; what is below is its end."""

    def chance(z: int) -> float:
        return law(epsilon, z) / (1 - math.exp(-epsilon)) if z == -far else law(epsilon, z)

    chances: dict[tuple[int, ...], float] = defaultdict(float)
    for zs in itertools.product(range(-far, far + 1), repeat=len(own)):
        drawn = iter(zs)
        patch.setattr(histograms, "discrete_laplace", lambda exact, draw, drawn=drawn: next(drawn))
        answer = noisy(torch.tensor(own), epsilon, lambda size: b"")
        chances[tuple(answer.tolist())] += math.prod(map(chance, zs))
    return chances


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_epsilon_holds_for_all_answers_of_neighbouring_histograms(
    epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row more of any class; the bound is reached, and for another label of one row it is twice epsilon."""
    far, worst, twice = 9, 0.0, 0.0
    start = told([1, 0], epsilon, far, monkeypatch)
    whole = {answer: p for answer, p in start.items() if max(answer) <= far - 2}  # no noise beyond `far` gives these
    beyond = 4 * math.exp(-epsilon * far)  # of answers without a row, of which the class depends on what is below
    for other in ([2, 0], [1, 1], [0, 0], [0, 1]):
        theirs = told(other, epsilon, far, monkeypatch)
        ratio = max(abs(math.log(p / theirs[answer])) for answer, p in whole.items())
        worst, twice = (worst, ratio) if other == [0, 1] else (max(worst, ratio), twice)
    assert epsilon - 1e-9 <= worst <= epsilon + beyond
    assert epsilon < twice <= 2 * epsilon + beyond


def test_what_is_told_is_a_histogram_with_a_row() -> None:
    for seed in range(40):
        answer = noisy(torch.tensor([0, 1, 0]), 0.2, rng.generator(seed).bytes)
        assert answer.dtype == torch.int64 and answer.min() >= 0 and answer.sum() >= 1


def test_each_client_tells_once_and_one_without_rows_nothing() -> None:
    counts = torch.tensor([[5, 0, 9], [0, 0, 0], [5, 0, 9]])
    release = Release(0.5, 3)
    first = release(counts)
    assert torch.equal(release(counts), first) and not first[1].any()
    assert torch.equal(release(counts + 4)[[0, 2]], first[[0, 2]])  # rows that came later are not asked for
    assert not torch.equal(first[0], first[2])  # noise of its own
    assert torch.equal(Release(0.5, 3)(counts), first) and not torch.equal(Release(0.5, 4)(counts), first)
    assert torch.equal(Release(1000, 3)(counts), counts)
