"""Label histograms with differential privacy: each client tells its own once, with noise from the discrete Laplace law.

Noise is drawn from whole numbers, without a rounded logarithm: the bits of floating-point noise tell what it hides.

Sources: Ghosh et al. 2009, Universally utility-maximizing privacy mechanisms (the geometric mechanism),
https://arxiv.org/abs/0811.2841; Canonne, Kamath and Steinke 2020, algorithms 1 and 2, https://arxiv.org/abs/2004.00010;
Mironov 2012 on floating-point noise, https://doi.org/10.1145/2382196.2382264
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

import torch
from torch import Tensor

from fedskew import rng

Draw = Callable[[int], bytes]  # so many random bytes


def below(n: int, draw: Draw) -> int:
    """A whole number from 0 to n - 1, each as likely."""
    bits = (n - 1).bit_length()
    while True:
        drawn = int.from_bytes(draw(bits // 8 + 1)) & ((1 << bits) - 1)
        if drawn < n:
            return drawn


def happens(n: int, d: int, draw: Draw) -> bool:
    """True with probability exp(-n / d), 0 <= n <= d."""
    k = 1
    while below(d * k, draw) < n:
        k += 1
    return k % 2 == 1


def discrete_laplace(epsilon: Fraction, draw: Draw) -> int:
    """A whole number z with P(z) = (1 - a) / (1 + a) a^|z|, a = exp(-epsilon), exactly.

    Args:
        epsilon: Inverse of the scale, positive.
        draw: Gives independent uniform bytes.

    Example:
        >>> from fedskew import rng
        >>> draw = rng.generator(0).bytes
        >>> [discrete_laplace(Fraction("0.5"), draw) for _ in range(8)]
        [0, -4, -1, 1, 1, -1, -1, 2]
    """
    s, t = epsilon.as_integer_ratio()
    while True:
        u = below(t, draw)
        if not happens(u, t, draw):
            continue
        v = 0
        while happens(1, 1, draw):
            v += 1
        size, negative = (u + t * v) // s, below(2, draw)
        if size or not negative:  # else 0 would be drawn twice as often
            return -size if negative else size


def noisy(counts: Tensor, epsilon: float, draw: Draw) -> Tensor:
    """A client's histogram as it tells it, [C]: noise on each class, no number below 0, and at least one row in all.

    Two histograms that differ by one row give each answer with probabilities whose ratio is at most exp(epsilon).

    Args:
        counts: Rows of each class, int64 [C].
        epsilon: As it is written in decimals.
        draw: As for `discrete_laplace`.
    """
    exact = Fraction(str(epsilon))
    drawn = counts + counts.new_tensor([discrete_laplace(exact, draw) for _ in counts])
    answer = drawn.clamp(min=0)
    if not answer.any():  # which is learnt from the noisy numbers alone
        answer[drawn.argmax()] = 1
    return answer


@dataclass(eq=False)
class Release:
    """What clients tell of their histograms: each one drawn once, then kept for the run.

    In simulation noise follows from the run's seed: it shows what the mechanism costs, and protects nothing.
    """

    epsilon: float
    seed: int
    mechanism: ClassVar[str] = "discrete Laplace, for one row more or less"  # the noise, and what epsilon protects
    released: dict[int, Tensor] = field(default_factory=dict)

    def __call__(self, counts: Tensor) -> Tensor:
        """The histograms told, int64 [N, C], in the place of ``counts``; a client without rows tells nothing."""
        return torch.stack([self._of_client(k, row) if row.any() else row for k, row in enumerate(counts)])

    def _of_client(self, k: int, histogram: Tensor) -> Tensor:
        if k not in self.released:
            draws = rng.generator(rng.key(self.seed, 0, k, "histogram"))
            self.released[k] = noisy(histogram, self.epsilon, draws.bytes)
        return self.released[k]
