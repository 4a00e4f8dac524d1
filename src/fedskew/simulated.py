"""Secure sums in simulation: the keys of all clients follow from the seed of the run, and protect nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedskew import rng
from fedskew.errors import TrainingError
from fedskew.privacy.simulation import secure_sum
from fedskew.sums import Addend, Adder, Sum, demand_room, encoding_of, listed
from fedskew.types import Tree


def absent(place: tuple[int | str, ...], clients: Sequence[int]) -> dict[int, str]:
    """Clients that drop out of a sum, and the phase in which they do: none, unless a test says so."""
    return {}


@dataclass(eq=False, kw_only=True)
class Simulated(Adder):
    """Runs the protocol in this process."""

    seed: int

    def added(self, addend: Addend, given: Tree, clients: Sequence[int], least: int, *place: int | str) -> Sum:
        """As `Adder.added`, of what the clients add."""
        encoding, sent = encoding_of(len(clients)), {k: addend(k) for k in clients}
        for k, summand in sent.items():
            demand_room(summand, encoding.range, k, *place)
        key, drops = rng.key(self.seed, *place), absent(place, clients)
        each = {k: listed(summand) for k, summand in sent.items()}
        try:
            done = secure_sum(each, threshold=least, encoding=encoding, key=key, drops=drops)
        except TrainingError as error:
            raise TrainingError(f"{error}, in round {place[0]}") from error
        return done.total, done.survivors, (sum(done.bytes_up.values()), sum(done.bytes_down.values()))
