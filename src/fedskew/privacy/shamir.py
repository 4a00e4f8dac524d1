"""Shamir's sharing of a secret: any t shares give it back, and fewer say nothing about it.

    f(x) = secret + a_1 x + ... + a_{t-1} x^{t-1}  modulo a prime,   share i = f(i)

Source: Shamir 1979, How to share a secret (CACM 22(11)), https://doi.org/10.1145/359168.359176
"""

from collections.abc import Iterable, Mapping, Sequence

PRIME = 2**256 + 297  # the smallest above 2^256: a secret has 256 bits


def split(secret: int, coefficients: Sequence[int], points: Iterable[int], prime: int = PRIME) -> dict[int, int]:
    """The share of each point.

    Args:
        secret: What is shared, in [0, prime).
        coefficients: a_1 to a_{t-1}, drawn uniformly from [0, prime).
        points: Different numbers that are not 0 modulo the prime.
        prime: Size of the field.

    Returns:
        f(x) by point x.

    Example:
        >>> split(5, [3], points=(1, 2, 3), prime=11)  # 5 + 3 x modulo 11
        {1: 8, 2: 0, 3: 3}
    """
    shares = {}
    for x in points:
        value = 0
        for a in (*reversed(coefficients), secret):
            value = (value * x + a) % prime
        shares[x] = value
    return shares


def basis(points: Sequence[int], prime: int = PRIME) -> dict[int, int]:
    """The weight of each point's share in the secret.

        l_i = prod_{j != i} x_j / (x_j - x_i)  modulo the prime

    Args:
        points: t different numbers that are not 0 modulo the prime.
        prime: Size of the field.

    Returns:
        l by point.

    Example:
        >>> basis((1, 3), prime=11)  # 3 / 2 and 1 / -2
        {1: 7, 3: 5}
    """
    weights = {}
    for x in points:
        above = below = 1
        for other in points:
            if other != x:
                above, below = above * other % prime, below * (other - x) % prime
        weights[x] = above * pow(below, -1, prime) % prime
    return weights


def recover(shares: Mapping[int, int], weights: Mapping[int, int], prime: int = PRIME) -> int:
    """The secret of t shares: sum_i l_i f(i) modulo the prime.

    Args:
        shares: Shares by point, those of the weights among them.
        weights: l by point, see `basis`.
        prime: Size of the field.

    Returns:
        The secret, or with a wrong share another number of the field.

    Example:
        >>> recover({1: 8, 3: 3}, basis((1, 3), prime=11), prime=11)
        5
    """
    return sum(shares[x] * weight for x, weight in weights.items()) % prime
