"""The long tail of a partitioner, and its profiles."""

from __future__ import annotations

import numpy as np
import pytest

from fedskew.data import federate, from_arrays
from fedskew.data.partitioners import (
    Dirichlet,
    Iid,
    LongTail,
    Natural,
    Shards,
)
from fedskew.data.partitioners.layered import long_tail
from fedskew.errors import ConfigError
from support.labels import BALANCED, MIXED, SITES, content


@pytest.mark.parametrize("base", [Dirichlet(0.3), Shards(), Iid(sizes="power"), Natural()], ids=repr)
@pytest.mark.parametrize("profile", ["exp", "step"])
def test_the_long_tail_of_a_convention_is_the_long_tail_of_the_federation(base, profile):
    data = from_arrays(np.zeros((len(MIXED), 1)), MIXED, np.zeros((2, 1)), [0, 9], columns=SITES)
    one = federate(data, LongTail(base, 6.0, profile), clients=7, seed=4)
    two = federate(data, base, clients=7, seed=4, longtail=6.0, longtail_profile=profile)
    assert content(one.partition) == content(two.partition)
    assert one.counts.sum(0).tolist() == long_tail(np.bincount(MIXED), 6.0, profile).tolist()


def test_the_profiles():
    assert long_tail(np.full(5, 100), 10, "step").tolist() == [100, 100, 100, 10, 10]
    assert long_tail(np.full(3, 100), 100).tolist() == [100, 10, 1]
    with pytest.raises(ConfigError, match=r"longtail must leave a row of each class; got 300.0; use at most 200"):
        LongTail(factor=300.0).split(BALANCED, 5, 0)
    with pytest.raises(ConfigError, match="two classes at least"):
        LongTail().split([0, 0, 0], 2, 0)


def test_natural_clients_survive_the_long_tail_even_empty():
    site = np.where(MIXED == 9, 3, np.arange(len(MIXED)) % 3)  # the fourth site has only the last class
    parts = LongTail(Natural(), 200.0).split(
        np.repeat(np.arange(10), 200), 4, 0, {"site": np.repeat([0, 1, 2, 3], 500)}
    )
    assert parts.clients == 4
    whole = Natural().split(MIXED, 4, 0, {"site": site})
    thin = LongTail(Natural(), 20.0).split(MIXED, 4, 0, {"site": site})
    assert all(set(thin.of(k)) <= set(whole.of(k)) for k in range(4)) and 0 < len(thin.of(3)) < len(whole.of(3))
    assert LongTail(Natural()).decides and LongTail(Natural()).count({"site": site}) == 4 and not LongTail().decides
