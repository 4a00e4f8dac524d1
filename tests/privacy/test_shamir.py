"""Shares of a secret: examples by hand, and by enumeration that too few of them say nothing."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product

import pytest

from fedskew.privacy.shamir import PRIME, basis, recover, split

SMALL = 7


def test_an_example_by_hand() -> None:
    """f(x) = 5 + 3 x + 2 x^2 modulo 11."""
    shares = split(5, [3, 2], points=(1, 2, 3, 4), prime=11)
    assert shares == {1: 10, 2: 8, 3: 10, 4: 5}
    weights = basis((1, 2, 4), prime=11)
    assert weights == {1: 10, 2: 9, 4: 4}  # 8/3, -2 and 1/3 modulo 11
    assert recover(shares, weights, prime=11) == 5


@pytest.mark.parametrize("threshold", [2, 3, 4])
def test_any_t_shares_give_the_secret(threshold: int) -> None:
    secret = 2**256 - 12345
    shares = split(secret, [PRIME - 1 - i for i in range(threshold - 1)], points=range(1, 6))
    for points in combinations(shares, threshold):
        assert recover(shares, basis(points)) == secret
    few = tuple(shares)[: threshold - 1]
    assert recover(shares, basis(few)) != secret


@pytest.mark.parametrize("threshold", [2, 3])
def test_fewer_shares_are_uniform_whatever_the_secret(threshold: int) -> None:
    """Over all coefficients, each tuple of t - 1 shares occurs equally often; t shares name the secret."""
    for points in combinations(range(1, SMALL), threshold - 1):
        for secret in range(SMALL):
            tapes = product(range(SMALL), repeat=threshold - 1)
            seen = Counter(tuple(split(secret, tape, points, SMALL).values()) for tape in tapes)
            assert len(seen) == SMALL ** (threshold - 1) and set(seen.values()) == {1}
    tapes = list(product(range(SMALL), repeat=threshold - 1))
    whole = [{tuple(split(s, tape, range(1, threshold + 1), SMALL).values()) for tape in tapes} for s in range(SMALL)]
    assert not set.intersection(*whole)


def test_the_field_is_a_field() -> None:
    """Miller and Rabin's test with twelve bases."""
    odd, twos = PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        powers = [pow(base, odd * 2**i, PRIME) for i in range(twos)]
        assert powers[0] == 1 or PRIME - 1 in powers
    assert PRIME > 2**256 and PRIME.bit_length() == 257
