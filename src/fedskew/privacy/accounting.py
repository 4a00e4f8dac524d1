"""Epsilon of Gaussian noise on sums of clipped terms, which are taken again and again of samples of the records.

A record is a client, or a row of a client. The accountants are those of the package ``dp-accounting``, which the extra
``dp`` brings and which is imported when epsilon is asked for.
"""

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from fedskew.errors import of_extra

STEP = 5e-4  # of the grid of privacy losses; finer for small samples, coarser for little noise
DIGITS = 4  # after the point of an epsilon, which is rounded up
LEAST = 0.1  # noise that is looked for
NEAR = 1e-3  # by which noise that is looked for may be too large, relatively


class Mechanism(NamedTuple):
    """One release: the sum of the terms of a sample, each clipped to a norm S, and Gaussian noise.

    poisson: each record is in the sample with probability ``drawn / records``. A neighbour has one record more or
    less, which changes the sum by at most S.
    fixed: ``drawn`` of the records are, without replacement. A neighbour has another record in the place of one, which
    changes the sum by at most 2 S.
    """

    sampling: Literal["poisson", "fixed"]
    drawn: int
    records: int
    noise: float
    """standard deviation of the noise in units of S"""

    @lru_cache(1024)  # noqa: B019  # of a few numbers; a summary asks for what the last round asked for
    def epsilon(self, times: int, delta: float) -> float:
        """The least epsilon that is shown for so many releases together, rounded up; infinity where none is.

        poisson: privacy loss distributions, pessimistic estimate, of adding and of removing a record.
        fixed: Renyi differential privacy.

        Source: Koskela et al. 2020, https://arxiv.org/abs/1906.03049; Wang et al. 2019, theorem 9,
        https://arxiv.org/abs/1808.00087

        Raises:
            DataError: The extra ``dp`` is not installed.
        """
        if not times:
            return 0.0
        if self.sampling == "poisson":
            epsilon = self._losses().self_compose(times).get_epsilon_for_delta(delta)
        else:
            dp = of_extra("dp", "dp_accounting", "an epsilon")
            accountant = _of("rdp").RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
            changed = dp.GaussianDpEvent(self.noise / 2)  # in units of 2 S
            event = dp.SampledWithoutReplacementDpEvent(self.records, self.drawn, changed)
            epsilon = accountant.compose(event, times).get_epsilon(delta)
        return math.ceil(epsilon * 10**DIGITS) / 10**DIGITS if math.isfinite(epsilon) else math.inf

    @lru_cache(16)  # noqa: B019  # of a few numbers; each round of a run composes it once more
    def _losses(self) -> Any:
        """Privacy losses of one release, under ``poisson``."""
        share = min(1.0, self.drawn / self.records)
        step = STEP * max(1.0, self.noise**-2) * min(max(10 * share, 0.1), 1.0)
        law = _of("pld").privacy_loss_distribution
        return law.from_gaussian_mechanism(self.noise, value_discretization_interval=step, sampling_prob=share)


def _of(module: str) -> Any:
    return of_extra("dp", f"dp_accounting.{module}", "an epsilon")


def worst(spent: Iterable[tuple[Mechanism, int]], delta: float) -> float:
    """The largest epsilon of several mechanisms, each of records of its own, with the times that each was used.

    Epsilon is computed only where another one has neither a larger share of its records nor more uses.
    """
    most, largest = 0, 0.0
    for mechanism, times in sorted(set(spent), key=lambda pair: (-pair[0].drawn / pair[0].records, -pair[1])):
        if times > most:
            most, largest = times, max(largest, mechanism.epsilon(times, delta))
    return largest


def noise_for(target: float, epsilon: Callable[[float], float]) -> float:
    """The least noise, to a thousandth, under which ``epsilon`` of it is at most the target."""
    low, high = LEAST, 1.0
    while epsilon(high) > target:
        low, high = high, 2 * high
    while high - low > NEAR * high:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if epsilon(middle) <= target else (middle, high)
    return high
